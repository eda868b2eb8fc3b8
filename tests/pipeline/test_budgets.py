"""Budgets of calls: checked before a call, reserved right before it starts, and counted for all runs of a log."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import (
    AgentExecutionError,
    Answer,
    CallbackInteractionProvider,
    EventLog,
    FailSafeConfig,
    HeadlessInteractionProvider,
    MemoryLog,
    Observation,
    Question,
    Rule,
    RulePolicy,
    ToolDefinition,
    ToolRuntime,
    tool,
)
from interlock.domain.budget import BudgetCharge, BudgetKey
from interlock.domain.event import PolicyEvaluated
from interlock.policy import BudgetRule
from interlock.storage.budgets import Reservation
from interlock.storage.memory_budgets import MemoryBudgets
from interlock.storage.sqlite.log import SqliteLog
from interlock.testing import FakeClock
from tests.support import call, facts

DAY = 86_400
CALLS = BudgetRule(id="refunds", tools=("refund",), per=("requester",), limit=2)
SUM = BudgetRule(id="amount", tools=("refund",), measure="sum", argument="amount", limit=100)


class Desk:
    """A desk that pays refunds; its runs share one log."""

    def __init__(self, *budgets: BudgetRule, verdict: str = "allow", log: EventLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.clock = FakeClock()
        self.policy = RulePolicy([Rule(id="all", verdict=verdict)], budgets=budgets)
        self.paid: list[float] = []
        self.asked: list[Question] = []
        self.answer: bool | Answer | None = True

    def ask(self, question: Question) -> bool | Answer | None:
        self.asked.append(question)
        return self.answer

    def refund_tool(self, **options: Any) -> ToolDefinition:
        def refund(amount: float = 10) -> str:
            self.paid.append(amount)
            return "paid"

        return tool(refund, risk="write", **options)

    def runtime(self, *, requester: str = "ann", **options: Any) -> ToolRuntime:
        given: dict[str, Any] = {"tools": [self.refund_tool()], "interaction": CallbackInteractionProvider(self.ask)}
        given |= {"policy": self.policy, "log": self.log, "clock": self.clock, "requester": requester}
        return ToolRuntime(**(given | options))

    async def refund(self, *amounts: float, **options: Any) -> tuple[Observation, ...]:
        """Propose refunds in a run of their own, all in one turn."""
        async with self.runtime(**options) as runtime:
            calls = [call(f"c{number}", "refund", amount=amount) for number, amount in enumerate(amounts)]
            return (await runtime.execute(calls)).observations

    async def codes(self, *amounts: float, **options: Any) -> list[str]:
        return [observation.code for observation in await self.refund(*amounts, **options)]


async def test_call_over_budget_is_denied() -> None:
    desk = Desk(CALLS)
    assert await desk.codes(1, 2) == ["ok", "ok"]

    (observation,) = await desk.refund(3)

    assert desk.paid == [1, 2]
    assert observation.failure is not None
    assert (observation.code, observation.side_effects) == ("budget_exceeded", ())
    assert observation.failure.message == (
        "refund was refused by policy (budget): Budget refunds for requester ann: 2 of 2 calls a day are used, and "
        "this needs 1. It resets at 2027-01-16 00:00 UTC. Nothing was executed."
    )
    assert observation.failure.details["rule_ids"] == ["budget:refunds"]
    assert observation.failure.details["budgets"] == [
        {"id": "refunds", "used": 2.0, "limit": 2.0, "needed": 1.0, "resets_at": 1_800_057_600_000_000_000}
        | {"subject": {"requester": "ann"}}
    ]


async def test_calls_of_one_turn_share_the_budget() -> None:
    desk = Desk(CALLS)

    assert await desk.codes(1, 2, 3, 4) == ["ok", "ok", "budget_exceeded", "budget_exceeded"]
    assert desk.paid == [1, 2]


async def test_runs_at_once_share_the_budget(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "runs.db") as log:
        desk = Desk(CALLS, log=log)

        codes = await asyncio.gather(*(desk.codes(number) for number in range(6)))

    assert sorted(code for (code,) in codes) == [*["budget_exceeded"] * 4, "ok", "ok"]
    assert len(desk.paid) == 2


async def test_next_window_begins_at_zero() -> None:
    desk = Desk(CALLS)
    assert await desk.codes(1, 2, 3) == ["ok", "ok", "budget_exceeded"]

    desk.clock.advance(DAY)

    assert await desk.codes(4) == ["ok"]


async def test_each_requester_has_a_budget() -> None:
    desk = Desk(CALLS)

    assert await desk.codes(1, 2, 3) == ["ok", "ok", "budget_exceeded"]
    assert await desk.codes(4, requester="bob") == ["ok"]


async def test_failed_and_denied_calls_differ() -> None:
    """A call that started counts, also when it failed. One that was denied does not."""
    desk = Desk(CALLS)

    def fail() -> str:
        raise OSError("no connection")

    broken = tool(fail, name="refund", risk="write")
    async with desk.runtime(tools=[broken]) as runtime:
        assert [each.code for each in (await runtime.execute([call("c1", "refund")])).observations] == ["tool_failed"]
    async with desk.runtime(policy=RulePolicy([Rule(id="no", verdict="deny")], budgets=[CALLS])) as runtime:
        assert [each.code for each in (await runtime.execute([call("c1", "refund")])).observations] == ["policy_denied"]

    assert await desk.codes(1, 2) == ["ok", "budget_exceeded"]


async def test_sums_of_an_argument_are_limited() -> None:
    desk = Desk(SUM)

    assert await desk.codes(60, 50, 40, 0.5) == ["ok", "budget_exceeded", "ok", "budget_exceeded"]
    assert sum(desk.paid) == 100


@given(st.lists(st.lists(st.integers(0, 60), max_size=4), max_size=4))
@settings(max_examples=25, deadline=None)
def test_paid_sum_never_passes_the_limit(turns: list[list[int]]) -> None:
    """Nor does a call that would fit get refused."""
    desk = Desk(SUM)

    async def run_all() -> list[str]:
        return [code for amounts in turns if amounts for code in await desk.codes(*amounts)]

    codes, left = asyncio.run(run_all()), 100
    for amount, code in zip((amount for amounts in turns for amount in amounts), codes, strict=True):
        assert code == ("ok" if amount <= left else "budget_exceeded")
        left -= amount if code == "ok" else 0
    assert sum(desk.paid) == 100 - left


async def test_call_without_a_known_amount_is_denied() -> None:
    desk = Desk(SUM)

    (observation,) = await desk.refund(-5)

    assert (observation.code, desk.paid) == ("policy_denied", [])
    assert "What the call uses of the budget amount is not known: -5" in observation.summary


async def test_all_budgets_of_a_call_must_fit() -> None:
    desk = Desk(CALLS, SUM)

    assert await desk.codes(100) == ["ok"]
    assert await desk.codes(1) == ["budget_exceeded"]
    assert await desk.codes(0, requester="bob") == ["ok"]
    assert await desk.codes(0) == ["ok"]
    assert await desk.codes(0) == ["budget_exceeded"]


async def test_decision_records_the_use() -> None:
    desk = Desk(SUM)
    async with desk.runtime() as runtime:
        await runtime.execute([call("c1", "refund", amount=30)])
        decisions = [fact.decision for fact in await facts(runtime) if isinstance(fact, PolicyEvaluated)]

    (use,) = decisions[0].budgets
    assert (use.id, use.used, use.needed, use.limit, use.unit) == ("amount", 0, 30, 100, "of amount")


ASK = BudgetRule(id="refunds", tools=("refund",), limit=1, then="ask", reason="Ask the team lead")


async def test_call_over_budget_is_asked_about() -> None:
    desk = Desk(ASK)
    assert await desk.codes(1) == ["ok"]

    assert await desk.codes(2) == ["ok"]

    (question,) = desk.asked
    used = "Budget refunds: 1 of 1 calls a day are used, and this needs 1. It resets at 2027-01-16 00:00 UTC."
    assert question.prompt == f"Run refund over budget? {used} Ask the team lead."
    assert (question.title, question.layer, question.scope) == ("Over budget: refund: amount=2.0", "budget", "once")
    assert question.rule_ids == ("budget:refunds",)
    assert question.risk[0] == "over budget"
    assert desk.paid == [1, 2]


async def test_approved_calls_count_too() -> None:
    desk = Desk(ASK, BudgetRule(id="hard", limit=3))

    assert await desk.codes(1, 2) == ["ok", "ok"]
    assert await desk.codes(3) == ["ok"]
    assert await desk.codes(4) == ["budget_exceeded"]
    assert len(desk.asked) == 2


async def test_rejected_call_uses_nothing() -> None:
    desk = Desk(ASK, BudgetRule(id="hard", limit=2))
    desk.answer = False
    assert await desk.codes(1, 2) == ["ok", "user_denied"]

    desk.answer = True

    assert await desk.codes(3, 4) == ["ok", "budget_exceeded"]


async def test_nobody_to_ask_denies() -> None:
    desk = Desk(ASK)

    assert await desk.codes(1, 2, interaction=HeadlessInteractionProvider()) == ["ok", "approval_unavailable"]


async def test_approval_of_a_rule_does_not_pass_the_budget() -> None:
    """Others used the budget while the question was open: the person is asked again, about the budget."""
    desk = Desk(ASK, verdict="ask")
    desk.answer = None
    async with desk.runtime(requester="bob", interaction=HeadlessInteractionProvider("wait")) as waiting:
        (question,) = (await waiting.execute([call("c1", "refund", amount=1)])).questions
        desk.answer = True
        assert await desk.codes(2) == ["ok"]

        await waiting.decide(question.action_id, approved=True, by="ada")
        (again,) = (await waiting.resume()).questions
        assert again.rule_ids == ("all", "budget:refunds")
        assert [(change.what, change.now) for change in again.changes] == [("budget", "not enough left for this call")]

        await waiting.decide(again.action_id, approved=True, by="ada")
        assert [each.code for each in (await waiting.resume()).observations] == ["ok"]
    assert desk.paid == [2, 1]


async def test_approval_for_a_run_does_not_pass_the_budget() -> None:
    desk = Desk(ASK, verdict="ask")
    desk.answer = Answer(approved=True, by="ada", scope="run")

    async with desk.runtime() as runtime:
        await runtime.execute([call("c1", "refund", amount=1)])
        await runtime.execute([call("c2", "refund", amount=1)])

    assert [question.rule_ids for question in desk.asked] == [("all",), ("budget:refunds",)]


async def test_edited_amount_must_fit_too() -> None:
    desk = Desk(SUM, verdict="ask")
    desk.answer = Answer(approved=True, by="ada", arguments={"amount": 500})

    (observation,) = await desk.refund(5)

    assert (observation.code, desk.paid) == ("budget_exceeded", [])


async def test_amount_that_a_hook_raises_is_reserved() -> None:
    desk = Desk(SUM)

    def double(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"amount": arguments["amount"] * 2}

    doubling = desk.refund_tool(pre_hooks=[double])
    assert await desk.codes(40, tools=[doubling]) == ["ok"]
    (refused,) = await desk.refund(11, tools=[doubling])

    assert (refused.code, refused.side_effects, desk.paid) == ("budget_exceeded", (), [80])
    assert await desk.codes(9) == ["ok"]


async def test_hook_may_change_arguments_within_the_budget() -> None:
    desk = Desk(BudgetRule(id="one", limit=1), SUM)

    def halve(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"amount": arguments["amount"] / 2}

    assert await desk.codes(100, tools=[desk.refund_tool(pre_hooks=[halve])]) == ["ok"]
    assert desk.paid == [50]


async def test_cancelled_call_gives_its_reservation_back() -> None:
    ledger = HeldBudgets()
    desk = Desk(CALLS)
    desk.log.budgets = ledger  # pyright: ignore[reportAttributeAccessIssue] - a log of one's own may have another
    async with desk.runtime() as runtime:
        executing = asyncio.ensure_future(runtime.execute([call("c1", "refund")]))
        await ledger.reserved.wait()
        runtime.cancel_call("c1")
        ledger.go_on.set()
        (observation,) = (await executing).observations

    assert (observation.code, desk.paid) == ("cancelled_before_start", [])
    assert await desk.codes(1, 2, 3) == ["ok", "ok", "budget_exceeded"]


class HeldBudgets(MemoryBudgets):
    """A ledger whose first answer is late."""

    def __init__(self) -> None:
        super().__init__()
        self.reserved, self.go_on = asyncio.Event(), asyncio.Event()

    async def reserve(self, charges: Sequence[BudgetCharge]) -> Reservation:
        reservation = await super().reserve(charges)
        self.reserved.set()
        await self.go_on.wait()
        return reservation


class BrokenBudgets(MemoryBudgets):
    def __init__(self, broken: str) -> None:
        super().__init__()
        self.broken = broken

    async def read(self, keys: Sequence[BudgetKey]) -> tuple[int, ...]:
        if self.broken == "read":
            raise OSError("the disk is full")
        return await super().read(keys)

    async def reserve(self, charges: Sequence[BudgetCharge]) -> Reservation:
        if self.broken == "reserved":
            raise OSError("the disk is full")
        return await super().reserve(charges)


@pytest.mark.parametrize("broken", ["read", "reserved"])
async def test_broken_ledger_refuses(broken: str) -> None:
    desk = Desk(CALLS)
    desk.log.budgets = BrokenBudgets(broken)  # pyright: ignore[reportAttributeAccessIssue] - as above

    (observation,) = await desk.refund(1)

    assert observation.failure is not None
    assert (observation.code, observation.failure.retryable, desk.paid) == ("budget_unavailable", True, [])
    assert f"The budgets of the call could not be {broken} (OSError: the disk is full)" in observation.summary


async def test_run_may_end_after_a_call_over_budget() -> None:
    """A call over budget is a denial for the fail-safe policy."""
    desk = Desk(BudgetRule(id="none", limit=0))
    async with desk.runtime(fail_safe=FailSafeConfig(approval_denial_policy="fail")) as runtime:
        with pytest.raises(AgentExecutionError, match=r"Budget none: 0 of 0 calls a day are used"):
            await runtime.execute([call("c1", "refund")])


async def test_ledger_is_not_used_without_matching_budgets() -> None:
    desk = Desk(BudgetRule(id="other", tools=("mail",), limit=0), BudgetRule(id="agent", agents=("x*",), limit=0))
    desk.log.budgets = BrokenBudgets("read")  # pyright: ignore[reportAttributeAccessIssue] - as above

    assert await desk.codes(1) == ["ok"]


async def test_log_without_ledger_counts_in_the_process() -> None:
    desk = Desk(CALLS)
    del desk.log.budgets  # pyright: ignore[reportAttributeAccessIssue] - as above

    async with desk.runtime() as runtime:
        calls = [call(f"c{number}", "refund") for number in range(3)]
        codes = [each.code for each in (await runtime.execute(calls)).observations]

    assert codes == ["ok", "ok", "budget_exceeded"]
