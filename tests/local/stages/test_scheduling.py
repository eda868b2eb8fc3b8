"""Whose turn it is, with the real tools: what runs beside what, what waits, what is ended, what goes on meanwhile."""

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import LocalTools, ToolRuntime
from interlock.domain.event import CallProposed, InvocationCompleted, InvocationStarted
from interlock.tools.shell.bash import MAX_OUTPUT_CHARS
from tests.patience import HANG_SECONDS
from tests.support import call, facts

from .runs import local_run, soon, text_of
from .signals import Pipe

pytestmark = pytest.mark.usefixtures("confined")


@pytest.mark.requirement("R217", "R219", "R218")
def test_each_tool_says_what_may_run_beside_it_and_how_long_it_may_take(root: Path) -> None:
    box = LocalTools(root)
    box.set_masks(lambda tool: ())
    tools = {tool.name: tool for tool in box}
    concurrency = {name: tool.concurrency for name, tool in tools.items()}
    edit = tools["edit_file"]
    assert edit.write_keys is not None
    keys = [edit.write_keys({"path": path}) for path in ("src/sums.py", "src/../src//sums.py", "notes.txt")]
    box_closed = asyncio.run(box.close())

    assert box_closed is None
    assert concurrency == {
        **dict.fromkeys(("read_file", "grep", "glob", "list_dir"), "safe"),
        **dict.fromkeys(("write_file", "edit_file"), "keyed"),
        "bash": "exclusive",
        **dict.fromkeys(("read_task", "wait_task", "stop_task", "list_tasks"), "safe"),
    }
    assert keys[0] == keys[1] != keys[2]
    assert all(0 < tool.timeout_seconds <= 660 for tool in tools.values())
    assert tools["bash"].max_output_chars == MAX_OUTPUT_CHARS == 30_000


def wait_for_each_other(box: LocalTools, tool_name: str, together: threading.Barrier) -> list[Any]:
    """The tools, where this one's handler goes on only when so many of it are under way."""

    def held(handler: Callable[..., Any]) -> Callable[..., Any]:
        def handle(**arguments: Any) -> Any:
            together.wait(HANG_SECONDS)
            return handler(**arguments)

        return handle

    return [
        msgspec.structs.replace(tool, handler=held(tool.handler)) if tool.name == tool_name else tool for tool in box
    ]


@pytest.mark.requirement("R220", "R223", "R219")
async def test_three_reads_that_are_proposed_together_are_under_way_at_the_same_time(root: Path) -> None:
    for name in "abc":
        (root / name).write_text(f"{name}\n")
    box = LocalTools(root)
    runtime = ToolRuntime(tools=wait_for_each_other(box, "read_file", threading.Barrier(3)))

    result = await soon(runtime.execute([call(f"c{name}", "read_file", path=name) for name in "abc"]))
    started = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]
    await runtime.close()
    await box.close()

    assert [text_of(read) for read in result.observations] == ["1\ta", "1\tb", "1\tc"]
    assert [fact.waited_for for fact in started] == [(), (), ()]


@pytest.mark.requirement("R221", "R223", "R227")
async def test_a_test_command_that_is_proposed_with_an_edit_runs_on_the_edited_file(root: Path) -> None:
    edit = {"path": "notes.txt", "old_string": "two", "new_string": "2"}

    async with local_run(root) as run:
        await run.do("read_file", path="notes.txt")
        result = await run.propose(("edit_file", edit), ("bash", {"command": "cat notes.txt"}))
        order = [
            (type(fact).__name__, fact.call_id)
            for fact in await facts(run.runtime)
            if isinstance(fact, InvocationStarted | InvocationCompleted)
        ]
        started = await run.started("c3")

    assert [observation.ok for observation in result.observations] == [True, True]
    assert text_of(result.observations[1]) == "one\n2\nthree"
    assert order.index(("InvocationCompleted", "c2")) < order.index(("InvocationStarted", "c3"))
    assert started.waited_for == ("c2",)


