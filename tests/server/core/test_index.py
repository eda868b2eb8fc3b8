"""Rows of the index are what the ledgers of the runs say, after every event; and one bad run does not stop the rest."""

import asyncio
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from interlock import MemoryLog, SqliteLog
from interlock.domain import event as facts
from interlock.domain.errors import IllegalTransitionError
from interlock.domain.event import (
    Event,
    Fact,
    RunCancelled,
    RunCompleted,
    RunFailed,
    RunResumed,
    RunStarted,
    WarningRaised,
)
from interlock.domain.state.ledger import Ledger
from interlock.domain.state.lifecycle import ActionState, RunState
from interlock.server.core.index.rows import ActionQuery
from interlock.server.core.index.run_index import RunIndex
from tests.log_rows import edit_events
from tests.storage.runs import append

from .index_runs import (
    T0,
    YES,
    Kind,
    Written,
    asking,
    assert_rows_are_those_of_the_ledgers,
    begun,
    granted,
    paused,
    real_runs,
)


@pytest.mark.requirement("R124", "R126", "R165", "R166")
async def test_after_every_event_of_real_runs_the_rows_are_what_the_ledger_says(tmp_path: Path, log: MemoryLog) -> None:
    feed = await (await real_runs()).feed()
    index = RunIndex(tmp_path / "index.db", log)

    for placed in feed:
        log.append(placed.entry.run_id, [placed.entry])
        await assert_rows_are_those_of_the_ledgers(index, [placed.entry.run_id])

    states = {row.run_id: row.state for row in [await index.get_run(run_id) for run_id in await log.run_ids()] if row}
    assert len(feed) > 100
    assert {states["run_done"], states["run_cancelled"], states["run_fork"]} == {
        RunState.COMPLETED,
        RunState.CANCELLED,
        RunState.RUNNING,
    }
    await index.close()


class Walk:
    """A run that takes any way the state tables allow."""

    def __init__(self, log: MemoryLog, run_id: str) -> None:
        self.written = Written(log, run_id)
        self.ledger = Ledger(run_id=run_id)

    def step(self, draw: tuple[str, int, Kind]) -> None:
        for fact in self._facts(*draw):
            event = Event(self.ledger.next_seq, self.ledger.run_id, T0 + self.ledger.next_seq, "", None, fact)
            try:
                self.ledger.apply(event)
            except IllegalTransitionError:
                return
            self.written.add(fact)

    def _facts(self, word: str, number: int, kind: Kind) -> tuple[Fact, ...] | list[Fact]:
        if not self.ledger.started:
            return [RunStarted(schema=1, agent=f"agent-{number}", requester="user:ada", created_by="key:bot")]
        name = f"{self.ledger.run_id}-{number}"
        plain: dict[str, Fact] = {
            "warn": WarningRaised(message="Look."),
            "say": facts.UserMessageReceived(text=f"Task {number}"),
            "pause": facts.RunPaused(kind=kind, waiting=()),
            "resume": RunResumed(),
            "complete": RunCompleted(message="Done."),
            "degrade": facts.RunDegraded(message="Half."),
            "fail": RunFailed(message="Broken."),
            "cancel": RunCancelled(message="No."),
            "void": facts.ApprovalVoided(call_id=name, action_id=name, reason="Changed."),
        }
        if word in plain:
            return [plain[word]]
        if word == "ask":
            return [*asking(name, name, kind, expires_at=T0 + number)]
        if word == "invoke":
            return [_invoked(name)]
        answered: dict[str, Any] = _ANSWERS[word, kind]
        return [answered["fact"](call_id=name, action_id=name, answer=YES)]


_ANSWERS: dict[tuple[str, Kind], Any] = {
    ("grant", "approval"): {"fact": facts.ApprovalGranted},
    ("grant", "input"): {"fact": facts.InputProvided},
    ("grant", "consent"): {"fact": facts.ConsentGranted},
    ("refuse", "approval"): {"fact": facts.ApprovalRejected},
    ("refuse", "input"): {"fact": facts.InputRefused},
    ("refuse", "consent"): {"fact": facts.ConsentRefused},
    ("expire", "approval"): {"fact": facts.ApprovalExpired},
    ("expire", "input"): {"fact": facts.InputExpired},
    ("expire", "consent"): {"fact": facts.ConsentExpired},
}


