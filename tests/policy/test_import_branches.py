"""Odd entries in the files of other agents: a refusal becomes no narrower, an allow no wider, and a note says what."""

import json
from typing import Any

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.policy.importers.claude import import_claude
from interlock.policy.importers.codex import import_codex
from interlock.policy.importers.gemini import import_gemini
from interlock.policy.importers.policy_draft import ImportResult, as_list
from tests.policy.import_support import rules, verdict


def claude(**permissions: Any) -> ImportResult:
    return import_claude(json.dumps({"permissions": permissions}))


def noted(imported: ImportResult, words: str) -> bool:
    return any(words in str(note) for note in imported.notes)


def test_claude_a_setting_that_is_not_known_is_left_out_with_a_note() -> None:
    imported = claude(frobnicate=["Bash"])

    assert (rules(imported), noted(imported, "frobnicate")) == ([], True)


def test_claude_an_allow_of_a_tool_that_no_server_can_have_allows_nothing() -> None:
    imported = claude(allow=["mcp__files__read.all"])

    assert (rules(imported), noted(imported, "no tool can have such a name here")) == ([], True)


@pytest.mark.parametrize(("decision", "expected"), [("deny", "deny"), ("allow", "allow")])
def test_claude_any_domain_is_the_whole_tool(decision: str, expected: str) -> None:
    imported = claude(**{decision: ["WebFetch(domain:*)"]})
    called: dict[str, Any] = {"risk": ("network",), "resources": {"url": "host"}, "url": "https://anything.example"}

    [rule] = rules(imported)
    assert "host" not in rule
    assert verdict(imported, as_list(rule["tools"])[0], **called) == expected


def test_claude_a_refusal_of_a_pattern_that_is_too_long_refuses_every_path() -> None:
    imported = claude(deny=[f"Read({'a/' * 1_000}b)"])

    assert verdict(imported, "read_file", path="somewhere/else") == "deny"


def test_claude_an_allow_of_a_pattern_that_is_too_long_allows_nothing() -> None:
    imported = claude(allow=[f"Edit({'a/' * 1_000}b)"])

    assert verdict(imported, "edit_file", path="somewhere/else") == "ask"


@pytest.mark.parametrize(
    "text",
    [
        "prefix_rule(pattern=['ls\0'])",
        "prefix_rule(pattern=" + "[" * 150 + "]" * 150 + ")",
        "prefix_rule(pattern=['ls'], match='ls -l')",
        "prefix_rule(pattern=['ls'], match=" + str(["ls"] * 201) + ")",
    ],
    ids=["null", "deep", "text for examples", "long list"],
)
def test_codex_what_cannot_be_read_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"line 1|rules"):
        import_codex(text)


def test_codex_more_examples_than_anybody_writes_are_refused() -> None:
    rule = "prefix_rule(pattern=['ls'], match=" + str(["ls"] * 200) + ")\n"

    with pytest.raises(ConfigurationError, match=r"line 51: more than 10,000 examples"):
        import_codex(rule * 51)


def test_codex_a_reviewer_is_left_out_with_a_note() -> None:
    imported = import_codex("prefix_rule(pattern=['rm'], decision='prompt', reviewer='user')")

    assert verdict(imported, "bash", command="rm x") == "ask"
    assert noted(imported, "a rule cannot name a reviewer")


def test_gemini_redirection_that_is_allowed_is_left_to_rules_about_paths() -> None:
    text = '[[rule]]\ntoolName = "run_shell_command"\ncommandPrefix = "ls"\nallowRedirection = true\n'
    imported = import_gemini(text + 'decision = "allow"\npriority = 10\n')

    assert noted(imported, "judged on their own")
    assert verdict(imported, "bash", command="ls") == "allow"
    assert verdict(imported, "bash", command="ls > x") != "allow"


@pytest.mark.parametrize(("decision", "expected"), [("deny", "deny"), ("allow", "not allowed")])
def test_gemini_a_regular_expression_that_is_too_long_refuses_all_and_allows_nothing(
    decision: str, expected: str
) -> None:
    text = f'[[rule]]\ntoolName = "run_shell_command"\ncommandRegex = "{"a" * 2_100}"\n'
    imported = import_gemini(text + f'decision = "{decision}"\npriority = 10\n')

    found = verdict(imported, "bash", command="make something")
    assert found == expected or (expected == "not allowed" and found != "allow")


def test_gemini_a_star_among_several_names_is_every_tool() -> None:
    text = '[[rule]]\ntoolName = ["glob", "*"]\nsubagent = "coder"\ndecision = "deny"\npriority = 10\n'
    [rule] = rules(import_gemini(text))

    assert ("*" in as_list(rule["tools"]), rule["agent"]) == (True, "coder")
