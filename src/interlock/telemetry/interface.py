"""Interface of telemetry: measurements of calls, batches and model requests, and spans of runs."""

from collections.abc import Sequence
from types import TracebackType
from typing import Literal, Protocol

import msgspec

from ..domain.messages import Usage


class AgentInvocation(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that begins or continues a run in this process."""

    agent: str
    run_id: str
    parent_run_id: str = ""
    provider: str
    model: str
    #: The trace context (W3C) that the run was paused in; empty: it is none of those.
    resumed_from: str = ""


class ChatRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request to a model."""

    agent: str
    run_id: str
    provider: str
    model: str
    #: Whether the answer has a schema.
    is_structured: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None


class Span(Protocol):
    """The span of one execution."""

    def __enter__(self) -> "Span": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...

    def fail(self, error_type: str) -> None:
        """Mark the execution as failed."""
        ...


class ChatSpan(Span, Protocol):
    """The span of one request to a model."""

    def __enter__(self) -> "ChatSpan": ...

    def finish(self, reason: str, usage: Usage) -> None:
        """Record the answer. Without one, the request was interrupted."""
        ...


class AgentSpan(Span, Protocol):
    """The span of an agent at work, from its start or resumption until it is over or waits."""

    def __enter__(self) -> "AgentSpan": ...

    def finish(self, state: str, usage: Usage, *, waiting: Sequence[str] = (), waited_ms: float = 0.0) -> None:
        """Record how it stopped.

        Args:
            state: The state of the run.
            usage: What was used meanwhile.
            waiting: The kinds of the questions that it waits for.
            waited_ms: How long it waited for people meanwhile.
        """
        ...


class Telemetry(Protocol):
    """Records measurements and spans."""

    @property
    def is_connected(self) -> bool:
        """True when spans or measurements of agents and models may be collected."""
        ...

    def call_finished(
        self,
        tool_name: str,
        result: Literal["success", "error"],
        source: Literal["execute", "replay"],
        latency_ms: float,
    ) -> None: ...

    def batch_finished(self, call_count: int, failure_count: int, latency_ms: float) -> None: ...

    @property
    def traces(self) -> bool:
        """True when spans are collected."""
        ...

    def call_span(self, tool_name: str, call_id: str, run_id: str) -> Span:
        """Return the span of one execution."""
        ...

    def agent_span(self, invocation: AgentInvocation) -> AgentSpan:
        """Return the span of an agent at work."""
        ...

    def chat_span(self, request: ChatRequest) -> ChatSpan:
        """Return the span of a request to a model, which is also measured."""
        ...

    def get_traceparent(self) -> str:
        """Return the current trace context (W3C), for a later process; empty: there is none."""
        ...
