"""Gemini CLI's policy files, as policies."""

from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import PermissionMode
from interlock.policy.importers.gemini import import_gemini
from tests.each import each
from tests.policy.import_support import rules, verdict


def rule(text: str, decision: str = "deny", priority: int = 10) -> str:
    return f'[[rule]]\n{text}\ndecision = "{decision}"\npriority = {priority}\n'


def test_a_whole_policy_file_becomes_a_policy_with_notes() -> None:
    text = (Path(__file__).parent / "imports" / "policy.toml").read_text()

    imported = import_gemini(text)

    assert imported.document == {
        "version": 1,
        "default": "deny",
        "rules": [
            {
                "id": "gemini-allow-1",
                "decision": "allow",
                "tools": "bash",
                "command": ["git status", "git diff"],
                "reason": "Imported from Gemini CLI: line 1, rule 1, 'run_shell_command'",
            },
            {
                "id": "gemini-ask-2",
                "decision": "ask",
                "tools": ["write_file", "edit_file"],
                "mode": ["default", "read_only"],
                "reason": "Imported from Gemini CLI: line 7, rule 2, 'write_file', 'replace'",
            },
            {
                "id": "gemini-deny-3",
                "decision": "deny",
                "tools": "*",
                "origin": "mcp",
                "server": "untrusted-server",
                "reason": "This server is not trusted.",
                "message": "This server is not trusted.",
            },
        ],
    }
    assert imported.notes == (
        "line 19, rule 4: it stands below all other rules and is about every tool, so it is the policy's default",
    )
    assert verdict(imported, "bash", command="git status -s") == "allow"
    assert verdict(imported, "bash", command="git push") == "deny"


@each(
    ("text", "conditions"),
    [
        ('toolName = "read_file"', {"tools": "read_file"}),
        ('toolName = ["grep_search", "list_directory"]', {"tools": ["grep", "list_dir"]}),
        ('mcpName = "jira"\ntoolName = "search"', {"tools": "search", "origin": "mcp", "server": "jira"}),
        ('mcpName = "*"\ntoolName = "*"', {"tools": "*", "origin": "mcp"}),
        ('toolName = "mcp_*"', {"tools": "*", "origin": "mcp"}),
        ('toolName = "mcp_my-server_*"', {"tools": "*", "origin": "mcp", "server": "my-server"}),
        ('toolName = "server__*"', {"tools": "*", "origin": "mcp", "server": "server"}),
        ('toolName = "server__tool"', {"tools": "tool", "origin": "mcp", "server": "server"}),
        (
            'toolName = "run_shell_command"\ncommandPrefix = "git push"',
            {"tools": "bash", "command": "git push"},
        ),
        (
            'toolName = "glob"\nmodes = ["yolo", "autoEdit"]\ninteractive = false\nsubagent = "helper"',
            {"tools": "glob", "mode": ["trusted", "accept_edits"], "interactive": False, "agent": "helper"},
        ),
    ],
)
@each("decision", ["allow", "ask_user", "deny"])
def test_what_can_be_said_exactly_is_the_same_for_every_decision(
    decision: str, text: str, conditions: dict[str, Any]
) -> None:
    imported = import_gemini(rule(text, decision))

    assert rules(imported) == [{"decision": {"ask_user": "ask"}.get(decision, decision), **conditions}]
    assert imported.notes == ()


SHELL = 'toolName = "run_shell_command"\n'


