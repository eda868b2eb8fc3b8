"""The first call is over: `repeat` decides about the next one."""

import asyncio
from collections.abc import Generator
from typing import Any

import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    Decision,
    FailSafeConfig,
    Limits,
    PolicyEngine,
    PolicyEvent,
    Question,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.errors import PreconditionError
from interlock.domain.event import InvocationStarted, PolicyEvaluated
from interlock.domain.tool import CheckProblem
from tests.support import call, facts

from .scene import ALLOW, APPROVES, ASK, OPEN, Bank, no_key


@pytest.mark.parametrize(("repeat", "code"), [("deny", "effect_repeated"), ("ask", "waiting"), ("allow", "ok")])
async def test_repeat_decides_after_a_success(repeat: str, code: str) -> None:
    bank = Bank()
    assert await bank.refund("run_1", "c1") == "ok"

    assert await bank.refund("run_2", "c1", interaction=OPEN, declared={"repeat": repeat}) == code
    assert bank.paid == [4711] * (2 if repeat == "allow" else 1)


async def test_repeat_asks_by_default() -> None:
    bank = Bank()
    assert await bank.refund("run_1", "c1") == "ok"

    assert await bank.refund("run_1", "c2", interaction=OPEN) == "waiting"
    assert await bank.refund("run_2", "c1", interaction=APPROVES) == "ok"


async def test_refused_repeat_names_the_first_call_and_no_arguments() -> None:
    """The model of one run does not read what another run sent."""
    bank = Bank()
    await bank.refund("run_1", "c1", requester="alice")
    async with bank.runtime("run_2", declared={"repeat": "deny"}) as runtime:
        (refused,) = (await runtime.execute([call("c1", "refund", order=4711)])).observations

    assert refused.failure is not None
    assert "call c1 of run run_1" in refused.failure.message
    assert "Nothing was executed" in refused.failure.message
    assert refused.side_effects == ()
    assert "alice" not in refused.failure.message
    assert "amount" not in refused.failure.message


async def test_refused_repeat_counts_as_a_denial() -> None:
    bank = Bank()
    await bank.refund("run_1", "c1")
    failing = FailSafeConfig(approval_denial_policy="degrade")
    async with bank.runtime("run_2", declared={"repeat": "deny"}, fail_safe=failing) as runtime:
        assert (await runtime.execute([call("c1", "refund", order=4711)])).degraded


async def test_failure_without_effects_is_ignored() -> None:
    bank = Bank()

    def refuse() -> None:
        raise PreconditionError(CheckProblem(message="The bank is closed."))

    bank.on_paid = refuse
    assert await bank.refund("run_1", "c1") == "runtime_precondition_failed"
    bank.on_paid = lambda: None

    assert await bank.refund("run_2", "c1") == "ok"


async def test_policy_question_and_repeat_are_one_question() -> None:
    bank = Bank()
    await bank.refund("run_1", "c1")
    async with bank.runtime("run_2", policy=ASK, interaction=OPEN) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=4711)])).questions

    assert question.rule_ids == ("all", "interlock:effect-repeated")
    assert question.scope == "once"
    assert "call c1 of run run_1" in question.prompt


async def test_standing_approval_does_not_cover_a_repeat() -> None:
    bank, asked = Bank(), list[Question]()

    def approve(question: Question) -> Answer:
        asked.append(question)
        return Answer(approved=True, by="ann", scope=question.scope if question.scope == "run" else "once")

    async with bank.runtime("run_1", policy=ASK, interaction=CallbackInteractionProvider(approve)) as runtime:
        for call_id in ("c1", "c2"):
            result = await runtime.execute([call(call_id, "refund", order=4711)])
            assert result.observations[0].ok

    assert [question.scope for question in asked] == ["run", "once"]


async def test_one_of_a_batch_starts_silently() -> None:
    bank = Bank()
    async with bank.runtime("run_1", interaction=OPEN, declared={"concurrency": "safe"}) as runtime:
        calls = [call(f"c{number}", "refund", order=4711) for number in range(5)]
        result = await runtime.execute(calls)

    assert bank.paid == [4711]
    assert len(result.waiting) == 4


