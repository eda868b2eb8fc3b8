"""Codex rules, as policies. The files are a programming language; only what is data in it is read."""

from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.policy.importers.codex import import_codex
from tests.each import each
from tests.policy.import_support import rules, verdict


def test_a_whole_rules_file_becomes_a_policy_with_its_examples() -> None:
    text = (Path(__file__).parent / "imports" / "default.rules").read_text()

    imported = import_codex(text)

    assert imported.document == {
        "version": 1,
        "default": "risk",
        "rules": [
            {
                "id": "codex-ask-1",
                "decision": "ask",
                "tools": "bash",
                "command": "gh pr view",
                "reason": "Viewing PRs is allowed with approval",
                "matches": [
                    {"tool": "bash", "command": "gh pr view 7888"},
                    {"tool": "bash", "command": "gh pr view --json title,body"},
                ],
                "does_not_match": [{"tool": "bash", "command": "gh issue list"}],
            },
            {
                "id": "codex-allow-2",
                "decision": "allow",
                "tools": "bash",
                "command": ["git status", "git diff"],
                "reason": "Imported from Codex: line 9, prefix_rule",
                "matches": [{"tool": "bash", "command": "git status -s"}],
                "does_not_match": [{"tool": "bash", "command": "git push"}],
            },
            {
                "id": "codex-deny-3",
                "decision": "deny",
                "tools": "bash",
                "command": "rm -rf",
                "reason": "Use git clean -n first.",
                "message": "Use git clean -n first.",
            },
            {
                "id": "codex-deny-5",
                "decision": "deny",
                "tools": "*",
                "host": "evil.example",
                "reason": "Imported from Codex: line 12, network_rule",
            },
        ],
    }
    assert imported.notes == (
        "line 2, prefix_rule: 1 of the not_match examples left out: "
        "commands are found in other spellings, too, when they are refused or asked",
        "line 11, host_executable: 'git', left out: an allow means the bare name and no path, "
        "and what refuses or asks means every path to it",
        "line 12, network_rule: the protocol cannot be said; the rule is about every use of evil.example",
    )


@each(
    ("text", "expected"),
    [
        ('prefix_rule(["ls"])', [{"decision": "allow", "tools": "bash", "command": "ls"}]),
        ('prefix_rule(["ls"], "prompt")', [{"decision": "ask", "tools": "bash", "command": "ls"}]),
        (
            'prefix_rule(pattern=["git", ["push", "pull"], "-f"], decision="forbidden")',
            [{"decision": "deny", "tools": "bash", "command": ["git push -f", "git pull -f"]}],
        ),
        ('prefix_rule(["echo", "a b"])', [{"decision": "allow", "tools": "bash", "command": "echo 'a b'"}]),
        ('prefix_rule(["echo", r"a\\d"])', [{"decision": "allow", "tools": "bash", "command": r"echo 'a\d'"}]),
        ('prefix_rule(["/bin/rm"], "forbidden")', [{"decision": "deny", "tools": "bash", "command": "rm"}]),
        ('prefix_rule([""], "forbidden")', [{"decision": "deny", "tools": "bash"}]),
        ('prefix_rule(["git", "add", "*"])', []),
        ('prefix_rule(["A=1", "x"])', []),
        ('network_rule("a.example", "https", "allow")', []),
        ('network_rule("[::1]:80", "http", "prompt")', [{"decision": "ask", "tools": "*", "host": "::1"}]),
        (
            'network_rule("a.example:443", "https", "forbidden")',
            [{"decision": "deny", "tools": "*", "host": "a.example"}],
        ),
        ("# nothing but a comment\n", []),
    ],
)
def test_each_call_becomes_a_rule_or_nothing(text: str, expected: list[dict[str, Any]]) -> None:
    assert rules(import_codex(text)) == expected


def test_a_rule_that_cannot_be_said_leaves_a_note() -> None:
    for text in ('prefix_rule(["git", "add", "*"])', 'network_rule("a.example", "https", "allow")'):
        assert "left out" in import_codex(text).notes[0]


def test_examples_that_do_not_hold_here_are_left_out_with_a_note() -> None:
    text = 'prefix_rule(["git", "status"], "allow", match=["/usr/bin/git status", "git status -s"])'

    imported = import_codex(text)

    assert rules(imported)[0]["matches"] == [{"tool": "bash", "command": "git status -s"}]
    assert imported.notes == (
        "line 1, prefix_rule: 1 of the match examples left out: "
        "a program is allowed by the exact words of the rule alone",
    )


