"""Measurements kept in this process: how many, how long, how spread, per set of attributes."""

from bisect import bisect_left
from collections.abc import Mapping
from math import inf
from typing import Generic, TypeAlias, TypeVar

import msgspec

Attributes: TypeAlias = Mapping[str, str | int | bool]
KeyT = TypeVar("KeyT")

#: Upper bounds in milliseconds, each inclusive; what is longer goes to a last bucket without one.
BOUNDS_MS = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 3e4, 6e4)

#: As in OpenTelemetry: more sets of attributes than this share one series, so memory is bounded.
MAX_SERIES = 2_000
OVERFLOW: Attributes = {"otel.metric.overflow": True}


class HistogramBucket(msgspec.Struct, frozen=True):
    """How many measurements were at most this and more than the bucket before; None is without limit."""

    at_most: float | None
    count: int


class HistogramReading(msgspec.Struct, frozen=True, kw_only=True):
    """The current values of a series."""

    name: str
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
        self._counts[bisect_left(BOUNDS_MS, value)] += 1
        self._sum += value
        # Not `min` and `max`: two calls less for every measurement.
        if value < self._min:  # noqa: PLR1730
            self._min = value
        if value > self._max:  # noqa: PLR1730
            self._max = value

    def reading(self, name: str) -> HistogramReading:
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
        self._overflow = Series(OVERFLOW)

    def create_series(self, key: KeyT, attributes: Attributes) -> Series:
        """Return the series of a key that is not in `series`; the shared one when there are too many."""
        if len(self.series) >= MAX_SERIES:
            return self._overflow
        return self.series.setdefault(key, Series(attributes))

    def readings(self) -> list[HistogramReading]:
        every = (*self.series.values(), self._overflow)
        return [reading for series in every if (reading := series.reading(self.name)).count]
