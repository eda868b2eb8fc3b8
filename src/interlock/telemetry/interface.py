"""Measurements of calls and batches, for whoever watches the process."""

from contextlib import AbstractContextManager
from typing import Literal, Protocol


class Span(AbstractContextManager[object], Protocol):
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

    def call_span(self, tool_name: str, call_id: str, run_id: str) -> Span | None:
        """Around one execution; None when nobody collects spans."""
        ...
