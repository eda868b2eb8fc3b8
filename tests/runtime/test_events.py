"""What a run handle publishes, for every way that a call can go."""

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from interlock import (
    AgentRunEvent,
    CallbackInteractionProvider,
    Decision,
    FailSafeConfig,
    PolicyEvent,
    Rule,
    RulePolicy,
    SandboxDeniedError,
    ToolContext,
    ToolRuntime,
    Verdict,
    tool,
)
from tests.each import each
from tests.patience import HANG_SECONDS
from tests.support import call, handle_events


@tool
async def echo(text: str) -> str:
    return text


@tool(timeout_seconds=0.02)
async def hang(text: str) -> str:
    await asyncio.Event().wait()
    return text


@tool
async def fail(text: str) -> str:
    raise ValueError(text)


@tool
async def leave_the_sandbox(text: str) -> str:
    raise SandboxDeniedError("no network here")


TOOLS = (echo, hang, fail, leave_the_sandbox)


class Way(NamedTuple):
    """A way that one call can go, and what it publishes."""

    published: list[str]
    success: bool
    tool: str = "echo"
    arguments: Mapping[str, object] = MappingProxyType({"text": "hello"})
    verdict: str = ""
    answer: Any = None
    approval_timeout_s: float = 5.0

    def runtime(self) -> ToolRuntime:
        target = "text" if self.verdict == "request_user_input" else ""
        rules = [Rule(id="r", verdict=self.verdict, tools="echo", target_arg=target)] if self.verdict else []
        return ToolRuntime(
            tools=TOOLS,
            policy=RulePolicy(rules),
            interaction=CallbackInteractionProvider(self._answer, self.approval_timeout_s),
        )

    async def _answer(self, question: object) -> Any:
        return self.answer if self.answer is not None else await asyncio.Event().wait()


RAN = ["tool_batch_started", "policy_decision", "tool_completed"]
ASKED = ["tool_batch_started", "policy_decision", "run_paused", "run_resumed", "tool_completed"]
REFUSED = ["tool_batch_started", "tool_completed"]

WAYS = {
    "allowed by default": Way(RAN, True),
    "allowed by a rule": Way(RAN, True, verdict="allow"),
    "denied by a rule": Way(RAN, False, verdict="deny"),
    "approved": Way(ASKED, True, verdict="defer", answer=True),
    "declined": Way(ASKED, False, verdict="defer", answer=False),
    "not answered": Way(ASKED, False, verdict="defer", approval_timeout_s=0.02),
    "value given": Way(RAN, True, verdict="request_user_input", answer="42"),
    "value refused": Way(RAN, False, verdict="request_user_input", answer=False),
    "value not given": Way(RAN, False, verdict="request_user_input", approval_timeout_s=0.02),
    "value that does not fit": Way(RAN, False, verdict="request_user_input", answer=42),
    "timed out": Way(RAN, False, tool="hang"),
    "raised": Way(RAN, False, tool="fail"),
    "arguments that do not fit": Way(REFUSED, False, arguments={"text": 1}),
    "arguments that are no object": Way(REFUSED, False, arguments={"nonsense": ()}),
    "unknown tool": Way(REFUSED, False, tool="nothing"),
}


def types(events: list[AgentRunEvent]) -> list[str]:
    return [event.type for event in events]


async def published_by(way: Way) -> list[AgentRunEvent]:
    async with asyncio.timeout(HANG_SECONDS), way.runtime() as runtime:
        await runtime.execute([call("c1", way.tool, **way.arguments)])
        return await handle_events(runtime)


@pytest.mark.requirement("R001", "R006", "R008", "R009", "R013")
async def test_an_allowed_call_publishes_exactly_this() -> None:
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=TOOLS) as runtime:
        await runtime.execute([call("c1", "echo", text="hello")])
        await runtime.complete()
        published = [event async for event in runtime.events()]

    assert published == [
        AgentRunEvent("tool_batch_started", {"tool_call_count": 1}),
        AgentRunEvent("policy_decision", {"tool_name": "echo", "action": "allow", "reason": "No rule matches."}),
        AgentRunEvent(
            "tool_completed",
            {"tool_name": "echo", "success": True, "output": "hello", "error": None, "tool_call_id": "c1"},
        ),
    ]


