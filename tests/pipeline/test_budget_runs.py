"""Budgets of whole runs: model requests, child runs, other people's loops, and processes that die."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from interlock import Agent, MemoryLog, Question, Rule, RulePolicy, tool
from interlock.domain.budget import BudgetCharge, BudgetKey
from interlock.domain.event import RunFailed, WarningRaised
from interlock.domain.messages import Usage
from interlock.models.openai_chat import OpenAIChat
from interlock.models.provider_factory import with_retries
from interlock.models.scripted import ModelRecorder, ScriptedFault, ScriptedModel, ScriptedTurn
from interlock.models.usage import Prices, estimate_cost
from interlock.policy import BudgetRule
from interlock.storage.budgets import Reservation
from interlock.storage.memory_budgets import MemoryBudgets
from interlock.testing import FakeClock
from tests.gate.support import Desk, answer, intent, open_gate
from tests.patience import HANG_SECONDS
from tests.runs.support import agent_of, asked_of, calls, facts_of, run_of

TOKENS = BudgetRule(id="tokens", measure="tokens", per=("agent",), limit=10_000)
COST = BudgetRule(id="cost", measure="cost", limit=1)


def policy_of(*budgets: BudgetRule) -> RulePolicy:
    return RulePolicy(default="allow", budgets=budgets)


def turn(text: str = "Done.", *, tokens: int = 0, cost: float = 0) -> ScriptedTurn:
    return ScriptedTurn(text=text, usage=Usage(input_tokens=tokens, cost=cost))


async def used_of(log: MemoryLog, budget: str) -> float:
    counters = await log.budgets.list_counters([budget], FakeClock().now() // 10**9, 10)
    return sum(counter.used for counter in counters) / 1e6


async def test_requests_count_what_they_used() -> None:
    log, policy = MemoryLog(), policy_of(TOKENS, COST)

    result = await run_of(agent_of(turn(tokens=700, cost=0.25), policy=policy), log=log, clock=FakeClock())

    assert result.status == "COMPLETED"
    assert (await used_of(log, "tokens"), await used_of(log, "cost")) == (700, 0.25)


async def test_request_without_tokens_left_ends_the_run() -> None:
    log, clock, policy = MemoryLog(), FakeClock(), policy_of(TOKENS)
    await run_of(agent_of(turn(tokens=9_500), policy=policy, name="desk"), log=log, clock=clock)
    late = agent_of(turn(), policy=policy, name="desk", max_output_tokens=1_000)

    result = await run_of(late, log=log, clock=clock)

    assert (result.status, asked_of(late)) == ("FAILED", [])
    (failed,) = await facts_of(RunFailed, log, result.run_id)
    assert failed.code == "budget_exceeded"
    assert failed.message.startswith("Budget tokens for agent desk: 9,500 of 10,000 tokens a day are used, and this ")
    assert failed.message.endswith("It resets at 2027-01-16 00:00 UTC. The model was not asked.")
    other = await run_of(agent_of(turn(), policy=policy, name="other"), log=log, clock=clock)
    clock.advance(86_400)
    tomorrow = await run_of(agent_of(turn(), policy=policy, name="desk"), log=log, clock=clock)
    assert (other.status, tomorrow.status) == ("COMPLETED", "COMPLETED")


async def test_requests_at_once_do_not_pass_the_limit() -> None:
    """Each reserves its text and the longest answer, so only as many are sent as fit."""
    log, clock = MemoryLog(), FakeClock()
    policy = policy_of(BudgetRule(id="tokens", measure="tokens", limit=5_000))
    agents = [agent_of(turn(tokens=4_000), policy=policy, max_output_tokens=2_000) for _ in range(5)]

    results = await asyncio.gather(*(run_of(agent, log=log, clock=clock) for agent in agents))

    assert sum(len(asked_of(agent)) for agent in agents) <= 2
    assert sorted(result.status for result in results)[:1] == ["COMPLETED"]


async def test_spent_cost_ends_the_run_without_an_estimate() -> None:
    log, clock, policy = MemoryLog(), FakeClock(), policy_of(COST)
    await run_of(agent_of(turn(cost=1), policy=policy), log=log, clock=clock)

    result = await run_of(agent_of(turn(), policy=policy), log=log, clock=clock)

    assert result.status == "FAILED"
    assert await used_of(log, "cost") == 1


async def test_request_that_failed_at_once_uses_nothing() -> None:
    log, policy = MemoryLog(), policy_of(TOKENS)
    refused = ScriptedTurn(fault=ScriptedFault(message="no connection"))
    broken = ScriptedTurn(text="It is", fault=ScriptedFault(message="broke off"))

    await run_of(agent_of(refused, policy=policy), log=log, clock=FakeClock())
    assert await used_of(log, "tokens") == 0

    await run_of(agent_of(broken, policy=policy), log=log, clock=FakeClock())
    assert await used_of(log, "tokens") > 2_048


class BrokenBudgets(MemoryBudgets):
    def __init__(self, broken: str) -> None:
        super().__init__()
        self.broken = broken

    async def reserve(self, charges: Sequence[BudgetCharge]) -> Reservation:
        if self.broken == "reserve":
            raise OSError("the disk is full")
        return await super().reserve(charges)

    async def adjust(self, key: BudgetKey, amount: int) -> None:
        if self.broken == "adjust":
            raise OSError("the disk is full")
        await super().adjust(key, amount)


async def test_broken_ledger_asks_no_model() -> None:
    log = MemoryLog()
    log.budgets = BrokenBudgets("reserve")
    agent = agent_of(turn(), policy=policy_of(TOKENS))

    result = await run_of(agent, log=log)

    (failed,) = await facts_of(RunFailed, log, result.run_id)
    assert (failed.code, asked_of(agent)) == ("budget_unavailable", [])
    assert failed.message == (
        "The budgets could not be reserved (OSError: the disk is full), so the model was not asked."
    )


async def test_answer_is_kept_when_the_ledger_breaks() -> None:
    log = MemoryLog()
    log.budgets = BrokenBudgets("adjust")

    result = await run_of(agent_of(turn("Forty-two.", tokens=5), policy=policy_of(TOKENS)), log=log)

    (warning,) = await facts_of(WarningRaised, log, result.run_id)
    assert result.text == "Forty-two."
    assert warning.message == (
        "What a model request used of budget tokens could not be corrected: OSError: the disk is full"
    )


class Priced(ScriptedModel):
    """A scripted model with prices."""

    prices: Prices | None = Prices(input=100_000, output=100_000)

    def estimate_cost(self, usage: Usage, model: str) -> float | None:
        return None if self.prices is None else self.prices.compute_cost(usage)


async def test_cost_is_estimated_with_prices() -> None:
    model = Priced(["Done."])

    result = await run_of(Agent(provider=model, policy=policy_of(COST)), log=MemoryLog())

    assert result.status == "FAILED"
    assert result.message.startswith("Budget cost: 0 of 1 of cost a day are used, and this needs 2")


async def test_model_without_prices_is_not_asked() -> None:
    model, log = Priced(["Done."]), MemoryLog()
    model.prices = None

    result = await run_of(Agent(provider=with_retries(ModelRecorder(model)), policy=policy_of(COST)), log=log)

    (failed,) = await facts_of(RunFailed, log, result.run_id)
    assert failed == RunFailed(
        message="A budget counts cost, and the provider has no prices for this model. The model was not asked. "
        "Configure its prices.",
        code="budget_unavailable",
    )


def test_providers_estimate_with_their_prices() -> None:
    prices = {"small": Prices(input=2, output=4)}
    provider = OpenAIChat("small", base_url="http://127.0.0.1:9", api_key="none", prices=prices)
    usage = Usage(input_tokens=1_000_000, output_tokens=500_000)

    assert (estimate_cost(provider, usage, ""), estimate_cost(provider, usage, "large")) == (4.0, None)
    assert estimate_cost(ScriptedModel([]), usage, "") == 0


async def test_child_runs_share_the_budget() -> None:
    """Each call of the helper counts, and the delegation once, also when it is resumed."""
    log, paid = MemoryLog(), list[int]()

    @tool(risk="write")
    def pay(amount: int) -> str:
        paid.append(amount)
        return "paid"

    policy = RulePolicy(default="allow", budgets=[BudgetRule(id="pay", tools=("pay",), limit=1)])
    helper = agent_of(calls(("in", "pay", {"amount": 1})), "Paid.", tools=[pay], name="helper", policy=policy)
    boss = agent_of(
        calls(("a", "ask_helper", {"task": "Pay."})),
        calls(("b", "pay", {"amount": 2})),
        "Done.",
        tools=[helper.as_tool(), pay],
        name="boss",
        policy=policy,
    )

    result = await run_of(boss, log=log, clock=FakeClock())

    assert (result.status, paid) == ("COMPLETED", [1])
    assert await used_of(log, "pay") == 1


def approve(_: Question) -> bool:
    return True


async def test_suspended_delegation_counts_once() -> None:
    log = MemoryLog()

    @tool(risk="write")
    def pay() -> str:
        return "paid"

    policy = RulePolicy(
        [Rule(id="ask", verdict="ask", tools="pay")], default="allow", budgets=[BudgetRule(id="all", limit=5)]
    )
    helper = agent_of(calls(("in", "pay", {})), "Paid.", tools=[pay], name="helper", policy=policy)
    boss = agent_of(calls(("a", "ask_helper", {"task": "Pay."})), "Done.", tools=[helper.as_tool()], policy=policy)

    result = await run_of(boss, log=log, clock=FakeClock(), approve=approve)

    assert result.status == "COMPLETED"
    assert await used_of(log, "all") == 2


async def test_gate_counts_calls_of_other_loops(tmp_path: Path) -> None:
    budgets = [BudgetRule(id="pay", tools=("pay",), limit=10, measure="sum", argument="amount", then="ask")]
    policy, desk = RulePolicy(default="allow", budgets=budgets), Desk(tmp_path)
    async with open_gate(tmp_path, policy=policy) as gate:
        judged = await gate.judge("t", intent("pay", "c1"))
        first = await gate.call("t", intent("pay", "c1"), desk.pay)
        again = await gate.call("t", intent("pay", "c1"), desk.pay)
        waiting = await gate.call("t", intent("pay", "c2", amount=6), desk.pay)
        await answer(gate, "t")
        second = await gate.call("t", intent("pay", "c2", amount=6), desk.pay)

    assert (judged.verdict, first.ran, again.ran, second.ran) == ("allow", True, False, True)
    assert waiting.question is not None
    assert waiting.question.rule_ids == ("budget:pay",)
    assert desk.paid == [5, 6]


PROCESS = """
import asyncio, os, signal, sys
from interlock import RulePolicy, SqliteLog, ToolRuntime, tool
from interlock.policy import BudgetRule

