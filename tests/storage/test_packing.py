"""Events are packed: what is read is what was appended, and a damaged row is noticed."""

import sqlite3
from contextlib import closing
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.audit.verify import verify
from interlock.domain.event import LogEntry
from interlock.storage import packing
from interlock.storage.sqlite.log import SqliteLog
from tests.log_rows import edit_events, unpack_events

from .runs import append, chained

RUN, OTHER = chained("run", 7), chained("other", 3)


def entries(bodies: list[bytes], seq: int = 0) -> list[LogEntry]:
    return [LogEntry("run", seq + at, body, bytes([at % 256]) * 32) for at, body in enumerate(bodies)]


@given(st.lists(st.binary(max_size=400), min_size=1, max_size=20), st.integers(0, 2**40))
def test_what_is_unpacked_is_what_was_packed(bodies: list[bytes], seq: int) -> None:
    written = entries(bodies, seq)

    rows = list(packing.pack(written))

    assert [entry for row in rows for entry in packing.unpack("run", *row)] == written


def test_large_events_are_several_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packing, "_MAX_ROW_BYTES", 1_000)
    written = entries([b"x" * 600, b"y" * 600, b"z" * 5_000, b"a", b"b"])

    rows = list(packing.pack(written))

    assert [row[:2] for row in rows] == [(0, 1), (1, 1), (2, 1), (3, 2)]
    assert [entry for row in rows for entry in packing.unpack("run", *row)] == written


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    (row,) = packing.pack(entries([b"x" * 5_000]))
    monkeypatch.setattr(packing, "_MAX_UNPACKED_BYTES", 4_000)

    assert packing.unpack("run", *row) == [LogEntry("run", 0, b"", b"\0" * 32)]


@pytest.mark.parametrize(
    "change",
    [
        "seq = 'x'",
        "seq = seq + 1",
        "count = 'x'",
        "count = count + 1",
        "count = -1",
        "bodies = 7",
        "bodies = x''",
        "bodies = x'0193'",
        "bodies = x'00' || bodies",
        "bodies = substr(bodies, 1, length(bodies) - 9)",
        "hashes = 'text'",
        "hashes = substr(hashes, 2)",
        "hashes = zeroblob(length(hashes))",
    ],
)
async def test_a_row_edited_by_hand_fails_verification(tmp_path: Path, change: str) -> None:
    async with SqliteLog(tmp_path / "log") as log:
        await append(log, "run", RUN[:3])
        await append(log, "run", RUN[3:5])
        await append(log, "run", RUN[5:])
        with closing(sqlite3.connect(tmp_path / "log")) as connection, connection:
            connection.execute(f"UPDATE appends SET {change} WHERE seq = 3")  # noqa: S608

        read = await log.read("run")
        await log.list_runs()
        await log.feed()

    assert not verify(read, "run").ok


async def test_one_event_changed_inside_a_row_is_named(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "log") as log:
        await append(log, "run", RUN)
        edit_events(tmp_path / "log", "UPDATE events SET body = CAST(body || ' ' AS BLOB) WHERE seq = 4")

        flaw = verify(await log.read("run"), "run").flaw

    assert flaw is not None
    assert flaw.seq == 4


@pytest.fixture
async def old(tmp_path: Path) -> Path:
    """A log whose events are stored as older versions did, with a few of a newer one behind them."""
    path = tmp_path / "log"
    async with SqliteLog(path) as log:
        await append(log, "run", RUN[:4])
        await append(log, "other", OTHER[:2])
        await append(log, "run", RUN[4:6])
    with closing(sqlite3.connect(path)) as connection, connection:
        unpack_events(connection)
    async with SqliteLog(path) as log:
        await append(log, "run", RUN[6:])
        await append(log, "other", OTHER[2:])
    return path


async def test_old_and_new_events_are_read_as_one(old: Path) -> None:
    async with SqliteLog(old) as log:
        assert await log.read("run") == RUN
        assert await log.read("run", 2, 3) == RUN[3:6]
        assert await log.read("run", 5) == RUN[6:]
        assert [(item.position, item.entry.run_id, item.entry.seq) for item in await log.feed(2, 6)] == [
            (3, "run", 2),
            (4, "run", 3),
            (5, "other", 0),
            (6, "other", 1),
            (7, "run", 4),
            (8, "run", 5),
        ]
        assert await log.feed_position() == 10


async def test_packing_changes_nothing_that_is_read(old: Path) -> None:
    async with SqliteLog(old) as log:
        before = (await log.feed(), await log.list_runs(), await log.read("run"), await log.read("other"))
        assert await log.count_old_events() == 8

        assert [position async for position in log.pack_old_events()] == [8]

        assert await log.count_old_events() == 0
        assert (await log.feed(), await log.list_runs(), await log.read("run"), await log.read("other")) == before


async def test_a_row_that_no_version_wrote_is_left(old: Path) -> None:
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.execute("UPDATE events SET hash = x'00' WHERE seq = 2")
    async with SqliteLog(old) as log:
        before = await log.read("run")

        assert [position async for position in log.pack_old_events()]

        assert await log.count_old_events() == 1
        assert await log.read("run") == before


async def test_any_part_of_a_run_is_read(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "log") as log:
        for part in (RUN[:1], RUN[1:4], RUN[4:]):
            await append(log, "run", part)

        for after, limit in product(range(-1, 8), (None, 0, 1, 2, 5)):
            assert await log.read("run", after, limit) == RUN[after + 1 :][:limit]
            positions = [item.position for item in await log.feed(after + 1, limit)]
            assert positions == list(range(after + 2, 8))[:limit]


@pytest.mark.parametrize(("after", "limit", "rows"), [(8, 1, [8]), (8, 4, [8]), (8, 5, [8, 12]), (9, 4, [8, 12])])
async def test_a_page_unpacks_only_its_own_rows(
    after: int, limit: int, rows: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, unpacked = chained("run", 40), list[int]()

    def unpack(run_id: str, seq: int, *row: Any) -> list[LogEntry]:
        unpacked.append(seq)
        return packing.unpack(run_id, seq, *row)

    monkeypatch.setattr("interlock.storage.sqlite.log.unpack", unpack)
    async with SqliteLog(tmp_path / "log") as log:
        for at in range(0, 40, 4):
            await append(log, "run", written[at : at + 4])
        found = await log.feed(after, limit)
        assert unpacked == rows
        assert await log.read("run", limit=2) == written[:2]

    assert [each.entry for each in found] == written[after : after + limit]
    assert unpacked == [*rows, 0, 4]