@pytest.mark.requirement("R221", "R223")
async def test_an_edit_that_is_proposed_after_a_command_waits_for_its_end(
    root: Path, pipe: Callable[[str], Pipe]
) -> None:
    begun, go = pipe("begun"), pipe("go")
    script = "echo x > begun; read x < go; cat notes.txt"
    edit = {"path": "notes.txt", "old_string": "two", "new_string": "2"}

    async with local_run(root) as run:
        await run.do("read_file", path="notes.txt")
        running = asyncio.ensure_future(run.propose(("bash", {"command": script}), ("edit_file", edit)))
        await begun.received()
        while_it_runs = (root / "notes.txt").read_text()
        go.send()
        result = await running
        waited_for = (await run.started("c3")).waited_for

    assert while_it_runs == "one\ntwo\nthree\n"
    assert text_of(result.observations[0]) == "one\ntwo\nthree"
    assert (result.observations[1].ok, waited_for) == (True, ("c2",))


@pytest.mark.requirement("R222")
async def test_two_edits_of_one_file_in_one_turn_are_both_made_and_take_turns(root: Path) -> None:
    async with local_run(root) as run:
        await run.do("read_file", path="notes.txt")
        result = await run.propose(
            ("edit_file", {"path": "notes.txt", "old_string": "one", "new_string": "1"}),
            ("edit_file", {"path": "./notes.txt", "old_string": "two", "new_string": "2"}),
            ("edit_file", {"path": "notes.txt", "old_string": "one", "new_string": "uno"}),
        )
        waited_for = (await run.started("c3")).waited_for

    assert [observation.code for observation in result.observations] == ["ok", "ok", "runtime_precondition_failed"]
    assert (root / "notes.txt").read_text() == "1\n2\nthree\n"
    assert waited_for == ("c2",)


@pytest.mark.requirement("R223", "R227")
async def test_commands_run_one_by_one_and_the_log_says_who_waited_for_whom(
    root: Path, pipe: Callable[[str], Pipe]
) -> None:
    begun, go = pipe("begun"), pipe("go")
    scripts = ["echo x > begun; read x < go; echo 1 >> order", "echo 2 >> order", "echo 3 >> order"]

    async with local_run(root) as run:
        running = asyncio.ensure_future(run.propose(*(("bash", {"command": script}) for script in scripts)))
        await begun.received()
        started_meanwhile = [fact.call_id for fact in await run.facts(InvocationStarted)]
        go.send()
        await running
        waited_for = [fact.waited_for for fact in await run.facts(InvocationStarted)]
        proposed = [fact.call_id for fact in await run.facts(CallProposed)]

    assert (started_meanwhile, proposed) == (["c1"], ["c1", "c2", "c3"])
    assert (root / "order").read_text() == "1\n2\n3\n"
    assert [others[-1:] for others in waited_for] == [(), ("c1",), ("c2",)]


@pytest.mark.requirement("R224")
async def test_a_command_that_takes_too_long_is_ended_and_what_it_printed_and_did_is_told(root: Path) -> None:
    async with local_run(root) as run:
        ended = await run.bash("echo begun; echo half > out.txt; sleep 60", timeout_seconds=5)
        completed = await run.completed("c1")
        [started] = await run.facts(InvocationStarted)

    assert (ended.code, ended.facts["reason"], completed.exit) == ("command_timed_out", "timeout", "timeout")
    assert started.timeout_seconds == 5
    assert text_of(ended) == "begun"
    assert "background=true" in ended.next_hint
    assert "created out.txt" in str(ended.side_effects)


@pytest.mark.requirement("R224")
@pytest.mark.parametrize(("asked", "allowed"), [(None, 120), (30, 30), (600, 600), (601, 600), (1e300, 600)])
async def test_every_command_has_a_timeout_and_none_is_longer_than_the_most(
    root: Path, asked: float | None, allowed: float
) -> None:
    async with local_run(root) as run:
        done = await run.bash("true", timeout_seconds=asked)

    assert done.facts["timeout_seconds"] == allowed
    assert ("lowered to 600" in text_of(done)) == (asked is not None and asked > allowed)


@pytest.mark.requirement("R225")
async def test_a_command_that_the_user_interrupts_ends_and_its_siblings_go_on(
    root: Path, pipe: Callable[[str], Pipe]
) -> None:
    begun = pipe("begun")

    async with local_run(root) as run:
        calls = (
            ("bash", {"command": "trap '' TERM; echo said; echo x > begun; sleep 60"}),
            ("read_file", {"path": "notes.txt"}),
        )
        running = asyncio.ensure_future(run.propose(*calls))
        await begun.received()
        run.runtime.cancel_call("c1")
        command, read = (await running).observations
        kept = await run.text_of_artifact(command.artifacts[0].id)
        after = await run.bash("echo alive")

    assert (command.code, command.side_effects, kept) == ("cancelled", "unknown", "said\n")
    assert (read.ok, text_of(after)) == (True, "alive")


