"""Permission modes with the real tools: what needs no question, what is a question, and what the kernel holds."""

from collections.abc import Callable
from pathlib import Path

import pytest

from interlock import Rule, RulePolicy
from interlock.domain.event import InvocationStarted, PolicyEvaluated

from .runs import LocalRun, Person, local_run, text_of
from .signals import Pipe

pytestmark = pytest.mark.usefixtures("confined")
EDIT = {"path": "notes.txt", "old_string": "two", "new_string": "2"}


@pytest.mark.requirement("R230", "R223")
@pytest.mark.parametrize("mode", ["read_only", "default", "accept_edits"])
@pytest.mark.parametrize("command", ["ls -la", "cat notes.txt | head -2", "grep -r add src && wc -l notes.txt"])
async def test_a_command_that_only_reads_needs_no_question_and_is_held_to_it(
    root: Path, mode: str, command: str
) -> None:
    person = Person()

    async with local_run(root, mode=mode, interaction=person) as run:
        done = await run.bash(command)
        started = await run.started("c1")

    assert (done.ok, person.asked, done.side_effects) == (True, [], ())
    assert (started.profile, done.facts["profile"]) == ("read-only", "read-only")


@pytest.mark.requirement("R230", "R232")
async def test_a_run_that_only_reads_is_held_by_the_kernel_even_where_a_rule_allows_to_write(root: Path) -> None:
    policy = RulePolicy([Rule(id="all", verdict="allow", tools="*")])
    before = (root / "notes.txt").read_bytes()

    async with local_run(root, mode="read_only", policy=policy) as run:
        written = await run.bash("echo x > notes.txt; touch new; rm -f notes.txt")
        behind = await run.bash("touch new", background=True)
        edited = await run.do("edit_file", **EDIT)
        read = await run.do("read_file", path="notes.txt")

    assert {written.code, behind.code} <= {"policy_denied", "command_failed"}
    assert (edited.code, read.ok) == ("tool_not_visible", True)
    assert (root / "notes.txt").read_bytes() == before
    assert not (root / "new").exists()


async def test_tools_that_write_are_not_on_the_menu_of_a_run_that_only_reads(root: Path) -> None:
    async with local_run(root, mode="read_only") as run:
        shown = _menu(run)
        run.runtime.switch_mode(mode="default")
        shown_later = _menu(run)

    assert {"write_file", "edit_file"} == {"write_file", "edit_file"} & (shown_later - shown)
    assert {"read_file", "grep", "glob", "list_dir", "bash", "read_artifact"} <= shown


def _menu(run: LocalRun) -> set[str]:
    tools = run.runtime.registry.to_openai_function_tools(run.runtime.situation)
    return {tool["function"]["name"] for tool in tools}


@pytest.mark.requirement("R226")
async def test_a_task_that_was_started_can_be_stopped_in_a_run_that_only_reads(
    root: Path, pipe: Callable[[str], Pipe]
) -> None:
    pipe("never")

    async with local_run(root, mode="read_only") as run:
        task = await run.bash("cat never", background=True)
        stopped = await run.do("stop_task", task_id=task.facts["task"]["id"])

    assert task.facts["task"]["profile"] == "read-only"
    assert (stopped.code, stopped.facts.get("task", {}).get("status")) == ("ok", "stopped")


async def test_accepted_edits_need_no_question_but_commands_and_settings_do(root: Path) -> None:
    person = Person(approves=False)

    async with local_run(root, mode="accept_edits", interaction=person) as run:
        await run.do("read_file", path="notes.txt")
        edited = await run.do("edit_file", **EDIT)
        written = await run.do("write_file", path="new/deep.txt", content="x\n")
        workflow = await run.do("write_file", path=".github/workflows/ci.yml", content="on: push\n")
        command = await run.bash("touch x")

    assert (edited.ok, written.ok) == (True, True)
    assert (workflow.code, command.code) == ("user_denied", "user_denied")
    assert [question.tool_name for question in person.asked] == ["write_file", "bash"]


async def test_a_mode_that_changes_between_turns_holds_for_the_next_command(root: Path) -> None:
    async with local_run(root, mode="trusted") as run:
        await run.bash("touch first")
        run.runtime.switch_mode(mode="read_only")
        refused = await run.bash("touch second")
        looked = await run.bash("ls")
        profiles = [fact.profile for fact in await run.facts(InvocationStarted)]
        layers = [fact.decision.layer for fact in await run.facts(PolicyEvaluated)]

    assert (refused.code, text_of(looked).split()[0]) == ("policy_denied", "first")
    assert profiles == ["workspace-write", "read-only"]
    assert "permission mode" in layers[1]
    assert not (root / "second").exists()


async def test_leaving_the_sandbox_is_a_question_each_time_whatever_rules_say(root: Path, tmp_path: Path) -> None:
    person, outside = Person(), tmp_path / "outside.txt"
    policy = RulePolicy([Rule(id="all", verdict="allow", tools="*")])
    arguments = {"command": f"echo x >> {outside}", "reason": "It writes a file beside the project."}

    async with local_run(root, box={"allow_unsandboxed": True}, policy=policy, interaction=person) as run:
        first = await run.do("bash_outside", **arguments)
        second = await run.do("bash_outside", **arguments)
        started = await run.started("c1")
    assert (first.ok, second.ok, len(person.asked)) == (True, True, 2)
    assert outside.read_text() == "x\nx\n"
    assert (started.sandbox, started.profile) == ("none", "unconfined")
    assert any(risk.startswith("no sandbox") for risk in person.asked[0].risk)
    assert (person.asked[0].scope, first.side_effects) == ("once", "unknown")


@pytest.mark.requirement("R230")
@pytest.mark.parametrize("command", ["ls", "touch x"])
async def test_a_run_that_only_reads_does_not_leave_the_sandbox_that_holds_it_to_that(root: Path, command: str) -> None:
    person = Person()

    async with local_run(root, box={"allow_unsandboxed": True}, mode="read_only", interaction=person) as run:
        refused = await run.do("bash_outside", command=command, reason="I would like to.")
        started = await run.facts(InvocationStarted)

    assert (refused.ok, person.asked, started) == (False, [], [])
