"""Commands at the edges of what is read: options without values, scripts without ends, patterns for any program."""

import pytest

from interlock.domain.decision import Verdict
from interlock.domain.tool import CallContext
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import Rule
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.shell.bash import MAX_SCRIPT_BYTES, parse_script
from interlock.policy.shell.command_resources import find_hosts
from tests.each import each


def judged(command: str, *rules: Rule) -> Verdict:
    situation = CallContext(run_id="run_1", workspace="/nowhere/project")
    return RulePolicy(rules).evaluate(example_event("bash", {"command": command}, situation)).verdict


@pytest.mark.parametrize(
    ("command", "verdict"),
    [
        ("git push --force", "deny"),
        ("git --force push", "deny"),
        ("sudo make --force", "deny"),
        ("make", "ask"),
        ("ls", "allow"),
    ],
)
def test_a_refusal_for_any_program_finds_its_option_wherever_it_stands(command: str, verdict: str) -> None:
    assert judged(command, Rule(id="force", verdict="deny", command="* --force")) == verdict


@pytest.mark.parametrize("command", ["/bin/rm x", "rm x", "/usr/bin/RM x", "sudo /bin/rm x"])
def test_a_refusal_of_a_program_by_its_path_is_about_the_program_wherever_it_lies(command: str) -> None:
    assert judged(command, Rule(id="rm", verdict="deny", command="/bin/rm")) == "deny"


@each(
    ("command", "verdict"),
    [
        ("find -P . -name x", "allow"),
        ("find -P -P . -name x", "allow"),
        ("find -P /etc -name x", "ask"),
        ("find -P . -delete", "ask"),
        ("find . -exec", "ask"),
        ("find . -exec ';'", "ask"),
        ("head -n 3 x", "allow"),
        ("head -n", "ask"),
        ("head -qn", "ask"),
    ],
)
def test_what_reads_is_allowed_and_what_is_not_complete_is_asked_about(command: str, verdict: str) -> None:
    assert judged(command) == verdict


def test_find_that_runs_nothing_yet_is_still_the_command_that_a_rule_refuses() -> None:
    assert judged("find . -exec", Rule(id="find", verdict="deny", command="find")) == "deny"


def test_a_script_is_too_long_by_its_bytes_and_what_stands_in_it_is_still_found() -> None:
    text = "rm x; echo " + "\u00e9" * (MAX_SCRIPT_BYTES // 2)
    assert len(text) < MAX_SCRIPT_BYTES

    assert "longer than" in parse_script(text).opaque
    assert judged(text, Rule(id="rm", verdict="deny", command="rm")) == "deny"


@pytest.mark.parametrize(
    ("command", "hosts"),
    [
        ("curl --output evil.example https://a.example/", {"a.example"}),
        ("curl -o evil.example https://a.example/", {"a.example"}),
        ("curl --output x evil.example", {"evil.example"}),
    ],
)
def test_the_value_of_an_option_that_names_no_host_is_none(command: str, hosts: set[str]) -> None:
    [simple] = parse_script(command).commands

    assert {host for host in find_hosts(simple) if host.endswith(".example")} == hosts
