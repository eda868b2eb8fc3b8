"""Refusals are counted, and a few of them are rows of the journal."""

from pathlib import Path

import pytest

from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.identity import guard
from interlock.server.core.identity.guard import REFUSAL_WINDOW_SECONDS, RefusalRecorder


async def test_of_many_refusals_in_a_minute_the_first_the_tenth_and_the_hundredth_are_written(tmp_path: Path) -> None:
    database, clock = SqliteDatabase(tmp_path / "server.db"), [0.0]
    try:
        written = AuditLog(database)
        counted = RefusalRecorder(written, lambda: clock[0])
        for _ in range(2):
            for number in range(250):
                await counted.record("key:bot", "runs.cancel", f"run_{number}")
            await counted.record("key:bot", "keys.read")
            await counted.record("key:other", "runs.cancel", "run_1")
            clock[0] += REFUSAL_WINDOW_SECONDS
        rows = await written.read()
    finally:
        database.close()
    told = [(row.by, row.action, row.target, row.detail.get("times", "")) for row in rows]
    once = [
        ("key:bot", "runs.cancel", "run_0", ""),
        ("key:bot", "runs.cancel", "run_9", "10"),
        ("key:bot", "runs.cancel", "run_99", "100"),
        ("key:bot", "keys.read", "", ""),
        ("key:other", "runs.cancel", "run_1", ""),
    ]
    assert told == once * 2


async def test_what_is_counted_does_not_grow_beyond_its_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "MAX_REFUSAL_COUNTERS", 5)
    database = SqliteDatabase(tmp_path / "server.db")
    try:
        counted = RefusalRecorder(AuditLog(database))
        for number in range(20):
            await counted.record(f"key:{number}", "runs.cancel")
    finally:
        database.close()
    assert len(counted) == 5
