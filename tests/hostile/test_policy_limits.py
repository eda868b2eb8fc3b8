"""Texts that are made to cost time or to break a reader: a decision stays quick, and nothing raises."""

from collections.abc import Callable
from pathlib import Path
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import PolicyFileError, PolicyFiles, check_file, example_event, load_policy
from interlock.domain.tool import CallContext, JsonObject
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.policy.shell.bash import parse_script

MAX_SECONDS = 1.0
_PIECES = ["<<", "$(", "|", "&", "!", " ", "\n", "h", "'", '"', "\u2028", "\u00e9", "\U0001f600", "\u0080"]


def seconds(policy: RulePolicy, workspace: Path, tool: str, arguments: JsonObject) -> float:
    situation = CallContext(run_id="run_1", workspace=str(workspace))
    started = process_time()
    policy.evaluate(example_event(tool, arguments, situation))
    return process_time() - started


def policy_of(folder: Path, text: str) -> RulePolicy:
    file = folder / "policy.yaml"
    file.write_text(text)
    return load_policy(file)


def many_folders() -> str:
    return "cd a; cd b; cd c; cd d; cat " + " ".join(f"x{at}:y{at}" for at in range(1_900))


def many_wildcards() -> str:
    return "cat " + " ".join(f"./*/*/*/*/z{at}" for at in range(600))


def many_brackets() -> str:
    return "cat " + "[" * 12_000


@pytest.mark.parametrize("make", [many_folders, many_wildcards, many_brackets])
def test_no_script_keeps_a_decision_busy(tmp_path: Path, make: Callable[[], str]) -> None:
    for at in range(5**4):
        name = "/".join(str(at // 5**level % 5) for level in range(4))
        (tmp_path / name).mkdir(parents=True, exist_ok=True)
    policy = policy_of(tmp_path, "version: 1\ndeny: [{path: .env}]\n")
    assert seconds(policy, tmp_path, "bash", {"command": make()}) < MAX_SECONDS


def test_no_condition_keeps_a_decision_busy(tmp_path: Path) -> None:
    condition = "arguments.x.matches('(.{1,1000}){1,10}b')"
    with pytest.raises(PolicyFileError, match="when has no matches"):
        policy_of(tmp_path, f'version: 1\ndeny: [{{tools: note, when: "{condition}"}}]\n')


def test_a_character_cut_in_two_by_a_parser_does_not_raise() -> None:
    assert parse_script("\u2028<<\u2028 h$(!| &\U0001f600").opaque


@given(st.lists(st.sampled_from(_PIECES), max_size=24).map("".join))
def test_no_text_beyond_ascii_raises(text: str) -> None:
    parse_script(text)


def test_patterns_that_cannot_be_used_together_are_refused_when_the_file_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "project.yaml"
    file.write_text("version: 1\ndeny:\n" + "".join(f'  - path: "{at}{"?" * 450}"\n' for at in range(300)))
    with pytest.raises(PolicyFileError):
        check_file(file, "project")


def test_a_project_file_does_not_turn_a_question_of_the_user_into_another_one(tmp_path: Path) -> None:
    (tmp_path / "user.yaml").write_text(
        "version: 1\nask: [{tools: bash, command: git push, reason: Customers see this.}]\n"
    )
    (tmp_path / "project.yaml").write_text(
        "version: 1\nrules: [{id: note, decision: request_input, tools: bash, target_arg: note, prompt: A note?}]\n"
    )
    policy = PolicyFiles(user=tmp_path / "user.yaml", project=tmp_path / "project.yaml")

    decision = policy.evaluate(example_event("bash", {"command": "git push --force"}))

    assert decision.verdict == "deny" or "Customers see this." in decision.reason
    assert decision.verdict == "deny" or "commits on the other side may be lost" in decision.risk
