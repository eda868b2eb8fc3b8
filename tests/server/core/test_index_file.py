"""The file of the index may be lost, damaged or of something else: it is made anew, and nobody notices."""

import asyncio
import os
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest

from interlock import MemoryLog, SqliteLog
from interlock.domain.errors import LogError
from interlock.domain.event import RunCompleted
from interlock.server.core.index import activity, file_rows, index_file, index_updater
from interlock.server.core.index.index_file import IndexFile
from interlock.server.core.index.rows import RunQuery
from interlock.server.core.index.run_index import IndexUnavailableError, RunIndex
from interlock.server.core.live.live_event import LiveEvent
from interlock.storage.event_log import FeedEntry

from .index_runs import asking, assert_rows_are_those_of_the_ledgers, begun, granted, paused


def _log(count: int = 3) -> MemoryLog:
    log = MemoryLog()
    for number in range(count):
        paused(log, f"run_{number}")
    return log


async def _built(path: Path, log: MemoryLog) -> None:
    index = RunIndex(path, log)
    await index.catch_up()
    await index.close()


async def _assert_right(path: Path, log: MemoryLog) -> None:
    index = RunIndex(path, log)
    await assert_rows_are_those_of_the_ledgers(index, await log.run_ids())
    assert len((await index.list_runs(RunQuery(limit=1_000))).rows) == len(await log.run_ids())
    await index.close()


def _damage(path: Path, how: str) -> None:
    match how:
        case "deleted":
            path.unlink()
        case "empty":
            path.write_bytes(b"")
        case "garbage":
            path.write_bytes(os.urandom(5_000))
        case "cut":
            path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
        case "overwritten":
            path.write_bytes(path.read_bytes()[:4096] + b"\xaa" * (path.stat().st_size - 4096))
        case _:
            with sqlite3.connect(path) as connection:
                connection.execute(how)
            connection.close()


@pytest.mark.parametrize(
    "how",
    [
        "deleted",
        "empty",
        "garbage",
        "cut",
        "overwritten",
        "PRAGMA user_version = 99",
        "DROP TABLE place",
        "DELETE FROM place",
        "UPDATE place SET position = 1000000",
        "UPDATE place SET position = -7",
        "UPDATE place SET hash = X'00'",
        "UPDATE place SET run_id = 'run_other'",
    ],
)
async def test_a_file_that_cannot_be_used_is_made_anew(tmp_path: Path, how: str) -> None:
    path, log = tmp_path / "index.db", _log()
    await _built(path, log)

    await asyncio.to_thread(_damage, path, how)

    await _assert_right(path, log)


async def _after_crash(path: Path, log: MemoryLog, to: Path) -> None:
    """The files of an index that was not closed, as they are on the disk."""
    index = RunIndex(path, log)
    await index.catch_up()
    for ending in ("", "-wal"):
        shutil.copy(path.with_name(path.name + ending), to.with_name(to.name + ending))
    await index.close()


