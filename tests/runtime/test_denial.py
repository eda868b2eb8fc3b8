"""A call that is refused: what the model is told, and what becomes of the run and of the other calls."""

import asyncio
import json
from typing import Any, Literal

import pytest

from interlock import (
    AgentExecutionError,
    CallbackInteractionProvider,
    FailSafeConfig,
    PolicyEvent,
    Rule,
    RulePolicy,
    RunEndedError,
    RunState,
    ToolContext,
    ToolRuntime,
    tool,
)
from interlock.domain.event import RunDegraded, RunFailed
from tests.patience import HANG_SECONDS
from tests.support import call, facts, handle_events

DENY = Rule(
    id="no-mail",
    verdict="deny",
    tools="send_mail",
    reason="Mail is off today.",
    layer="user rule",
    advice="Write a draft instead.",
)


class Ran:
    """Tools that say that they ran."""

    def __init__(self) -> None:
        self.calls: list[str] = []

        @tool
        async def send_mail(ctx: ToolContext, to: str = "ada") -> str:
            self.calls.append(ctx.call_id)
            return f"sent to {to}"

        @tool
        async def look(ctx: ToolContext) -> str:
            self.calls.append(ctx.call_id)
            return "seen"

        @tool(concurrency="exclusive")
        async def alone(ctx: ToolContext) -> str:
            self.calls.append(ctx.call_id)
            return "done"

        self.tools = (send_mail, look, alone)


@pytest.fixture
def ran() -> Ran:
    return Ran()


@pytest.mark.requirement("R020", "R040")
async def test_a_denied_call_does_not_reach_its_handler_and_its_record_says_so(ran: Ran) -> None:
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy([DENY])) as runtime:
        [record] = (await runtime.execute([call("c1", "send_mail")])).tool_executions

    assert ran.calls == []
    assert (record.success, record.error, record.output, record.latency_ms) == (False, "Denied by policy", None, None)
    assert (record.tool_name, record.tool_call_id) == ("send_mail", "c1")


@pytest.mark.requirement("R021", "R022", "D10")
async def test_a_denial_is_the_tool_message_of_its_call_in_fixed_words(ran: Ran) -> None:
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy([DENY])) as runtime:
        [message] = (await runtime.execute([call("c1", "send_mail")])).messages

    assert (message["role"], message["tool_call_id"], message["name"]) == ("tool", "c1", "send_mail")
    told: dict[str, Any] = json.loads(message["content"])
    assert list(told.items())[:3] == [("success", False), ("error", "Denied by policy"), ("tool_call_id", "c1")]
    assert (told["reason"], told["ruleIds"], told["layer"]) == ("Mail is off today.", ["no-mail"], "user rule")
    assert (told["code"], told["phase"], told["sideEffects"]) == ("policy_denied", "permission", "none")
    assert told["advice"] == "Write a draft instead."
    assert "Nothing was executed." in told["message"]


@pytest.mark.requirement("R023", "R024")
async def test_a_run_goes_on_after_a_denial_unless_told_otherwise(ran: Ran) -> None:
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy([DENY])) as runtime:
        first = await runtime.execute([call("c1", "send_mail"), call("c2", "look")])
        second = await runtime.execute([call("c3", "look")])

    assert (first.state, second.state) == (RunState.RUNNING, RunState.RUNNING)
    assert [message["tool_call_id"] for message in first.messages] == ["c1", "c2"]
    assert "Denied by policy" in first.messages[0]["content"]
    assert ran.calls == ["c2", "c3"]


@pytest.mark.requirement("R023", "R025", "D05")
async def test_a_denial_that_degrades_ends_the_run_with_a_message(ran: Ran) -> None:
    fail_safe = FailSafeConfig(approval_denial_policy="degrade")
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy([DENY]), fail_safe=fail_safe) as runtime:
        result = await runtime.execute([call("c1", "send_mail")])
        recorded = await facts(runtime)
        with pytest.raises(RunEndedError):
            await runtime.execute([call("c2", "look")])

    assert (result.state, result.status, result.degraded) == (RunState.DEGRADED, "COMPLETED", True)
    assert "send_mail" in result.message
    assert recorded[-1] == RunDegraded(message=result.message)
    assert "Denied by policy" in result.messages[0]["content"]
    assert ran.calls == []


@pytest.mark.requirement("R023", "R026", "D05")
async def test_a_denial_that_fails_raises_and_ends_the_run_as_failed(ran: Ran) -> None:
    fail_safe = FailSafeConfig(approval_denial_policy="fail")
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy([DENY]), fail_safe=fail_safe) as runtime:
        with pytest.raises(AgentExecutionError, match="send_mail") as raised:
            await runtime.execute([call("c1", "send_mail")])
        recorded = await facts(runtime)
        with pytest.raises(RunEndedError):
            await runtime.execute([call("c2", "look")])

        assert await runtime.state() is RunState.FAILED
    assert [observation.code for observation in raised.value.observations] == ["policy_denied"]
    assert recorded[-1] == RunFailed(message=str(raised.value), code="policy_denied")
    assert ran.calls == []