@each(
    ("text", "conditions"),
    [
        (SHELL + 'commandPrefix = "git "', {"tools": "bash", "command": "git"}),
        (SHELL + 'commandPrefix = ["rm", "$X"]', {"tools": "bash"}),
        (SHELL + 'commandPrefix = "echo $HOME x"', {"tools": "bash", "command": "echo"}),
        (SHELL + 'commandPrefix = ""', {"tools": "bash"}),
        (SHELL + 'commandRegex = "git (commit|push)"', {"tools": "bash", "command": "git"}),
        (SHELL + r"commandRegex = 'git\s+reset\s+--hard'", {"tools": "bash", "command": "git reset"}),
        (SHELL + 'commandRegex = "git push"', {"tools": "bash", "command": "git"}),
        (SHELL + 'commandRegex = "git *push"', {"tools": "bash"}),
        (SHELL + 'commandRegex = "git a|rm b"', {"tools": "bash"}),
        (SHELL + 'argsPattern = \'"command":"npm run (a|b)\'', {"tools": "bash", "command": "npm run"}),
        ("toolName = \"write_file\"\nargsPattern = 'secret'", {"tools": "write_file"}),
        ('toolName = "glob"\ntoolAnnotations = { readOnlyHint = true }', {"tools": "glob"}),
        ('toolName = "glob"\nnewCondition = 1', {"tools": "glob"}),
        ('toolName = "glob"\nsubagent = "a b*"', {"tools": "glob"}),
        ('toolName = "read_many_files"', {"tools": ["read_file", "read_many_files"]}),
        ('toolName = "google_web_search"', {"tools": "google_web_search"}),
        ('toolName = "read_f*"', {"tools": ["read_file", "read_f*"]}),
        ('toolName = "mcp_*_search"', {"tools": ["search", "*_search"], "origin": "mcp"}),
        ('toolName = "mcp_a*b_c"', {"tools": "*", "origin": "mcp"}),
        (f'toolName = "mcp_{"a_" * 1000}b"', {"tools": "*", "origin": "mcp"}),
        ('mcpName = "my server"', {"tools": "*", "origin": "mcp", "server": "my?server"}),
    ],
)
@each("decision", ["ask_user", "deny"])
def test_what_refuses_or_asks_becomes_wider_with_a_note(decision: str, text: str, conditions: dict[str, Any]) -> None:
    assert rules(import_gemini(rule(text, decision))) == [
        {"decision": {"ask_user": "ask"}.get(decision, decision), **conditions}
    ]


def test_a_full_name_is_refused_however_it_is_split_and_allowed_as_it_is_documented() -> None:
    refused = import_gemini(rule('toolName = "mcp_my_server_tool"'))
    allowed = import_gemini(rule('toolName = "mcp_my_server_tool"', "allow"))

    assert [(each["server"], each["tools"]) for each in rules(refused)] == [
        ("my", "server_tool"),
        ("my_server", "tool"),
    ]
    assert [(each["server"], each["tools"]) for each in rules(allowed)] == [("my", "server_tool")]


@pytest.mark.parametrize(
    ("pattern", "command"),
    [
        ("git (status|diff)", ["git status", "git diff"]),
        ("npm run lint", "npm run lint"),
        ("npm test.*", "npm test"),
    ],
)
def test_a_simple_pattern_is_allowed_by_its_words(pattern: str, command: Any) -> None:
    imported = import_gemini(rule(SHELL + f'commandRegex = "{pattern}"', "allow"))

    assert rules(imported) == [{"decision": "allow", "tools": "bash", "command": command}]


@each(
    "text",
    [
        SHELL + 'commandPrefix = "git "',
        SHELL + 'commandPrefix = "echo $HOME"',
        SHELL + 'commandPrefix = ""',
        SHELL + "commandPrefix = []",
        SHELL + 'commandRegex = "git [a-z]+"',
        SHELL + 'commandRegex = "git status .*"',
        SHELL + 'commandRegex = "^git status"',
        "toolName = \"write_file\"\nargsPattern = 'docs'",
        'toolName = "glob"\ntoolAnnotations = { readOnlyHint = true }',
        'toolName = "glob"\nnewCondition = 1',
        'toolName = "glob"\nsubagent = "a b*"',
        'toolName = "bash"',
        'toolName = "read_*"',
        'toolName = "mcp_*_search"',
        'mcpName = "my server"',
    ],
)
def test_an_allow_that_cannot_be_said_is_left_out_with_a_note(text: str) -> None:
    imported = import_gemini(rule(text, "allow"))

    assert rules(imported) == []
    assert ["left out" in note for note in imported.notes] == [True]


