"""Measurements and spans through the OpenTelemetry API; those of calls are readable in this process without an SDK.

Latencies of calls are in milliseconds and calls are counted in calls. Requests to models are measured, and spans made,
as the GenAI conventions have it (`spans`).
"""

import os
import sys
from bisect import bisect_left
from collections.abc import Mapping
from functools import cache, partial
from math import inf
from typing import TYPE_CHECKING, Generic, Literal, TypeAlias, TypeVar

import msgspec

from .. import lazy_module
from ..domain.messages import Usage
from .interface import AgentInvocation, ChatRequest
from .spans import (
    CallSpan,
    OtelAgentSpan,
    OtelChatSpan,
    describe_agent,
    describe_chat,
    format_traceparent,
    parse_traceparent,
)

if TYPE_CHECKING:
    from opentelemetry import metrics, trace
else:
    metrics = lazy_module("opentelemetry.metrics")
    trace = lazy_module("opentelemetry.trace")

Attributes: TypeAlias = Mapping[str, str | int | bool]
KeyT = TypeVar("KeyT")

#: Upper bounds in milliseconds, each inclusive; what is longer goes to a last bucket without one.
BOUNDS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4)

#: As in OpenTelemetry: more sets of attributes than this share one series, so memory is bounded.
MAX_SERIES = 2_000
OVERFLOW: Attributes = {"otel.metric.overflow": True}


#: In the words of UCUM, as OpenTelemetry asks for: milliseconds; and a count of calls.
LATENCY_UNIT = "ms"
CALL_UNIT = "{call}"


class HistogramBucket(msgspec.Struct, frozen=True):
    """How many measurements were at most this and more than the bucket before; None is without limit."""

    at_most: float | None
    count: int


class HistogramReading(msgspec.Struct, frozen=True, kw_only=True):
    """The current values of a series."""

    name: str
    #: Of `sum`, `min`, `max` and the buckets.
    unit: str = LATENCY_UNIT
    attributes: Attributes
    count: int
    sum: float
    min: float
    max: float
    buckets: tuple[HistogramBucket, ...]


class Series:
    """The measurements with one set of attributes."""

    __slots__ = ("_counts", "_max", "_min", "_sum", "attributes")

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self._counts = [0] * (len(BOUNDS_MS) + 1)
        self._sum = 0.0
        self._min = inf
        self._max = -inf

    def add(self, value: float) -> None:
        """Add a measurement."""
        self._counts[bisect_left(BOUNDS_MS, value) if value > BOUNDS_MS[0] else 0] += 1
        self._sum += value
        # Not `min` and `max`: two calls less for every measurement.
        if value < self._min:  # noqa: PLR1730
            self._min = value
        if value > self._max:  # noqa: PLR1730
            self._max = value

    def reading(self, name: str) -> HistogramReading:
        """Return what was measured so far."""
        bounds = (*BOUNDS_MS, None)
        return HistogramReading(
            name=name,
            attributes=self.attributes,
            count=sum(self._counts),
            sum=self._sum,
            min=self._min,
            max=self._max,
            buckets=tuple(map(HistogramBucket, bounds, self._counts)),
        )


