"""Measurements of calls and batches, for whoever watches the process."""

from types import TracebackType
from typing import Literal, Protocol


class Span(Protocol):
    def __enter__(self) -> "Span": ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None: ...

    def fail(self, error_type: str) -> None:
        """The execution did not succeed."""
        ...


class Telemetry(Protocol):
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
        """Does anybody collect spans?"""
        ...

    def call_span(self, tool_name: str, call_id: str, run_id: str) -> Span:
        """Around one execution."""
        ...
