"""Budgets: windows, amounts, counters and their text."""

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, get_args

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import ConfigurationError, tool
from interlock.domain.budget import (
    BudgetCharge,
    BudgetRule,
    BudgetWindow,
    check_budget,
    find_window,
    from_millionths,
    make_key,
    make_use,
    sum_argument,
    to_millionths,
)
from interlock.domain.tool import CallContext

NS = 1_000_000_000
WINDOWS = get_args(BudgetWindow)
times = st.datetimes(datetime(1971, 1, 1), datetime(2200, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001 - bounds
windows = st.sampled_from(WINDOWS)


def seconds(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp())


@pytest.mark.parametrize(
    ("window", "at", "start", "end"),
    [
        ("hour", "2026-11-18 13:59:59", "2026-11-18 13:00", "2026-11-18 14:00"),
        ("hour", "2026-11-18 14:00:00", "2026-11-18 14:00", "2026-11-18 15:00"),
        ("day", "2024-02-29 23:59:59", "2024-02-29", "2024-03-01"),
        ("day", "2026-12-31 00:00:00", "2026-12-31", "2027-01-01"),
        ("week", "2026-11-16 00:00:00", "2026-11-16", "2026-11-23"),
        ("week", "2027-01-03 23:59:59", "2026-12-28", "2027-01-04"),
        ("month", "2026-12-31 23:59:59", "2026-12-01", "2027-01-01"),
        ("month", "2024-02-01 00:00:00", "2024-02-01", "2024-03-01"),
    ],
)
def test_windows_are_calendar_windows_in_utc(window: BudgetWindow, at: str, start: str, end: str) -> None:
    assert find_window(window, seconds(at) * NS + 999_999_999) == (seconds(start), seconds(end))


@given(windows, times)
def test_windows_follow_each_other_without_gap(window: BudgetWindow, at: datetime) -> None:
    now = int(at.timestamp()) * NS
    start, end = find_window(window, now)

    assert start * NS <= now < end * NS
    assert find_window(window, start * NS) == find_window(window, end * NS - 1) == (start, end)
    assert find_window(window, end * NS)[0] == end
    assert find_window(window, start * NS - 1)[1] == start


@pytest.mark.parametrize(
    ("amount", "millionths"),
    [(1, 1_000_000), (0.1, 100_000), ("19.99", 19_990_000), (0.00000001, 1), (Decimal("1e3"), 10**9), (10**12, 10**18)],
)
def test_amounts_are_millionths_rounded_up(amount: Any, millionths: int) -> None:
    assert to_millionths(amount) == millionths


@pytest.mark.parametrize("amount", [-1, "-0.01", 10**12 + 1, float("inf"), float("nan"), "1,000", "twenty", "", "0x10"])
def test_other_amounts_are_refused(amount: Any) -> None:
    with pytest.raises(ValueError, match="is not"):
        to_millionths(amount)


@given(st.decimals(0, 10**9, places=6))
def test_amounts_are_exact(amount: Decimal) -> None:
    assert to_millionths(amount) == amount * 1_000_000
    assert to_millionths(from_millionths(to_millionths(amount))) == to_millionths(amount)


@tool(origin="mcp", source="shop")
def refund() -> str:
    """Pay money back."""
    return "paid"


REFUND = msgspec.structs.replace(refund, source_name="refund_order")
SUM = BudgetRule(id="b", limit=100, measure="sum", argument="items.price")


def test_sum_adds_all_values_of_lists() -> None:
    assert sum_argument(SUM, {"items": [{"price": 1.5}, {"price": "2"}, {"price": 0}]}) == to_millionths(3.5)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "the call has no value at `items.price`"),
        ({"items": []}, "the call has no value at `items.price`"),
        ({"items": [{"price": 1}] * 1_001}, "the call has too many values at `items.price`"),
        ({"items": {"price": True}}, "`items.price` is not a number"),
        ({"items": {"price": None}}, "`items.price` is not a number"),
        ({"items": {"price": [1]}}, "`items.price` is not a number"),
        ({"items": {"price": "1" * 41}}, "`items.price` is not a number"),
        ({"items": {"price": -1}}, "-1 is not between 0 and 1,000,000,000,000"),
        ({"items": {"price": "a few"}}, "'a few' is not a number"),
        ({"items": [{"price": 10**12}] * 2}, "the values of `items.price` are more than 1,000,000,000,000"),
    ],
)
def test_sum_that_is_not_known_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        sum_argument(SUM, arguments)
    assert str(refused.value) == message


