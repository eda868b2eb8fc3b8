"""Interface of telemetry: measurements of calls and batches."""

from types import TracebackType
from typing import Literal, Protocol


class Span(Protocol):
    """The span of one execution."""

    def __enter__(self) -> "Span": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...

    def fail(self, error_type: str) -> None:
        """Mark the execution as failed."""
        ...


class Telemetry(Protocol):
    """Records measurements and spans."""

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
