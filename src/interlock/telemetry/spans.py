"""Spans in the terms of OpenTelemetry's GenAI conventions: `invoke_agent`, `chat` and `execute_tool`.

Neither messages, arguments nor results are recorded, nor the texts of exceptions, which may quote them.
"""

from asyncio import CancelledError
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias

from .. import lazy_module
from ..domain.messages import Usage
from .interface import AgentInvocation, ChatRequest

if TYPE_CHECKING:
    from opentelemetry import trace
else:
    trace = lazy_module("opentelemetry.trace")

AttributeValue: TypeAlias = str | int | float | bool | Sequence[str]
Attributes: TypeAlias = Mapping[str, AttributeValue]

_TRACEPARENT_PARTS = 4


class CallSpan:
    """The span of one execution. Entered, it is the current span of whatever happens inside."""

    __slots__ = ("_active", "_span")

    def __init__(self, span: "trace.Span") -> None:
        self._span = span
        self._active: AbstractContextManager[trace.Span] = trace.use_span(
            span, end_on_exit=True, record_exception=False, set_status_on_exception=False
        )

    def fail(self, error_type: str) -> None:
        """Mark the execution as failed. An exception that passes through does the same."""
        self._span.set_attribute("error.type", error_type)
        self._span.set_status(trace.StatusCode.ERROR)

    def __enter__(self) -> Self:
        self._active.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self.fail(get_error_type(kind, error))
        self._active.__exit__(kind, error, traceback)


class OtelAgentSpan(CallSpan):
    """The span of an agent at work."""

    __slots__ = ()

    @property
    def context(self) -> "trace.SpanContext":
        """The context of the span, for links."""
        return self._span.get_span_context()

    def finish(self, state: str, usage: Usage, *, waiting: Sequence[str] = (), waited_ms: float = 0.0) -> None:
        """Record how it stopped."""
        self._span.set_attributes({"interlock.run.state": state, **describe_usage(usage)})
        if waited_ms:
            self._span.set_attribute("interlock.human_wait_ms", waited_ms)
        if waiting:
            attributes = {"interlock.question.count": len(waiting), "interlock.question.kinds": sorted(set(waiting))}
            self._span.add_event("interlock.run.waiting", attributes)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None and issubclass(kind, CancelledError):  # the process stops, and the run can be resumed
            self._span.set_attribute("interlock.interrupted", True)
            kind = error = traceback = None
        super().__exit__(kind, error, traceback)


class OtelChatSpan(CallSpan):
    """The span of one request to a model. It is measured when it ends."""

    __slots__ = ("_measure", "_started_at", "_usage")

    def __init__(self, span: "trace.Span", measure: Callable[[float, Usage | None, str], None]) -> None:
        super().__init__(span)
        self._measure = measure
        self._usage: Usage | None = None
        self._started_at = perf_counter()

    def finish(self, reason: str, usage: Usage) -> None:
        """Record the answer."""
        self._usage = usage
        self._span.set_attributes({"gen_ai.response.finish_reasons": (reason,), **describe_usage(usage)})

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None and self._usage is None:
            self._span.set_attribute("interlock.interrupted", True)
        error_type = "" if kind is None else get_error_type(kind, error)
        self._measure(perf_counter() - self._started_at, self._usage, error_type)
        super().__exit__(kind, error, traceback)


def get_error_type(kind: type[BaseException], error: BaseException | None) -> str:
    """Return the code of an error, or the name of its type."""
    return str(getattr(error, "code", "") or kind.__qualname__)


def describe_usage(usage: Usage) -> Attributes:
    """Return the attributes of token usage."""
    described: dict[str, AttributeValue] = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
    }
    if usage.cached_tokens:
        described["gen_ai.usage.cache_read.input_tokens"] = usage.cached_tokens
    if usage.cost:
        described["interlock.usage.cost"] = usage.cost
    return described


def describe_agent(invocation: AgentInvocation) -> Attributes:
    """Return the attributes of an agent span."""
    described: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "invoke_agent",
        "gen_ai.provider.name": invocation.provider,
        "gen_ai.agent.name": invocation.agent,
        "gen_ai.conversation.id": invocation.run_id,
        "interlock.run.id": invocation.run_id,
    }
    if invocation.model:
        described["gen_ai.request.model"] = invocation.model
    if invocation.parent_run_id:
        described["interlock.run.parent_id"] = invocation.parent_run_id
    return described


def describe_chat(request: ChatRequest) -> Attributes:
    """Return the attributes of a chat span."""
    described: dict[str, AttributeValue] = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": request.provider,
        "gen_ai.agent.name": request.agent,
        "gen_ai.conversation.id": request.run_id,
        "gen_ai.output.type": "json" if request.is_structured else "text",
        "gen_ai.request.stream": True,
        "interlock.run.id": request.run_id,
    }
    if request.model:
        described["gen_ai.request.model"] = request.model
    if request.max_output_tokens is not None:
        described["gen_ai.request.max_tokens"] = request.max_output_tokens
    if request.temperature is not None:
        described["gen_ai.request.temperature"] = request.temperature
    return described


def format_traceparent(context: "trace.SpanContext") -> str:
    """Return a context as W3C writes it; empty if it is none."""
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags):02x}"


def parse_traceparent(text: str) -> "trace.SpanContext | None":
    """Return the context that a text stands for; None if it stands for none."""
    parts = text.split("-")
    try:
        if len(parts) != _TRACEPARENT_PARTS:
            return None
        trace_id, span_id, flags = (int(part, 16) for part in parts[1:])
    except ValueError:
        return None
    context = trace.SpanContext(trace_id, span_id, is_remote=True, trace_flags=trace.TraceFlags(flags))
    return context if context.is_valid else None
