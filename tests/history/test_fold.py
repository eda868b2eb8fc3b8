"""Folding gives the same ledger however the log is cut, and a snapshot never beats the log."""

from dataclasses import dataclass
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import IllegalTransitionError, LogCorruptError, LogVersionError
from interlock.domain.event import SCHEMA_VERSION, LogEntry, RunCompleted, RunStarted, WarningRaised, genesis_hash
from interlock.domain.state.conversation import Dialogue
from interlock.domain.state.ledger import ActionEntry, CallEntry, Grant, Ledger, ToolSourceEntry
from interlock.domain.state.lifecycle import ActionState, CallState, RunState
from interlock.domain.state.verification import CheckResult, VerificationState, WorkspaceChange
from interlock.history import fold as module
from interlock.history.fold import LoadedRun, build_snapshot, fold_entries, fold_more, load_run
from interlock.storage.event_log import Snapshot
from tests.each import each

from .recorded import FACTS, RUN, ListLog, record

ENTRIES = record(FACTS)
COUNT = len(ENTRIES)


def snapshot_at(count: int) -> Snapshot:
    return build_snapshot(fold_entries(RUN, ENTRIES[:count]), ENTRIES[count - 1].hash)


@pytest.mark.requirement("R256")
def test_the_state_of_a_run_comes_from_its_events_alone() -> None:
    ledger = fold_entries(RUN, ENTRIES)

    assert ledger.state is RunState.COMPLETED
    assert ledger.next_seq == COUNT
    assert ledger.menu_digest == "menu1"
    assert {name: call.state for name, call in ledger.calls.items()} == dict.fromkeys(
        ["read", "push", "invalid", "write"], CallState.OBSERVED
    )
    assert {name: call.ok for name, call in ledger.calls.items()} == {
        "read": True,
        "push": False,
        "invalid": False,
        "write": True,
    }
    assert ledger.actions["act_1"].state is ActionState.EXECUTED
    assert ledger.artifact_ids == {"sha256:menu", "sha256:aa"}


@pytest.mark.requirement("R256")
@given(cuts=st.sets(st.integers(0, COUNT)))
def test_folding_in_any_pieces_gives_the_same_ledger(cuts: set[int]) -> None:
    loaded = LoadedRun(Ledger(run_id=RUN), genesis_hash(RUN))
    edges = [0, *sorted(cuts), COUNT]
    for start, end in pairwise(edges):
        loaded = fold_more(loaded, ENTRIES[start:end])

    assert loaded == (fold_entries(RUN, ENTRIES), ENTRIES[-1].hash)


@pytest.mark.requirement("R256")
@each("count", range(1, COUNT + 1))
async def test_a_snapshot_anywhere_gives_the_same_ledger_and_spares_what_is_before_it(count: int) -> None:
    log = ListLog(ENTRIES, snapshot_at(count))

    loaded = await load_run(log, RUN)

    assert loaded == (fold_entries(RUN, ENTRIES), ENTRIES[-1].hash)
    assert min(log.reads) == count - 2  # the event it was taken after is looked up, nothing before it


async def test_a_run_without_a_snapshot_is_folded_from_its_first_event() -> None:
    log = ListLog(ENTRIES)

    assert await load_run(log, RUN) == (fold_entries(RUN, ENTRIES), ENTRIES[-1].hash)
    assert log.reads[0] == -1


async def test_an_unknown_run_has_the_state_before_its_first_event() -> None:
    assert await load_run(ListLog(), RUN) == (Ledger(run_id=RUN), genesis_hash(RUN))


async def test_a_long_run_is_read_in_pages() -> None:
    entries = record([RunStarted(schema=1), *[WarningRaised(message="slow")] * 2500, RunCompleted()])
    log = ListLog(entries)

    loaded = await load_run(log, RUN)

    assert loaded.ledger.next_seq == 2502
    assert log.reads == [-1, 999, 1999]


@dataclass
class Case:
    snapshot: Snapshot
    why: str


GOOD = snapshot_at(20)
BAD_SNAPSHOTS = [
    Case(Snapshot(GOOD.seq, GOOD.hash, b""), "empty"),
    Case(Snapshot(GOOD.seq, GOOD.hash, GOOD.state[:-1]), "cut"),
    Case(Snapshot(GOOD.seq, GOOD.hash, GOOD.state.replace(b"observed", b"proposed")), "edited"),
    Case(Snapshot(GOOD.seq, bytes(32), GOOD.state), "another hash"),
    Case(Snapshot(GOOD.seq - 1, ENTRIES[GOOD.seq - 1].hash, GOOD.state), "another place"),
    Case(build_snapshot(fold_entries(RUN, ENTRIES[:20]), bytes(32)), "sealed, but of another chain"),
    Case(build_snapshot(fold_entries(RUN, ENTRIES[:20]), ENTRIES[18].hash), "sealed under the hash of another event"),
    Case(build_snapshot(Ledger(run_id="run_2", next_seq=20), GOOD.hash), "of another run"),
    Case(build_snapshot(Ledger(run_id=RUN, next_seq=99), GOOD.hash), "of an event that is not there"),
    Case(build_snapshot(Ledger(run_id=RUN), genesis_hash(RUN)), "before the first event"),
]


@each("case", BAD_SNAPSHOTS)
async def test_a_bad_snapshot_is_ignored(case: Case) -> None:
    loaded = await load_run(ListLog(ENTRIES, case.snapshot), RUN)

    assert loaded == (fold_entries(RUN, ENTRIES), ENTRIES[-1].hash)