def _invoked(name: str) -> Fact:
    return facts.InvocationStarted(
        invocation_id="inv",
        call_id=name,
        tool="change",
        executor="async",
        tool_version="1",
        timeout_seconds=1.0,
        action_id=name,
    )


_WORDS = ("ask", "ask", "ask", "grant", "grant", "refuse", "expire", "void", "invoke", "invoke", "say", "warn")
_RUN_WORDS = ("pause", "pause", "resume", "resume", "complete", "degrade", "fail", "cancel")
STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.tuples(st.sampled_from(_WORDS + _RUN_WORDS), st.integers(0, 3), st.sampled_from(("approval", "consent"))),
        st.booleans(),
    ),
    max_size=60,
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(STEPS)
async def test_whichever_way_runs_go_the_rows_are_what_the_ledgers_say(
    tmp_path: Path, steps: list[tuple[int, tuple[str, int, Kind], bool]]
) -> None:
    log, path = MemoryLog(), tmp_path / f"{uuid4()}.db"
    index, walks = RunIndex(path, log), [Walk(log, f"run_{number}") for number in range(3)]

    for number, draw, is_reopened in steps:
        walks[number].step(draw)
        if is_reopened:
            await index.catch_up()
            await index.close()
            index = RunIndex(path, log)

    await assert_rows_are_those_of_the_ledgers(index, await log.run_ids())
    await index.close()


async def test_an_event_that_cannot_be_read_marks_its_run_and_the_others_go_on(tmp_path: Path, log: MemoryLog) -> None:
    bad, good = paused(log, "run_bad"), begun(log, "run_good")
    bad.add_raw(b"{not json")
    good.add(RunCompleted(message="Done."))
    index = RunIndex(tmp_path / "index.db", log)

    row, other = await index.get_run("run_bad"), await index.get_run("run_good")

    assert row is not None
    assert other is not None
    assert row.message.startswith("The log of this run is damaged at event 7: event 7 of run_bad cannot be read")
    assert (row.state, row.last_seq, row.open_questions) == (RunState.PAUSED_APPROVAL, 7, 0)
    assert row.is_damaged
    assert (await index.list_actions(ActionQuery(statuses=frozenset({"PENDING"})))).rows == ()
    assert (other.state, other.message) == (RunState.COMPLETED, "Done.")
    await index.close()


async def test_what_comes_after_damage_is_applied_and_the_first_damage_stays_told(
    tmp_path: Path, log: MemoryLog
) -> None:
    run = begun(log, "run_1")
    run.add(RunResumed())  # it was not paused
    run.add_raw(b"\xff")
    run.add(RunFailed(message="Broken."))
    index = RunIndex(tmp_path / "index.db", log)

    row = await index.get_run("run_1")

    assert row is not None
    assert (row.state, row.last_seq) == (RunState.FAILED, 4)
    assert row.message.startswith("The log of this run is damaged at event 2: RunState 'running' has no transition")
    await index.close()


@pytest.mark.parametrize(
    ("misfit", "why"),
    [
        (RunStarted(schema=1), "run_1 started twice"),
        (asking("c1", "act_run_1")[3], "act_run_1 was asked twice"),
        (granted("act_other"), "act_other was never asked"),
    ],
)
async def test_a_fact_that_does_not_fit_only_marks_the_run_damaged(
    tmp_path: Path, log: MemoryLog, misfit: Fact, why: str
) -> None:
    run = paused(log, "run_1")
    index = RunIndex(tmp_path / "index.db", log)
    before, asked = await index.get_run("run_1"), await index.get_action("act_run_1")
    assert before is not None

    run.add(misfit)

    message = f"The log of this run is damaged at event 7: {why}."
    assert await index.get_run("run_1") == replace(
        before, last_seq=7, updated_at=T0 + 7, message=message, open_questions=0, is_damaged=True
    )
    assert await index.get_action("act_run_1") == asked
    await index.close()


