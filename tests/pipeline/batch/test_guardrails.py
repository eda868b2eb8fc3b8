"""Guardrails, questions, hooks, the handler and the record: what comes before what, and how often."""

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from interlock import (
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    Limits,
    MemoryLog,
    Question,
    Rule,
    RulePolicy,
    ToolRuntime,
    tool,
)
from interlock.domain.event import LogEntry, decode_event
from interlock.storage.event_log import Lease
from interlock.telemetry.otel import OtelTelemetry
from tests.pipeline.batch.stage import PATIENCE, Stage, codes, others_ran, walk
from tests.support import call

ASK = RulePolicy([Rule(id="ask", verdict="ask")])
OPEN = HeadlessInteractionProvider("wait")


@pytest.mark.requirement("R090")
@pytest.mark.parametrize(("early", "asked"), [(True, []), (False, ["c1"])])
async def test_guardrails_refuse_before_a_person_is_asked_where_that_is_set(early: bool, asked: list[str]) -> None:
    stage, questions = Stage(), list[str]()

    async def yes(question: Question) -> bool:
        questions.append(question.call_id)
        return True

    def smell(_: Any) -> str:
        return "it smells"

    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act", input_guardrails=[smell])],
        policy=ASK,
        interaction=CallbackInteractionProvider(yes),
        limits=Limits(guardrails_before_approval=early),
    )
    result = await runtime.execute([call("c1", "act", name="a")])

    assert codes(result) == {"c1": "guardrail_refused"}
    assert "it smells" in result.observations[0].summary
    assert questions == asked
    assert stage.seen == []


@pytest.mark.requirement("R091", "R092")
async def test_what_changed_while_a_person_thought_is_refused_after_the_approval_and_nobody_is_asked_again() -> None:
    stage, refusals = Stage(), list[str]()

    def guardrail(_: Any) -> str | None:
        return refusals[0] if refusals else None

    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act", input_guardrails=[guardrail])], policy=ASK, interaction=OPEN
    )
    result = await runtime.execute([call("c1", "act", name="a")])
    await runtime.decide(result.questions[0].action_id, approved=True)
    refusals.append("the budget is spent")

    resumed = await runtime.resume()

    assert codes(resumed) == {"c1": "guardrail_refused"}
    assert resumed.questions == ()
    assert stage.seen == []
    assert (await walk(runtime, "c1")).count("approval.requested") == 1


@pytest.mark.requirement("R091", "R092")
async def test_guardrails_run_again_after_the_approval_and_the_one_question_is_enough() -> None:
    stage, looks = Stage(), list[Any]()
    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act", input_guardrails=[looks.append])], policy=ASK, interaction=OPEN
    )
    result = await runtime.execute([call("c1", "act", name="a")])
    assert len(looks) == 1
    await runtime.decide(result.questions[0].action_id, approved=True)

    assert codes(await runtime.resume()) == {"c1": "ok"}
    assert looks == [{"name": "a", "path": ""}] * 2
    assert (await walk(runtime, "c1")).count("approval.requested") == 1


@pytest.mark.requirement("R094")
async def test_the_handler_starts_only_when_the_last_input_guardrail_is_done() -> None:
    stage, guarding, go_on = Stage(), asyncio.Event(), asyncio.Event()

    def quick(_: Any) -> None:
        return None

    async def slow(_: Any) -> None:
        guarding.set()
        await go_on.wait()

    runtime = ToolRuntime(tools=[tool(stage.act, name="act", input_guardrails=[quick, slow])])
    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a")]))
    async with asyncio.timeout(PATIENCE):
        await guarding.wait()
        await others_ran()
        assert stage.seen == []
        assert "tool.invocation.started" not in await walk(runtime, "c1")
        go_on.set()
        assert codes(await running) == {"c1": "ok"}


@pytest.mark.requirement("R095", "R112")
async def test_nothing_is_said_about_a_call_before_its_output_guardrails_are_done() -> None:
    stage, guarding, go_on = Stage(), asyncio.Event(), asyncio.Event()

    async def slow(_: Any) -> None:
        guarding.set()
        await go_on.wait()

    runtime = ToolRuntime(tools=[tool(stage.act, name="act", output_guardrails=[slow])])
    running = asyncio.create_task(runtime.execute([call("c1", "act", name="a")]))
    async with asyncio.timeout(PATIENCE):
        await guarding.wait()
        await others_ran()
        assert stage.seen == ["a starts", "a ends"]
        assert (await walk(runtime, "c1"))[-1] == "tool.invocation.started"
        assert b"a done" not in await runtime.export()
        assert [reading for reading in runtime.metrics() if reading.count] == []
        go_on.set()
        result = await running

    assert codes(result) == {"c1": "ok"}


@pytest.mark.requirement("R095", "R112")
@pytest.mark.parametrize("refuses", ["says so", "raises"])
async def test_an_output_that_a_guardrail_refuses_is_neither_shown_nor_recorded(refuses: str) -> None:
    stage = Stage()

    def guardrail(text: str) -> str | None:
        if refuses == "raises":
            raise ValueError("no opinion")
        return "it is private" if text == "secret done" else None

    runtime = ToolRuntime(tools=[tool(stage.act, name="act", output_guardrails=[guardrail])])
    result = await runtime.execute([call("c1", "act", name="secret")])

    assert codes(result) == {"c1": "output_refused"}
    assert result.observations[0].side_effects == ()
    assert "secret done" not in str(result.messages)
    assert b"secret done" not in await runtime.export()
    assert [record.success for record in await runtime.tool_executions()] == [False]