async def test_a_snapshot_of_an_older_version_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    older = Ledger(run_id=RUN, state=RunState.FAILED, next_seq=20)
    snapshot = build_snapshot(older, GOOD.hash)
    monkeypatch.setattr(module, "SNAPSHOT_VERSION", module.SNAPSHOT_VERSION + 1)

    loaded = await load_run(ListLog(ENTRIES, snapshot), RUN)

    assert loaded.ledger.state is RunState.COMPLETED


async def test_a_sealed_snapshot_that_is_no_ledger_is_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_encode", lambda ledger: b'{"run_id": 7}')  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    snapshot = build_snapshot(fold_entries(RUN, ENTRIES[:20]), GOOD.hash)

    loaded = await load_run(ListLog(ENTRIES, snapshot), RUN)

    assert loaded.ledger == fold_entries(RUN, ENTRIES)


async def test_a_snapshot_beyond_a_log_that_lost_its_tail_is_ignored() -> None:
    loaded = await load_run(ListLog(ENTRIES[:10], GOOD), RUN)

    assert loaded == (fold_entries(RUN, ENTRIES[:10]), ENTRIES[9].hash)


def test_a_change_of_what_a_ledger_holds_needs_a_new_snapshot_version() -> None:
    """When this fails: raise `SNAPSHOT_VERSION`, then write the new fields here."""
    kinds = (
        Ledger,
        ToolSourceEntry,
        CallEntry,
        ActionEntry,
        Grant,
        Dialogue,
        VerificationState,
        CheckResult,
        WorkspaceChange,
    )
    held = {kind.__name__: kind.__struct_fields__ for kind in kinds}

    assert module.SNAPSHOT_VERSION == 14
    assert held == {
        "ToolSourceEntry": ("connection", "versions", "quarantined"),
        "Ledger": (
            "run_id",
            "state",
            "next_seq",
            "started",
            "batch",
            "menu_digest",
            "tool_sources",
            "calls",
            "actions",
            "grants",
            "artifact_ids",
            "tool_state",
            "unknown_calls",
            "started_at",
            "agent",
            "requester",
            "created_by",
            "framework",
            "is_session",
            "is_chat",
            "message_keys",
            "parent_run_id",
            "paused_trace",
            "message",
            "code",
            "checks",
            "dialogue",
        ),
        "CallEntry": (
            "tool",
            "digest",
            "state",
            "batch",
            "proposed_seq",
            "tool_version",
            "started_seq",
            "observed_seq",
            "action_id",
            "ok",
            "latency_ms",
            "child_run_id",
        ),
        "ActionEntry": (
            "question",
            "state",
            "answer",
            "written_hash",
            "asked_seq",
            "answered_seq",
            "answered_at",
            "executed_seq",
        ),
        "Grant": ("action_id", "until"),
        "Dialogue": (
            "messages",
            "seqs",
            "last",
            "open",
            "answered_by",
            "finish",
            "text",
            "private",
            "private_artifact_id",
            "calls",
            "awaited",
            "told",
            "answered_seq",
            "told_seq",
            "trimmed",
            "compacted",
            "summary",
            "context_changes",
            "estimated_tokens",
            "token_ratio",
            "refused_tokens",
            "overflows",
            "usage",
            "active_ms",
            "requests",
            "answers",
            "tool_calls",
            "tool_turns",
            "refusals",
            "conflicts",
            "conflict",
        ),
        "VerificationState": ("checks", "changes", "running", "forked_at"),
        "CheckResult": (
            "call_id",
            "tool",
            "seq",
            "started_seq",
            "ok",
            "scope",
            "command",
            "exit_code",
            "counts",
            "workspace",
        ),
        "WorkspaceChange": ("seq", "call_id", "tool", "target"),
    }


@each("seq", range(COUNT))
async def test_an_edited_event_stops_the_load_and_is_named(seq: int) -> None:
    damaged = list(ENTRIES)
    damaged[seq] = msgspec.structs.replace(damaged[seq], body=damaged[seq].body.replace(b"run_1", b"run_2"))

    with pytest.raises(LogCorruptError, match=f"event {seq} of run_1 is not what was written"):
        await load_run(ListLog(damaged), RUN)


@pytest.mark.parametrize(
    "entries",
    [ENTRIES[:5] + ENTRIES[6:], [*ENTRIES[:5], *reversed(ENTRIES[5:7])], [*ENTRIES[:5], *record(FACTS, "run_2")[5:]]],
    ids=["missing", "reordered", "of another run"],
)
def test_a_broken_chain_is_refused_where_it_breaks(entries: list[LogEntry]) -> None:
    with pytest.raises(LogCorruptError, match="event 5 of run_1 is not what was written"):
        fold_entries(RUN, entries)


def test_a_fact_that_does_not_fit_the_tables_is_refused() -> None:
    with pytest.raises(IllegalTransitionError):
        fold_entries(RUN, record([RunStarted(schema=1), RunCompleted(), RunCompleted()]))


def test_a_run_of_a_newer_schema_is_refused_in_words() -> None:
    with pytest.raises(LogVersionError, match=f"its schema is 99, and this version reads up to {SCHEMA_VERSION}"):
        fold_entries(RUN, record([RunStarted(schema=99)]))