@pytest.mark.requirement("R005", "R010", "R011", "R012", "R014", "R015", "R016", "D08")
@each("way", WAYS.values())
async def test_each_way_of_a_call_publishes_exactly_these_types_and_one_end(way: Way) -> None:
    events = await published_by(way)

    assert types(events) == way.published
    assert events[-1].type == "tool_completed"
    assert set(events[-1].data) == {"tool_name", "success", "output", "error", "tool_call_id"}
    assert (events[-1].data["tool_call_id"], events[-1].data["success"]) == ("c1", way.success)


@pytest.mark.requirement("R002")
@each("way", WAYS.values())
async def test_the_same_call_with_the_same_decision_and_result_publishes_the_same_types(way: Way) -> None:
    assert types(await published_by(way)) == types(await published_by(way))


@pytest.mark.requirement("R016")
async def test_a_call_that_the_sandbox_blocked_still_ends_in_tool_completed() -> None:
    events = await published_by(Way([], False, tool="leave_the_sandbox"))

    ends = [event.data for event in events if event.type == "tool_completed"]
    assert [end["success"] for end in ends] == [False]
    assert "no network here" in ends[0]["error"]


@pytest.mark.requirement("R009")
@pytest.mark.parametrize(
    ("verdict", "action"),
    [("allow", "allow"), ("deny", "deny"), ("ask", "defer"), ("request_user_input", "request_user_input")],
)
async def test_every_kind_of_decision_is_published_with_tool_and_reason(verdict: str, action: str) -> None:
    target = "text" if verdict == "request_user_input" else ""
    rule = Rule(id="r", verdict=verdict, tools="echo", reason="House rules.", target_arg=target)
    async with ToolRuntime(tools=TOOLS, policy=RulePolicy([rule])) as runtime:
        await runtime.execute([call("c1", "echo", text="hello")])
        decisions = [event.data for event in await handle_events(runtime) if event.type == "policy_decision"]

    assert decisions == [{"tool_name": "echo", "action": action, "reason": "House rules."}]


@pytest.mark.requirement("R010", "R012")
@pytest.mark.parametrize("approved", [True, False])
async def test_a_question_for_approval_publishes_pause_and_resume_with_what_was_asked_and_said(approved: bool) -> None:
    rule = Rule(id="mail", verdict="ask", tools="echo", reason="It writes.", prompt="Really echo?")
    interaction = CallbackInteractionProvider(lambda _: approved)
    async with (
        asyncio.timeout(HANG_SECONDS),
        ToolRuntime(tools=TOOLS, policy=RulePolicy([rule]), interaction=interaction) as runtime,
    ):
        await runtime.execute([call("c1", "echo", text="hello")])
        [_, _, paused, resumed, _] = await handle_events(runtime)

    assert (paused.type, set(paused.data)) == ("run_paused", {"tool_name", "reason", "payload"})
    assert (paused.data["tool_name"], paused.data["reason"]) == ("echo", "Really echo?")
    assert paused.data["payload"]["arguments"] == {"text": "hello"}
    assert paused.data["payload"]["rule_ids"] == ["mail"]
    assert resumed == AgentRunEvent("run_resumed", {"approved": approved})


@pytest.mark.requirement("R003")
async def test_a_run_without_calls_publishes_nothing() -> None:
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=TOOLS) as runtime:
        runtime.registry.to_openai_function_tools()
        runtime.switch_mode(task_phase="planning")
        await runtime.complete()

        assert [event async for event in runtime.events()] == []


@pytest.mark.requirement("R003", "R005", "R006", "R050")
@pytest.mark.parametrize("count", [1, 2, 5])
async def test_a_turn_is_one_batch_that_says_first_how_many_calls_it_has(count: int) -> None:
    async with ToolRuntime(tools=TOOLS) as runtime:
        result = await runtime.execute([call(f"c{number}", "echo", text="hello") for number in range(count)])
        [first, *others] = await handle_events(runtime)

    assert first == AgentRunEvent("tool_batch_started", {"tool_call_count": count})
    assert "tool_batch_started" not in types(others)
    assert [observation.call_id for observation in result.observations] == [f"c{number}" for number in range(count)]