def test_subjects_have_counters_of_their_own() -> None:
    rule = BudgetRule(id="b", limit=1, per=("requester", "agent"))
    ann, bob = (CallContext(run_id="r", agent="desk", requester=name) for name in ("ann", "bob"))

    assert make_key(rule, ann, "refund", 0) == make_key(rule, ann, "other", 0)
    assert make_key(rule, ann, "refund", 0) != make_key(rule, bob, "refund", 0)
    assert make_key(rule, ann, "refund", 0).subject == '{"agent": "desk", "requester": "ann"}'


def test_budgets_are_about_tools_and_agents_by_glob() -> None:
    def matches(agent: str = "", **fields: Any) -> bool:
        return BudgetRule(id="b", limit=1, **fields).matches_call(REFUND, CallContext(run_id="r", agent=agent))

    assert matches()
    assert matches(tools=("re*",))
    assert matches(tools=("mail", "mcp__shop__refund_order"))
    assert not matches(tools=("mcp__shop__refund",))
    assert matches(agent="desk-1", agents=("desk-*",))
    assert not matches(agent="other", agents=("desk-*",))
    assert not matches(measure="tokens")


def test_long_subjects_are_counted_by_digest() -> None:
    rule = BudgetRule(id="b", limit=1, per=("requester",))
    first, second = (make_key(rule, CallContext(run_id="r", requester="x" * 600 + end), "t", 0) for end in "12")

    assert first.subject != second.subject
    assert len(first.subject) < 100


def test_use_is_described_for_people() -> None:
    rule = BudgetRule(id="refunds", limit=1000, measure="sum", argument="amount", per=("agent", "requester"))
    key = make_key(rule, CallContext(run_id="r", agent="desk"), "refund", seconds("2026-11-18 12:00") * NS)

    use = make_use(rule, BudgetCharge(key, to_millionths(20.5)), to_millionths(990))

    assert use.describe() == (
        "Budget refunds for agent desk for requester (none): 990 of 1,000 of amount a day are used, "
        "and this needs 20.5. It resets at 2026-11-19 00:00 UTC."
    )
    assert rule.describe() == "at most 1,000 of amount a day per agent, requester, tools *"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"id": ""}, "the id of a budget is up to 100 letters, digits, dots, underscores and hyphens"),
        ({"id": "a b"}, "the id of a budget is up to 100 letters, digits, dots, underscores and hyphens"),
        ({"limit": -1}, "the limit -1 is not between 0 and 1,000,000,000,000"),
        ({"limit": float("nan")}, "the limit nan is not a number"),
        ({"measure": "sum"}, "sum is the dotted name of an argument, such as amount or items.price"),
        ({"argument": "amount"}, "sum is the dotted name of an argument, such as amount or items.price"),
        (
            {"measure": "sum", "argument": "a..b"},
            "sum is the dotted name of an argument, such as amount or items.price",
        ),
        ({"measure": "money"}, "of is one of calls, sum, tokens, cost, not 'money'"),
        ({"window": "year"}, "window is one of hour, day, week, month, not 'year'"),
        ({"then": "allow"}, "then is one of deny, ask, not 'allow'"),
        ({"per": ("team",)}, "per is one of agent, requester, tool, not 'team'"),
        ({"per": ("agent", "agent")}, "per names something twice"),
        (
            {"measure": "tokens", "tools": ("refund",)},
            "a budget of tokens is about model requests, so no tools can be named",
        ),
        ({"measure": "cost", "per": ("tool",)}, "a budget of cost is about model requests, so no tools can be named"),
        ({"measure": "tokens", "then": "ask"}, "then: ask is for calls; without tokens left a run ends"),
        ({"tools": ()}, "name at least one tool, and no empty pattern"),
        ({"agents": ("",)}, "name at least one tool, and no empty pattern"),
    ],
)
def test_wrong_budgets_are_refused(fields: dict[str, Any], message: str) -> None:
    parts: dict[str, Any] = {"id": "b", "limit": 1, **fields}
    with pytest.raises(ConfigurationError) as refused:
        check_budget(BudgetRule(**parts))
    assert str(refused.value) == message
