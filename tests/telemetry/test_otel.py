"""Measurements and spans, with and without an SDK."""

import asyncio
from collections.abc import Callable

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import HistogramDataPoint, InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from interlock.telemetry.interface import Telemetry
from interlock.telemetry.otel import BOUNDS_MS, Attributes, OtelTelemetry

OK = {"tool_name": "grep", "result": "success", "source": "execute"}
BAD = {"tool_name": "grep", "result": "error", "source": "replay"}


def measure(telemetry: Telemetry) -> None:
    telemetry.call_finished("grep", "success", "execute", 2.0)
    telemetry.call_finished("grep", "success", "execute", 7.0)
    telemetry.call_finished("grep", "error", "replay", 40.0)
    telemetry.batch_finished(3, 1, 50.0)


@pytest.mark.requirement("R038", "R039", "D13")
def test_latencies_are_readable_without_an_sdk() -> None:
    telemetry = OtelTelemetry()
    measure(telemetry)

    readings = [(r.name, r.attributes, r.count, r.sum, r.min, r.max) for r in telemetry.readings()]
    assert {reading.unit for reading in telemetry.readings()} == {"ms"}

    assert readings == [
        ("agent.tool_call.latency_ms", OK, 2, 9.0, 2.0, 7.0),
        ("agent.tool_call.latency_ms", BAD, 1, 40.0, 40.0, 40.0),
        ("agent.tool_batch.latency_ms", {"call_count": 3, "failure_count": 1}, 1, 50.0, 50.0, 50.0),
    ]


Point = tuple[Attributes, int, float]


def exported(reader: InMemoryMetricReader) -> dict[str, list[Point]]:
    """Attributes, count and sum of every point, by metric name."""
    collected = reader.get_metrics_data()
    assert collected is not None
    found: dict[str, list[Point]] = {}
    for metric in collected.resource_metrics[0].scope_metrics[0].metrics:
        assert metric.unit == ("{call}" if metric.name == "agent.tool_calls" else "ms")
        found[metric.name] = [_point(point) for point in metric.data.data_points]
    return found


def _point(point: object) -> Point:
    if isinstance(point, HistogramDataPoint):
        assert tuple(point.explicit_bounds) == BOUNDS_MS
        return dict(point.attributes or {}), point.count, point.sum  # pyright: ignore[reportReturnType]
    assert isinstance(point, NumberDataPoint)
    return dict(point.attributes or {}), int(point.value), 0.0  # pyright: ignore[reportReturnType]


@pytest.mark.requirement("R038", "R039", "R061", "D13")
def test_an_sdk_gets_the_histograms_and_the_counter_under_the_same_attributes() -> None:
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    measure(OtelTelemetry(meter_provider=provider))

    assert exported(reader) == {
        "agent.tool_call.latency_ms": [(OK, 2, 9.0), (BAD, 1, 40.0)],
        "agent.tool_batch.latency_ms": [({"call_count": 3, "failure_count": 1}, 1, 50.0)],
        "agent.tool_calls": [(OK, 2, 0.0), (BAD, 1, 0.0)],
    }
    provider.shutdown()


class Collected:
    def __init__(self) -> None:
        self.provider = TracerProvider(shutdown_on_exit=False)
        self._exporter = InMemorySpanExporter()
        self.provider.add_span_processor(SimpleSpanProcessor(self._exporter))

    def span(self) -> ReadableSpan:
        (span,) = self._exporter.get_finished_spans()
        return span


@pytest.mark.requirement("D13")
def test_a_span_in_genai_terms_surrounds_an_execution_and_is_the_current_one_inside() -> None:
    collected = Collected()
    telemetry = OtelTelemetry(tracer_provider=collected.provider)

    span = telemetry.call_span("grep", "call_1", "run_1")
    with span:
        inside = trace.get_current_span().get_span_context().span_id

    finished = collected.span()
    assert finished.name == "execute_tool grep"
    assert finished.attributes == {
        "gen_ai.operation.name": "execute_tool",
        "gen_ai.tool.name": "grep",
        "gen_ai.tool.call.id": "call_1",
        "gen_ai.tool.type": "function",
        "interlock.run.id": "run_1",
    }
    assert finished.status.status_code is trace.StatusCode.UNSET
    assert finished.context is not None
    assert finished.context.span_id == inside


@pytest.mark.parametrize("error", [ValueError("the password is x"), asyncio.CancelledError("the password is x")])
def test_an_exception_marks_the_span_as_failed_and_its_text_is_not_recorded(error: BaseException) -> None:
    collected = Collected()
    span = OtelTelemetry(tracer_provider=collected.provider).call_span("grep", "call_1", "run_1")

    with pytest.raises(type(error)), span:
        raise error

    finished = collected.span()
    assert finished.status.status_code is trace.StatusCode.ERROR
    assert (finished.attributes or {})["error.type"] == type(error).__name__
    assert "password" not in finished.to_json()


def test_a_failure_that_is_a_value_can_be_marked_on_the_span() -> None:
    collected = Collected()
    span = OtelTelemetry(tracer_provider=collected.provider).call_span("grep", "call_1", "run_1")

    with span as entered:
        entered.fail("timed_out")

    assert collected.span().status.status_code is trace.StatusCode.ERROR
    assert (collected.span().attributes or {})["error.type"] == "timed_out"


@pytest.mark.parametrize("provider", [None, trace.NoOpTracerProvider()])
def test_without_an_sdk_there_is_no_span(provider: trace.TracerProvider | None) -> None:
    assert not OtelTelemetry(tracer_provider=provider).traces


def test_a_provider_that_is_set_later_is_found_after_the_next_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    collected, telemetry = Collected(), OtelTelemetry()
    assert not telemetry.traces
    monkeypatch.setattr(trace, "get_tracer_provider", _answering(collected.provider))

    telemetry.batch_finished(1, 0, 1.0)
    telemetry.batch_finished(1, 0, 1.0)

    assert telemetry.traces
    with telemetry.call_span("grep", "call_2", "run_1"):
        pass
    assert collected.span().name == "execute_tool grep"


def _answering(provider: trace.TracerProvider) -> Callable[[], trace.TracerProvider]:
    return lambda: provider


def test_a_no_op_meter_provider_still_leaves_readings() -> None:
    telemetry = OtelTelemetry(meter_provider=metrics.NoOpMeterProvider())
    measure(telemetry)

    assert sum(reading.count for reading in telemetry.readings()) == 4