@pytest.mark.requirement("P16")
async def test_one_of_many_runs_starts_silently() -> None:
    bank = Bank()
    codes = await asyncio.gather(*(bank.refund(f"run_{number}", "c1", interaction=OPEN) for number in range(8)))

    assert sorted(codes) == ["ok", *["waiting"] * 7]
    assert bank.paid == [4711]


async def test_claim_after_the_question_asks_again() -> None:
    """The person approved before another run had the effect: that is another question."""
    bank = Bank()
    async with bank.runtime("run_1", policy=ASK, interaction=OPEN) as runtime:
        (before,) = (await runtime.execute([call("c1", "refund", order=4711)])).questions
        assert await bank.refund("run_2", "c1") == "ok"
        await runtime.decide(before.action_id, approved=True)
        (after,) = (await runtime.resume()).questions

    assert bank.paid == [4711]
    assert (after.replaces, [change.what for change in after.changes]) == (before.action_id, ["effect"])
    assert "call c1 of run run_2" in after.prompt


async def test_policy_may_deny_after_another_claim() -> None:
    """A policy without a digest: only the second evaluation shows that it changed."""
    bank, verdicts = Bank(), ["ask"]

    class Changing(PolicyEngine):
        def evaluate(self, event: PolicyEvent) -> Decision:
            return Decision(verdict=Verdict(verdicts[-1]), reason="It says so.")

    async with bank.runtime("run_1", policy=Changing(), interaction=OPEN) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=4711)])).questions
        assert await bank.refund("run_2", "c1") == "ok"
        verdicts.append("deny")
        await runtime.decide(question.action_id, approved=True)
        (refused,) = (await runtime.resume()).observations

    assert (refused.code, bank.paid) == ("policy_denied", [4711])


async def test_failed_claim_after_the_question_does_not_ask_again() -> None:
    bank = Bank()
    async with bank.runtime("run_1", policy=ASK, interaction=OPEN) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=4711)])).questions

        def refuse() -> None:
            raise PreconditionError(CheckProblem(message="The bank is closed."))

        bank.on_paid = refuse
        await bank.refund("run_2", "c1")
        bank.on_paid = lambda: None
        await runtime.decide(question.action_id, approved=True)
        assert (await runtime.resume()).observations[0].ok


async def test_edited_arguments_with_an_earlier_effect_are_asked_about() -> None:
    bank = Bank()
    await bank.refund("run_1", "c1", order=1)
    async with bank.runtime("run_2", policy=ASK, interaction=OPEN) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=2)])).questions
        await runtime.decide(question.action_id, approved=True, arguments={"order": 1, "amount": 10}, by="ann")
        (again,) = (await runtime.resume()).questions
        assert again.arguments == {"order": 1, "amount": 10}
        assert "call c1 of run run_1" in again.prompt
        await runtime.decide(again.action_id, approved=True, by="bob")
        assert (await runtime.resume()).observations[0].ok

    assert bank.paid == [1, 1]


async def test_edited_arguments_without_an_earlier_effect_run() -> None:
    bank = Bank()
    await bank.refund("run_1", "c1", order=1)
    async with bank.runtime("run_2", policy=ASK, interaction=OPEN) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=1)])).questions
        await runtime.decide(question.action_id, approved=True, arguments={"order": 2}, by="ann")
        assert (await runtime.resume()).observations[0].ok

    assert await bank.refund("run_3", "c1", order=2, interaction=OPEN) == "waiting"
    assert bank.paid == [1, 2]


async def test_edited_arguments_with_the_effect_that_was_shown_run() -> None:
    bank = Bank()
    await bank.refund("run_1", "c1", order=1)
    async with bank.runtime("run_2", interaction=OPEN) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=1)])).questions
        await runtime.decide(question.action_id, approved=True, arguments={"order": 1, "amount": 5}, by="ann")
        assert (await runtime.resume()).observations[0].ok


