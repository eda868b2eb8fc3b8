"""What must be true of a run that was killed, at the moment of its death and after it went on."""

import asyncio
import json
import shutil
from collections import Counter
from pathlib import Path

import msgspec

from interlock import FileArtifacts, Observation, SqliteLog, verify
from interlock.domain.event import ApprovalGranted, CallObserved, Fact, InvocationStarted, LogEntry, decode_event
from interlock.domain.state.lifecycle import CallState
from interlock.history.fold import fold_entries

from .lives import Lives
from .scripted import (
    ARTIFACTS,
    CODES,
    EFFECTS,
    FINISHED,
    IDEMPOTENT,
    LOG,
    READ_ONLY,
    RECONCILED,
    REPORT,
    RETURNED,
    RUN_ID,
)


class Record(msgspec.Struct, frozen=True):
    """What a run has left behind: its log, and its effects on the world."""

    entries: list[LogEntry]
    facts: list[Fact]
    effects: Counter[str]

    @property
    def started(self) -> Counter[str]:
        return Counter(fact.call_id for fact in self.facts if isinstance(fact, InvocationStarted))

    @property
    def observations(self) -> list[Observation]:
        return [fact.observation for fact in self.facts if isinstance(fact, CallObserved)]

    @property
    def interrupted(self) -> set[str]:
        """Calls that started and have no end."""
        calls = fold_entries(RUN_ID, self.entries).calls
        return {call_id for call_id, entry in calls.items() if entry.state is CallState.RUNNING}


def record_of(folder: Path) -> Record:
    """Read from a copy, so that whoever recovers is the first to open what the dead left."""
    copy = folder.with_name(folder.name + ".copy")
    shutil.copytree(folder, copy)
    entries = asyncio.run(_read(copy / LOG))
    effects = copy / EFFECTS
    lines = effects.read_text().splitlines() if effects.exists() else []
    shutil.rmtree(copy)
    return Record(entries, [decode_event(entry).fact for entry in entries], Counter(lines))


async def _read(path: Path) -> list[LogEntry]:
    log = SqliteLog(path)
    try:
        return await log.read(RUN_ID)
    finally:
        await log.close()


def assert_sound(record: Record) -> None:
    """At every moment: the log verifies, and there is no effect without a durable start."""
    audit = verify(record.entries, RUN_ID)
    assert audit.ok, audit.flaw
    assert [entry.seq for entry in record.entries] == list(range(len(record.entries)))
    for call_id, count in record.effects.items():
        assert count <= record.started[call_id], f"{call_id} had {count} effects, started {record.started[call_id]}"
        assert count == 1 or call_id in IDEMPOTENT, f"{call_id} had its effect {count} times"
        assert CODES.get(call_id) == "ok", f"{call_id} had an effect and must not run at all"


def recover(lives: Lives, folder: Path, mode: str, deaths: list[Record]) -> None:
    """Go on with the run in this folder; it must come to the end that it would have had."""
    assert lives.live(folder, mode) == FINISHED
    after = record_of(folder)
    assert_recovered(deaths, after)
    assert_told(folder, after)


def assert_recovered(deaths: list[Record], after: Record) -> None:
    """Nothing was lost, every call has one recorded outcome, and it is the true one."""
    assert_sound(after)
    for death in deaths:
        assert after.entries[: len(death.entries)] == death.entries, "what was durable is still there"
    interrupted = {call_id for death in deaths for call_id in death.interrupted}
    unknown = interrupted - READ_ONLY - IDEMPOTENT - RECONCILED
    codes = {seen.call_id: seen.code for seen in after.observations}
    expected = CODES | dict.fromkeys(unknown, "outcome_unknown")
    wrong = [f"{name}: {codes.get(name)}, not {expected[name]}" for name in CODES if codes.get(name) != expected[name]]
    assert not wrong, f"wrong in the log: {wrong}"
    assert len(after.observations) == len(CODES), "a call has more than one observation"
    assert [seen.call_id for seen in after.observations if seen.side_effects == "unknown" and not seen.ok] == [
        seen.call_id for seen in after.observations if seen.call_id in unknown
    ]
    _assert_effects(deaths, after, unknown)
    granted = Counter(fact.call_id for fact in after.facts if isinstance(fact, ApprovalGranted))
    assert granted == {"deploy-1": 1, "deploy-2": 1}, "a person is not asked again after an answer"


def _assert_effects(deaths: list[Record], after: Record, unknown: set[str]) -> None:
    for call_id, code in CODES.items():
        count, starts = after.effects[call_id], after.started[call_id]
        if call_id in unknown:
            assert count <= 1
            assert starts == 1, f"{call_id} was started again, and nobody knows what it did"
            assert all(death.effects[call_id] == count for death in deaths if call_id in death.interrupted)
        elif code != "ok":
            assert (count, starts) == (0, 0)
        elif call_id in IDEMPOTENT:
            assert 1 <= count <= starts
        elif call_id not in READ_ONLY:
            assert count == 1, f"{call_id} says ok and had its effect {count} times"


def assert_told(folder: Path, after: Record) -> None:
    """What the caller was told is what the log has, and what it points to is there."""
    recorded = {seen.call_id: seen.code for seen in after.observations}
    returned = json.loads((folder / RETURNED).read_text())
    assert {call_id for call_id, _ in returned} == set(CODES)
    assert all(recorded[call_id] == code for call_id, code in returned)
    kept = FileArtifacts(folder / ARTIFACTS)
    for seen in after.observations:
        assert bool(seen.artifacts) == (seen.tool == "report" and seen.ok)
        assert all(kept.read(artifact.id).decode() == REPORT for artifact in seen.artifacts)