@pytest.mark.requirement("R042")
async def test_each_denial_of_a_batch_comes_from_a_decision_of_its_own(ran: Ran) -> None:
    def is_boss(event: PolicyEvent) -> bool:
        return event.arguments["to"] == "boss"

    def is_press(event: PolicyEvent) -> bool:
        return event.arguments["to"] == "press"

    rules = [
        Rule(id="boss", verdict="deny", tools="send_mail", when=is_boss, reason="Not to the boss."),
        Rule(id="press", verdict="deny", tools="send_mail", when=is_press, reason="Not to the press."),
    ]
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy(rules)) as runtime:
        addressees = {"c1": "boss", "c2": "ada", "c3": "press"}
        result = await runtime.execute([call(call_id, "send_mail", to=to) for call_id, to in addressees.items()])
        decisions = [event.data for event in await handle_events(runtime) if event.type == "policy_decision"]

    assert [data["action"] for data in decisions] == ["deny", "allow", "deny"]
    reasons = [observation.failure and observation.failure.details["reason"] for observation in result.observations]
    assert reasons == ["Not to the boss.", None, "Not to the press."]
    assert ran.calls == ["c2"]


@pytest.mark.requirement("R043")
@pytest.mark.parametrize("policy", ["degrade", "fail"])
@pytest.mark.parametrize("denied_at", [0, 1, 2])
async def test_a_denial_that_ends_the_run_skips_every_other_call_wherever_it_stands(
    ran: Ran, policy: Literal["degrade", "fail"], denied_at: int
) -> None:
    calls = [call("c1", "look"), call("c2", "alone")]
    calls.insert(denied_at, call("denied", "send_mail"))
    fail_safe = FailSafeConfig(approval_denial_policy=policy)
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy([DENY]), fail_safe=fail_safe) as runtime:
        try:
            observations = (await runtime.execute(calls)).observations
        except AgentExecutionError as raised:
            observations = raised.observations

    codes = {observation.call_id: observation.code for observation in observations}
    assert codes == {"denied": "policy_denied", "c1": "skipped", "c2": "skipped"}
    assert ran.calls == []


@pytest.mark.requirement("R029", "R035", "R043")
@pytest.mark.parametrize("policy", ["degrade", "fail"])
@pytest.mark.parametrize("verdict", ["ask", "request_user_input"])
async def test_a_refusal_by_a_person_that_ends_the_run_skips_the_calls_behind_it(
    ran: Ran, policy: Literal["degrade", "fail"], verdict: str
) -> None:
    target = "to" if verdict == "request_user_input" else ""
    ask = Rule(id="ask", verdict=verdict, tools="send_mail", target_arg=target)
    asked, answered = asyncio.Event(), asyncio.Event()

    async def decline(question: object) -> bool:
        asked.set()
        await answered.wait()
        return False

    runtime = ToolRuntime(
        tools=ran.tools,
        policy=RulePolicy([ask]),
        interaction=CallbackInteractionProvider(decline),
        fail_safe=FailSafeConfig(approval_denial_policy=policy),
    )
    async with asyncio.timeout(HANG_SECONDS), runtime:
        turn = asyncio.create_task(runtime.execute([call("c1", "send_mail"), call("c2", "alone")]))
        await asked.wait()
        answered.set()
        try:
            result = await turn
        except AgentExecutionError as raised:
            observations, state = raised.observations, await runtime.state()
        else:
            observations, state = result.observations, result.state

    assert [observation.code for observation in observations] == ["user_denied", "skipped"]
    assert state == {"degrade": RunState.DEGRADED, "fail": RunState.FAILED}[policy]
    assert ran.calls == []


@pytest.mark.requirement("D04")
async def test_a_denial_beats_a_permission_and_a_question_about_the_same_call(ran: Ran) -> None:
    rules = [
        Rule(id="a-allow", verdict="allow", tools="send_mail"),
        Rule(id="b-ask", verdict="ask", tools="send_mail"),
        Rule(id="z-deny", verdict="deny", tools="*mail"),
    ]
    interaction = CallbackInteractionProvider(lambda _: True)
    async with ToolRuntime(tools=ran.tools, policy=RulePolicy(rules), interaction=interaction) as runtime:
        result = await runtime.execute([call("c1", "send_mail")])

    assert result.observations[0].code == "policy_denied"
    assert ran.calls == []


@pytest.mark.requirement("D03")
async def test_a_policy_that_cannot_be_evaluated_denies(ran: Ran) -> None:
    class Broken:
        def evaluate(self, event: PolicyEvent) -> Any:
            raise OSError("the rules are gone")

    async with ToolRuntime(tools=ran.tools, policy=Broken()) as runtime:
        result = await runtime.execute([call("c1", "look")])

    assert result.observations[0].code == "policy_denied"
    assert "the rules are gone" in result.messages[0]["content"]
    assert ran.calls == []
