"""Spans of whole runs: agents, requests to models and tools, nested, and linked over pauses and processes."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from interlock import Agent, Answer, MemoryLog, Rule, RulePolicy, Runner, tool
from interlock.domain.messages import Usage
from interlock.errors import ModelError
from interlock.models.scripted import ScriptedTurn, tool_call
from interlock.telemetry.otel import DURATION_BOUNDS, TOKEN_BOUNDS, OtelTelemetry
from interlock.telemetry.spans import format_traceparent, parse_traceparent
from tests.runs.support import agent_of, calls, says

SECRET = "correct horse battery staple"
ASK = RulePolicy([Rule(id="ask", verdict="ask", tools="pay")], default="allow")


@tool
def look(order: str) -> str:
    """Look at an order."""
    return f"{order}: {SECRET}"


@tool(risk="write")
def pay(order: str) -> str:
    """Pay for an order."""
    return "paid"


@tool
def fail() -> str:
    """Do nothing."""
    raise RuntimeError(SECRET)


class Collected:
    """An SDK in memory."""

    def __init__(self) -> None:
        self._provider = TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self._provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self._reader = InMemoryMetricReader()
        self._meters = MeterProvider([self._reader], shutdown_on_exit=False)

    def telemetry(self) -> OtelTelemetry:
        """Return that of another process, which exports to the same place."""
        return OtelTelemetry(self._meters, self._provider)

    @property
    def spans(self) -> Sequence[ReadableSpan]:
        """The spans in the order in which they began."""
        return sorted(self._exporter.get_finished_spans(), key=lambda span: span.start_time or 0)

    def tree(self) -> list[str]:
        """The names of the spans, indented below their parents."""
        depths: dict[int | None, int] = {None: -1}
        lines: list[str] = []
        for span in self.spans:
            depth = depths[span.parent.span_id if span.parent else None] + 1
            depths[_id_of(span)] = depth
            lines.append("  " * depth + span.name)
        return lines

    def points(self) -> list[tuple[str, Mapping[str, Any], float, tuple[float, ...]]]:
        data = self._reader.get_metrics_data()
        assert data is not None
        found = [metric for scope in data.resource_metrics[0].scope_metrics for metric in scope.metrics]
        return [
            (metric.name, dict(point.attributes or {}), point.sum, tuple(point.explicit_bounds))
            for metric in found
            if metric.name.startswith("gen_ai.")
            for point in metric.data.data_points
            if isinstance(point, HistogramDataPoint)
        ]


def _id_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return span.context.span_id


def attributes(span: ReadableSpan) -> dict[str, Any]:
    return dict(span.attributes or {})


async def test_run_is_a_tree_of_agent_chat_and_tools() -> None:
    collected = Collected()
    turn = ScriptedTurn(
        calls=(tool_call("look", order="O-7", call_id="c1"), tool_call("fail", call_id="c2")),
        usage=Usage(input_tokens=100, output_tokens=20, cached_tokens=10, cost=0.25),
    )
    done = ScriptedTurn(text=f"It is {SECRET}.", usage=Usage(input_tokens=7, output_tokens=3))
    agent = Agent(name="shop", provider=says(turn, done), tools=[look, fail], model="m-1", max_output_tokens=50)
    async with Runner(agent, telemetry=collected.telemetry()) as runner:
        handle = await runner.start(f"Say {SECRET}.", run_id="run_1")
        await handle.result()

    assert collected.tree() == [
        "invoke_agent shop",
        "  chat m-1",
        "  execute_tool look",
        "  execute_tool fail",
        "  chat m-1",
    ]
    invoked, asked, looked, failed, _ = collected.spans
    assert attributes(invoked) == {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": "scripted",
        "gen_ai.agent.name": "shop",
        "gen_ai.conversation.id": "run_1",
        "gen_ai.request.model": "m-1",
        "gen_ai.usage.input_tokens": 107,
        "gen_ai.usage.output_tokens": 23,
        "gen_ai.usage.cache_read.input_tokens": 10,
        "interlock.usage.cost": 0.25,
        "interlock.run.id": "run_1",
        "interlock.run.state": "completed",
    }
    assert attributes(asked) == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "scripted",
        "gen_ai.agent.name": "shop",
        "gen_ai.conversation.id": "run_1",
        "gen_ai.request.model": "m-1",
        "gen_ai.request.max_tokens": 50,
        "gen_ai.request.stream": True,
        "gen_ai.output.type": "text",
        "gen_ai.response.finish_reasons": ("tool_calls",),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.output_tokens": 20,
        "gen_ai.usage.cache_read.input_tokens": 10,
        "interlock.usage.cost": 0.25,
        "interlock.run.id": "run_1",
    }
    assert (invoked.kind, asked.kind, looked.kind) == (SpanKind.INTERNAL, SpanKind.CLIENT, SpanKind.INTERNAL)
    assert [span.status.status_code for span in (invoked, looked, failed)] == [
        StatusCode.UNSET,
        StatusCode.UNSET,
        StatusCode.ERROR,
    ]
    assert SECRET not in str([span.to_json() for span in collected.spans])


async def test_requests_to_models_are_measured() -> None:
    collected = Collected()
    agent = agent_of(ScriptedTurn(text="Hi.", usage=Usage(input_tokens=9, output_tokens=4)), name="shop", model="m-1")
    async with Runner(agent, telemetry=collected.telemetry()) as runner:
        await runner.run("Hello.")

    common = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": "scripted", "gen_ai.request.model": "m-1"}
    tokens_in, tokens_out, duration = collected.points()
    name = "gen_ai.client.token.usage"
    assert tokens_in == (name, common | {"gen_ai.token.type": "input"}, 9, TOKEN_BOUNDS)
    assert tokens_out == (name, common | {"gen_ai.token.type": "output"}, 4, TOKEN_BOUNDS)
    assert (duration[0], duration[1], duration[3]) == ("gen_ai.client.operation.duration", common, DURATION_BOUNDS)
    assert TOKEN_BOUNDS[-1] == 67_108_864
    assert DURATION_BOUNDS[-1] == pytest.approx(81.92)


async def test_failed_request_has_its_error_type() -> None:
    """The text of the error, which may quote the request, is not recorded."""
    collected = Collected()

    def broken(_: object) -> ScriptedTurn:
        raise ModelError(f"The provider says {SECRET}.", code="context_length_exceeded")

    async with Runner(agent_of(*[broken] * 20, name="shop"), telemetry=collected.telemetry()) as runner:
        await runner.run("Hello.")

    invoked, asked, *_ = collected.spans
    for span in (invoked, asked):
        assert (span.status.status_code, attributes(span)["error.type"]) == (
            StatusCode.ERROR,
            "context_length_exceeded",
        )
    assert collected.points()[0][1]["error.type"] == "context_length_exceeded"
    assert SECRET not in str([span.to_json() for span in collected.spans])


async def test_resumed_run_links_to_the_span_before() -> None:
    """Also in another process, which knows it from the log; the wait for a person is an event of the first span."""
    collected, log = Collected(), MemoryLog()
    agent = agent_of(calls(("c1", "pay", {"order": "O-7"})), "Done.", tools=[pay], policy=ASK, name="shop")
    async with Runner(agent, log=log, telemetry=collected.telemetry()) as runner:
        result = await runner.run("Pay.")
    async with Runner(agent, log=log, telemetry=collected.telemetry()) as runner:
        answers = {result.questions[0].action_id: Answer(approved=True, by="olga")}
        await (await runner.open(result.run_id, answers=answers)).result()

    assert collected.tree() == ["invoke_agent shop", "  chat", "invoke_agent shop", "  execute_tool pay", "  chat"]
    waited, _, resumed, *_ = collected.spans
    (event,) = waited.events
    assert attributes(waited)["interlock.run.state"] == "paused_approval"
    assert (event.name, dict(event.attributes or {})) == (
        "interlock.run.waiting",
        {"interlock.question.count": 1, "interlock.question.kinds": ("approval",)},
    )
    (link,) = resumed.links
    assert (link.context.trace_id, link.context.span_id) == (waited.context.trace_id, _id_of(waited))  # pyright: ignore[reportOptionalMemberAccess]
    assert attributes(resumed)["gen_ai.conversation.id"] == attributes(waited)["gen_ai.conversation.id"]


async def test_conversation_links_its_turns() -> None:
    collected = Collected()
    async with Runner(agent_of("Hi.", "Bye.", name="shop"), chat=True, telemetry=collected.telemetry()) as runner:
        handle = await runner.start("Hello.")
        await handle.result()
        await handle.send_message("Bye.")
        await handle.result()

    first, _, second, _ = collected.spans
    assert [attributes(span)["interlock.run.state"] for span in (first, second)] == ["idle", "idle"]
    assert [link.context.span_id for link in second.links] == [_id_of(first)]


async def test_child_run_is_inside_the_call() -> None:
    collected = Collected()
    clerk = agent_of(calls(("c1", "look", {"order": "O-7"})), "Found.", tools=[look], name="clerk")
    boss = agent_of(
        calls(("c1", "ask_clerk", {"task": "Look."})), "Done.", tools=[clerk.as_tool()], name="boss", policy=ASK
    )
    async with Runner(boss, telemetry=collected.telemetry()) as runner:
        result = await runner.run("Go.")

    assert collected.tree() == [
        "invoke_agent boss",
        "  chat",
        "  execute_tool ask_clerk",
        "    invoke_agent clerk",
        "      chat",
        "      execute_tool look",
        "      chat",
        "  chat",
    ]
    assert attributes(collected.spans[3])["interlock.run.parent_id"] == result.run_id


async def test_person_who_answers_at_once_is_waited_for_inside() -> None:
    collected = Collected()

    async def approve(_: object) -> bool:
        return True

    agent = agent_of(calls(("c1", "pay", {"order": "O-7"})), "Done.", tools=[pay], policy=ASK, name="shop")
    async with Runner(agent, approve=approve, telemetry=collected.telemetry()) as runner:
        await runner.run("Pay.")

    assert attributes(collected.spans[0])["interlock.human_wait_ms"] > 0


async def test_cancelled_run_is_not_an_error() -> None:
    collected, running = Collected(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        running.set()
        await asyncio.Event().wait()
        return ""

    agent = agent_of(calls(("c1", "wait", {})), "Done.", tools=[wait], name="shop")
    async with Runner(agent, telemetry=collected.telemetry()) as runner:
        handle = await runner.start("Go.")
        await running.wait()
        await handle.cancel("Enough.")

    invoked, _, waited = collected.spans
    assert attributes(invoked)["interlock.run.state"] == "cancelled"
    assert [span.status.status_code for span in (invoked, waited)] == [StatusCode.UNSET, StatusCode.ERROR]


async def test_run_of_a_closed_runner_is_interrupted() -> None:
    collected, running = Collected(), asyncio.Event()

    @tool
    async def wait() -> str:
        """Wait for ever."""
        running.set()
        await asyncio.Event().wait()
        return ""

    agent = agent_of(calls(("c1", "wait", {})), "Done.", tools=[wait], name="shop")
    async with Runner(agent, telemetry=collected.telemetry()) as runner:
        await runner.start("Go.")
        await running.wait()

    invoked = collected.spans[0]
    assert (invoked.status.status_code, attributes(invoked)["interlock.interrupted"]) == (StatusCode.UNSET, True)


@pytest.mark.parametrize("text", ["", "00", "00-x-y-z", "00-0-0-00", f"00-{'0' * 32}-{'0' * 16}-01"])
def test_what_is_no_trace_context_is_none(text: str) -> None:
    assert parse_traceparent(text) is None


def test_trace_context_is_read_as_it_was_written() -> None:
    text = f"00-{'ab' * 16}-{'cd' * 8}-01"
    context = parse_traceparent(text)
    assert context is not None
    assert format_traceparent(context) == text
