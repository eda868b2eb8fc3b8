"""The ledger of budgets: one counter per budget, subject and window, shared by all runs of a log.

Guarantees, tested for every implementation by `BudgetLedgerConformance` of `interlock.testing.conformance`:

1. `reserve` adds every charge, or none: of several callers whose charges do not all fit, only as many succeed as fit.
2. What was reserved is durable when `reserve` returns. A process that dies afterwards has used it.
3. A retry after a lost answer may count twice, and never counts too little.
4. The cost of a call does not grow with history: counters of windows that ended are removed.
"""

from collections.abc import Sequence
from typing import Protocol

import msgspec

from ..domain.budget import BudgetCharge, BudgetKey

#: How long counters are kept after their window: the clocks of hosts may differ.
KEEP_SECONDS = 86_400


class Reservation(msgspec.Struct, frozen=True, gc=False):
    """The outcome of `reserve`, with what was used before, in the order of the charges."""

    is_accepted: bool
    used: tuple[int, ...]


class BudgetCounter(msgspec.Struct, frozen=True, gc=False):
    """A counter and its value, in millionths."""

    key: BudgetKey
    used: int


class BudgetLedger(Protocol):
    """Count what runs use of budgets. Implement it beside an event log of your own, as its attribute `budgets`."""

    async def read(self, keys: Sequence[BudgetKey]) -> tuple[int, ...]:
        """Return what was used, by counter; 0 for an unknown one."""
        ...

    async def reserve(self, charges: Sequence[BudgetCharge]) -> Reservation:
        """Add all charges if each stays within its limit; else add none."""
        ...

    async def adjust(self, key: BudgetKey, amount: int) -> None:
        """Add an amount, or take back a negative one, whatever the limit. A counter never falls below 0."""
        ...

    async def list_counters(self, budgets: Sequence[str], now: int, limit: int) -> list[BudgetCounter]:
        """Return the counters of these budgets whose window has this time, in seconds since 1970: the largest first,
        and no more than `limit` for each budget.
        """
        ...
