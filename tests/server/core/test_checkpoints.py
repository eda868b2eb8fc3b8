"""How far runs are is signed, at a cost of what is new, and a log or a server that says otherwise later is caught."""

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from interlock.audit.checkpoint import CheckpointStatement, read_statement
from interlock.audit.keys import keys_by_id
from interlock.audit.signed_checkpoint import SignedCheckpoint, parse_checkpoint_lines
from interlock.domain.event import LogEntry, RunStarted, WarningRaised
from interlock.server.core.audit.checkpoints import Checkpoints
from interlock.server.core.audit.signing import Signer, is_signature
from interlock.server.core.database.interface import Database
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.storage.event_log import FeedEntry
from interlock.storage.memory import MemoryLog
from interlock.storage.sqlite.log import SqliteLog
from tests.history.recorded import record
from tests.log_around import LogAround
from tests.logs import open_database


def events(run_id: str, count: int) -> list[LogEntry]:
    return record([RunStarted(schema=1), *(WarningRaised(message=str(number)) for number in range(count - 1))], run_id)


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return Signer(tmp_path / "signing.key", now=lambda: 1_700_000_000_000_000_000)


@pytest.fixture
def db(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with closing(open_database(tmp_path / "server.db")) as opened:
        yield opened


def said(signer: Signer, signed: SignedCheckpoint | None) -> CheckpointStatement:
    assert signed is not None
    found = read_statement(signed, keys_by_id(signer.list_keys()), is_signature)
    assert isinstance(found, CheckpointStatement)
    return found


def heads(signer: Signer, signed: SignedCheckpoint | None) -> dict[str, int]:
    return {run_id: head.count for run_id, head in said(signer, signed).runs.items()}


class CountedLog(LogAround):
    """Says how many events were read from it."""

    read_events = 0

    async def feed(self, after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        found = await self._inner.feed(after, limit)
        self.read_events += len(found)
        return found


async def test_a_checkpoint_has_what_changed_since_the_last_one(db: Database, signer: Signer) -> None:
    log = CountedLog(MemoryLog())
    taken = Checkpoints(db, log, signer, now=lambda: 1_700_000_000_000_000_000)
    one, two = events("run_1", 5), events("run_2", 3)
    log.append("run_1", one[:4])

    first = await taken.take()
    log.append("run_2", two)
    second = await taken.take()

    assert await taken.take() is None
    assert heads(signer, first) == {"run_1": 4}
    assert heads(signer, second) == {"run_2": 3}
    assert first is not None
    statement = said(signer, second)
    assert (statement.number, statement.previous, statement.at) == (2, first.digest, "2023-11-14T22:13:20.000000Z")
    assert statement.runs["run_2"].head == two[-1].hash.hex()
    assert log.read_events < 12  # each event once, and the last one again to see that the log is the same


async def test_with_no_events_there_is_nothing_to_sign(db: Database, signer: Signer) -> None:
    assert await Checkpoints(db, MemoryLog(), signer).take() is None


async def test_a_long_log_is_signed_in_pieces(db: Database, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interlock.server.core.audit.checkpoints._MAX_EVENTS", 1_000)
    log = MemoryLog()
    for number in range(300):
        log.append(f"run_{number}", events(f"run_{number}", 9))
    taken = Checkpoints(db, log, signer)

    last = await taken.take()

    pieces = [heads(signer, signed) for signed in await taken.list()]
    assert (said(signer, last).number, max(map(len, pieces))) == (3, 112)
    assert {name: count for piece in pieces for name, count in piece.items()} == {
        f"run_{number}": 9 for number in range(300)
    }
    assert (await taken.verify()).ok


async def test_checkpoints_go_on_where_they_were_after_a_restart(tmp_path: Path, signer: Signer) -> None:
    for count in (3, 7):
        async with SqliteLog(tmp_path / "runs.db") as log:
            with closing(SqliteDatabase(tmp_path / "server.db")) as db:
                there = len(await log.read("run_1"))
                pending = log.append("run_1", events("run_1", count)[there:])
                assert pending is not None
                await pending
                taken = Checkpoints(db, log, signer)
                assert heads(signer, await taken.take()) == {"run_1": count}
                found = await taken.verify()
                assert (found.ok, found.checkpoints, found.runs) == (True, count // 3, 1)


async def test_an_export_is_signed_for_its_run_alone_and_once(db: Database, signer: Signer) -> None:
    log = MemoryLog()
    log.append("run_1", events("run_1", 5))
    log.append("run_2", events("run_2", 5))
    taken = Checkpoints(db, log, signer, read_audit_log_head=lambda: _journal(3))
    await taken.take()

    signed = await taken.take_for_run("run_1")
    again = await taken.take_for_run("run_1", await log.read("run_1"))

    assert signed == again
    assert heads(signer, signed) == {"run_1": 5}
    assert (said(signer, signed).number, said(signer, signed).journal) == (2, None)
    assert await taken.take() is None
    assert await taken.take_for_run("run_3") is None


async def _journal(count: int) -> tuple[int, bytes]:
    return count, bytes([count]) * 32


async def test_the_exported_events_are_signed_also_when_the_run_went_on(db: Database, signer: Signer) -> None:
    log, entries = MemoryLog(), events("run_1", 9)
    log.append("run_1", entries)

    assert heads(signer, await Checkpoints(db, log, signer).take_for_run("run_1", entries[:6])) == {"run_1": 6}


async def test_what_is_not_what_was_written_or_signed_before_is_not_signed(db: Database, signer: Signer) -> None:
    log, entries = MemoryLog(), events("run_1", 9)
    log.append("run_1", entries)
    taken = Checkpoints(db, log, signer)
    await taken.take()

    assert await taken.take_for_run("run_1", [*entries[:3], *entries[4:]]) is None
    assert await taken.take_for_run("run_1", entries[:5]) is None
    assert await taken.take_for_run("run_1", record([RunStarted(schema=1, agent="other")] * 9, "run_1")) is None
    assert len(await taken.list()) == 1


async def test_the_journal_is_signed_with_what_changed_and_alone(db: Database, signer: Signer) -> None:
    rows = [3]
    taken = Checkpoints(
        db,
        MemoryLog(),
        signer,
        read_audit_log_head=lambda: _journal(rows[0]),
        read_audit_log_hash=lambda count: _row(count, kept=rows[0]),
    )

    first = said(signer, await taken.take())
    assert first.journal is not None
    assert (first.runs, first.journal.count, await taken.take()) == ({}, 3, None)
    rows[0] = 4
    await taken.take()
    assert (await taken.verify()).ok

    rows[0] = 2
    assert (await taken.verify()).contradictions == (
        "row 3 of the journal is not the one that was signed",
        "row 4 of the journal is not the one that was signed",
    )


async def _row(count: int, kept: int) -> bytes | None:
    return bytes([count]) * 32 if count <= kept else None


async def checkpointed(log: MemoryLog, db: Database, signer: Signer) -> Checkpoints:
    """Three runs, signed as they went on."""
    taken = Checkpoints(db, log, signer)
    for begin, end in ((0, 4), (4, 9)):
        for name in ("run_1", "run_2", "run_3"):
            log.append(name, events(name, 9)[begin:end])
        await taken.take()
    return taken


@pytest.mark.requirement("P11")
async def test_a_log_that_was_cut_or_made_anew_contradicts_what_was_signed(db: Database, signer: Signer) -> None:
    whole = MemoryLog()
    taken = await checkpointed(whole, db, signer)
    cut, anew = MemoryLog(), MemoryLog()
    cut.append("run_1", events("run_1", 6))
    cut.append("run_2", events("run_2", 9))
    anew.append("run_1", record([RunStarted(schema=1, agent="other"), *[WarningRaised(message="")] * 8], "run_1"))

    after_cut = await Checkpoints(db, cut, signer).verify()

    assert (await taken.verify()).ok
    assert after_cut.contradictions == (
        "run_3: 4 events were signed, and event 3 is not there",
        "run_1: 9 events were signed, and event 8 is not there",
        "run_3: 9 events were signed, and event 8 is not there",
    )
    assert (await taken.verify_run("run_1")).complete
    for log, problem in ((cut, "cut"), (anew, "rewritten")):
        flaw = (await Checkpoints(db, log, signer).verify_run("run_1")).audit.flaw
        assert flaw is not None
        assert flaw.problem == problem


async def test_a_log_that_was_replaced_is_signed_anew_and_the_checkpoints_say_so(db: Database, signer: Signer) -> None:
    await checkpointed(MemoryLog(), db, signer)
    restored = MemoryLog()
    restored.append("run_1", events("run_1", 5))
    taken = Checkpoints(db, restored, signer)

    assert heads(signer, await taken.take()) == {"run_1": 5}

    found = await taken.verify()
    assert found.flaw is not None
    assert "checkpoint 3 is of another log than the one before it" in found.flaw.message


@pytest.mark.requirement("P11")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("DELETE FROM checkpoints WHERE number = 1", "checkpoint 1 is missing: 2 is in its place"),
        (
            "UPDATE checkpoints SET document = CAST(replace(CAST(document AS TEXT), 'run_1', 'run_9') AS BLOB)",
            "is not by key",
        ),
        ("UPDATE checkpoints SET signature = zeroblob(64) WHERE number = 2", "is not by key"),
        ("UPDATE checkpoints SET document = CAST('{}' AS BLOB) WHERE number = 1", "cannot be read"),
    ],
)
async def test_what_was_done_to_the_checkpoints_is_found(
    signer: Signer, tmp_path: Path, change: str, message: str
) -> None:
    with closing(SqliteDatabase(tmp_path / "server.db")) as db:
        taken = await checkpointed(MemoryLog(), db, signer)
        with closing(sqlite3.connect(tmp_path / "server.db")) as connection, connection:
            connection.execute(change)

        found = await taken.verify()

    assert found.flaw is not None
    assert message in found.flaw.message


async def test_old_signatures_stay_valid_when_the_key_is_replaced(db: Database, signer: Signer, tmp_path: Path) -> None:
    log = MemoryLog()
    taken = await checkpointed(log, db, signer)
    exported = await taken.take_for_run("run_1")

    Signer(tmp_path / "signing.key").rotate()  # by another process
    again = await taken.take_for_run("run_1")

    assert said(signer, exported).key != said(signer, again).key
    assert said(signer, again).key == signer.list_keys()[-1].key
    assert (await taken.verify()).ok
    assert (await taken.verify_run("run_1")).complete


async def test_every_checkpoint_is_copied_outside_in_order_also_what_could_not_be_at_first(
    db: Database, signer: Signer, tmp_path: Path
) -> None:
    log, outside = MemoryLog(), tmp_path / "elsewhere" / "checkpoints.ndjson"
    taken = Checkpoints(db, log, signer, copy_to=outside)
    log.append("run_1", events("run_1", 3))
    await taken.take()
    assert "cannot be copied" in taken.copy_problem

    outside.parent.mkdir()
    await taken.take_for_run("run_1")
    await taken.take_for_run("run_1")

    assert (taken.copy_problem, outside.stat().st_mode & 0o777) == ("", 0o600)
    assert parse_checkpoint_lines(outside.read_bytes().splitlines()) == await taken.list()
    assert [json.loads(line)["checkpoint"]["number"] for line in outside.read_bytes().splitlines()] == [1, 2]


async def test_a_copy_is_not_written_through_a_link(db: Database, signer: Signer, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    log = MemoryLog()
    log.append("run_1", events("run_1", 3))
    taken = Checkpoints(db, log, signer, copy_to=tmp_path / "link")

    await taken.take()

    assert (bool(taken.copy_problem), (tmp_path / "target").exists()) == (True, False)


@pytest.mark.parametrize(("after", "limit", "numbers"), [(0, 100, [1, 2]), (1, 100, [2]), (0, 1, [1]), (0, -5, [])])
async def test_checkpoints_are_listed_in_order(
    db: Database, signer: Signer, after: int, limit: int, numbers: list[int]
) -> None:
    taken = await checkpointed(MemoryLog(), db, signer)

    listed: list[Any] = [json.loads(signed.document)["number"] for signed in await taken.list(after, limit)]

    assert listed == numbers
