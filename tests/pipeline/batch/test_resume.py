"""A run that another runtime takes over from its log, after the first one was closed."""

from pathlib import Path
from typing import Any

import pytest

from interlock import (
    DecisionConflictError,
    HeadlessInteractionProvider,
    RunState,
    SqliteLog,
    ToolDefinition,
    ToolIntent,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import InvocationStarted
from tests.pipeline.batch.stage import Stage, codes, walk
from tests.pipeline.batch.test_waiting import CountingPolicy
from tests.support import call, facts

OPEN = HeadlessInteractionProvider("wait")
RUN = "run_taken_over"
CALLS = [call("c1", "read", name="before"), call("c2", "ask", name="asked"), call("c3", "command", name="after")]


def runtime_on(path: Path, tools: list[ToolDefinition], policy: CountingPolicy) -> ToolRuntime:
    return ToolRuntime(run_id=RUN, tools=tools, policy=policy, interaction=OPEN, log=SqliteLog(path))


def declared(stage: Stage, **options: Any) -> list[ToolDefinition]:
    return [
        tool(stage.act, name="read", risk="read"),
        tool(stage.act, name="ask", concurrency="exclusive", **options),
        tool(stage.act, name="command", concurrency="exclusive"),
    ]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "runs.db"


async def asked(path: Path, stage: Stage, policy: CountingPolicy) -> str:
    """A run with one open question, left by the runtime that asked it."""
    async with runtime_on(path, declared(stage), policy) as first:
        result = await first.execute(CALLS)
        assert codes(result) == {"c1": "ok"}
        return result.questions[0].action_id


@pytest.mark.requirement("R080", "R081", "R093", "R119")
async def test_a_second_runtime_decides_and_resumes_what_the_first_left_open(path: Path) -> None:
    stage, policy = Stage(), CountingPolicy()
    action_id = await asked(path, stage, policy)

    async with runtime_on(path, declared(stage), policy) as second:
        assert await second.state() is RunState.PAUSED_APPROVAL
        await second.decide(action_id, approved=True, by="maria")
        result = await second.resume()
        recorded = await facts(second)
        assert (await second.verify()).ok

    assert codes(result) == {"c2": "ok", "c3": "ok"}
    assert stage.starts() == ["before", "asked", "after"]
    started = {fact.call_id: fact.action_id for fact in recorded if isinstance(fact, InvocationStarted)}
    assert started == {"c1": "", "c2": action_id, "c3": ""}


@pytest.mark.requirement("R082")
async def test_a_stored_answer_is_not_judged_again_by_another_runtime(path: Path) -> None:
    stage, policy = Stage(), CountingPolicy()
    action_id = await asked(path, stage, policy)
    async with runtime_on(path, declared(stage), policy) as second:
        await second.decide(action_id, approved=True)
    stricter = CountingPolicy()
    stricter.verdict = Verdict.DENY

    async with runtime_on(path, declared(stage), stricter) as third:
        result = await third.resume()

    assert codes(result)["c2"] == "ok"
    assert "c2" not in stricter.judged


@pytest.mark.requirement("R093", "R082")
async def test_a_stored_rejection_and_its_reason_stay_with_the_call(path: Path) -> None:
    stage, policy = Stage(), CountingPolicy()
    action_id = await asked(path, stage, policy)
    async with runtime_on(path, declared(stage), policy) as second:
        await second.decide(action_id, approved=False, reason="Not on a Friday.", by="maria")
    looser = CountingPolicy()
    looser.verdict = Verdict.ALLOW

    async with runtime_on(path, declared(stage), looser) as third:
        result = await third.resume()

    assert codes(result) == {"c2": "user_denied", "c3": "ok"}
    assert result.observations[0].tool == "ask"
    assert "Not on a Friday." in result.messages[0]["content"]
    assert stage.starts() == ["before", "after"]


@pytest.mark.requirement("P05", "R081", "R086", "D15")
async def test_one_approval_gives_one_execution_whoever_uses_it_however_often(path: Path) -> None:
    stage, policy = Stage(), CountingPolicy()
    action_id = await asked(path, stage, policy)
    async with runtime_on(path, declared(stage), policy) as second:
        await second.decide(action_id, approved=True)
        executed = await second.resume()
        await second.resume()

    async with runtime_on(path, declared(stage), policy) as third:
        with pytest.raises(DecisionConflictError):
            await third.decide(action_id, approved=True)
        assert (await third.resume()).observations == ()
        again = await third.execute(CALLS)
        assert (await walk(third, "c2")).count("tool.invocation.started") == 1

    assert stage.starts() == ["before", "asked", "after"]
    assert again.observations[1:] == executed.observations


@pytest.mark.requirement("R093")
async def test_an_approval_of_a_tool_that_changed_meanwhile_is_void_and_asked_again(path: Path) -> None:
    stage, policy = Stage(), CountingPolicy()
    action_id = await asked(path, stage, policy)

    async with runtime_on(path, declared(stage, version="2"), policy) as second:
        await second.decide(action_id, approved=True)
        result = await second.resume()

    [question] = result.questions
    assert (question.call_id, question.replaces) == ("c2", action_id)
    assert "tool version" in [change.what for change in question.changes]
    assert "asked" not in stage.starts()


@pytest.mark.requirement("R088")
async def test_an_approved_call_of_a_tool_that_is_gone_is_refused_and_those_behind_it_run(path: Path) -> None:
    stage, policy = Stage(), CountingPolicy()
    action_id = await asked(path, stage, policy)
    left = [definition for definition in declared(stage) if definition.name != "ask"]

    async with runtime_on(path, left, policy) as second:
        await second.decide(action_id, approved=True)
        result = await second.resume()

    assert codes(result) == {"c2": "unknown_tool", "c3": "ok"}
    assert stage.starts() == ["before", "after"]


@pytest.mark.requirement("R086")
async def test_an_id_with_other_content_is_refused_by_another_runtime_too(path: Path) -> None:
    stage, policy = Stage(), CountingPolicy()
    async with runtime_on(path, declared(stage), policy) as first:
        await first.execute([call("c1", "read", name="a")])

    async with runtime_on(path, declared(stage), policy) as second:
        result = await second.execute([call("c1", "read", name="b"), call("c2", "read", name="c")])

    assert codes(result) == {"c1": "call_id_conflict", "c2": "ok"}
    assert stage.starts() == ["a", "c"]


@pytest.mark.requirement("R081", "D15")
@pytest.mark.parametrize("cut_after", ["tool.intent", "tool.permission", "tool.invocation.started"])
async def test_what_a_lost_process_left_undone_runs_once_and_what_it_started_is_not_repeated(
    path: Path, cut_after: str
) -> None:
    stage, policy = Stage(), CountingPolicy()
    calls: list[ToolIntent] = [call("c1", "command", name="a")]
    async with runtime_on(path, declared(stage), policy) as first:
        await first.execute(calls)
        entries = [step.event for step in await first.replay()]
    kept = next(event.seq for event in entries if event.type == cut_after) + 1
    lost = await _copy_of_the_first(kept, path)

    async with runtime_on(lost, declared(stage), policy) as second:
        result = await second.resume()
        assert (await second.verify()).ok

    if cut_after == "tool.invocation.started":
        assert codes(result) == {"c1": "outcome_unknown"}
        assert result.observations[0].side_effects == "unknown"
        assert stage.starts() == ["a"]
    else:
        assert codes(result) == {"c1": "ok"}
        assert stage.starts() == ["a", "a"]


async def _copy_of_the_first(kept: int, path: Path) -> Path:
    """The log as a process leaves it that dies right after its first `kept` events."""
    source, target = SqliteLog(path), SqliteLog(path.with_name("lost.db"))
    written = target.append(RUN, await source.read(RUN, limit=kept))
    if written is not None:
        await written
    await source.close()
    await target.close()
    return path.with_name("lost.db")
