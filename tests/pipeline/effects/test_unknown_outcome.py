"""The outcome of a call is unknown, and its effect is proposed again under a new id."""

import asyncio
from typing import Any

import pytest

from interlock import CallbackInteractionProvider, FailSafeConfig, HeadlessInteractionProvider, Question, tool
from interlock.domain.event import InvocationStarted
from interlock.runs.fork import fork
from interlock.storage.event_log import EffectClaim
from tests.patience import HANG_SECONDS
from tests.support import call, facts

from .scene import APPROVES, ASK, OPEN, Bank

pytestmark = pytest.mark.requirement("P16")


async def resume(bank: Bank, run_id: str) -> str:
    async with bank.runtime(run_id) as runtime:
        return (await runtime.resume()).observations[0].code


async def test_same_run_does_not_pay_twice() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1")

    assert await resume(bank, "run_1") == "outcome_unknown"
    assert await bank.refund("run_1", "c2") == "approval_unavailable"
    assert bank.paid == [4711]


async def test_run_that_was_not_resumed_does_not_pay_twice() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1")

    assert await bank.refund("run_1", "c2") == "approval_unavailable"
    assert bank.paid == [4711]


async def test_fork_does_not_pay_twice() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1")
    forked = await fork(bank.log, "run_1")

    assert await bank.refund(forked, "c2") == "approval_unavailable"
    assert bank.paid == [4711]


async def test_other_run_does_not_pay_twice() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1")

    assert await bank.refund("run_2", "c1") == "approval_unavailable"
    assert await bank.refund("run_2", "c2", order=4712) == "ok"
    assert bank.paid == [4711, 4712]


async def test_question_shows_both_calls() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1", agent="support", requester="alice")

    async with bank.runtime("run_2", interaction=OPEN) as runtime:
        (question,) = (await runtime.execute([call("c9", "refund", order="4711", amount=7)])).questions

    assert question.arguments == {"order": "4711", "amount": 7}
    for shown in ("refund:4711", '{"order":4711,"amount":10}', "call c1 of run run_1", "support", "alice", "UTC"):
        assert shown in question.prompt
    assert question.effect is not None
    assert question.effect.earlier == ("run_1", "c1")
    assert "it may happen twice" in question.risk


async def test_approved_repeat_runs_once_more() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1")

    assert await bank.refund("run_2", "c1", interaction=APPROVES) == "ok"
    assert await bank.refund("run_3", "c1") == "approval_unavailable"
    assert bank.paid == [4711, 4711]


async def test_repeat_is_never_approved_without_a_person() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1")

    async def never(question: Question) -> None:
        await asyncio.Event().wait()

    impatient = CallbackInteractionProvider(never, approval_timeout_s=0.01, approval_fallback="approve")
    assert await bank.refund("run_2", "c1", interaction=impatient) == "approval_expired"
    assert (
        await bank.refund("run_3", "c1", interaction=HeadlessInteractionProvider("approve")) == "approval_unavailable"
    )
    assert bank.paid == [4711]


@pytest.mark.parametrize(
    ("happened", "code"), [(True, "approval_unavailable"), (False, "ok"), (None, "approval_unavailable")]
)
async def test_reconcile_finds_out(happened: bool | None, code: str) -> None:
    bank, asked = Bank(), list[object]()

    def reconcile(arguments: dict[str, object]) -> bool | None:
        asked.append(arguments)
        return happened

    await bank.refund_and_die("run_1", "c1", declared={"reconcile": reconcile})

    assert await bank.refund("run_2", "c1", order="4711", declared={"reconcile": reconcile}) == code
    assert asked == [{"order": 4711, "amount": 10}]


async def test_reconciled_success_follows_repeat() -> None:
    bank = Bank()
    declared: dict[str, Any] = {"reconcile": bool, "repeat": "deny"}
    await bank.refund_and_die("run_1", "c1", declared=declared)

    assert await bank.refund("run_2", "c1", declared=declared) == "effect_repeated"


async def test_running_call_is_not_reconciled_away() -> None:
    bank, asked = Bank(), asyncio.Event()

    @tool(risk="network", effect="refund:{order}", concurrency="safe", reconcile=lambda arguments: False)
    async def refund(order: int) -> None:
        await asyncio.Event().wait()

    async def ask(question: Question) -> None:
        asked.set()

    async with bank.runtime("run_1", tools=[refund], interaction=CallbackInteractionProvider(ask)) as runtime:
        both = [call("c1", "refund", order=4711), call("c2", "refund", order=4711)]
        running = asyncio.create_task(runtime.execute(both))
        await asyncio.wait_for(asked.wait(), HANG_SECONDS)
        running.cancel()

    starts = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]
    assert [(start.call_id, start.effect) for start in starts] == [("c1", "refund:4711")]


@pytest.mark.parametrize("repeat", ["deny", "ask", "allow"])
async def test_unknown_outcome_asks_whatever_repeat_says(repeat: str) -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1")

    assert await bank.refund("run_2", "c1", interaction=OPEN, declared={"repeat": repeat}) == "waiting"


async def test_recovery_shows_what_another_run_did_meanwhile() -> None:
    bank, asking = Bank(), FailSafeConfig(unknown_outcome_policy="ask")
    await bank.refund_and_die("run_1", "c1")
    assert await bank.refund("run_2", "c1", interaction=APPROVES) == "ok"

    async with bank.runtime("run_1", interaction=OPEN, fail_safe=asking) as runtime:
        (question,) = (await runtime.resume()).questions
        assert "call c1 of run run_2" in question.prompt
        assert await bank.refund("run_3", "c1", interaction=APPROVES) == "ok"
        await runtime.decide(question.action_id, approved=True)
        (again,) = (await runtime.resume()).questions

    assert "call c1 of run run_3" in again.prompt
    assert bank.paid == [4711] * 3


async def test_recovery_of_the_only_call_shows_no_other() -> None:
    bank = Bank()
    await bank.refund_and_die("run_1", "c1", policy=ASK, interaction=APPROVES)
    asking = FailSafeConfig(unknown_outcome_policy="ask")
    async with bank.runtime("run_1", policy=ASK, interaction=OPEN, fail_safe=asking) as runtime:
        (question,) = (await runtime.resume()).questions

    assert question.prompt == "Run refund again? It started before, and whether it happened is not known."
    assert question.reason.endswith("before its end was recorded: it may have happened.")


async def test_failure_with_unknown_effects_asks() -> None:
    bank = Bank()

    def fail() -> None:
        raise OSError("the connection was closed")

    bank.on_paid = fail
    assert await bank.refund("run_1", "c1") == "tool_failed"
    bank.on_paid = lambda: None

    assert await bank.refund("run_2", "c1", interaction=OPEN) == "waiting"


async def test_claim_without_a_start_asks_until_its_call_is_over() -> None:
    """A process died between the claim and the start, or is just there: no other process can know."""
    bank = Bank()
    async with bank.runtime("run_1", interaction=OPEN, policy=ASK) as runtime:
        (waiting,) = (await runtime.execute([call("c1", "refund", order=4711)])).waiting
        assert waiting.question is not None
        assert waiting.question.effect is not None
        claim = EffectClaim(0, "run_1", "c1", 0)
        assert await bank.log.claim_effect(waiting.question.effect.digest, claim, 0)

        assert await bank.refund("run_2", "c1", interaction=OPEN) == "waiting"
        await runtime.decide(waiting.question.action_id, approved=False)
        await runtime.resume()

    assert await bank.refund("run_3", "c1") == "ok"