def test_where_a_milder_rule_stood_above_a_stricter_one_the_stricter_decides_and_a_note_says_so() -> None:
    text = (
        rule(SHELL + 'commandPrefix = "git push"', "allow", 200)
        + rule(SHELL + 'commandPrefix = "git"', "deny", 100)
        + rule('toolName = "glob"', "allow", 300)
        + rule('mcpName = "jira"', "deny", 300)
    )

    imported = import_gemini(text)

    assert verdict(imported, "bash", command="git push origin") == "deny"
    assert imported.notes == (
        "line 1, rule 1: allow with priority 200 stands above line 6, rule 2, deny with priority 100; "
        "here the stricter one decides, whatever its priority",
    )


def test_a_question_for_every_tool_at_the_bottom_is_the_default_in_every_mode() -> None:
    imported = import_gemini(rule('toolName = "read_file"', "allow", 9) + rule('toolName = "*"', "ask_user", 1))

    assert imported.document["default"] == "ask"
    assert verdict(imported, "read_file", path="a") == "allow"
    assert verdict(imported, "glob", path="a") == "ask"
    assert verdict(imported, "glob", PermissionMode.TRUSTED, path="a") == "ask"


def test_an_allow_for_every_tool_at_the_bottom_is_left_out() -> None:
    imported = import_gemini(rule('toolName = "*"', "allow"))

    assert (imported.document["default"], rules(imported)) == ("risk", [])
    assert "left out" in imported.notes[0]


def test_a_safety_checker_becomes_a_question() -> None:
    text = '[[safety_checker]]\ntoolName = "write_file"\n[safety_checker.checker]\ntype = "in-process"\nname = "x"\n'

    imported = import_gemini(text + "[other]\na = 1\n")

    assert rules(imported) == [{"decision": "ask", "tools": "write_file"}]
    assert imported.notes == (
        "line 1, safety_checker 1: the check cannot be run here; the calls that it looks at are asked",
        "file: not known, and left out: 'other'",
    )


@each(
    ("text", "reason"),
    [
        ("[[rule]", "no TOML that can be read"),
        ("a = 1\na = 2\nb = 3", "Cannot overwrite a value (at line 2"),
        ("a = \n", "Invalid value (at line 1, column 5)"),
        ("rule = 5", "rule is a list of at most"),
        ("rule = [5]", "rule 1: a table, not 5"),
        (rule('toolName = "x"', "maybe"), "line 1, rule 1: decision is one of allow, ask_user, deny, not 'maybe'"),
        (rule('toolName = "x"', priority=1000), "priority is a whole number from 0 to 999, not 1000"),
        ('[[rule]]\ntoolName = "x"', "decision and priority must be there"),
        (rule(""), "toolName must be there"),
        (rule('toolName = ["a", ""]'), "toolName is empty"),
        (rule('mcpName = "a"\ntoolName = []'), "toolName is empty"),
        (rule("toolName = 5"), "toolName is a text or a list of texts, not 5"),
        (rule('toolName = "x"\nmodes = ["fast"]'), "modes is a list of default, autoEdit, plan, yolo"),
        (rule('toolName = "x"\ncommandPrefix = "a"'), "commandPrefix is only for toolName = 'run_shell_command'"),
        (rule(SHELL + 'commandPrefix = "a"\ncommandRegex = "b"'), "commandPrefix and commandRegex exclude each other"),
        ("a = " + "[" * 50_000, "nested too deeply"),
        ("a" + ".a" * 100_000 + " = 1", "line 1: more than 64 dots in a line"),
        ("a = " + "[" * 70 + "]" * 70, "nested deeper than 64 levels"),
        ("a = " + "1" * 5_000, "no TOML that can be read"),
        ("a = inf", "a number is not finite"),
        ("a = 1979-05-27", "a date is not JSON"),
        ("a = '" + "x" * (1 << 20) + "'", "more than 1,048,576 bytes"),
        ("[[rule]]\n" * 6_000, "rule is a list of at most 5,000 tables"),
    ],
)
def test_a_file_that_cannot_be_understood_is_refused_in_words(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        import_gemini(text)

    assert reason in str(refused.value)
    assert str(refused.value).startswith("Gemini CLI")