def test_too_many_alternatives_refuse_more_and_allow_nothing() -> None:
    pattern = '["x"' + ', ["a", "b", "c", "d"]' * 40 + "]"

    refused = import_codex(f'prefix_rule({pattern}, "forbidden")')
    allowed = import_codex(f"prefix_rule({pattern})")

    assert len(rules(refused)[0]["command"]) == 1024
    assert verdict(refused, "bash", command="x a a a a a a a") == "deny"
    assert rules(allowed) == []
    assert "too many combinations" in allowed.notes[0]
    with pytest.raises(ConfigurationError, match=r"line 20: more than 20,000 commands"):
        import_codex(f'prefix_rule({pattern}, "forbidden")\n' * 30)


@each(
    ("text", "reason"),
    [
        ('x = "ls"', "line 1: 'x' cannot stand here"),
        ("__import__('os').system('id')", "'__import__' cannot stand here"),
        ('prefix_rule(pattern=[c for c in "ab"])', "'c' cannot stand here"),
        ('prefix_rule(["ls"].copy())', "'.' cannot stand here"),
        ('prefix_rule(["ls"] + ["x"])', "'+' cannot stand here"),
        ('prefix_rule(*["ls"])', "'*' cannot stand here"),
        ('prefix_rule(**{"pattern": 1})', "'**' cannot stand here"),
        ('load("x.star", "y")', "'load' cannot stand here"),
        ("def f():\n    pass", "'def' cannot stand here"),
        ("if True:\n  prefix_rule(['ls'])", "'if' cannot stand here"),
        ("lambda: 0", "'lambda' cannot stand here"),
        ('prefix_rule(["ls"])\nprefix_rule([f"{1}"])', "line 2:"),
        ('prefix_rule([b"ls"])', "cannot stand here"),
        ('prefix_rule(["\\d"])', "invalid escape sequence"),
        ('prefix_rule(["ls"]', "line 1"),
        ('prefix_rule(["ls\n"])', "line 1"),
        ("prefix_rule(prefix_rule(['ls']))", "only texts and lists"),
        ("prefix_rule(('ls', 'x'))", "only texts and lists"),
        ("pattern(['ls'])", "a rules file has only"),
        ("prefix_rule", "a rules file has only"),
        ("match = ['ls']", "a rules file has only"),
        ("prefix_rule()", "needs pattern"),
        ("prefix_rule([])", "pattern is a list"),
        ("prefix_rule([[]])", "not an empty one"),
        ("prefix_rule('ls')", "pattern is a list"),
        ("prefix_rule(['ls'], host='x')", "no argument host"),
        ("prefix_rule(['ls'], pattern=['x'])", "no argument pattern, or has it already"),
        ("host_executable('git', ['/git'], 'x')", "takes at most 2 arguments"),
        ("prefix_rule(['ls'], 'permit')", "decision is one of allow, prompt, forbidden, not 'permit'"),
        ("prefix_rule(['ls'], justification=' ')", "justification is a text, and not an empty one"),
        ("prefix_rule(['ls'], match=['a \"b'])", "No closing quotation"),
        ("prefix_rule(['ls'], match=[''])", "empty command"),
        ("network_rule('*.example', 'https', 'deny')", "without wildcards"),
        ("network_rule('a.example', 'ftp', 'deny')", "protocol is one of"),
        ("prefix_rule(['\\ud800'])", "lone surrogate"),
        ("prefix_rule(" + "[" * 50 + "]" * 50 + ")", "nested deeper than 8 levels"),
        ("-" * 100_000 + "1", "'-' cannot stand here"),
        ("prefix_rule" + ".x" * 100_000, "'.' cannot stand here"),
        ("prefix_rule(['a\0b'])", "Codex, line 1"),
        (f"prefix_rule(['{'a' * 5000}'])", "a text has at most 2,000 characters"),
        ("prefix_rule([" + "'a'," * 5000 + "])", "a list has at most 200 elements"),
        ("#" + "x" * (1 << 20), "more than 1,048,576 bytes"),
        ("prefix_rule(['ls'], 'prompt')\n" * 6000, "more than 5,000 rules"),
    ],
)
def test_code_and_nonsense_are_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        import_codex(text)

    assert reason in str(refused.value)
    assert str(refused.value).startswith("Codex")