class Trace(SpanProcessor):
    """Everything that happens around one call, in order: what the developer's code sees, spans, and what is written."""

    def __init__(self) -> None:
        self.steps: list[str] = []

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        self.steps.append("span starts")

    def on_end(self, span: ReadableSpan) -> None:
        self.steps.append("span ends")

    def input_guardrail(self, arguments: Any) -> None:
        self.steps.append("input guardrail")

    def output_guardrail(self, text: Any) -> None:
        self.steps.append("output guardrail")

    def pre_hook(self, arguments: Any) -> Any:
        self.steps.append("pre-hook")
        return arguments

    def post_hook(self, result: Any) -> Any:
        self.steps.append("post-hook")
        return result["output"]


class TracedLog(MemoryLog):
    def __init__(self, trace: Trace) -> None:
        super().__init__()
        self.trace = trace

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> None:
        super().append(run_id, entries, lease)
        self.trace.steps += [f"written: {decode_event(entry).type}" for entry in entries]


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Trace:
    trace = Trace()
    provider = TracerProvider()
    provider.add_span_processor(trace)
    monkeypatch.setattr("interlock.telemetry.otel.OtelTelemetry", partial(OtelTelemetry, tracer_provider=provider))
    return trace


@pytest.mark.requirement("R120", "R094", "R095")
async def test_guardrail_approval_hook_span_invocation_output_and_record_come_in_this_order(trace: Trace) -> None:
    async def yes(_: Question) -> bool:
        trace.steps.append("person")
        return True

    async def handler() -> str:
        trace.steps.append("handler")
        return "done"

    traced = tool(
        handler,
        input_guardrails=[trace.input_guardrail],
        pre_hooks=[trace.pre_hook],
        post_hooks=[trace.post_hook],
        output_guardrails=[trace.output_guardrail],
    )
    log = TracedLog(trace)
    async with ToolRuntime(
        tools=[traced], policy=ASK, interaction=CallbackInteractionProvider(yes), log=log
    ) as runtime:
        await runtime.execute([call("c1", "handler")])

    # What is recorded may be written earlier than it must be, when the machine is slow.
    written = [step for step in trace.steps if step.startswith("written: ") and "run." not in step]
    seen = [step for step in trace.steps if not step.startswith("written: ")]
    assert seen == [
        *["input guardrail", "person", "input guardrail", "span starts", "pre-hook", "handler", "post-hook"],
        *["output guardrail", "span ends"],
    ]
    assert [step.removeprefix("written: ") for step in written if "batch" not in step and "model." not in step] == [
        *["tool.intent", "tool.validation", "tool.permission", "approval.requested", "approval.granted"],
        *["tool.invocation.started", "tool.invocation.completed", "tool.observation"],
    ]
    place = trace.steps.index
    assert place("written: approval.requested") < place("person")
    assert place("written: tool.invocation.started") < place("span starts")
    assert place("span ends") < place("written: tool.invocation.completed")


@pytest.mark.requirement("R111")
@pytest.mark.parametrize(
    ("end", "exit_"),
    [("ok", "ok"), ("raises", "error"), ("hangs", "timeout"), ("call cancelled", "cancelled"),
     ("run cancelled", "cancelled")],
)  # fmt: skip
async def test_start_and_end_of_a_call_happen_once_each_however_it_ends(trace: Trace, end: str, exit_: str) -> None:
    started, never = asyncio.Event(), asyncio.Event()

    async def handler() -> str:
        started.set()
        match end:
            case "ok":
                return "done"
            case "raises":
                raise ValueError("no")
            case _:
                await never.wait()
                return "never"

    traced = tool(
        handler,
        pre_hooks=[trace.pre_hook],
        post_hooks=[trace.post_hook],
        timeout_seconds=1 if end == "hangs" else 60,
    )
    async with ToolRuntime(tools=[traced], log=TracedLog(trace)) as runtime:
        running = asyncio.create_task(runtime.execute([call("c1", "handler")]))
        async with asyncio.timeout(PATIENCE):
            await started.wait()
            if end == "call cancelled":
                runtime.cancel_call("c1")
            elif end == "run cancelled":
                running.cancel()
            await asyncio.wait([running])
            await others_ran()
        recorded = [step.event.fact for step in await runtime.replay()]

    counts = {step: trace.steps.count(step) for step in trace.steps}
    assert (counts["span starts"], counts["span ends"], counts["pre-hook"]) == (1, 1, 1)
    assert counts.get("post-hook", 0) == (1 if end == "ok" else 0)
    assert counts["written: tool.invocation.started"] == counts["written: tool.invocation.completed"] == 1
    assert [getattr(fact, "exit", None) for fact in recorded if hasattr(fact, "exit")] == [exit_]


@pytest.mark.parametrize(
    ("says", "reason"),
    [
        ("It smells.", "It smells."),
        (False, "False"),
        (["x" * 496], f"['{'x' * 496}']"),
        (["x" * 497], "a list of 501 characters"),
    ],
    ids=["text", "false", "long", "too long"],
)
async def test_whatever_a_guardrail_says_refuses(says: Any, reason: str) -> None:
    stage = Stage()
    quiet: list[Any] = []

    def guardrail(_: Any) -> Any:
        return says

    runtime = ToolRuntime(tools=[tool(stage.act, name="act", input_guardrails=[quiet.append, guardrail])])

    [seen] = (await runtime.execute([call("c1", "act", name="1")])).observations

    assert seen.failure is not None
    assert (seen.code, stage.starts(), len(quiet)) == ("guardrail_refused", [], 1)
    assert seen.failure.details["reason"] == reason