@pytest.mark.parametrize("part", range(8))
async def test_index_damaged_by_a_power_cut_is_rebuilt(tmp_path: Path, part: int) -> None:
    """A block of the file, or of its journal, never reached the disk."""
    path, cut, log = tmp_path / "index.db", tmp_path / "cut.db", _log(40)
    await _built(path, log)
    for number in range(40, 60):
        paused(log, f"run_{number}")
    await _after_crash(path, log, cut)
    lost = cut if part % 2 else cut.with_name("cut.db-wal")
    content = bytearray(lost.read_bytes())
    start = 4096 * Random(part).randrange(2, len(content) // 4096)
    content[start : start + 4096] = bytes(4096)
    lost.write_bytes(content)

    await _assert_right(cut, log)


async def test_index_with_a_lost_write_is_rebuilt(tmp_path: Path) -> None:
    """A page is as it was before the last writes, on a disk that confirmed what it did not do."""
    path, log = tmp_path / "index.db", _log(40)
    await _built(path, log)
    before = path.read_bytes()
    for number in range(40, 90):
        paused(log, f"run_{number}")
    index = RunIndex(path, log)
    await index.catch_up()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    after, damaged = path.read_bytes(), 0
    await index.close()

    for at in range(0, len(after), 4096):
        cut, lost = tmp_path / f"cut-{at}.db", before[at : at + 4096].ljust(4096, b"\0")
        cut.write_bytes(after[:at] + lost + after[at + 4096 :])
        if _is_damaged(cut):
            damaged += 1
            await _assert_right(cut, log)
    assert damaged > 10


def _is_damaged(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection, suppress(sqlite3.DatabaseError):
        return connection.execute("PRAGMA integrity_check(1)").fetchone() != ("ok",)
    return True


async def test_index_keeps_the_order_of_its_writes(tmp_path: Path) -> None:
    """Without it, a power cut may leave a file that never was."""
    file = IndexFile(tmp_path / "index.db")
    for connection in (file.write_connection, file.read_connection, file.lookup_connection):
        assert connection.execute("PRAGMA synchronous").fetchone() >= (1,)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    file.close()


async def test_index_closed_in_order_is_not_checked_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cut, log = tmp_path / "index.db", tmp_path / "cut.db", _log()
    checked: list[sqlite3.Connection] = []

    def check(connection: sqlite3.Connection) -> bool:
        checked.append(connection)
        return True

    monkeypatch.setattr(index_file, "_is_intact", check)
    await _built(path, log)
    await _assert_right(path, log)
    assert checked == []

    paused(log, "run_more")
    await _after_crash(path, log, cut)
    await _assert_right(cut, log)
    assert len(checked) == 1


async def test_the_file_of_another_log_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "index.db"
    await _built(path, _log(5))
    other = MemoryLog()
    begun(other, "run_other").add(*asking("c1", "act_1"), RunCompleted())

    await _assert_right(path, other)


async def test_a_file_that_is_damaged_while_it_is_open_is_made_anew_and_nobody_is_told_twice(tmp_path: Path) -> None:
    path, log = tmp_path / "index.db", _log(40)
    index = RunIndex(path, log)
    told: list[int] = []
    index.subscribe(lambda page: told.extend(live.position for live in page))
    await index.catch_up()

    await asyncio.to_thread(_overwrite_open, path)
    paused(log, "run_new")

    assert len((await index.list_runs(RunQuery(limit=100))).rows) == 41
    await assert_rows_are_those_of_the_ledgers(index, await log.run_ids())
    assert told == list(range(1, len(await log.feed()) + 1))
    await index.close()


async def test_whoever_reads_a_damaged_file_gets_what_the_log_says(tmp_path: Path) -> None:
    path, log = tmp_path / "index.db", _log(40)
    index = RunIndex(path, log)
    await index.catch_up()

    await asyncio.to_thread(_overwrite_open, path)

    assert len((await index.list_runs(RunQuery(limit=100))).rows) == 40
    await assert_rows_are_those_of_the_ledgers(index, await log.run_ids())
    await index.close()


async def test_a_page_that_cannot_be_written_changes_nothing_and_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = _log(1)
    index = RunIndex(tmp_path / "index.db", log)
    told: list[int] = []
    index.subscribe(lambda page: told.extend(live.position for live in page))

    def fail(connection: object, page: object) -> None:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(index_updater, "save_activity", fail)
        with pytest.raises(IndexUnavailableError, match="disk is full"):
            await index.get_run("run_0")
        assert told == []

    await assert_rows_are_those_of_the_ledgers(index, ["run_0"])
    assert told == list(range(1, len(await log.feed()) + 1))
    await index.close()


def _overwrite_open(path: Path) -> None:
    """All that is in the file, and nothing in the files beside it."""
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    connection.close()
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.write(b"\xaa" * size)


async def test_a_place_where_no_file_can_be_made_is_said_in_words(tmp_path: Path) -> None:
    index = RunIndex(tmp_path / "no" / "folder" / "index.db", _log())

    with pytest.raises(IndexUnavailableError, match="cannot be made"):
        await index.get_run("run_0")
    await index.close()


async def test_after_closing_nothing_is_opened_again(tmp_path: Path) -> None:
    index = RunIndex(tmp_path / "index.db", _log())
    await index.catch_up()
    await index.close()
    await index.close()

    with pytest.raises(IndexUnavailableError, match="is closed"):
        await index.get_run("run_0")


async def test_a_log_that_cannot_be_read_at_first_is_read_later(tmp_path: Path) -> None:
    path, log = tmp_path / "index.db", _log()
    await _built(path, log)
    index, feed = RunIndex(path, log), log.feed

    async def failing(after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        raise LogError("cannot read the log")

    log.feed = failing
    with pytest.raises(LogError):
        await index.get_run("run_0")
    log.feed = feed

    await assert_rows_are_those_of_the_ledgers(index, await log.run_ids())
    await index.close()


async def test_the_file_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "index.db"

    await _built(path, _log())

    assert path.stat().st_mode & 0o777 == 0o600


async def test_two_processes_with_one_file_apply_an_event_once(tmp_path: Path) -> None:
    log = MemoryLog()
    one, other = RunIndex(tmp_path / "index.db", log), RunIndex(tmp_path / "index.db", log)
    run = begun(log, "run_1")
    told: dict[str, list[int]] = {"one": [], "other": []}
    one.subscribe(lambda page: told["one"].extend(live.entry.seq for live in page))
    other.subscribe(lambda page: told["other"].extend(live.entry.seq for live in page))
    for index in (one, other, other, one):
        await index.catch_up()
        run.add(*asking(f"c{run.next_seq}", f"act_{run.next_seq}"))

    await asyncio.gather(one.catch_up(), other.catch_up())

    for index in (one, other):
        await assert_rows_are_those_of_the_ledgers(index, ["run_1"])
        await index.close()
    assert told["one"] == list(range(run.next_seq))
    assert told["other"] == list(range(run.next_seq))[2:] or told["other"] == list(range(run.next_seq))


async def test_a_reader_sees_what_it_wrote(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        memory = MemoryLog()
        run = paused(memory, "run_1")
        index = RunIndex(tmp_path / "index.db", log)
        written = await memory.read("run_1")
        for count, entry in enumerate(written, 1):
            appended = log.append("run_1", [entry])
            assert appended is not None
            await appended
            row = await index.get_run("run_1")
            assert row is not None
            assert row.last_seq == count - 1
        assert run.next_seq == len(written)
        await index.close()


async def test_when_nobody_wrote_the_log_is_not_read(tmp_path: Path) -> None:
    log = _log()
    index = RunIndex(tmp_path / "index.db", log)
    await index.catch_up()
    reads: list[int] = []

    async def feed(after: int = 0, limit: int | None = None) -> list[FeedEntry]:
        reads.append(after)
        return []

    log.feed = feed

    for _ in range(3):
        await index.get_run("run_1")
        await index.count_runs()

    assert reads == []
    await index.close()


async def test_callers_at_once_share_a_pass_and_one_that_goes_away_does_not_stop_it(tmp_path: Path) -> None:
    log = _log(200)
    index = RunIndex(tmp_path / "index.db", log)
    told: list[int] = []
    index.subscribe(lambda page: told.extend(live.position for live in page))
    impatient = asyncio.create_task(index.catch_up())
    await asyncio.wait([impatient], timeout=0)
    impatient.cancel()

    await asyncio.gather(*(index.catch_up() for _ in range(20)))

    assert told == list(range(1, len(await log.feed()) + 1))
    await index.close()


async def test_a_listener_that_fails_keeps_nothing_from_the_others_and_an_ended_one_is_not_told(tmp_path: Path) -> None:
    log = _log(1)
    index = RunIndex(tmp_path / "index.db", log)
    told: list[LiveEvent] = []
    faults: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: faults.append(about.get("exception")))
    error = RuntimeError("a bug")

    def fail(page: object) -> None:
        raise error

    index.subscribe(fail)
    end = index.subscribe(told.extend)
    await index.catch_up()
    end()
    end()
    paused(log, "run_new")
    await index.catch_up()

    assert [live.entry for live in told] == await log.read("run_0")
    assert faults == [error, error]
    await index.close()


@pytest.mark.requirement("R168")
async def test_recent_activity_is_of_all_runs_that_one_may_see_newest_first(tmp_path: Path) -> None:
    log = MemoryLog()
    ada, bob = paused(log, "run_a", requester="user:ada"), paused(log, "run_b", agent="clerk", requester="user:bob")
    ada.add(granted("act_run_a"))
    bob.add(granted("act_run_b"))
    index = RunIndex(tmp_path / "index.db", log)

    everything = await index.list_activity(10)
    own = await index.list_activity(10, agents=frozenset(), person="user:ada")

    assert [(row.run_id, row.type) for row in everything] == [
        ("run_b", "APPROVAL_GRANTED"),
        ("run_a", "APPROVAL_GRANTED"),
        ("run_b", "APPROVAL_REQUIRED"),
        ("run_a", "APPROVAL_REQUIRED"),
    ]
    assert [row.run_id for row in own] == ["run_a", "run_a"]
    assert (own[1].tool, own[1].action_id, own[1].text, own[1].seq) == ("change", "act_run_a", "May it?", 5)
    assert await index.list_activity(1, agents=frozenset({"clerk"})) == everything[:1]
    await index.close()


async def test_of_recent_activity_the_last_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MAX_ACTIVITY_ROWS", 10)
    monkeypatch.setattr(file_rows, "ACTIVITY_TRIM_SLACK", 5)
    log = MemoryLog()
    index = RunIndex(tmp_path / "index.db", log)
    for number in range(50):
        paused(log, f"run_{number}")
        await index.catch_up()

    kept = await index.list_activity(1_000)

    assert len(kept) == 10
    assert kept[0].run_id == "run_49"
    await index.close()


async def test_page_of_events_reads_its_runs_in_one_statement(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log, selected = MemoryLog(), list[str]()
    index = RunIndex(tmp_path / "index.db", log)
    await index.catch_up()
    write = index_updater._write_page  # pyright: ignore[reportPrivateUsage]  # where the statements are

    def traced(file: Any, *args: Any) -> None:
        file.write_connection.set_trace_callback(selected.append)
        write(file, *args)

    monkeypatch.setattr(index_updater, "_write_page", traced)
    for number in range(20):
        paused(log, f"run_{number}")
    await index.catch_up()

    assert len([sql for sql in selected if sql.startswith("SELECT") and " FROM runs " in sql]) == 1
    await index.close()
