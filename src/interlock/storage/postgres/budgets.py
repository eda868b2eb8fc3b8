"""The ledger of budgets in Postgres. A transaction whose answer was lost is tried again, and then counts twice."""

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from ...domain.budget import BudgetCharge, BudgetKey
from ..budgets import KEEP_SECONDS, BudgetCounter, Reservation
from .connection import Connection, ConnectionPool, execute
from .queries import QUERIES

T = TypeVar("T")


class PostgresBudgets:
    """Count in the database of a log what runs use of budgets."""

    def __init__(self, pool: ConnectionPool) -> None:
        self._pool = pool

    async def read(self, keys: Sequence[BudgetKey]) -> tuple[int, ...]:
        """Return what was used, by counter."""
        return await self._run(lambda connection: tuple(_read(connection, key) for key in keys))

    async def reserve(self, charges: Sequence[BudgetCharge]) -> Reservation:
        """Add all charges if each stays within its limit; else add none."""
        return await self._run(lambda connection: _reserve(connection, charges))

    async def adjust(self, key: BudgetKey, amount: int) -> None:
        """Add an amount, or take one back."""
        await self._run(lambda connection: execute(connection, QUERIES["add_budget"], _values(key, amount)))

    async def list_counters(self, budgets: Sequence[str], now: int, limit: int) -> list[BudgetCounter]:
        """Return the counters of the current windows, largest first."""
        values = {"budgets": sorted(set(budgets)), "now": now, "limit": limit}
        rows = await self._run(lambda connection: execute(connection, QUERIES["list_budgets"], values).fetchall())
        return [BudgetCounter(BudgetKey(*row[:5]), row[5]) for row in rows]

    async def _run(self, operation: Callable[[Connection], T]) -> T:
        return await asyncio.to_thread(self._pool.run, operation)


def _values(key: BudgetKey, amount: int = 0, limit: int | None = None) -> dict[str, str | int | None]:
    return {
        "budget": key.budget,
        "measure": key.measure,
        "subject": key.subject,
        "starts_at": key.starts_at,
        "ends_at": key.ends_at,
        "amount": amount,
        "limit": limit,
    }


def _read(connection: Connection, key: BudgetKey) -> int:
    row = execute(connection, QUERIES["read_budget"], _values(key)).fetchone()
    return row[0] if row else 0


def _reserve(connection: Connection, charges: Sequence[BudgetCharge]) -> Reservation:
    before: dict[BudgetKey, int] = {}
    is_accepted = False
    with connection.transaction():
        # In one order, so that no two reservations wait for each other.
        for charge in sorted(charges, key=lambda charge: charge.key):
            key, values = charge.key, _values(charge.key, charge.amount, charge.limit)
            row = execute(connection, QUERIES["reserve_budget"], values).fetchone()
            if row is None:
                raise psycopg.Rollback
            before[key] = row[0] - charge.amount
            if not before[key]:
                execute(connection, QUERIES["remove_budgets"], (key.budget, key.starts_at - KEEP_SECONDS))
        is_accepted = True
    if is_accepted:
        return Reservation(True, tuple(before[charge.key] for charge in charges))
    return Reservation(False, tuple(_read(connection, charge.key) for charge in charges))
