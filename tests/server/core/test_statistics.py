"""Figures of runs: what each event adds, on both kinds of index, once."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path

from hypothesis import HealthCheck, given, settings

from interlock import MemoryLog
from interlock.domain import event as facts
from interlock.domain.call import Answer
from interlock.domain.event import Event, Fact
from interlock.domain.messages import Usage
from interlock.domain.observation import Observation
from interlock.domain.outcome import Failure
from interlock.domain.state.lifecycle import RunState
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.index.statistics import AgentUsage, NamedCount, Statistics, StatisticsPeriod
from interlock.storage.rollups import OUTCOMES, RollupCounter, RunFacts, compute_percentile, to_wait_step
from tests.each import each
from tests.postgres.server import PostgresServer

from .index_runs import T0, YES, Kind, Written, asking, begun
from .mirrored_log import MirroredLog
from .test_index import STEPS, Walk

HOUR = 3_600_000_000_000
NO = Answer(approved=False, by="user:ann")


def _observed(code: str) -> Fact:
    failure = Failure.from_code(code, "No.")
    observation = Observation(call_id="c1", tool="change", ok=False, summary="No.", failure=failure)
    return facts.CallObserved(observation_id="o1", observation=observation)


def _asked(at: int) -> Callable[[str], int]:
    return lambda _: at


def _figures(fact: Fact, asked_at: int = 0, *, is_child: bool = False) -> dict[tuple[str, str], tuple[int, float]]:
    event = Event(3, "run_1", T0, "run_1", None, fact)
    counted = RollupCounter().count([(event, RunFacts("shop", is_child, _asked(asked_at)))])
    return {(key.metric, key.name): sums for key, sums in counted.items() if key.width == 3_600}


@each(
    ("fact", "expected"),
    [
        (facts.RunCompleted(), {("outcome", "completed"): (1, 0)}),
        (facts.RunDegraded(message="Half."), {("outcome", "degraded"): (1, 0)}),
        (facts.RunCancelled(), {("outcome", "cancelled"): (1, 0)}),
        (facts.RunFailed(message="No."), {("outcome", "failed"): (1, 0)}),
        (facts.RunFailed(message="No.", code="tool_failed"), {("outcome", "failed"): (1, 0)}),
        (facts.RunFailed(message="No.", code="user_denied"), {("outcome", "rejected"): (1, 0)}),
        (facts.RunFailed(message="No.", code="consent_refused"), {("outcome", "rejected"): (1, 0)}),
        (facts.RunFailed(message="No.", code="approval_expired"), {("outcome", "expired"): (1, 0)}),
        (facts.RunFailed(message="No.", code="approval_unavailable"), {("outcome", "failed"): (1, 0)}),
        (
            facts.ModelResponded(usage=Usage(input_tokens=7, output_tokens=2, cost=0.5)),
            {("usage", "responses"): (1, 0.5), ("usage", "input"): (7, 0), ("usage", "output"): (2, 0)},
        ),
        (facts.ModelResponded(usage=Usage(cost=float("inf"))), {("usage", "responses"): (1, 0)}),
        (_observed("tool_failed"), {("error", "tool_failed"): (1, 0)}),
        (_observed("policy_denied"), {("refusal", "policy_denied"): (1, 0)}),
        (_observed("skipped"), {}),
        (facts.ModelFailed(message="No."), {("error", "model_failed"): (1, 0)}),
        (facts.ApprovalGranted(call_id="c", action_id="a", answer=YES), {("answer", "granted"): (1, 0)}),
        (asking("c1", "a1")[-1], {("rule", "(default)"): (1, 0)}),
        (facts.RunStarted(schema=1, agent="shop"), {}),
    ],
)
def test_each_event_adds_its_figures(fact: Fact, expected: dict[tuple[str, str], tuple[int, float]]) -> None:
    assert _figures(fact) == expected
    if isinstance(fact, (facts.RunCompleted, facts.RunFailed)):
        assert _figures(fact, is_child=True) == {}


def test_answers_count_how_long_they_were_waited_for() -> None:
    rejected = facts.ApprovalRejected(call_id="c", action_id="a", answer=NO)
    expired = facts.ApprovalExpired(call_id="c", action_id="a", answer=NO)
    assert _figures(rejected, T0 - 60_000_000_000) == {
        ("answer", "rejected"): (1, 60.0),
        ("wait", str(to_wait_step(60))): (1, 0),
    }
    assert _figures(expired, T0 - 60_000_000_000) == {("answer", "expired"): (1, 60.0)}


@each("seconds", [0.2, 1.0, 7.0, 60.0, 3_600.0, 86_400.0, 2_592_000.0])
def test_percentiles_are_within_twelve_percent(seconds: float) -> None:
    found = compute_percentile({to_wait_step(seconds): 100}, 0.5)
    assert found is not None
    assert abs(found - seconds) <= max(0.12 * seconds, 0.5)


async def _read(index: RunIndex) -> Statistics:
    return await index.read_statistics(StatisticsPeriod.DAY, T0)


async def test_both_indexes_have_the_same_figures_once(tmp_path: Path, postgres: PostgresServer) -> None:
    async with postgres.open_log(postgres.empty_schema()) as stored:
        memory, mirrored = MemoryLog(), MirroredLog(stored)
        for log in (memory, mirrored):
            _write_runs(log)
        first, second = RunIndex(tmp_path / "index.db", memory), RunIndex(tmp_path / "unused.db", mirrored)
        third = RunIndex(tmp_path / "unused.db", mirrored)
        await mirrored.index.copy()
        await asyncio.gather(*(index.refresh_rollups() for index in (second, third) * 5))

        found = await _read(first)

        assert await _read(second) == await _read(third) == found
        assert [found.count_outcome(name) for name in ("completed", "rejected", "failed")] == [2, 1, 0]
        assert found.answers == {"granted": 1, "rejected": 1, "expired": 0}
        assert found.open_questions == 1
        assert found.rules == (NamedCount(name="(default)", count=3),)
        assert found.usage == (
            AgentUsage(agent="boss", responses=1, input_tokens=100, output_tokens=20, cost=0.25),
            AgentUsage(agent="clerk", responses=1, input_tokens=5, output_tokens=0, cost=0.0),
        )
        only = await first.read_statistics(StatisticsPeriod.MONTH, T0, frozenset({"clerk"}))
        assert (only.count_outcome("completed"), only.open_questions, only.rules) == (1, 0, ())
        assert (await first.read_statistics(StatisticsPeriod.DAY, T0, frozenset())).open_questions == 0
        assert (await first.read_statistics(StatisticsPeriod.DAY, T0 + 48 * HOUR)).count_outcome("completed") == 0
        for index in (first, second, third):
            await index.close()
        (tmp_path / "index.db").unlink()
        rebuilt = RunIndex(tmp_path / "index.db", memory)
        assert await _read(rebuilt) == found
        await rebuilt.close()


_example = count()


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
async def test_figures_are_the_same_however_they_are_counted(
    tmp_path: Path, steps: list[tuple[int, tuple[str, int, Kind], bool]]
) -> None:
    """By one server, step by step; by two that share an index; and at once, by one that rebuilds it."""
    log, folder = MemoryLog(), tmp_path / str(next(_example))
    folder.mkdir()
    first, second = RunIndex(folder / "shared.db", log), RunIndex(folder / "shared.db", log)
    for index in (first, second):
        await index.catch_up()
    walks = [Walk(log, f"run_{number}") for number in range(3)]

    for number, draw, is_counted in steps:
        walks[number].step(draw)
        if is_counted:
            await asyncio.gather(*(index.refresh_rollups() for index in (first, second)))

    rebuilt = RunIndex(folder / "rebuilt.db", log)
    expected = await _read(rebuilt)
    assert await _read(first) == await _read(second) == expected
    states = [walk.ledger.state for walk in walks if walk.ledger.started and walk.ledger.is_over]
    assert sum(expected.count_outcome(name) for name in OUTCOMES) == len(states)
    assert expected.count_outcome("completed") == states.count(RunState.COMPLETED)
    for index in (first, second, rebuilt):
        await index.close()


def _write_runs(log: MemoryLog) -> None:
    one = begun(log, "run_1")
    spent = facts.ModelResponded(usage=Usage(input_tokens=100, output_tokens=20, cost=0.25))
    one.add(spent, *asking("c1", "a1"), facts.ApprovalGranted(call_id="c1", action_id="a1", answer=YES))
    one.add(facts.RunCompleted())
    two = begun(log, "run_2")
    two.add(*asking("c1", "a1"), facts.ApprovalRejected(call_id="c1", action_id="a1", answer=NO))
    two.add(facts.RunFailed(message="No.", code="user_denied"))
    begun(log, "run_3").add(*asking("c1", "a1"))
    four = begun(log, "run_4", agent="clerk")
    four.add(facts.ModelResponded(usage=Usage(input_tokens=5)), facts.RunCompleted())
    child = begun(log, "run_5", parent_run_id="run_4", agent="clerk")
    child.add(facts.RunCompleted())
    fork = Written(log, "run_6")
    fork.add(facts.RunStarted(schema=1, agent="boss", forked_from="run_1", forked_at=2))
    fork.add(facts.UserMessageReceived(text="Again."), spent)