async def test_an_event_that_somebody_took_out_of_the_log_is_told_and_the_rest_is_applied(tmp_path: Path) -> None:
    memory, path = MemoryLog(), tmp_path / "runs.db"
    paused(memory, "run_1").add(granted("act_run_1"), RunResumed(), RunCompleted(message="Done."))
    async with SqliteLog(path) as log:
        await append(log, "run_1", await memory.read("run_1"))
    await asyncio.to_thread(edit_events, path, "DELETE FROM events WHERE seq = 1")
    async with SqliteLog(path) as log:
        index = RunIndex(tmp_path / "index.db", log)

        row = await index.get_run("run_1")

        assert row is not None
        assert row.state is RunState.COMPLETED
        assert row.message == "The log of this run is damaged at event 1: event 2 comes in its place."
        await index.close()


_BODIES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from(
        [
            b'{"seq":0,"run_id":"run_x","at":99999999999999999999999,"correlation_id":"","causation_id":null,'
            b'"fact":{"type":"run.started","schema":1}}',
            b'{"seq":0,"run_id":"run_x","at":-5,"correlation_id":"","causation_id":null,'
            b'"fact":{"type":"run.started","schema":99}}',
            b'{"seq":1,"run_id":"run_x","at":1,"correlation_id":"","causation_id":null,'
            b'"fact":{"type":"approval.granted","call_id":"c","action_id":"a","answer":{"approved":true}}}',
            b'{"seq":1,"run_id":"run_x","at":1,"correlation_id":"","causation_id":null,"fact":{"type":"unheard.of"}}',
        ]
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(_BODIES, min_size=1, max_size=4))
async def test_no_bytes_in_one_run_keep_another_from_its_row(tmp_path: Path, bodies: list[bytes]) -> None:
    log = MemoryLog()
    bad = Written(log, "run_x")
    for body in bodies:
        bad.add_raw(body)
    begun(log, "run_good").add(RunCompleted())
    index = RunIndex(tmp_path / f"{uuid4()}.db", log)

    row, good = await index.get_run("run_x"), await index.get_run("run_good")

    assert row is not None
    assert row.last_seq == len(bodies) - 1
    assert good is not None
    assert good.state is RunState.COMPLETED
    await index.close()


async def test_a_run_inside_another_acts_for_whoever_that_one_acts_for(tmp_path: Path, log: MemoryLog) -> None:
    begun(log, "run_1", requester="user:ada", created_by="key:bot")
    paused(log, "run_1.in", agent="helper", parent_run_id="run_1", parent_call_id="c")
    index = RunIndex(tmp_path / "index.db", log)

    row, action = await index.get_run("run_1.in"), await index.get_action("act_run_1.in")

    assert row is not None
    assert action is not None
    assert (row.agent, row.requester, row.created_by) == ("helper", "user:ada", "key:bot")
    assert (action.agent, action.requester, action.created_by) == ("helper", "user:ada", "key:bot")
    await index.close()


async def test_a_question_that_a_fork_tells_anew_is_that_of_the_run_it_was_asked_in(tmp_path: Path) -> None:
    log = await real_runs()
    index = RunIndex(tmp_path / "index.db", log)
    asked = (await index.list_actions(ActionQuery(run_id="run_cancelled"))).rows[0]

    found, retold = await index.get_action(asked.action_id), await index.get_action(asked.action_id, "run_fork")

    assert found == asked
    assert retold is not None
    assert (retold.run_id, retold.state) == ("run_fork", ActionState.VOID)
    await index.close()


async def test_open_questions_expire_in_runs_that_are_not_over(tmp_path: Path, log: MemoryLog) -> None:
    soon, over = paused(log, "run_soon", expires_at=T0 + 10), paused(log, "run_over", expires_at=T0 + 5)
    paused(log, "run_later", expires_at=T0 + 20)
    paused(log, "run_never")
    over.add(RunCancelled())
    index = RunIndex(tmp_path / "index.db", log)

    assert await index.get_next_expiry() == T0 + 10
    assert await index.list_expired_runs(T0 + 9) == []
    assert await index.list_expired_runs(T0 + 10) == ["run_soon"]
    assert set(await index.list_expired_runs(T0 + 99)) == {"run_soon", "run_later"}

    soon.add(granted("act_run_soon"))
    assert await index.get_next_expiry() == T0 + 20
    await index.close()


async def test_without_open_questions_nothing_expires(tmp_path: Path, log: MemoryLog) -> None:
    index = RunIndex(tmp_path / "index.db", log)

    assert (await index.get_next_expiry(), await index.list_expired_runs(T0), await index.get_run("run_1")) == (
        0,
        [],
        None,
    )
    await index.close()
