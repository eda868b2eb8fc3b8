"""What every ledger of budgets promises."""

import asyncio
from collections.abc import Callable

import pytest

from ...domain.budget import BudgetCharge, BudgetKey
from ...storage.budgets import KEEP_SECONDS, BudgetCounter, BudgetLedger, Reservation
from .suite import ConformanceSuite

_HOUR = 3_600


def make_key(budget: str = "refunds", subject: str = "{}", hour: int = 0, measure: str = "calls/hour") -> BudgetKey:
    """Return a counter of a window of one hour."""
    return BudgetKey(budget, measure, subject, hour * _HOUR, (hour + 1) * _HOUR)


class BudgetLedgerConformance(ConformanceSuite):
    """Define the fixture `ledger`."""

    async def test_unknown_counter_is_zero(self, ledger: BudgetLedger) -> None:
        assert await ledger.read([make_key(), make_key("other")]) == (0, 0)
        assert await ledger.read([]) == ()
        assert await ledger.list_counters(["refunds"], 0, 10) == []

    async def test_reservations_add_up_to_the_limit(self, ledger: BudgetLedger) -> None:
        charge = BudgetCharge(make_key(), 4, 10)

        assert await ledger.reserve([charge]) == Reservation(True, (0,))
        assert await ledger.reserve([charge]) == Reservation(True, (4,))
        assert await ledger.reserve([charge]) == Reservation(False, (8,))
        assert await ledger.reserve([BudgetCharge(make_key(), 2, 10)]) == Reservation(True, (8,))
        assert await ledger.reserve([BudgetCharge(make_key(), 1, 10)]) == Reservation(False, (10,))
        assert await ledger.read([make_key()]) == (10,)

    async def test_first_charge_above_the_limit_is_refused(self, ledger: BudgetLedger) -> None:
        assert await ledger.reserve([BudgetCharge(make_key(), 11, 10)]) == Reservation(False, (0,))
        assert await ledger.reserve([BudgetCharge(make_key(), 1, 0)]) == Reservation(False, (0,))
        assert await ledger.read([make_key()]) == (0,)

    async def test_charge_without_limit_is_always_added(self, ledger: BudgetLedger) -> None:
        assert await ledger.reserve([BudgetCharge(make_key(), 10, 10)]) == Reservation(True, (0,))
        assert await ledger.reserve([BudgetCharge(make_key(), 3, None)]) == Reservation(True, (10,))
        assert await ledger.reserve([BudgetCharge(make_key(), 1, 10)]) == Reservation(False, (13,))
        assert await ledger.reserve([BudgetCharge(make_key(), 0, 10)]) == Reservation(True, (13,))

    async def test_all_charges_are_added_or_none(self, ledger: BudgetLedger) -> None:
        enough, full = make_key("z"), make_key("a")
        assert (await ledger.reserve([BudgetCharge(full, 5, 5)])).is_accepted

        both = await ledger.reserve([BudgetCharge(enough, 1, 5), BudgetCharge(full, 1, 5)])

        assert both == Reservation(False, (0, 5))
        assert await ledger.read([enough, full]) == (0, 5)
        assert await ledger.reserve([]) == Reservation(True, ())

    async def test_counters_are_separate(self, ledger: BudgetLedger) -> None:
        keys = [make_key(), make_key("other"), make_key(subject='{"agent": "a"}'), make_key(hour=1)]
        keys.append(make_key(measure="tokens/hour"))
        for number, key in enumerate(keys, start=1):
            assert (await ledger.reserve([BudgetCharge(key, number, 10)])).is_accepted

        assert await ledger.read(keys) == (1, 2, 3, 4, 5)

    async def test_adjusting_ignores_limits_and_stops_at_zero(self, ledger: BudgetLedger) -> None:
        await ledger.reserve([BudgetCharge(make_key(), 5, 5)])

        await ledger.adjust(make_key(), 7)
        assert await ledger.read([make_key()]) == (12,)
        await ledger.adjust(make_key(), -10)
        assert await ledger.read([make_key()]) == (2,)
        await ledger.adjust(make_key(), -10)
        await ledger.adjust(make_key("new"), -1)
        assert await ledger.read([make_key(), make_key("new")]) == (0, 0)

    async def test_large_amounts_are_exact(self, ledger: BudgetLedger) -> None:
        limit = 10**18
        assert (await ledger.reserve([BudgetCharge(make_key(), limit - 1, limit)])).is_accepted
        assert (await ledger.reserve([BudgetCharge(make_key(), 1, limit)])).is_accepted
        assert await ledger.reserve([BudgetCharge(make_key(), 1, limit)]) == Reservation(False, (limit,))

    async def test_concurrent_reservations_never_pass_the_limit(self, ledger: BudgetLedger) -> None:
        shared, other = make_key("a"), make_key("b")
        orders = ([shared, other], [other, shared])

        made = await asyncio.gather(
            *(ledger.reserve([BudgetCharge(key, 1, 7) for key in orders[number % 2]]) for number in range(30))
        )

        assert sum(reservation.is_accepted for reservation in made) == 7
        assert await ledger.read([shared, other]) == (7, 7)

    async def test_lists_current_counters_largest_first(self, ledger: BudgetLedger) -> None:
        keys = [make_key("a", f'{{"agent": "{name}"}}', hour=5) for name in ("x", "y", "z")]
        others = [make_key("a", hour=4), make_key("b", hour=5), make_key("c", hour=5)]
        for key, amount in zip([*keys, *others], (2, 3, 2, 9, 1, 1), strict=True):
            await ledger.reserve([BudgetCharge(key, amount, 10)])
        y, x, z, b = (
            BudgetCounter(key, used) for key, used in ((keys[1], 3), (keys[0], 2), (keys[2], 2), (others[1], 1))
        )

        at = 5 * _HOUR
        assert await ledger.list_counters(["b", "a", "a"], at, 10) == [y, x, z, b]
        assert await ledger.list_counters(["a", "b"], at + _HOUR - 1, 2) == [y, x, b]
        assert await ledger.list_counters(["a", "b"], at + _HOUR, 10) == []

    async def test_counters_of_old_windows_are_removed(self, ledger: BudgetLedger) -> None:
        kept_hours = KEEP_SECONDS // _HOUR
        old, recent, newest = (make_key(hour=hour) for hour in (0, 2, kept_hours + 2))
        for key in (old, recent, make_key("other"), newest):
            assert (await ledger.reserve([BudgetCharge(key, 1, 5)])).is_accepted

        assert await ledger.read([old, recent, make_key("other"), newest]) == (0, 1, 1, 1)