@pytest.mark.requirement("R005", "R013")
async def test_every_turn_is_a_batch_of_its_own_and_every_call_ends_once() -> None:
    async with ToolRuntime(tools=TOOLS) as runtime:
        await runtime.execute([call("c1", "echo", text="a"), call("c2", "fail", text="b"), call("c3", "nothing")])
        await runtime.execute([call("c4", "echo", text="d")])
        events = await handle_events(runtime)

    assert [event.data["tool_call_count"] for event in events if event.type == "tool_batch_started"] == [3, 1]
    ends = [event.data["tool_call_id"] for event in events if event.type == "tool_completed"]
    assert sorted(ends) == ["c1", "c2", "c3", "c4"]


@pytest.mark.requirement("R007")
@pytest.mark.parametrize("resumed", [False, True], ids=["execute", "resume"])
async def test_a_turn_without_calls_publishes_no_batch(resumed: bool) -> None:
    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=TOOLS) as runtime:
        result = await (runtime.resume() if resumed else runtime.execute([]))
        await runtime.complete()

        assert (result.observations, result.messages) == ((), [])
        assert [event async for event in runtime.events()] == []


class Gate:
    """Allows everything and remembers what it was asked."""

    def __init__(self, trace: list[str]) -> None:
        self.trace = trace
        self.events: list[PolicyEvent] = []

    def evaluate(self, event: PolicyEvent) -> Decision:
        self.trace.append(f"gate {event.call_id}")
        self.events.append(event)
        return Decision(verdict=Verdict.ALLOW, reason="Fine.")


@pytest.mark.requirement("R004", "R018")
async def test_every_call_of_a_batch_passes_the_gate_before_any_handler_runs() -> None:
    trace: list[str] = []

    @tool
    async def note(ctx: ToolContext) -> None:
        trace.append(f"handler {ctx.call_id}")

    gate = Gate(trace)
    async with ToolRuntime(tools=[note], policy=gate) as runtime:
        await runtime.execute([call("c1", "note"), call("c2", "note"), call("c3", "note")])

    assert trace[:3] == ["gate c1", "gate c2", "gate c3"]
    assert sorted(trace[3:]) == ["handler c1", "handler c2", "handler c3"]
    assert [(event.event_type, event.tool_name) for event in gate.events] == [("tool_before_execute", "note")] * 3


@pytest.mark.requirement("R001")
async def test_events_are_published_while_the_call_still_runs() -> None:
    released = asyncio.Event()

    @tool
    async def slow() -> str:
        await released.wait()
        return "done"

    async with asyncio.timeout(HANG_SECONDS), ToolRuntime(tools=[slow]) as runtime:
        stream = runtime.events()
        turn = asyncio.create_task(runtime.execute([call("c1", "slow")]))
        before = [await anext(stream), await anext(stream)]
        assert not turn.done()
        released.set()
        after = await anext(stream)
        await turn
        await stream.aclose()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType] - a generator

    assert types(before) == ["tool_batch_started", "policy_decision"]
    assert after.type == "tool_completed"


@pytest.mark.requirement("R017")
async def test_what_a_tool_survives_and_reports_is_published_as_a_warning() -> None:
    @tool
    async def fetch(ctx: ToolContext) -> str:
        try:
            raise SandboxDeniedError("no network here")
        except SandboxDeniedError as denied:
            ctx.warn(f"Taken from the cache: {denied}")
        return "cached"

    async with ToolRuntime(tools=[fetch]) as runtime:
        result = await runtime.execute([call("c1", "fetch")])
        events = await handle_events(runtime)

    assert result.observations[0].ok
    assert types(events) == ["tool_batch_started", "policy_decision", "warning", "tool_completed"]
    assert events[2].data == {"message": "Taken from the cache: no network here"}


@pytest.mark.requirement("R017")
async def test_a_sandbox_violation_under_the_policy_to_continue_is_published_as_a_warning() -> None:
    fail_safe = FailSafeConfig(tool_failure_policy="continue")
    async with ToolRuntime(tools=TOOLS, fail_safe=fail_safe) as runtime:
        result = await runtime.execute([call("c1", "leave_the_sandbox", text="hello")])
        warnings = [event.data for event in await handle_events(runtime) if event.type == "warning"]

    assert result.state == "running"
    assert len(warnings) == 1
    assert "no network here" in warnings[0]["message"]
