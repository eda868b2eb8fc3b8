"""Back-tests with budgets: what recorded calls and model requests would have used."""

from typing import Any

from interlock import MemoryLog, RulePolicy
from interlock.domain.event import Event, decode_event
from interlock.domain.messages import Usage
from interlock.models.scripted import ScriptedTurn
from interlock.policy import BudgetRule, backtest, read_recorded_calls
from interlock.policy.analysis.budget_tally import BudgetTrial
from interlock.policy.analysis.recorded_calls import read_recorded_requests
from interlock.testing import FakeClock
from tests.runs.support import agent_of, run_of

from .recorded_runs import Says, no, record, yes

DAY = 86_400
MAILS = BudgetRule(id="mails", tools=("send_mail",), per=("requester",), limit=2)
ENDS_AT = 1_800_057_600_000_000_000


async def mails(clock: FakeClock, count: int, says: Says = yes, **options: Any) -> list[Event]:
    calls = [("send_mail", {"to": f"a{number}"}) for number in range(count)]
    given: dict[str, Any] = {"policy": RulePolicy(default="allow"), "clock": clock, **options}
    return await record(calls, says, **given)


def allow(*budgets: BudgetRule) -> RulePolicy:
    return RulePolicy(default="allow", budgets=budgets)


async def test_calls_over_budget_flip() -> None:
    events = await mails(FakeClock(), 3, requester="ann") + await mails(FakeClock(), 1, requester="bob")

    result = backtest(allow(MAILS), read_recorded_calls(events))

    (flip,) = result.flips
    assert (flip.call_id, flip.was, flip.now, flip.now_rules) == ("call_2", "allow", "deny", ("budget:mails",))
    assert flip.reason.startswith("Budget mails for requester ann: 2 of 2 calls a day are used, and this needs 1.")
    assert result.unchanged == 3
    assert result.budgets == (
        BudgetTrial(
            id="mails",
            about="at most 2 calls a day per requester, tools send_mail",
            counted=3,
            exceeded=1,
            limit=2,
            peak=2,
            peak_subject={"requester": "ann"},
            peak_ends_at=ENDS_AT,
        ),
    )


async def test_windows_of_the_recording_count() -> None:
    clock = FakeClock()
    events = await mails(clock, 2)
    clock.advance(DAY)
    events += await mails(clock, 2)

    result = backtest(allow(MAILS), read_recorded_calls(events))

    assert (result.flips, result.budgets[0].counted) == ((), 4)


async def test_runs_are_counted_in_the_order_of_time() -> None:
    clock = FakeClock()
    early = await mails(clock, 2, requester="ann")
    clock.advance(60)
    late = await mails(clock, 2, requester="ann")

    flips = backtest(allow(MAILS), read_recorded_calls(late + early)).flips

    assert {flip.run_id for flip in flips} == {late[0].run_id}


async def test_asked_calls_count_if_they_ran() -> None:
    ask = BudgetRule(id="mails", limit=0, then="ask")
    ran = read_recorded_calls(await mails(FakeClock(), 2))
    rejected = read_recorded_calls(await mails(FakeClock(), 2, no, policy=RulePolicy(default="ask")))

    flipped, stayed = backtest(allow(ask), ran), backtest(RulePolicy(default="ask", budgets=[ask]), rejected)

    assert [flip.now for flip in flipped.flips] == ["ask", "ask"]
    assert (flipped.budgets[0].counted, flipped.budgets[0].exceeded) == (2, 2)
    assert (stayed.flips, stayed.budgets[0].counted, stayed.budgets[0].exceeded) == ((), 0, 2)


async def test_denied_calls_use_nothing() -> None:
    calls = read_recorded_calls(await mails(FakeClock(), 2))

    result = backtest(RulePolicy(default="deny", budgets=[MAILS]), calls)

    assert (result.budgets[0].counted, result.budgets[0].exceeded, result.budgets[0].peak) == (0, 0, 0)


async def test_unknown_amounts_are_denied() -> None:
    amount = BudgetRule(id="amount", measure="sum", argument="amount", limit=5)

    (flip,) = backtest(allow(amount), read_recorded_calls(await mails(FakeClock(), 1))).flips

    assert (flip.now, flip.now_rules) == ("deny", ("budget:amount",))
    assert flip.reason == "What the call uses is not known: the call has no value at `amount`."


async def test_model_requests_are_counted() -> None:
    log, clock = MemoryLog(), FakeClock()
    for tokens in (600, 300, 200):
        turn = ScriptedTurn(text="Done.", usage=Usage(input_tokens=tokens, cost=tokens / 1000))
        await run_of(agent_of(turn, name="desk"), log=log, clock=clock)
        clock.advance(1)
    events = [decode_event(item.entry) for item in await log.feed(0, 1_000)]
    tokens = BudgetRule(id="tokens", measure="tokens", per=("agent",), limit=1_000)
    cost = BudgetRule(id="cost", measure="cost", agents=("desk",), limit=0.5)

    result = backtest(allow(tokens, cost), [], read_recorded_requests(events))

    assert [(trial.id, trial.counted, trial.exceeded, trial.peak) for trial in result.budgets] == [
        ("cost", 2, 1, 0.5),
        ("tokens", 2, 0, 500),
    ]
    assert result.budgets[1].peak_subject == {"agent": "desk"}


async def test_budget_that_was_in_force_flips_nothing() -> None:
    policy = allow(MAILS)
    events = await mails(FakeClock(), 4, policy=policy)

    result = backtest(policy, read_recorded_calls(events))

    assert (result.flips, result.unchanged, result.budgets[0].exceeded) == ((), 4, 2)
