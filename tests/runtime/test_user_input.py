"""A call that needs a value from a person: it is asked for, checked like any other, and becomes an argument."""

import asyncio
from typing import Any, Literal

import pytest

from interlock import (
    AgentExecutionError,
    Answer,
    CallbackInteractionProvider,
    FailSafeConfig,
    HeadlessInteractionProvider,
    PolicyEvent,
    Question,
    Rule,
    RulePolicy,
    RunState,
    ToolRuntime,
    tool,
)
from interlock.domain.event import InvocationStarted
from tests.patience import HANG_SECONDS
from tests.support import call, facts, handle_events

ASK_CODE = Rule(
    id="two-factor", verdict="request_user_input", tools="transfer", target_arg="code", prompt="Code from your phone?"
)


class Transfers:
    """A tool that remembers what it was called with."""

    def __init__(self) -> None:
        self.done: list[tuple[int, str | None]] = []

        @tool
        async def transfer(amount: int, code: str | None = None) -> str:
            self.done.append((amount, code))
            return f"{amount} with {code}"

        self.tool = transfer

    def runtime(self, said: Any, *rules: Rule, **options: Any) -> ToolRuntime:
        options.setdefault("interaction", CallbackInteractionProvider(said if callable(said) else lambda _: said))
        return ToolRuntime(tools=[self.tool], policy=RulePolicy([ASK_CODE, *rules]), **options)


@pytest.fixture
def transfers() -> Transfers:
    return Transfers()


@pytest.mark.requirement("R033")
async def test_the_person_is_asked_for_a_value_and_not_for_a_yes(transfers: Transfers) -> None:
    asked: list[Question] = []

    def say(question: Question) -> str:
        asked.append(question)
        return "1234"

    async with asyncio.timeout(HANG_SECONDS), transfers.runtime(say) as runtime:
        await runtime.execute([call("c1", "transfer", amount=5)])

    [question] = asked
    assert (question.kind, question.target_arg, question.prompt) == ("input", "code", "Code from your phone?")
    assert question.tool_name == "transfer"


@pytest.mark.requirement("R034", "D08")
@pytest.mark.parametrize("sent", [{"amount": 5}, {"amount": 5, "code": "made up"}])
async def test_the_value_becomes_the_argument_whatever_the_model_sent_for_it(
    transfers: Transfers, sent: dict[str, Any]
) -> None:
    async with asyncio.timeout(HANG_SECONDS), transfers.runtime("1234") as runtime:
        result = await runtime.execute([call("c1", "transfer", **sent)])
        [started] = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]

    assert transfers.done == [(5, "1234")]
    assert started.arguments == {"amount": 5, "code": "1234"}
    assert result.observations[0].ok


@pytest.mark.requirement("R034", "D08")
async def test_a_value_that_does_not_fit_the_schema_is_refused_and_nothing_runs(transfers: Transfers) -> None:
    async with asyncio.timeout(HANG_SECONDS), transfers.runtime(1234) as runtime:
        result = await runtime.execute([call("c1", "transfer", amount=5)])

    assert (result.observations[0].code, transfers.done) == ("schema_invalid", [])
    assert "input.code" in result.messages[0]["content"]


@pytest.mark.requirement("R004", "R034")
async def test_a_value_that_a_rule_forbids_does_not_run(transfers: Transfers) -> None:
    def is_test_code(event: PolicyEvent) -> bool:
        return event.arguments["code"] == "0000"

    forbid = Rule(id="no-test-code", verdict="deny", tools="transfer", when=is_test_code)
    async with asyncio.timeout(HANG_SECONDS), transfers.runtime("0000", forbid) as runtime:
        result = await runtime.execute([call("c1", "transfer", amount=5)])

    assert (result.observations[0].ok, transfers.done) == (False, [])


@pytest.mark.requirement("R035")
@pytest.mark.parametrize("said", [False, Answer(approved=False, reason="Not me.", by="ada")])
async def test_a_refused_value_means_no_execution_and_an_unsuccessful_end(transfers: Transfers, said: Any) -> None:
    async with asyncio.timeout(HANG_SECONDS), transfers.runtime(said) as runtime:
        result = await runtime.execute([call("c1", "transfer", amount=5)])
        last = (await handle_events(runtime))[-1]

    assert (last.type, last.data["success"], last.data["tool_call_id"]) == ("tool_completed", False, "c1")
    assert (result.observations[0].code, transfers.done) == ("user_denied", [])


@pytest.mark.requirement("R035")
@pytest.mark.parametrize("policy", ["continue", "degrade", "fail"])
async def test_the_denial_policy_applies_to_a_refused_value(
    transfers: Transfers, policy: Literal["continue", "degrade", "fail"]
) -> None:
    fail_safe = FailSafeConfig(approval_denial_policy=policy)
    async with asyncio.timeout(HANG_SECONDS), transfers.runtime(False, fail_safe=fail_safe) as runtime:
        try:
            await runtime.execute([call("c1", "transfer", amount=5)])
        except AgentExecutionError:
            assert policy == "fail"
        state = await runtime.state()

    ends = {"continue": RunState.RUNNING, "degrade": RunState.DEGRADED, "fail": RunState.FAILED}
    assert state is ends[policy]
    assert transfers.done == []


@pytest.mark.requirement("D08", "D05")
async def test_a_value_that_nobody_gives_yet_pauses_the_run_without_an_event_until_it_is_given(
    transfers: Transfers,
) -> None:
    async with transfers.runtime(None, interaction=HeadlessInteractionProvider("wait")) as runtime:
        paused = await runtime.execute([call("c1", "transfer", amount=5)])
        assert (paused.state, paused.status) == (RunState.PAUSED_INPUT, "PAUSED_APPROVAL")
        [question] = paused.questions
        await runtime.decide(question.action_id, approved=True, value="1234", by="ada")
        result = await runtime.resume()
        published = [event.type for event in await handle_events(runtime)]

    assert (result.state, transfers.done) == (RunState.RUNNING, [(5, "1234")])
    assert published == ["tool_batch_started", "policy_decision", "tool_completed"]


@pytest.mark.requirement("R030", "R035")
@pytest.mark.parametrize("fallback", ["deny", "approve"])
async def test_with_nobody_to_ask_there_is_no_value_and_nothing_runs(
    transfers: Transfers, fallback: Literal["deny", "approve"]
) -> None:
    async with transfers.runtime(None, interaction=HeadlessInteractionProvider(fallback)) as runtime:
        result = await runtime.execute([call("c1", "transfer", amount=5)])

    assert (result.observations[0].ok, transfers.done) == (False, [])


@pytest.mark.requirement("D07", "R032")
@pytest.mark.parametrize("fallback", ["deny", "approve"])
async def test_a_value_that_nobody_gives_in_time_has_expired_and_nothing_runs(
    transfers: Transfers, fallback: Literal["deny", "approve"]
) -> None:
    async def never(question: Question) -> str:
        await asyncio.Event().wait()
        return "too late"

    interaction = CallbackInteractionProvider(never, 0.02, fallback)
    async with asyncio.timeout(HANG_SECONDS), transfers.runtime(None, interaction=interaction) as runtime:
        result = await runtime.execute([call("c1", "transfer", amount=5)])

    assert transfers.done == []
    assert result.observations[0].code == "approval_expired"
