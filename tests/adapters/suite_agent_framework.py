"""The adapter for Microsoft Agent Framework, with the real framework and a scripted chat client."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from agent_framework import (
    Agent,
    AgentSession,
    BaseChatClient,
    ChatMiddlewareLayer,
    ChatResponse,
    ChatResponseUpdate,
    Content,
    FunctionInvocationContext,
    FunctionInvocationLayer,
    FunctionTool,
    Message,
    MiddlewareFailure,
    ResponseStream,
    UserInputRequiredException,
    function_middleware,
    tool,
)

import interlock
from interlock import ConfigurationError, Gate, LocalTools, tool_call
from interlock.adapters.agent_framework import answers, interlock_tools, interlocked, tools
from interlock.testing.adapters import (
    DONE,
    THREAD,
    AdapterConformance,
    AdapterHarness,
    SampleTools,
    Script,
    ScriptedCall,
    Turn,
)
from interlock.testing.adapters.harness import open_gate
from tests.adapters.page import run_blocks
from tests.patience import HANG_SECONDS, eventually_read


class ScriptedClient(FunctionInvocationLayer, ChatMiddlewareLayer, BaseChatClient):
    """Makes the calls of a script, and keeps what it was shown of them."""

    def __init__(self, script: Script = ()) -> None:
        super().__init__()
        self.script = script
        self.read: dict[str, str] = {}

    def _inner_get_response(self, *, messages: Sequence[Message], stream: bool, options: Any, **_: Any) -> Any:
        return (
            ResponseStream(self._stream(messages), finalizer=ChatResponse.from_updates)
            if stream
            else self._reply(messages)
        )

    async def _reply(self, messages: Sequence[Message]) -> ChatResponse:
        return ChatResponse(messages=[Message(role="assistant", contents=self._contents(messages))])

    async def _stream(self, messages: Sequence[Message]) -> AsyncIterator[ChatResponseUpdate]:
        yield ChatResponseUpdate(role="assistant", contents=self._contents(messages))

    def _contents(self, messages: Sequence[Message]) -> list[Content]:
        for content in (content for message in messages for content in message.contents):
            if content.type == "function_result":
                self.read[content.call_id or ""] = str(content.result)
        turn = sum(any(one.type == "function_call" for one in message.contents) for message in messages)
        if turn >= len(self.script):
            return [Content.from_text(DONE)]
        return [
            Content.from_function_call(
                call.call_id,
                call.tool,
                arguments=call.amount if isinstance(call.amount, dict) else {"amount": call.amount},
            )
            for call in self.script[turn]
        ]


class AgentFrameworkHarness:
    framework = "agent-framework"
    reference = "tests.adapters.suite_agent_framework:HARNESS"
    run_id = f"maf:{THREAD}"
    not_applicable: Mapping[str, str] = {}

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await _run(gate, _agent(gate, script, tools), AgentSession(session_id=THREAD), "Go.")

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        return await _continue(gate, _agent(gate, script, tools), saved)  # it approves everything there

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self.start(gate, script, tools)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        altered = saved.replace('"amount": 5', f'"amount": {amount}')
        assert altered.count(f'"amount": {amount}') > 1  # in the call and in the request
        return altered

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        return await _run(gate, _nested(gate, tools), AgentSession(session_id=THREAD), "Go.")

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        return await _continue(gate, _nested(gate, tools), saved)

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        def look(amount: int) -> str:
            """Look, when the user has logged in."""
            raise UserInputRequiredException([Content.from_oauth_consent_request("https://example.org")])

        session = AgentSession(session_id=THREAD)
        agent = _agent(gate, ((ScriptedCall("c1", "look", 1),),), tools, look=look)
        response = await agent.run("Go.", session=session)
        assert [one.type for one in response.user_input_requests] == ["oauth_consent_request"]

        def fail(amount: int) -> str:
            """Stop the agent."""
            raise MiddlewareFailure("stop")

        agent = _agent(gate, ((ScriptedCall("c2", "look", 1),),), tools, look=tool(fail, name="look"))
        with pytest.raises(MiddlewareFailure, match="stop"):
            await agent.run("Go.", session=AgentSession(session_id="other"))

    async def check_provider_tools(self, gate: Gate) -> None:
        agent = Agent(client=ScriptedClient(), tools=[{"type": "web_search"}], middleware=interlocked(gate))
        with pytest.raises(ConfigurationError, match="web_search"):
            await _run(gate, agent, AgentSession(session_id=THREAD), "Go.")


async def _run(gate: Gate, agent: Agent, session: AgentSession, message: Any) -> Turn:
    try:
        response = await agent.run(message, session=session)
    except MiddlewareFailure as error:
        raise error.__cause__ or error from None
    text = "" if response.user_input_requests else response.text
    return Turn(text=text, saved=json.dumps(session.to_dict()), read=agent.client.read)


async def _continue(gate: Gate, agent: Agent, saved: str) -> Turn:
    session = AgentSession.from_dict(json.loads(saved))
    return await _run(gate, agent, session, answers(session))


def _agent(gate: Gate, script: Script, tools: SampleTools, **others: Any) -> Agent:
    given = {"look": tools.look, "pay": tools.pay, "meet": tools.meet, **others}
    return Agent(client=ScriptedClient(script), name="shop", tools=list(given.values()), middleware=interlocked(gate))


def _nested(gate: Gate, tools: SampleTools) -> Agent:
    """Return an agent whose tool keeps the session of another agent in its own."""

    async def delegate(ctx: FunctionInvocationContext, amount: int) -> str:
        """Let another agent pay."""
        inner = _agent(gate, ((ScriptedCall("inner", "pay", 5),),), tools)
        kept = ctx.session.state.get("inner")
        session = AgentSession.from_dict(kept) if kept else inner.create_session(session_id="inner")
        response = await inner.run(answers(session) or "Pay.", session=session)
        ctx.session.state["inner"] = session.to_dict()
        if response.user_input_requests:
            raise UserInputRequiredException(response.user_input_requests)
        return response.text

    return _agent(gate, ((ScriptedCall("outer", "delegate", 5),),), tools, delegate=delegate)


HARNESS = AgentFrameworkHarness()


class TestAgentFramework(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS


@pytest.fixture
def sample(tmp_path: Path) -> SampleTools:
    return SampleTools(tmp_path)


async def test_a_streamed_agent_pauses_and_continues(tmp_path: Path, sample: SampleTools) -> None:
    script = ((ScriptedCall("c1", "pay", 5),),)
    session = AgentSession(session_id=THREAD)
    async with open_gate(tmp_path) as gate, open_gate(tmp_path) as other:
        response = await _agent(gate, script, sample).run("Go.", session=session, stream=True).get_final_response()
        assert len(response.user_input_requests) == 1
        (asked,) = await gate.inbox.pending()
        await gate.inbox.approve(asked, by="ada")
        # The run was released: another process can have it.
        agent = _agent(other, script, sample)
        response = await agent.run(answers(session), session=session, stream=True).get_final_response()

    assert (response.text, sample.paid) == (DONE, [5])


async def test_a_request_shows_what_is_asked(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate:
        agent = _agent(gate, ((ScriptedCall("c1", "pay", 5),),), sample)
        response = await agent.run("Go.", session=AgentSession(session_id=THREAD))
        (question,) = await gate.questions(HARNESS.run_id)

    (request,) = response.user_input_requests
    assert request.additional_properties["interlock"] == {
        "action_id": question.action_id,
        "run_id": question.run_id,
        "prompt": question.prompt,
        "tool": "pay",
        "arguments": {"amount": 5},
        "payload_hash": question.payload_hash,
    }


async def test_a_session_is_needed_before_anything_runs(tmp_path: Path, sample: SampleTools) -> None:
    async with open_gate(tmp_path) as gate:
        agent = _agent(gate, ((ScriptedCall("c1", "look", 1),),), sample)
        with pytest.raises(MiddlewareFailure, match="no run id") as raised:
            await agent.run("Go.")
        assert isinstance(raised.value.__cause__, ConfigurationError)
        assert sample.effects == []
        async with gate.run("ticket-42"):
            await agent.run("Go.")

    assert sample.effects == ["look 1"]


@pytest.mark.parametrize("refused", ["approval_mode", "no function", "last middleware"])
async def test_what_cannot_be_governed_is_refused(tmp_path: Path, sample: SampleTools, refused: str) -> None:
    given: Any = sample.pay
    behind: list[Any] = []
    match refused:
        case "approval_mode":
            given = tool(sample.pay, approval_mode="always_require")
        case "no function":
            given = FunctionTool(name="pay", func=None)
        case _:

            @function_middleware
            async def change(context: FunctionInvocationContext, call_next: Any) -> None:
                context.arguments = {"amount": 90}
                await call_next()

            behind.append(change)
    async with open_gate(tmp_path) as gate:
        client = ScriptedClient(((ScriptedCall("c1", "pay", 5),),))
        agent = Agent(client=client, tools=[given], middleware=interlocked(gate))
        with pytest.raises(ConfigurationError, match=refused):
            await agent.run("Go.", session=AgentSession(session_id=THREAD), middleware=behind)
    assert sample.effects == []


async def test_a_question_inside_an_agent_tool_waits_there(tmp_path: Path, sample: SampleTools) -> None:
    """The framework discards the session of such an agent."""
    async with open_gate(tmp_path) as gate:
        inner = _agent(gate, ((ScriptedCall("inner", "pay", 5),),), sample)
        client = ScriptedClient(((ScriptedCall("outer", "delegate", {"task": "Pay 5."}),),))
        outer = Agent(client=client, tools=[inner.as_tool(name="delegate")], middleware=interlocked(gate))
        run = asyncio.create_task(_run(gate, outer, AgentSession(session_id=THREAD), "Go."))

        async def has_asked() -> bool:
            assert not run.done(), run.result()
            return bool(await gate.inbox.pending())

        await eventually_read(has_asked)
        (asked,) = await gate.inbox.pending()
        await gate.inbox.approve(asked, by="ada")
        turn = await asyncio.wait_for(run, HANG_SECONDS)

    assert (turn.text, sample.paid) == (DONE, [5])


async def test_interlock_tools_run_in_an_agent_of_the_framework(tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("tea")
    calls = [ScriptedCall(f"c{at}", "read_file", {"path": path}) for at, path in enumerate(["note.txt", "../x"])]
    async with Gate(tmp_path / "state", workspace=tmp_path) as gate:
        given = interlock_tools(gate, LocalTools(tmp_path))
        agent = Agent(client=ScriptedClient((tuple(calls),)), tools=given, middleware=interlocked(gate))
        turn = await _run(gate, agent, AgentSession(session_id=THREAD), "Go.")

    assert turn.text == DONE
    assert "tea" in turn.read["c0"]
    assert "outside" in turn.read["c1"]


async def test_tools_of_the_framework_run_in_an_agent_of_interlock(sample: SampleTools) -> None:
    model = interlock.ScriptedModel([[tool_call("look", amount=1), tool_call("look", amount="x")], DONE])
    agent = interlock.Agent(provider=model, tools=tools([tool(sample.look)], risk="read"))
    async with interlock.Runner(agent) as runner:
        result = await runner.run("Go.")

    assert [one.output for one in result.tool_executions][:1] == ["saw 1"]
    assert sample.effects == ["look 1"]


async def test_the_page_works_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    call = ScriptedCall("c1", "refund", {"order": 7, "amount": 20})
    names: dict[str, Any] = {"client": ScriptedClient(((call,),))}
    async for block in run_blocks("docs/adapters/agent_framework.md", names):
        if "write_text" in block:
            assert names["response"].user_input_requests
            (question,) = await names["gate"].inbox.pending()
            await names["gate"].inbox.approve(question, by="ada")

    assert names["response"].text == DONE
    assert "Refunded 20" in names["client"].read["c1"]
