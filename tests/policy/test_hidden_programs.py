"""Commands that start another one: by a variable, an option, a setting or a text. A rule that refuses it finds it."""

import pytest

from interlock import Rule, RulePolicy
from interlock.policy.engine.call_parts import list_script_commands
from interlock.policy.engine.example_event import example_event
from tests.corpora import spellings
from tests.each import each

NO_RM = Rule(id="no-rm", verdict="deny", command=["rm"])

#: Ways to start `rm` that are read.
DENIED = spellings.load("hidden programs that are read")
#: Ways that are not read: where the words of a rule stand in them, or nobody knows what runs, a person is asked.
ASKED = spellings.load("hidden programs that are not read")
#: Nothing here starts what is refused.
HARMLESS = spellings.load("no hidden programs")


def verdict(script: str, *rules: Rule, default: str = "allow") -> str:
    policy = RulePolicy([NO_RM, *rules], "ask" if default == "ask" else "allow")
    return str(policy.evaluate(example_event("bash", {"command": script})).verdict)


@each("script", DENIED)
def test_a_started_program_is_refused(script: str) -> None:
    assert verdict(script) == "deny"


@each("script", ASKED)
def test_a_program_that_may_start_is_asked_about(script: str) -> None:
    assert verdict(script) == "ask"


@each("script", HARMLESS)
def test_other_programs_are_left_alone(script: str) -> None:
    assert verdict(script) == "allow"


def test_what_may_start_needs_no_rule_that_allows_it() -> None:
    allow = Rule(id="ok", verdict="allow", command=["uv run", "tar"])

    assert verdict("uv run pytest -q", allow, default="ask") == "allow"
    assert verdict("tar -I zstd -xf a", allow, default="ask") == "allow"
    assert verdict("tar -I 'rm x' -xf a", allow, default="ask") == "deny"


@pytest.mark.parametrize("script", ["PAGER=cat git log", "env PAGER=cat git log", "tar -I 'npm test' -xf a"])
def test_no_value_is_allowed_by_a_rule(script: str) -> None:
    """A rule that allows a program allows neither the command that starts it nor a command with variables."""
    allow = [Rule(id="ok", verdict="allow", command=["cat", "git log", "npm test"])]

    assert verdict(script, *allow, default="ask") == "ask"


def test_a_rule_about_two_words_finds_them_in_a_value() -> None:
    push = Rule(id="no-push", verdict="deny", command=["git push"])
    ask = Rule(id="ask-push", verdict="ask", command=["git fetch"])

    assert verdict("GIT_EDITOR='git push origin' git commit", push) == "deny"
    assert verdict("git -c alias.x=push x", push) == "deny"
    assert verdict("PAGER='git fetch' git log", ask) == "ask"


def test_what_may_start_is_no_command_that_ran() -> None:
    assert list_script_commands("PAGER=cat git log; tar -I zstd -xf a") == (
        ("git", "log"),
        ("tar", "-I", "zstd", "-xf", "a"),
    )


@pytest.mark.parametrize(
    "script",
    [
        "sed '" + "s/" * 990 + "' f",
        "awk '" + '"\\"' * 600 + "' f",
        "fzf --bind '" + "execute(" * 240 + "'",
        "npx " * 900 + "x",
        " ".join(f"PAGER='x{number}'" for number in range(900)) + " git log",
        "PAGER='" + 'env PAGER="x" ' * 500 + "' git log",
    ],
)
def test_hostile_values_end(script: str) -> None:
    assert verdict(script) in ("allow", "ask")