@pytest.mark.requirement("R225")
async def test_when_the_run_is_cancelled_its_command_and_its_tasks_end(root: Path, pipe: Callable[[str], Pipe]) -> None:
    begun = pipe("begun")

    async with local_run(root) as run:
        await run.bash("sleep 60", background=True)
        running = asyncio.ensure_future(run.bash("echo x > begun; sleep 60"))
        await begun.received()
        await run.runtime.cancel("enough")
        command = await running

    assert command.code == "cancelled"


@pytest.mark.requirement("R225")
async def test_when_the_caller_goes_away_the_command_does_not_go_on(root: Path, pipe: Callable[[str], Pipe]) -> None:
    begun, go = pipe("begun"), pipe("go")

    async with local_run(root) as run:
        running = asyncio.ensure_future(run.bash("echo x > begun; read x < go; touch went-on"))
        await begun.received()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        go.send()
        after = await run.bash("echo alive")

    assert text_of(after) == "alive"
    assert not (root / "went-on").exists()


@pytest.mark.requirement("R226", "R230")
async def test_a_task_in_the_background_goes_on_while_other_calls_run_and_can_be_waited_for(
    root: Path, pipe: Callable[[str], Pipe]
) -> None:
    pipe("go")

    async with local_run(root) as run:
        task = await run.bash("echo waiting; read x < go; echo got $x; exit 3", background=True)
        task_id = task.facts["task"]["id"]
        running = await run.do("list_tasks")
        meanwhile = await run.bash("echo meanwhile; echo it > go")
        waited = await run.do("wait_task", task_id=task_id)
        read = await run.do("read_task", task_id=task_id)
        kept = await run.text_of_artifact(waited.facts["task"]["output"])

    assert (running.summary, text_of(meanwhile)) == ("1 tasks, 1 running", "meanwhile")
    assert (waited.facts["task"]["status"], waited.facts["task"]["exit_code"]) == ("exited", 3)
    assert "waiting\ngot it\n" in text_of(read)
    assert kept == "waiting\ngot it\n"


@pytest.mark.requirement("R226", "R225")
async def test_a_task_is_stopped_with_all_that_it_started_and_the_wait_for_it_can_be_interrupted(
    root: Path, pipe: Callable[[str], Pipe]
) -> None:
    begun = pipe("begun")

    async with local_run(root) as run:
        task = await run.bash("(trap '' TERM; echo x > begun; sleep 60) & wait", background=True)
        task_id = task.facts["task"]["id"]
        await begun.received()
        waiting = asyncio.ensure_future(run.do("wait_task", task_id=task_id))
        await run.begins("c2")
        run.runtime.cancel_call("c2")
        interrupted = await waiting
        listed = await run.do("list_tasks")
        stopped = await run.do("stop_task", task_id=task_id)

    assert (interrupted.code, listed.summary) == ("cancelled", "1 tasks, 1 running")
    assert stopped.facts["task"]["status"] == "stopped"


@pytest.mark.requirement("R228")
async def test_whoever_watches_hears_the_last_lines_while_the_command_runs(
    root: Path, pipe: Callable[[str], Pipe]
) -> None:
    go, heard = pipe("go"), list[tuple[str, str]]()

    def hear(call_id: str, line: str) -> None:
        heard.append((call_id, line))
        go.send()

    async with local_run(root, on_progress=hear) as run:
        done = await run.bash("echo step 1; echo step 2; read x < go; echo done")
        replayed = str(await facts(run.runtime))

    assert heard[0] in [("c1", "step 1"), ("c1", "step 1\nstep 2")]
    assert done.ok
    assert "progress" not in replayed


@pytest.mark.requirement("R227", "R218")
async def test_the_log_explains_how_each_call_was_executed(root: Path) -> None:
    async with local_run(root) as run:
        await run.propose(("read_file", {"path": "notes.txt"}), ("bash", {"command": "true"}))
        read, command = await run.started("c1"), await run.started("c2")
        ended = await run.completed("c2")

    assert (read.executor, command.executor) == ("thread", "async")
    assert (read.timeout_seconds, command.timeout_seconds) == (60, 120)
    assert (command.waited_for, ended.exit) == (("c1",), "ok")
    assert command.invocation_id == ended.invocation_id
    assert ended.duration_ms > 0
