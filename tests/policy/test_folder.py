"""Commands that start in a folder of the workspace: their words lead to other places there."""

from pathlib import Path

import pytest

from interlock import CallContext, Rule, RulePolicy, example_event
from interlock.domain.tool import PermissionMode
from interlock.policy.engine.call_parts import is_read_only_script, list_script_commands


@pytest.fixture
def situation(tmp_path: Path) -> CallContext:
    (tmp_path / "sub").mkdir()
    return CallContext(run_id="run_1", workspace=str(tmp_path))


def verdict(policy: RulePolicy, situation: CallContext, command: str, cwd: str) -> str:
    return policy.evaluate(example_event("bash", {"command": command, "cwd": cwd}, situation)).verdict


def test_a_deny_of_a_path_holds_for_a_word_that_leads_there_from_the_folder(situation: CallContext) -> None:
    policy = RulePolicy([Rule(id="r", verdict="deny", tools="*", path="sub/secret.txt")])

    assert verdict(policy, situation, "cat secret.txt", "sub") == "deny"
    assert verdict(policy, situation, "cat secret.txt", "") == "allow"


def test_a_deny_of_a_folder_holds_for_commands_that_start_in_it(situation: CallContext) -> None:
    policy = RulePolicy([Rule(id="r", verdict="deny", tools="*", path="sub")])

    assert verdict(policy, situation, "ls", "sub") == "deny"


def test_what_is_allowed_in_the_workspace_is_not_allowed_in_a_folder_by_the_same_words(situation: CallContext) -> None:
    policy = RulePolicy([Rule(id="r", verdict="allow", tools="bash", command="./run.sh")])

    assert verdict(policy, situation, "./run.sh", "") == "allow"
    assert verdict(policy, situation, "./run.sh", "sub") == "ask"
    assert verdict(policy, situation, "./run.sh", "./") == "allow"


def test_a_command_that_leaves_the_workspace_from_a_folder_does_not_only_read_in_it(situation: CallContext) -> None:
    assert is_read_only_script("cat ../a", "sub", situation.workspace)
    assert not is_read_only_script("cat ../../a", "sub", situation.workspace)
    assert not is_read_only_script("cat a", "..", situation.workspace)


@pytest.mark.parametrize(
    "script", ["touch a", "cat a > b", "$(cat a)", "cat $x", "cat a; rm a", "if true; then ls; fi &"]
)
def test_a_script_that_may_do_more_than_read_is_not_called_reading(situation: CallContext, script: str) -> None:
    assert not is_read_only_script(script, "", situation.workspace)


def test_the_commands_of_a_script_are_known_or_none_is() -> None:
    assert list_script_commands("cd sub && pytest -q; ls") == (("cd", "sub"), ("pytest", "-q"), ("ls",))
    assert list_script_commands("eval $x") is None


def test_read_only_mode_keeps_to_commands_that_only_read_there(situation: CallContext) -> None:
    reading = CallContext(run_id="run_1", workspace=situation.workspace, mode=PermissionMode.READ_ONLY)

    assert verdict(RulePolicy(), reading, "cat ../a", "sub") == "allow"
    assert verdict(RulePolicy(), reading, "cat ../../a", "sub") == "deny"
