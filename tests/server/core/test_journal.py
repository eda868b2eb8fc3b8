"""The journal of the server: bounded, without secrets, only added to; and what was done to it shows."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.event import next_hash
from interlock.server.core.audit.audit_log import GENESIS, MAX_DETAILS, MAX_TEXT_CHARS, AuditLog, AuditLogEntry
from interlock.server.core.database.interface import Database
from interlock.server.core.database.postgres import PostgresDatabase
from interlock.server.core.database.sqlite import SqliteDatabase

from .people import FakeClock, opened

ROWS = 6
DELETE = "DELETE FROM journal WHERE seq = ?"
BODY = "SELECT body FROM journal WHERE seq = ?"
REFUSALS = (sqlite3.IntegrityError, psycopg.errors.InsufficientPrivilege)


@pytest.fixture
def database(tmp_path: Path, database_backend: str) -> Iterator[Database]:
    with opened(tmp_path / "server.db") as database:
        yield database


async def filled(database: Database) -> AuditLog:
    journal = AuditLog(database, FakeClock())
    for number in range(ROWS):
        await journal.add("user:ada", "export.taken", f"run_{number}", detail={"format": "json"})
    return journal


def by_hand(database: Database, *statements: tuple[str, tuple[Any, ...]]) -> None:
    """As somebody would who has the file, or the password of the database's owner, and no respect for triggers."""
    if isinstance(database, PostgresDatabase):
        owner: dict[str, Any] = database.connector.parameters_of("editor") | {"user": "postgres"}
        with psycopg.connect(autocommit=True, **owner) as editor:
            editor.execute("SET session_replication_role = replica")
            for statement, values in statements:
                editor.execute(statement.replace("?", "%s").encode(), values)
        return
    assert isinstance(database, SqliteDatabase)
    with closing(sqlite3.connect(database.path, isolation_level=None)) as connection:
        connection.execute("DROP TRIGGER journal_is_not_edited")
        connection.execute("DROP TRIGGER journal_is_not_cut")
        for statement, values in statements:
            connection.execute(statement, values)


async def test_what_was_added_is_read_in_order_and_verifies(database: Database) -> None:
    clock = FakeClock()
    journal = AuditLog(database, clock)
    first = await journal.add("user:ada", "key.created", "key:bot", detail={"roles": "agent"})
    second = await journal.add("user:bob", "decision.refused", "act_1", outcome="refused")

    assert first == AuditLogEntry(
        seq=1, at=clock.at, by="user:ada", action="key.created", target="key:bot", detail={"roles": "agent"}
    )
    assert await journal.read() == (first, second)
    assert await journal.read(after=1) == (second,)
    assert await journal.read(limit=1) == (first,)
    assert await journal.read(limit=-1) == ()
    check, (count, head) = await journal.verify(), await journal.read_head()
    assert (check.count, check.head, check.problem) == (2, head.hex(), "")
    assert count == 2


async def test_the_hash_of_a_row_is_over_its_very_bytes_and_the_row_before(database: Database) -> None:
    await filled(database)
    rows = await database.run(
        lambda connection: connection.execute("SELECT body, hash FROM journal ORDER BY seq").fetchall()
    )
    previous = GENESIS
    for body, digest in rows:
        previous = next_hash(previous, body)
        assert digest == previous
    assert set(msgspec.json.decode(rows[0][0])) == {"seq", "at", "by", "action", "target", "outcome", "detail"}


async def test_an_empty_journal_verifies(database: Database) -> None:
    check = await AuditLog(database).verify()

    assert (check.count, check.head, check.problem) == (0, GENESIS.hex(), "")


async def test_the_table_refuses_edits(database: Database) -> None:
    journal = await filled(database)
    for statement in ("UPDATE journal SET seq = seq + 100", "DELETE FROM journal"):
        with pytest.raises(REFUSALS, match=r"only ever added to|permission denied"):
            await database.run(lambda connection, text=statement: connection.execute(text))

    assert (await journal.verify()).count == ROWS