class DurableBudgetLedgerConformance(BudgetLedgerConformance):
    """Define the fixture `open_ledger`: each call opens the same ledger again."""

    @pytest.fixture
    def ledger(self, open_ledger: Callable[[], BudgetLedger]) -> BudgetLedger:
        """Return the ledger."""
        return open_ledger()

    async def test_reservations_are_seen_by_others(self, open_ledger: Callable[[], BudgetLedger]) -> None:
        first, second = open_ledger(), open_ledger()
        charge = BudgetCharge(make_key(), 3, 5)

        assert await second.read([make_key()]) == (0,)
        assert await first.reserve([charge]) == Reservation(True, (0,))
        assert await second.reserve([charge]) == Reservation(False, (3,))
        await second.adjust(make_key(), -1)
        assert await first.reserve([charge]) == Reservation(True, (2,))

    async def test_several_ledgers_never_pass_the_limit(self, open_ledger: Callable[[], BudgetLedger]) -> None:
        ledgers = [open_ledger() for _ in range(3)]

        made = await asyncio.gather(
            *(ledgers[number % 3].reserve([BudgetCharge(make_key(), 1, 10)]) for number in range(45))
        )

        assert sum(reservation.is_accepted for reservation in made) == 10
        assert await open_ledger().read([make_key()]) == (10,)
