"""A call that waits for a person: who is asked, for how long, and what each answer leads to."""

import asyncio
from typing import Any, Literal

import pytest

from interlock import (
    AgentExecutionError,
    Answer,
    CallbackInteractionProvider,
    FailSafeConfig,
    HeadlessInteractionProvider,
    InteractionProvider,
    Limits,
    Question,
    Rule,
    RulePolicy,
    RunState,
    ToolContext,
    ToolRuntime,
    tool,
)
from tests.patience import HANG_SECONDS
from tests.support import call, handle_events


class Ran:
    """A tool that says that it ran, and a rule that asks about it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool
        async def pay(ctx: ToolContext, amount: int = 1) -> str:
            self.calls.append(ctx.call_id)
            return f"paid {amount}"

        self.pay = pay

    def runtime(self, interaction: InteractionProvider, verdict: str = "ask", **options: Any) -> ToolRuntime:
        policy = RulePolicy([Rule(id="r", verdict=verdict, tools="pay")])
        return ToolRuntime(tools=[self.pay], policy=policy, interaction=interaction, **options)


@pytest.fixture
def ran() -> Ran:
    return Ran()


async def never(question: Question) -> bool:
    return await asyncio.Event().wait()


@pytest.mark.requirement("R019", "D03")
@pytest.mark.parametrize("risk", [(), "read"])
async def test_a_plain_tool_that_no_rule_matches_runs_at_once_and_nobody_is_asked(risk: str | tuple[str, ...]) -> None:
    asked: list[Question] = []

    @tool(risk=risk)
    async def look() -> str:
        return "seen"

    interaction = CallbackInteractionProvider(asked.append)
    async with ToolRuntime(tools=[look], interaction=interaction) as runtime:
        result = await runtime.execute([call("c1", "look")])

    assert [observation.ok for observation in result.observations] == [True]
    assert asked == []


@pytest.mark.requirement("D03")
@pytest.mark.parametrize("risk", ["write", "execute", "network", "delegate"])
async def test_a_tool_with_any_other_risk_that_no_rule_matches_asks(risk: str) -> None:
    asked: list[Question] = []

    def decline(question: Question) -> bool:
        asked.append(question)
        return False

    @tool(risk=risk)
    async def act() -> None: ...

    interaction = CallbackInteractionProvider(decline)
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[act], interaction=interaction) as runtime:
        result = await runtime.execute([call("c1", "act")])

    assert [(question.tool_name, question.kind, question.risk[0]) for question in asked] == [("act", "approval", risk)]
    assert result.observations[0].code == "user_denied"


@pytest.mark.requirement("R027")
@pytest.mark.parametrize("verdict", ["defer", "request_approval"])
async def test_the_run_pauses_until_somebody_answers(ran: Ran, verdict: str) -> None:
    asked, answered = asyncio.Event(), asyncio.Event()

    async def think(question: Question) -> bool:
        asked.set()
        await answered.wait()
        return True

    async with asyncio.timeout(HANG_SECONDS), ran.runtime(CallbackInteractionProvider(think), verdict) as runtime:
        turn = asyncio.create_task(runtime.execute([call("c1", "pay")]))
        await asked.wait()
        assert [event.type for event in await handle_events(runtime)][-1] == "run_paused"
        assert (turn.done(), ran.calls) == (False, [])
        answered.set()
        await turn

    assert ran.calls == ["c1"]


@pytest.mark.requirement("R027")
@pytest.mark.parametrize("verdict", ["defer", "request_approval"])
async def test_a_question_that_stays_open_pauses_the_run_until_it_is_decided(ran: Ran, verdict: str) -> None:
    async with asyncio.timeout(HANG_SECONDS), ran.runtime(HeadlessInteractionProvider("wait"), verdict) as runtime:
        paused = await runtime.execute([call("c1", "pay")])
        assert (paused.state, paused.status) == (RunState.PAUSED_APPROVAL, "PAUSED_APPROVAL")
        assert (paused.messages, ran.calls) == ([], [])
        [question] = paused.questions
        await runtime.decide(question.action_id, approved=True, by="ada")
        result = await runtime.resume()

    assert (result.state, ran.calls) == (RunState.RUNNING, ["c1"])


@pytest.mark.requirement("R028")
async def test_an_approved_call_runs_as_any_other_and_ends_in_tool_completed(ran: Ran) -> None:
    async with asyncio.timeout(HANG_SECONDS), ran.runtime(CallbackInteractionProvider(lambda _: True)) as runtime:
        result = await runtime.execute([call("c1", "pay", amount=5)])
        events = await handle_events(runtime)

    assert ran.calls == ["c1"]
    assert events[-1].type == "tool_completed"
    assert events[-1].data == {
        "tool_name": "pay",
        "success": True,
        "output": "paid 5",
        "error": None,
        "tool_call_id": "c1",
    }
    assert "paid 5" in result.messages[0]["content"]


@pytest.mark.requirement("R029")
async def test_a_call_that_a_person_declined_ends_unsuccessful_with_the_reason(ran: Ran) -> None:
    def decline(question: Question) -> Answer:
        return Answer(approved=False, reason="Too expensive.", by="ada")

    async with asyncio.timeout(HANG_SECONDS), ran.runtime(CallbackInteractionProvider(decline)) as runtime:
        result = await runtime.execute([call("c1", "pay")])
        last = (await handle_events(runtime))[-1]

    assert ran.calls == []
    assert (last.type, last.data["success"]) == ("tool_completed", False)
    assert result.observations[0].code == "user_denied"
    assert "Too expensive." in result.messages[0]["content"]
    assert result.state is RunState.RUNNING


@pytest.mark.requirement("R029", "D07")
@pytest.mark.parametrize("nobody", [True, False], ids=["nobody answers", "a person declines"])
@pytest.mark.parametrize("policy", ["continue", "degrade", "fail"])
async def test_the_denial_policy_applies_to_what_people_do_not_approve(
    ran: Ran, policy: Literal["continue", "degrade", "fail"], nobody: bool
) -> None:
    interaction = CallbackInteractionProvider(never if nobody else lambda _: False, 0.02 if nobody else 5)
    fail_safe = FailSafeConfig(approval_denial_policy=policy)
    async with asyncio.timeout(HANG_SECONDS), ran.runtime(interaction, fail_safe=fail_safe) as runtime:
        try:
            await runtime.execute([call("c1", "pay")])
        except AgentExecutionError:
            assert policy == "fail"
        state = await runtime.state()

    ends = {"continue": RunState.RUNNING, "degrade": RunState.DEGRADED, "fail": RunState.FAILED}
    assert state is ends[policy]
    assert ran.calls == []


@pytest.mark.requirement("R030")
async def test_with_nobody_to_ask_the_answer_is_no(ran: Ran) -> None:
    async with ran.runtime(HeadlessInteractionProvider()) as runtime:
        result = await runtime.execute([call("c1", "pay")])

    assert (result.observations[0].ok, ran.calls) == (False, [])


@pytest.mark.requirement("R030")
async def test_without_any_provider_the_answer_is_no(ran: Ran) -> None:
    policy = RulePolicy([Rule(id="r", verdict="ask", tools="pay")])
    async with ToolRuntime(tools=[ran.pay], policy=policy) as runtime:
        result = await runtime.execute([call("c1", "pay")])

    assert (result.observations[0].ok, ran.calls) == (False, [])


@pytest.mark.requirement("R030")
async def test_with_nobody_to_ask_a_fallback_may_approve(ran: Ran) -> None:
    async with ran.runtime(HeadlessInteractionProvider("approve")) as runtime:
        result = await runtime.execute([call("c1", "pay")])

    assert (result.observations[0].ok, ran.calls) == (True, ["c1"])


@pytest.mark.requirement("R031", "D07")
@pytest.mark.parametrize("provider", [CallbackInteractionProvider(never), HeadlessInteractionProvider()])
def test_waiting_for_an_answer_is_bounded_by_300_seconds_unless_set_otherwise(provider: InteractionProvider) -> None:
    assert provider.approval_timeout_s == 300
    assert provider.approval_fallback == "deny"


@pytest.mark.requirement("R031", "R032", "D07")
async def test_a_question_that_nobody_answers_in_time_has_expired_and_nobody_denied_it(ran: Ran) -> None:
    async with asyncio.timeout(HANG_SECONDS), ran.runtime(CallbackInteractionProvider(never, 0.02)) as runtime:
        result = await runtime.execute([call("c1", "pay")])

    assert (result.observations[0].code, ran.calls) == ("approval_expired", [])
    assert "Approval expired" in result.messages[0]["content"]
    assert "Denied" not in result.messages[0]["content"]


@pytest.mark.requirement("R031", "R032")
async def test_the_time_to_answer_holds_for_a_provider_that_does_not_keep_it(ran: Ran) -> None:
    class Sleepy:
        approval_timeout_s = 0.02
        approval_fallback: Literal["deny"] = "deny"
        interactive = True

        async def ask(self, question: Question) -> Answer | None:
            await asyncio.Event().wait()

    async with asyncio.timeout(HANG_SECONDS), ran.runtime(Sleepy()) as runtime:
        result = await runtime.execute([call("c1", "pay")])

    assert (result.observations[0].code, ran.calls) == ("approval_expired", [])


@pytest.mark.requirement("R032")
async def test_when_the_time_is_over_the_fallback_may_approve(ran: Ran) -> None:
    async with (
        asyncio.timeout(HANG_SECONDS),
        ran.runtime(CallbackInteractionProvider(never, 0.02, "approve")) as runtime,
    ):
        result = await runtime.execute([call("c1", "pay")])
        resumed = [event.data for event in await handle_events(runtime) if event.type == "run_resumed"]

    assert (result.observations[0].ok, ran.calls) == (True, ["c1"])
    assert resumed == [{"approved": True}]


@pytest.mark.requirement("R032")
async def test_when_the_time_is_over_the_fallback_may_leave_the_question_open(ran: Ran) -> None:
    async with asyncio.timeout(HANG_SECONDS), ran.runtime(CallbackInteractionProvider(never, 0.02, "wait")) as runtime:
        result = await runtime.execute([call("c1", "pay")])

    assert (result.state, len(result.questions), ran.calls) == (RunState.PAUSED_APPROVAL, 1, [])


@pytest.mark.requirement("R027")
async def test_other_calls_of_the_batch_do_not_wait_for_the_answer() -> None:
    looked, answered = asyncio.Event(), asyncio.Event()

    @tool
    async def look() -> None:
        looked.set()

    @tool
    async def pay() -> None: ...

    async def think(question: Question) -> bool:
        await answered.wait()
        return True

    runtime = ToolRuntime(
        tools=[look, pay],
        policy=RulePolicy([Rule(id="r", verdict="ask", tools="pay")]),
        interaction=CallbackInteractionProvider(think),
    )
    async with asyncio.timeout(HANG_SECONDS), runtime:
        turn = asyncio.create_task(runtime.execute([call("c1", "pay"), call("c2", "look")]))
        await looked.wait()
        assert not turn.done()
        answered.set()
        result = await turn

    assert [observation.ok for observation in result.observations] == [True, True]


async def test_a_run_has_only_so_many_questions_open_and_further_calls_are_refused_in_words(ran: Ran) -> None:
    limits = Limits(max_open_questions=2)
    async with ran.runtime(HeadlessInteractionProvider("wait"), limits=limits) as runtime:
        outcome = await runtime.execute([call(f"c{number}", "pay", amount=number) for number in range(1, 5)])
        first, _ = outcome.questions
        await runtime.decide(first.action_id, approved=True, by="ada")
        await runtime.resume()

    refused = [seen for seen in outcome.observations if not seen.ok]
    assert [(seen.call_id, seen.code) for seen in refused] == [
        ("c3", "too_many_questions"),
        ("c4", "too_many_questions"),
    ]
    assert "2 questions of this run are open already" in str(refused[0])
    assert ran.calls == ["c1"]