@tool(risk="write", idempotent=True)
def pay() -> str:
    if sys.argv[2] == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

async def main():
    policy = RulePolicy(default="allow", budgets=[BudgetRule(id="pay", limit=2, window="month")])
    async with SqliteLog(sys.argv[1] + "/runs.db") as log:
        async with ToolRuntime(tools=[pay], policy=policy, log=log, run_id=sys.argv[3]) as runtime:
            if sys.argv[2] == "resume":
                return (await runtime.resume()).observations[0].code
            return (await runtime.execute([{"id": "c1", "name": "pay", "arguments": {}}])).observations[0].code

print(asyncio.run(main()))
"""


def run_process(program: str, folder: Path, mode: str, run_id: str) -> str:
    """Return what the process printed, or that it was killed."""
    command = [sys.executable, "-c", program, str(folder), mode, run_id]
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANG_SECONDS, check=False)
    return "killed" if done.returncode == -signal.SIGKILL else done.stdout.strip()


def test_killed_call_has_used_the_budget(tmp_path: Path) -> None:
    assert run_process(PROCESS, tmp_path, "die", "run_1") == "killed"

    assert run_process(PROCESS, tmp_path, "pay", "run_2") == "ok"
    assert run_process(PROCESS, tmp_path, "pay", "run_3") == "budget_exceeded"
    # It started, so it is not known that nothing happened.
    assert run_process(PROCESS, tmp_path, "resume", "run_1") == "outcome_unknown"


REQUEST = """
import asyncio, os, signal, sys
from interlock import Agent, RulePolicy, Runner, ScriptedModel, SqliteLog
from interlock.policy import BudgetRule

class Mortal(ScriptedModel):
    async def stream(self, request):
        if sys.argv[2] == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        async for event in super().stream(request):
            yield event

async def main():
    budgets = [BudgetRule(id="tokens", measure="tokens", limit=1_500, window="month")]
    agent = Agent(provider=Mortal(["Done."]), policy=RulePolicy(budgets=budgets), max_output_tokens=1_000)
    async with SqliteLog(sys.argv[1] + "/runs.db") as log:
        async with Runner(agent, log=log) as runner:
            return (await (await runner.start("Do it.", run_id=sys.argv[3])).result()).status

print(asyncio.run(main()))
"""


def test_killed_request_has_used_its_estimate(tmp_path: Path) -> None:
    assert run_process(REQUEST, tmp_path, "ask", "run_0") == "COMPLETED"
    assert run_process(REQUEST, tmp_path, "die", "run_1") == "killed"
    assert run_process(REQUEST, tmp_path, "ask", "run_2") == "FAILED"
