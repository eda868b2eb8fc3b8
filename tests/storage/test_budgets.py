"""The ledgers of budgets in memory, in a SQLite file and in Postgres."""

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.domain.budget import BudgetCharge, BudgetKey
from interlock.domain.errors import LogError, LogVersionError
from interlock.storage.budgets import BudgetLedger
from interlock.storage.memory import MemoryLog
from interlock.storage.memory_budgets import MemoryBudgets
from interlock.storage.postgres.budgets import PostgresBudgets
from interlock.storage.postgres.log import PostgresLog
from interlock.storage.sqlite.budgets import SqliteBudgets
from interlock.storage.sqlite.log import SqliteLog
from interlock.testing.conformance import BudgetLedgerConformance, DurableBudgetLedgerConformance
from tests.postgres.server import PostgresServer

KEY = BudgetKey("refunds", "calls/hour", "{}", 0, 3_600)
RESERVE = """
import asyncio, sys
from interlock.domain.budget import BudgetCharge, BudgetKey
from interlock.storage.sqlite.budgets import SqliteBudgets

async def main():
    ledger, accepted = SqliteBudgets(sys.argv[1]), 0
    charge = BudgetCharge(BudgetKey("refunds", "calls/hour", "{}", 0, 3600), 1, 40)
    for _ in range(30):
        accepted += (await ledger.reserve([charge])).is_accepted
    print(accepted)

asyncio.run(main())
"""
KILLED = RESERVE.replace("print(accepted)", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")


class TestMemoryBudgets(BudgetLedgerConformance):
    @pytest.fixture
    def ledger(self) -> BudgetLedger:
        return MemoryLog().budgets


class TestSqliteBudgets(DurableBudgetLedgerConformance):
    @pytest.fixture
    def open_ledger(self, tmp_path: Path) -> Iterator[Callable[[], BudgetLedger]]:
        opened = list[SqliteBudgets]()

        def open_() -> BudgetLedger:
            opened.append(SqliteBudgets(tmp_path / "runs.db-budgets"))
            return opened[-1]

        yield open_
        for ledger in opened:
            ledger.close()


class TestPostgresBudgets(DurableBudgetLedgerConformance):
    @pytest.fixture
    async def open_ledger(self, postgres: PostgresServer) -> AsyncIterator[Callable[[], BudgetLedger]]:
        schema, opened = postgres.empty_schema(), list[PostgresLog]()

        def open_() -> PostgresBudgets:
            opened.append(postgres.open_log(schema, lease_seconds=600))
            return opened[-1].budgets

        yield open_
        for log in opened:
            await log.close()


def start(program: str, path: Path) -> "subprocess.Popen[str]":
    return subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)


async def test_processes_never_pass_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "runs.db-budgets"

    processes = [start(RESERVE, path) for _ in range(4)]

    assert sum(int(process.communicate()[0]) for process in processes) == 40
    assert await SqliteBudgets(path).read([KEY]) == (40,)


async def test_reservations_survive_a_kill(tmp_path: Path) -> None:
    path = tmp_path / "runs.db-budgets"

    start(KILLED, path).communicate()

    assert await SqliteBudgets(path).read([KEY]) == (30,)


async def test_reading_makes_no_file(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "runs.db")

    assert await log.budgets.read([KEY]) == (0,)
    assert await log.budgets.list_counters(["refunds"], 0, 10) == []
    assert not (tmp_path / "runs.db-budgets").exists()
    await log.budgets.reserve([BudgetCharge(KEY, 1)])
    assert (tmp_path / "runs.db-budgets").stat().st_mode & 0o777 == 0o600
    assert str(tmp_path / "runs.db-budgets-wal") in log.own_paths
    await log.close()


async def test_other_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budgets"
    path.write_text("these are not budgets, but a letter to a friend")

    with pytest.raises(LogError, match=r"^cannot use the budgets in .*budgets: file is not a database$"):
        await SqliteBudgets(path).reserve([BudgetCharge(KEY, 1)])
    assert path.read_text().startswith("these are not budgets")


async def test_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "budgets"
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 2")
    connection.close()

    with pytest.raises(LogVersionError, match=r"were written by a newer version of Interlock"):
        await SqliteBudgets(path).read([KEY])


def make_charge(name: str, amount: int, limit: int) -> BudgetCharge:
    return BudgetCharge(BudgetKey(name, "calls/hour", "{}", 0, 3_600), amount, limit)


charges = st.builds(make_charge, st.sampled_from("ab"), st.integers(0, 9), st.integers(0, 20))
steps = st.lists(st.lists(charges, min_size=1, max_size=2, unique_by=lambda charge: charge.key), max_size=25)


@given(steps)
@settings(max_examples=25, deadline=None)
def test_sum_of_accepted_charges_stays_within_every_limit(steps: list[list[BudgetCharge]]) -> None:
    """Each ledger accepts the same, and what it accepted is what it has counted."""

    async def reserve_all(ledger: BudgetLedger) -> list[bool]:
        used, accepted = {"a": 0, "b": 0}, list[bool]()
        for step in steps:
            reservation = await ledger.reserve(step)
            assert reservation.used == tuple(used[charge.key.budget] for charge in step)
            if reservation.is_accepted:
                for charge in step:
                    used[charge.key.budget] += charge.amount
                    assert charge.limit is not None
                    assert not charge.amount or used[charge.key.budget] <= charge.limit
            else:
                assert any(not charge.fits(used[charge.key.budget]) for charge in step)
            accepted.append(reservation.is_accepted)
        return accepted

    with TemporaryDirectory() as folder:
        ledger = SqliteBudgets(Path(folder) / "budgets")
        try:
            assert asyncio.run(reserve_all(MemoryBudgets())) == asyncio.run(reserve_all(ledger))
        finally:
            ledger.close()
