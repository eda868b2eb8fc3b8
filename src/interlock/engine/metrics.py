"""Metrics of a process that serves runs, in the text format of Prometheus.

Counters of events are those of the log since this process started: every process of a log counts the same ones, so take
the maximum over processes, not the sum. Names that begin with `interlock_process_` are of this process alone.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import NamedTuple, TypeAlias

from ..domain.errors import InterlockError, LogError
from ..domain.event import CallObserved, ModelFailed, decode_event
from ..storage.event_log import EventLog

#: A label of each value, and the value. Empty: the one value of a metric without labels.
Values: TypeAlias = Mapping[str, float]

_PAGE_SIZE = 500
_POLL_SECONDS = 1.0
_LAG_SECONDS = 0.5


class Gauge(NamedTuple):
    """Values that are looked up when they are asked for."""

    name: str
    help: str
    label: str
    read: Callable[[], Awaitable[Values]]


class ProcessMetrics:
    """Counts the events of a log, and watches this process."""

    def __init__(self, log: EventLog, *gauges: Gauge) -> None:
        """`gauges` are further values, such as the lengths of queues."""
        self._log = log
        self._gauges = gauges
        self._events: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._model_failures: Counter[str] = Counter()
        self._lag_seconds = 0.0
        self._position = 0
        self._problems = 0

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator["ProcessMetrics"]:
        """Count while the context is open."""
        tasks = [asyncio.create_task(self._follow()), asyncio.create_task(self._measure_lag())]
        try:
            yield self
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    @property
    def problem(self) -> str:
        """Why this process can accept no work; empty when it can."""
        return self._log.problem

    async def render(self) -> str:
        """Return all metrics. A gauge that cannot be read is left out."""
        lines = [
            *_render("interlock_events_total", "counter", "Events of the log, by type.", "type", self._events),
            *_render(
                "interlock_call_failures_total",
                "counter",
                "Calls that were refused or failed, by error code.",
                "code",
                self._failures,
            ),
            *_render(
                "interlock_model_failures_total",
                "counter",
                "Requests without a usable answer of the model, by error code.",
                "code",
                self._model_failures,
            ),
            *_render(
                "interlock_process_loop_lag_seconds",
                "gauge",
                "How late the event loop of this process last was.",
                "",
                {"": self._lag_seconds},
            ),
            *_render(
                "interlock_process_log_up",
                "gauge",
                "1 if this process can write the log, else 0.",
                "",
                {"": 0.0 if self.problem else 1.0},
            ),
            *_render(
                "interlock_process_log_errors_total",
                "counter",
                "How often this process could not read the log.",
                "",
                {"": self._problems},
            ),
        ]
        for gauge in self._gauges:
            try:
                values = await gauge.read()
            except InterlockError:
                self._problems += 1
                continue
            lines += _render(gauge.name, "gauge", gauge.help, gauge.label, values)
        return "\n".join(lines) + "\n"

    async def _follow(self) -> None:
        is_new = True
        while True:
            seen = self._log.version()
            try:
                if is_new:
                    self._position, is_new = await self._log.feed_position(), False
                found = await self._log.feed(self._position, _PAGE_SIZE)
            except LogError:
                self._problems += 1
                found = []
                await asyncio.sleep(_POLL_SECONDS)
            for item in found:
                self._position = item.position
                try:
                    event = decode_event(item.entry)
                except InterlockError:  # of a newer version
                    self._events["unknown"] += 1
                    continue
                self._events[event.type] += 1
                match event.fact:
                    case CallObserved(observation=observation) if observation.failure is not None:
                        self._failures[observation.failure.code] += 1
                    case ModelFailed(code=code):
                        self._model_failures[code or "error"] += 1
                    case _:
                        pass
            if not found:
                await self._log.wait_for_change(seen, _POLL_SECONDS)

    async def _measure_lag(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            await asyncio.sleep(_LAG_SECONDS)
            self._lag_seconds = max(0.0, loop.time() - began - _LAG_SECONDS)


def _render(name: str, kind: str, text: str, label: str, values: Values) -> list[str]:
    lines = [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]
    for key in sorted(values):
        lines.append(f"{name}{_render_label(label, key)} {values[key]:g}")
    return lines


def _render_label(label: str, value: str) -> str:
    if not label:
        return ""
    escaped = value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
    return f'{{{label}="{escaped}"}}'
