"""The ledger of budgets in memory, for a log in memory. It belongs to one thread."""

from collections.abc import Sequence

from ..domain.budget import BudgetCharge, BudgetKey
from .budgets import KEEP_SECONDS, BudgetCounter, Reservation


class MemoryBudgets:
    """Count in memory what runs use of budgets."""

    def __init__(self) -> None:
        self._used: dict[BudgetKey, int] = {}
        #: The newest window of each budget. When a new one begins, old counters are removed.
        self._newest: dict[str, int] = {}

    async def read(self, keys: Sequence[BudgetKey]) -> tuple[int, ...]:
        """Return what was used, by counter."""
        return tuple(self._used.get(key, 0) for key in keys)

    async def reserve(self, charges: Sequence[BudgetCharge]) -> Reservation:
        """Add all charges if each stays within its limit; else add none."""
        used = await self.read([charge.key for charge in charges])
        fits = all(charge.fits(before) for charge, before in zip(charges, used, strict=True))
        if fits:
            for charge in charges:
                self._add(charge.key, charge.amount)
        return Reservation(fits, used)

    async def adjust(self, key: BudgetKey, amount: int) -> None:
        """Add an amount, or take one back."""
        self._add(key, amount)

    async def list_counters(self, budgets: Sequence[str], now: int, limit: int) -> list[BudgetCounter]:
        """Return the counters of the current windows, largest first."""
        current = [
            BudgetCounter(key, used)
            for key, used in self._used.items()
            if key.budget in budgets and key.starts_at <= now < key.ends_at
        ]
        current.sort(key=lambda counter: (counter.key.budget, -counter.used, counter.key.subject))
        counts: dict[str, int] = {}
        found: list[BudgetCounter] = []
        for counter in current:
            counts[counter.key.budget] = counts.get(counter.key.budget, 0) + 1
            if counts[counter.key.budget] <= limit:
                found.append(counter)
        return found

    def _add(self, key: BudgetKey, amount: int) -> None:
        if self._newest.get(key.budget, 0) < key.starts_at:
            self._newest[key.budget] = key.starts_at
            oldest = key.starts_at - KEEP_SECONDS
            for old in [each for each in self._used if each.budget == key.budget and each.ends_at < oldest]:
                del self._used[old]
        self._used[key] = max(0, self._used.get(key, 0) + amount)
