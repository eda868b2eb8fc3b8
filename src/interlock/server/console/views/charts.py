"""Charts: what is drawn, in numbers. Templates make SVG of it, and a table with the same values.

A drawing is 1,000 wide and 100 high, and is stretched to its place; text is beside it, never in it.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from ....storage.rollups import DAY_SECONDS, OUTCOMES
from ...core.index.statistics import OTHERS, AgentUsage, NamedCount, QuestionAge, Statistics

WIDTH, HEIGHT = 1_000, 100
_FILL = 0.72
_MAX_SERIES = 5
#: Smaller costs are shown with four digits.
_CENTS_FROM = 0.1
_TICKS = 2
_NS = 1_000_000_000
_STEPS_OF_TIME = (1, 2, 5, 10, 30, 60, 120, 300, 600, 1_800, 3_600, 7_200, 14_400, 43_200)
#: A hatching for each style but the first of a chart: not everyone can distinguish colours.
_HATCHES = {
    "degraded": "lines",
    "rejected": "stripes",
    "expired": "dots",
    "cancelled": "bars",
    "failed": "grid",
    "wait-90": "stripes",
    "series-2": "stripes",
    "series-3": "dots",
    "series-4": "lines",
    "series-5": "grid",
    "series-6": "bars",
}
_OUTCOME_LABELS = {name: name.capitalize() for name in OUTCOMES}


class Series(NamedTuple):
    """A series, and how it is shown: its style, name and sum."""

    style: str
    label: str
    total: str = ""

    @property
    def hatch(self) -> str:
        """The hatching of its bars; empty: they are plain."""
        return _HATCHES.get(self.style, "")


class Segment(NamedTuple):
    """A part of a bar."""

    style: str
    #: Empty: it is plain.
    hatch: str
    y: float
    height: float


class Bar(NamedTuple):
    """A bar, with the words that are shown for it. `at`: the time that it begins with, in nanoseconds."""

    at: int
    x: float
    width: float
    segments: tuple[Segment, ...]
    words: str
    #: The place where a pointer finds it.
    left: float
    room: float


class TableRow(NamedTuple):
    """A row of the table behind a chart. `at`: the time that it begins with, in nanoseconds."""

    at: int
    cells: tuple[str, ...]


class BarChart(NamedTuple):
    """A chart of bars over time."""

    label: str
    series: tuple[Series, ...]
    bars: tuple[Bar, ...]
    #: From top to bottom.
    ticks: tuple[str, ...]
    #: Begin of the first, the middle and the last bar.
    times: tuple[int, ...]
    is_daily: bool
    columns: tuple[str, ...]
    rows: tuple[TableRow, ...]
    is_empty: bool


class ListRow(NamedTuple):
    """A row of a list with bars: `share` of the longest, from 0 to 100."""

    name: str
    words: str
    share: float
    style: str = "series-1"
    #: Where its name leads; empty: nowhere.
    href: str = ""
    #: Where a second link leads; empty: there is none.
    more_href: str = ""


def draw_outcomes(statistics: Statistics) -> BarChart:
    """Draw runs by outcome."""
    series = [Series(name, _OUTCOME_LABELS[name], f"{statistics.count_outcome(name):,}") for name in OUTCOMES]
    values = [[getattr(step, name) for name in OUTCOMES] for step in statistics.outcomes]
    return _draw_bars(
        "Runs that ended, by outcome", series, [step.start for step in statistics.outcomes], values, _format_count
    )


def draw_waits(statistics: Statistics) -> BarChart:
    """Draw how long approvals waited: the median in front of the 90th percentile."""
    series = [
        Series("wait-90", "9 of 10 within", format_seconds(statistics.wait_p90_seconds)),
        Series("wait-50", "Half within", format_seconds(statistics.wait_p50_seconds)),
    ]
    values = [[step.p90_seconds or 0.0, step.p50_seconds or 0.0] for step in statistics.waits]
    starts = [step.start for step in statistics.waits]
    return _draw_bars("Waiting time of approvals", series, starts, values, format_seconds, is_stacked=False)


def draw_usage(statistics: Statistics, days: int) -> BarChart:
    """Draw cost by day and agent, or tokens where no cost is known."""
    rows = statistics.daily_usage
    has_cost = any(row.cost for row in rows)
    read: Callable[[AgentUsage], float] = (
        (lambda row: row.cost) if has_cost else lambda row: float(row.input_tokens + row.output_tokens)
    )
    sums: dict[str, float] = {}
    for row in rows:
        sums[row.agent] = sums.get(row.agent, 0.0) + read(row)
    named = sorted(sums, key=lambda agent: -sums[agent])[:_MAX_SERIES]
    labels = [*named, OTHERS] if len(sums) > len(named) else named
    last = max((row.start for row in rows), default=statistics.outcomes[-1].start) // _NS
    last = max(last, statistics.outcomes[-1].start // _NS) // DAY_SECONDS * DAY_SECONDS
    starts = [(last - DAY_SECONDS * back) * _NS for back in range(days - 1, -1, -1)]
    values = [[0.0] * len(labels) for _ in starts]
    for row in rows:
        if row.start in starts:
            at = labels.index(row.agent if row.agent in named else OTHERS)
            values[starts.index(row.start)][at] += read(row)
    form = format_cost if has_cost else _format_count
    totals = [sum(step[at] for step in values) for at in range(len(labels))]
    series = [Series(f"series-{at + 1}", name, form(totals[at])) for at, name in enumerate(labels)]
    return _draw_bars("Cost by agent and day" if has_cost else "Tokens by agent and day", series, starts, values, form)


def list_ages(ages: Sequence[QuestionAge]) -> list[ListRow]:
    """List open questions by age."""
    longest = max((age.count for age in ages), default=0)
    names = [f"up to {format_seconds(age.max_seconds)}" if age.max_seconds else "older" for age in ages]
    return [
        ListRow(name, f"{age.count:,}", _share(age.count, longest), f"age-{at}")
        for at, (name, age) in enumerate(zip(names, ages, strict=True))
    ]


def list_rules(counts: Sequence[NamedCount], can_read_policy: bool = False) -> list[ListRow]:
    """List the rules that asked most often. Each leads to its questions, and for those who may read policies to what
    people answered and which rules that suggests; what has no rule is in parentheses.
    """
    suggestions = "/console/policy/suggestions"
    rows: list[ListRow] = []
    for row in list_counts(counts, "series-1"):
        query, is_rule = urlencode({"rule": row.name}), not row.name.startswith("(")
        more = (f"{suggestions}?{query}" if is_rule else suggestions) if can_read_policy else ""
        rows.append(row._replace(href=f"/console/inbox?{query}" if is_rule else "", more_href=more))
    return rows


def list_counts(counts: Sequence[NamedCount], style: str) -> list[ListRow]:
    """List what happened most often."""
    longest = max((each.count for each in counts), default=0)
    return [ListRow(each.name, f"{each.count:,}", _share(each.count, longest), style) for each in counts]


def format_seconds(seconds: float | None) -> str:
    """Return a duration in one or two words."""
    if seconds is None:
        return "-"
    for size, unit, smaller, small_unit in ((86_400, "d", 3_600, "h"), (3_600, "h", 60, "min"), (60, "min", 1, "s")):
        if seconds >= size:
            whole, rest = divmod(round(seconds), size)
            more = rest // smaller
            return f"{whole} {unit} {more} {small_unit}" if more and whole < _STEPS_OF_TIME[3] else f"{whole} {unit}"
    return f"{seconds:.0f} s" if seconds >= 1 or not seconds else "under 1 s"


def format_cost(cost: float) -> str:
    """Return a cost: cents where they matter."""
    return f"{cost:,.2f}" if cost >= _CENTS_FROM or not cost else f"{cost:.4f}"


def _format_count(count: float) -> str:
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if count >= size:
            return f"{count / (1e3 if unit == 'k' else size):,.3g}{unit}" if unit != "k" else f"{count / 1e3:,.0f}k"
    return f"{count:,.0f}"


def _draw_bars(  # noqa: PLR0913 - what is drawn
    label: str,
    series: Sequence[Series],
    starts: Sequence[int],
    values: Sequence[Sequence[float]],
    form: Callable[[float], str],
    *,
    is_stacked: bool = True,
) -> BarChart:
    highest = max((sum(step) if is_stacked else max(step, default=0.0) for step in values), default=0.0)
    top = _find_top(highest, is_time=not is_stacked, is_whole=form is _format_count)
    room = WIDTH / max(len(starts), 1)
    is_daily = len(starts) > 1 and starts[1] - starts[0] >= DAY_SECONDS * _NS
    bars: list[Bar] = []
    for at, (start, step) in enumerate(zip(starts, values, strict=True)):
        segments: list[Segment] = []
        reached = 0.0
        for each, value in zip(series, step, strict=True):
            height = HEIGHT * value / top
            if value:
                segments.append(Segment(each.style, each.hatch, round(HEIGHT - reached - height, 2), round(height, 2)))
            reached += height if is_stacked else 0.0
        said = [f"{each.label}: {form(value)}" for each, value in zip(series, step, strict=True) if value]
        left = round(at * room, 2)
        x = round(left + room * (1 - _FILL) / 2, 2)
        words = ", ".join(said) or "none"
        bars.append(Bar(start, x, round(room * _FILL, 2), tuple(segments), words, left, round(room, 2)))
    return BarChart(
        label=label,
        series=tuple(series),
        bars=tuple(bars),
        ticks=tuple(form(top * (_TICKS - at) / _TICKS) for at in range(_TICKS + 1)),
        times=(starts[0], starts[len(starts) // 2], starts[-1]) if starts else (),
        is_daily=is_daily,
        columns=tuple(each.label for each in series),
        rows=tuple(
            TableRow(start, tuple(map(form, step))) for start, step in zip(starts, values, strict=True) if any(step)
        ),
        is_empty=highest == 0,
    )


def _find_top(highest: float, *, is_time: bool, is_whole: bool) -> float:
    """Return the value at the upper edge: a round one."""
    if highest <= 0:
        return 2.0 if is_whole else 1.0
    if is_time:
        found = next((step * 2 for step in _STEPS_OF_TIME if step * 2 >= highest), 0)
        return found or math.ceil(highest / DAY_SECONDS / 2) * 2 * DAY_SECONDS
    size = 10.0 ** math.floor(math.log10(highest))
    top = next(size * step for step in (1, 2, 4, 6, 8, 10) if size * step >= highest)
    return max(top, 2.0) if is_whole else top


def _share(value: float, longest: float) -> float:
    return round(100 * value / longest, 1) if longest else 0.0