@pytest.mark.parametrize("seq", range(1, ROWS + 1))
async def test_an_edited_row_is_found_at_its_place(database: Database, seq: int) -> None:
    journal = await filled(database)
    (body,) = database.read_now(lambda connection: connection.execute(BODY, (seq,)).fetchone())
    by_hand(database, ("UPDATE journal SET body = ? WHERE seq = ?", (body.replace(b"ada", b"eve"), seq)))
    check = await journal.verify()

    assert (check.count, check.broken_seq, check.problem) == (seq - 1, seq, f"row {seq} is not what was written")


@pytest.mark.parametrize("seq", range(1, ROWS))
async def test_a_removed_row_is_found_at_its_place(database: Database, seq: int) -> None:
    journal = await filled(database)
    by_hand(database, (DELETE, (seq,)))

    assert (await journal.verify()).problem == f"row {seq} is missing; the next one is {seq + 1}"


@pytest.mark.parametrize("seq", range(1, ROWS))
async def test_rows_in_another_order_are_found(database: Database, seq: int) -> None:
    journal = await filled(database)
    moves = ((-1, seq), (seq, seq + 1), (seq + 1, -1))
    by_hand(database, *(("UPDATE journal SET seq = ? WHERE seq = ?", move) for move in moves))

    assert (await journal.verify()).broken_seq == seq


async def test_a_row_that_says_it_is_another_is_found_though_its_hash_is_right(database: Database) -> None:
    journal = await filled(database)
    count, head = await journal.read_head()
    body = msgspec.json.encode(AuditLogEntry(seq=1, at=0, by="user:eve", action="export.taken"))
    row = (count + 1, body, next_hash(head, body))
    await database.run(lambda connection: connection.execute("INSERT INTO journal VALUES (?, ?, ?)", row))

    assert (await journal.verify()).problem == f"row {count + 1} says something else about itself"


async def test_a_cut_tail_shows_in_count_and_head(database: Database) -> None:
    journal = await filled(database)
    count, head = await journal.read_head()
    by_hand(database, (DELETE, (ROWS,)))
    check = await journal.verify()

    assert (check.count, check.head) != (count, head.hex())


async def test_a_row_that_cannot_be_read_is_shown_as_one(database: Database) -> None:
    journal = await filled(database)
    by_hand(
        database,
        ("UPDATE journal SET body = ? WHERE seq = ?", (b"\xff\0", 2)),
        ("UPDATE journal SET body = 'text' WHERE seq = ?", (3,)),
    )

    assert [entry.action for entry in await journal.read()][:4] == [
        "export.taken",
        "unreadable",
        "unreadable",
        "export.taken",
    ]


async def test_what_would_be_too_long_is_cut(database: Database) -> None:
    detail = {f"key{number}": "x" * 100_000 for number in range(100)}
    entry = await AuditLog(database).add("b" * 1_000_000, "a" * 1_000, "t" * 1_000, detail=detail)

    assert len(entry.by) == len(entry.action) == len(entry.target) == MAX_TEXT_CHARS
    assert len(entry.detail) == MAX_DETAILS
    assert all(len(text) == MAX_TEXT_CHARS for text in entry.detail.values())


async def test_a_key_that_somebody_pasted_is_hidden(database: Database, tmp_path: Path) -> None:
    secret = "S" * 43
    pasted = f"Bearer ik_01234567_{secret}."
    entry = await AuditLog(database).add(pasted, pasted, pasted, detail={pasted: pasted})

    assert entry.target == "Bearer ik_01234567_(hidden)."
    assert secret not in repr(entry)


@given(st.lists(st.tuples(st.text(), st.text(), st.dictionaries(st.text(), st.text(), max_size=3)), max_size=5))
async def test_any_text_is_kept_as_one_line_and_verifies(rows: list[tuple[str, str, dict[str, str]]]) -> None:
    with opened() as database:
        journal = AuditLog(database, FakeClock())
        added = [await journal.add(by, "tried", target, detail=detail) for by, target, detail in rows]

        assert list(await journal.read()) == added
        check = await journal.verify()
        assert (check.count, check.problem) == (len(rows), "")
        bodies = await database.run(lambda connection: connection.execute("SELECT body FROM journal").fetchall())
        assert all(len(body.decode().splitlines()) == 1 for (body,) in bodies)
