"""The ledger of budgets: one counter per budget, subject and window, shared by all runs of a log.

Guarantees, tested for every implementation by `BudgetLedgerConformance` of `interlock.testing.conformance`:

1. `reserve` adds every charge, or none: of several callers whose charges do not all fit, only as many succeed as fit.
2. What was reserved is durable when `reserve` returns. A process that dies afterwards has used it.
3. A retry after a lost answer may count twice, and never counts too little.
4. The cost of a call does not grow with history: counters of windows that ended are removed.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import msgspec

from .. import lazy_module
from ..domain.budget import BudgetCharge, BudgetKey, BudgetRule, from_millionths, make_measure

if TYPE_CHECKING:
    import json
else:
    json = lazy_module("json")

#: How long counters are kept after their window: the clocks of hosts may differ.
KEEP_SECONDS = 86_400
_NS = 1_000_000_000


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


class BudgetUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What was used of a budget in its current window, by one subject."""

    id: str
    #: The budget in one line.
    about: str
    #: Whose budget: agent, requester, tool. Empty: of all.
    subject: Mapping[str, str]
    used: float
    limit: float
    unit: str
    window: str
    #: What happens to a call that does not fit.
    then: str
    #: When the window began and when it ends, in nanoseconds since 1970.
    began_at: int
    resets_at: int

    @property
    def percent(self) -> float:
        """The share that is used, in percent. Of a limit of 0, all is used."""
        return 100 * self.used / self.limit if self.limit else 100.0


async def read_usage(log: object, rules: Sequence[BudgetRule], now: int, limit: int = 100) -> list[BudgetUsage]:
    """Return what was used of budgets in the windows of this time, which is in nanoseconds: by budget, the largest
    first, no more than `limit` for each. A log without a ledger has none.
    """
    ledger: BudgetLedger | None = getattr(log, "budgets", None)
    if ledger is None or not rules:
        return []
    by_measure = {(rule.id, make_measure(rule)): rule for rule in rules}
    counters = await ledger.list_counters([rule.id for rule in rules], now // _NS, limit)
    return [
        _make_usage(by_measure[counter.key.budget, counter.key.measure], counter)
        for counter in counters
        if (counter.key.budget, counter.key.measure) in by_measure
    ]


def _make_usage(rule: BudgetRule, counter: BudgetCounter) -> BudgetUsage:
    return BudgetUsage(
        id=rule.id,
        about=rule.describe(),
        subject=json.loads(counter.key.subject),
        used=from_millionths(counter.used),
        limit=rule.limit,
        unit=rule.unit,
        window=rule.window,
        then=rule.then,
        began_at=counter.key.starts_at * _NS,
        resets_at=counter.key.ends_at * _NS,
    )
