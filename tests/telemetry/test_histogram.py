"""Measurements kept in this process."""

import math

from hypothesis import given
from hypothesis import strategies as st

from interlock.telemetry.otel import BOUNDS_MS, MAX_SERIES, OVERFLOW, Histogram

MILLISECONDS = st.floats(min_value=0, max_value=1e7)


@given(st.lists(MILLISECONDS, min_size=1))
def test_a_reading_sums_up_what_was_measured(values: list[float]) -> None:
    histogram: Histogram[str] = Histogram("latency_ms")
    series = histogram.create_series("a", {"tool_name": "a"})
    for value in values:
        series.add(value)

    (reading,) = histogram.readings()

    assert (reading.name, reading.attributes) == ("latency_ms", {"tool_name": "a"})
    assert (reading.count, reading.min, reading.max) == (len(values), min(values), max(values))
    assert math.isclose(reading.sum, math.fsum(values), rel_tol=1e-9)
    assert sum(bucket.count for bucket in reading.buckets) == len(values)


@given(MILLISECONDS)
def test_a_measurement_is_in_the_first_bucket_whose_bound_it_does_not_exceed(value: float) -> None:
    histogram: Histogram[str] = Histogram("latency_ms")
    histogram.create_series("a", {}).add(value)

    (reading,) = histogram.readings()
    (bucket,) = [bucket for bucket in reading.buckets if bucket.count]

    assert bucket.at_most == next((bound for bound in BOUNDS_MS if value <= bound), None)


def test_a_histogram_without_measurements_has_no_readings() -> None:
    histogram: Histogram[str] = Histogram("latency_ms")
    histogram.create_series("a", {})

    assert histogram.readings() == []


def test_more_sets_of_attributes_than_the_limit_share_one_series() -> None:
    histogram: Histogram[int] = Histogram("latency_ms")
    for number in range(MAX_SERIES + 10):
        histogram.create_series(number, {"number": number}).add(1.0)

    readings = histogram.readings()

    assert len(readings) == MAX_SERIES + 1
    assert (readings[-1].attributes, readings[-1].count) == (OVERFLOW, 10)