async def test_edit_that_gives_a_call_an_effect_is_asked_about() -> None:
    def key(arguments: dict[str, Any]) -> str | None:
        return "refund:1" if arguments["order"] == 1 else None

    bank, declared = Bank(), {"effect": key}
    await bank.refund("run_1", "c1", order=1, declared=declared)
    async with bank.runtime("run_2", policy=ASK, interaction=OPEN, declared=declared) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=2)])).questions
        await runtime.decide(question.action_id, approved=True, arguments={"order": 1}, by="ann")
        (again,) = (await runtime.resume()).questions

    assert (question.effect, again.replaces, bank.paid) == (None, question.action_id, [1])


async def test_hook_cannot_change_the_effect() -> None:
    bank = Bank()

    def other_order(arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "order": 2}

    assert await bank.refund("run_1", "c1", order=1, declared={"pre_hooks": [other_order]}) == "payload_changed"
    assert bank.paid == []


async def test_start_and_decision_record_the_key() -> None:
    bank = Bank()
    async with bank.runtime("run_1") as runtime:
        await runtime.execute([call("c1", "refund", order=4711)])

    recorded = await facts(runtime)
    (started,) = [fact for fact in recorded if isinstance(fact, InvocationStarted)]
    (judged,) = [fact for fact in recorded if isinstance(fact, PolicyEvaluated)]
    assert started.effect == "refund:4711"
    assert judged.decision.effect is not None
    assert judged.decision.effect.key == "refund:4711"


async def test_call_without_a_key_claims_nothing() -> None:
    bank = Bank()
    for run_id in ("run_1", "run_2"):
        assert await bank.refund(run_id, "c1", declared={"effect": no_key}) == "ok"
    assert bank.paid == [4711, 4711]


class Never:
    """What is never there. Unlike a coroutine, it may be left unawaited: the deadline may pass before."""

    def __await__(self) -> Generator[Any, None, Any]:
        return asyncio.Event().wait().__await__()


def hang(arguments: dict[str, Any]) -> Any:
    return Never()


def fail(arguments: dict[str, Any]) -> str:
    raise RuntimeError("no such field")


def give_a_number(arguments: dict[str, Any]) -> Any:
    return 3


def give_nothing(arguments: dict[str, Any]) -> str:
    return " \u200b"


@pytest.mark.parametrize("effect", [fail, hang, give_a_number, give_nothing])
async def test_key_function_that_fails_denies(effect: Any) -> None:
    bank = Bank()
    async with bank.runtime(declared={"effect": effect}, limits=Limits(check_seconds=0.05)) as runtime:
        (refused,) = (await runtime.execute([call("c1", "refund", order=4711)])).observations

    assert refused.failure is not None
    assert refused.failure.code == "policy_denied"
    assert "The effect key of refund could not be computed" in refused.failure.message
    assert bank.paid == []


async def test_key_with_a_secret_is_recorded_as_a_digest() -> None:
    bank, secret = Bank(), "sk-live-0123456789abcdef"
    async with bank.runtime("run_1", secrets={"api": secret}, declared={"effect": f"{secret}:{{order}}"}) as runtime:
        await runtime.execute([call("c1", "refund", order=4711)])

    (started,) = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]
    assert started.effect.startswith("sha256:")
    assert await bank.refund("run_2", "c1", interaction=OPEN, declared={"effect": f"{secret}:{{order}}"}) == "waiting"


async def test_tools_share_a_key() -> None:
    bank = Bank()

    @tool(risk="network", effect="refund:{id}")
    def pay_back(id: str) -> str:
        return "paid"

    await bank.refund("run_1", "c1")
    async with ToolRuntime(tools=[pay_back], policy=ALLOW, interaction=OPEN, log=bank.log) as runtime:
        assert (await runtime.execute([call("c1", "pay_back", id="4711")])).waiting