class Histogram(Generic[KeyT]):
    """The series of one name. A key stands for a set of attributes, which is made once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.series: dict[KeyT, Series] = {}
        self._overflow: Series | None = None

    def create_series(self, key: KeyT, attributes: Attributes) -> Series:
        """Return the series of a key that is not in `series`; the shared one when there are too many."""
        if len(self.series) >= MAX_SERIES:
            self._overflow = self._overflow or Series(OVERFLOW)
            return self._overflow
        return self.series.setdefault(key, Series(attributes))

    def readings(self) -> list[HistogramReading]:
        """Return the readings of all series with measurements."""
        every = [*self.series.values()] if self._overflow is None else [*self.series.values(), self._overflow]
        return [reading for series in every if (reading := series.reading(self.name)).count]


CALL_LATENCY = "agent.tool_call.latency_ms"
BATCH_LATENCY = "agent.tool_batch.latency_ms"
CALL_COUNT = "agent.tool_calls"
USAGE = "gen_ai.client.token.usage"
OPERATION_DURATION = "gen_ai.client.operation.duration"
#: As the GenAI conventions have them: tokens, and seconds.
TOKEN_BOUNDS = tuple(4.0**power for power in range(14))
DURATION_BOUNDS = tuple(0.01 * 2.0**power for power in range(14))

#: Runs whose last span is remembered, for the link of the next one.
_MAX_REMEMBERED = 1_000

_SCOPE = "interlock"
#: Without this module no provider can have been set, unless a variable names one.
_API = "opentelemetry"
_PROVIDER_VARIABLES = ("OTEL_PYTHON_METER_PROVIDER", "OTEL_PYTHON_TRACER_PROVIDER")
#: Without this module no spans can be collected.
_SDK = "opentelemetry.sdk.trace"
_CallKey: TypeAlias = tuple[str, Literal["success", "error"], Literal["execute", "replay"]]
_BatchKey: TypeAlias = tuple[int, int]


class _Instruments:
    """What measurements are passed on to."""

    def __init__(self, provider: "metrics.MeterProvider") -> None:
        meter = provider.get_meter(_SCOPE)
        self.record_call = _create_histogram(
            meter, CALL_LATENCY, "From the start of a tool's handler to its end."
        ).record
        self.record_batch = _create_histogram(meter, BATCH_LATENCY, "All calls of one model turn, wall clock.").record
        self.count_call = meter.create_counter(
            CALL_COUNT, unit=CALL_UNIT, description="Tool calls that were executed."
        ).add
        self._record_tokens = meter.create_histogram(
            USAGE,
            unit="{token}",
            description="Number of input and output tokens used.",
            explicit_bucket_boundaries_advisory=TOKEN_BOUNDS,
        ).record
        self._record_duration = meter.create_histogram(
            OPERATION_DURATION,
            unit="s",
            description="GenAI operation duration.",
            explicit_bucket_boundaries_advisory=DURATION_BOUNDS,
        ).record

    def record_chat(self, attributes: Attributes, seconds: float, usage: Usage | None, error_type: str) -> None:
        """Record a request to a model."""
        if usage is not None:
            self._record_tokens(usage.input_tokens, {**attributes, "gen_ai.token.type": "input"})
            self._record_tokens(usage.output_tokens, {**attributes, "gen_ai.token.type": "output"})
        self._record_duration(seconds, {**attributes, "error.type": error_type} if error_type else attributes)


class OtelTelemetry:
    """Implementation of `Telemetry`. Without providers it uses the global ones, also when they are set later.

    The API is loaded when the program loads it or a variable names a provider: without either there is no listener.
    """

    def __init__(
        self,
        meter_provider: "metrics.MeterProvider | None" = None,
        tracer_provider: "trace.TracerProvider | None" = None,
    ) -> None:
        self._meter_provider = meter_provider
        self._instruments: _Instruments | None = None
        self._calls: Histogram[_CallKey] = Histogram(CALL_LATENCY)
        self._batches: Histogram[_BatchKey] = Histogram(BATCH_LATENCY)
        self._tracer_provider = tracer_provider
        self._tracer: trace.Tracer | None = None
        self.traces = self.is_connected = False
        #: By run, the context of its last span in this process.
        self._last_contexts: dict[str, trace.SpanContext] = {}
        if meter_provider or tracer_provider or _API in sys.modules or _is_provider_named():
            self._connect()

    def call_finished(
        self,
        tool_name: str,
        result: Literal["success", "error"],
        source: Literal["execute", "replay"],
        latency_ms: float,
    ) -> None:
        """Record the latency and result of a call."""
        key = (tool_name, result, source)
        try:
            series = self._calls.series[key]
        except KeyError:
            attributes: Attributes = {"tool_name": tool_name, "result": result, "source": source}
            series = self._calls.create_series(key, attributes)
        series.add(latency_ms)
        if self._instruments is not None or _API in sys.modules:
            instruments = self._instruments or self._connect()
            instruments.record_call(latency_ms, series.attributes)
            instruments.count_call(1, series.attributes)

    def batch_finished(self, call_count: int, failure_count: int, latency_ms: float) -> None:
        """Record the latency and failures of a batch."""
        key = (call_count, failure_count)
        try:
            series = self._batches.series[key]
        except KeyError:
            attributes: Attributes = {"call_count": call_count, "failure_count": failure_count}
            series = self._batches.create_series(key, attributes)
        series.add(latency_ms)
        if self._instruments is not None or _API in sys.modules:
            (self._instruments or self._connect()).record_batch(latency_ms, series.attributes)
        if self._tracer is None and _SDK in sys.modules:
            self._find_tracer()

    def call_span(self, tool_name: str, call_id: str, run_id: str) -> CallSpan:
        """Start the span of a call."""
        tracer = self._tracer or trace.NoOpTracer()
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": tool_name,
            "gen_ai.tool.call.id": call_id,
            "gen_ai.tool.type": "function",
            "interlock.run.id": run_id,
        }
        return CallSpan(tracer.start_span(f"execute_tool {tool_name}", attributes=attributes))

    def agent_span(self, invocation: AgentInvocation) -> OtelAgentSpan:
        """Start the span of an agent at work. It is linked to the span of the same run before."""
        run_id = invocation.run_id
        before = self._last_contexts.pop(run_id, None) or parse_traceparent(invocation.resumed_from)
        span = OtelAgentSpan(
            (self._tracer or trace.NoOpTracer()).start_span(
                f"invoke_agent {invocation.agent}",
                attributes=describe_agent(invocation),
                links=[] if before is None else [trace.Link(before, {"interlock.link": "resumed_from"})],
            )
        )
        if self._tracer is not None:
            if len(self._last_contexts) >= _MAX_REMEMBERED:
                del self._last_contexts[next(iter(self._last_contexts))]
            self._last_contexts[run_id] = span.context
        return span

    def chat_span(self, request: ChatRequest) -> OtelChatSpan:
        """Start the span of a request to a model."""
        measured: Attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": request.provider,
            "gen_ai.request.model": request.model,
        }
        instruments = self._instruments or self._connect()
        return OtelChatSpan(
            (self._tracer or trace.NoOpTracer()).start_span(
                f"chat {request.model}".rstrip(), kind=trace.SpanKind.CLIENT, attributes=describe_chat(request)
            ),
            partial(instruments.record_chat, measured),
        )

    def get_traceparent(self) -> str:
        """Return the current trace context."""
        return format_traceparent(trace.get_current_span().get_span_context())

    def readings(self) -> list[HistogramReading]:
        """Return everything measured so far by this object."""
        return self._calls.readings() + self._batches.readings()

    def _connect(self) -> _Instruments:
        """Load the API, and create the instruments."""
        self._instruments = _Instruments(self._meter_provider or metrics.get_meter_provider())
        self.is_connected = True
        self._find_tracer()
        return self._instruments

    def _find_tracer(self) -> None:
        """Find the tracer. Called only if there may be one: the global provider reads the environment."""
        provider = self._tracer_provider or trace.get_tracer_provider()
        if not isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider):
            self._tracer = provider.get_tracer(_SCOPE)
            self.traces = True


@cache
def _is_provider_named() -> bool:
    """Return True if the environment that this process was started in names a provider."""
    return any(map(os.environ.get, _PROVIDER_VARIABLES))


def _create_histogram(meter: "metrics.Meter", name: str, description: str) -> "metrics.Histogram":
    return meter.create_histogram(
        name, unit=LATENCY_UNIT, description=description, explicit_bucket_boundaries_advisory=BOUNDS_MS
    )
