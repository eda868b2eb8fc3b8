"""Statistics of runs over a period, from the figures by hour and by day: the cost does not grow with history.

People see the figures of the agents that they have a role for. Rows without an agent of theirs are left out, so a
person without a role has no figures.
"""

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

import msgspec

from ....storage.rollups import DAY_SECONDS, HOUR_SECONDS, OUTCOMES, compute_percentile

_NS = 1_000_000_000
MAX_NAMED = 10
#: The name of what is left over in a list of the most frequent.
OTHERS = "(others)"
#: Upper bounds of the ages of open questions, in seconds.
AGE_BOUNDS = (300, 3_600, 14_400, DAY_SECONDS, 7 * DAY_SECONDS)


class StatisticsPeriod(StrEnum):
    """How far back statistics go."""

    DAY = "day"
    WEEK = "week"
    MONTH = "month"


class _Span(NamedTuple):
    width: int
    steps: int


_SPANS = {
    StatisticsPeriod.DAY: _Span(HOUR_SECONDS, 24),
    StatisticsPeriod.WEEK: _Span(DAY_SECONDS, 7),
    StatisticsPeriod.MONTH: _Span(DAY_SECONDS, 30),
}
#: Cost is by day in every period, so that today can be compared.
_MIN_USAGE_DAYS = 7


class OutcomeStep(msgspec.Struct, frozen=True, kw_only=True):
    """Runs that ended in an hour or a day, by outcome. Times are nanoseconds since 1970."""

    start: int
    completed: int = 0
    degraded: int = 0
    #: A person rejected a call, and the run ended for it.
    rejected: int = 0
    #: The run ended because no person answered in time.
    expired: int = 0
    cancelled: int = 0
    failed: int = 0


class WaitStep(msgspec.Struct, frozen=True, kw_only=True):
    """How long approvals that were answered in an hour or a day had waited."""

    start: int
    answered: int
    p50_seconds: float | None
    p90_seconds: float | None


class QuestionAge(msgspec.Struct, frozen=True, kw_only=True):
    """Open questions up to an age; None: all older ones."""

    max_seconds: int | None
    count: int


class AgentUsage(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent used in a day, or in the whole period."""

    agent: str
    #: 0: the whole period.
    start: int = 0
    responses: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost: float = 0.0


class NamedCount(msgspec.Struct, frozen=True, kw_only=True):
    """How often something happened."""

    name: str
    count: int


class Statistics(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of a period."""

    period: StatisticsPeriod
    since: int
    width_seconds: int
    outcomes: tuple[OutcomeStep, ...]
    #: Approvals of the whole period: granted, rejected, expired; and how long the first two had waited.
    answers: dict[str, int]
    waits: tuple[WaitStep, ...]
    wait_p50_seconds: float | None
    wait_p90_seconds: float | None
    open_questions: int
    oldest_question_at: int
    question_ages: tuple[QuestionAge, ...]
    #: By agent in the whole period, most expensive first; and by agent and day.
    usage: tuple[AgentUsage, ...]
    daily_usage: tuple[AgentUsage, ...]
    #: Rules that asked people most often.
    rules: tuple[NamedCount, ...]
    #: Failures of calls and models by code; and calls that policy or people refused.
    errors: tuple[NamedCount, ...]
    refusals: tuple[NamedCount, ...]

    def count_outcome(self, outcome: str) -> int:
        """Return how many runs of the period ended like this."""
        return sum(getattr(step, outcome) for step in self.outcomes)


class FigureRow(msgspec.Struct, frozen=True, gc=False):
    """A figure of an hour or a day, for all agents that are asked about. `start` is in seconds."""

    start: int
    metric: str
    name: str
    count: int
    total: float


class UsageRow(msgspec.Struct, frozen=True, gc=False):
    """Usage of an agent in a day."""

    agent: str
    start: int
    name: str
    count: int
    total: float


class StatisticsQuery:
    """What is read for the statistics of a period that ends now."""

    def __init__(self, period: StatisticsPeriod, now: int, agents: Collection[str] | None) -> None:
        span, seconds = _SPANS[period], now // _NS
        self.period, self.now, self.width = period, now, span.width
        self.starts = _list_starts(seconds, span.width, span.steps)
        days = max(_MIN_USAGE_DAYS, span.steps * span.width // DAY_SECONDS)
        self.days = _list_starts(seconds, DAY_SECONDS, days)
        self._agents = None if agents is None else sorted(agents)

    def build_figures(self) -> tuple[str, tuple[str | int, ...]]:
        """Return the statement that reads the figures."""
        where, values = self._where_agents()
        sql = (
            "SELECT start, metric, name, sum(count), sum(total) FROM rollups"  # noqa: S608
            f" WHERE width = ? AND start >= ?{where} GROUP BY start, metric, name"
        )
        return sql, (self.width, self.starts[0], *values)

    def build_usage(self) -> tuple[str, tuple[str | int, ...]]:
        """Return the statement that reads the usage of agents by day."""
        where, values = self._where_agents()
        sql = (
            "SELECT agent, start, name, sum(count), sum(total) FROM rollups"  # noqa: S608
            f" WHERE width = ? AND start >= ? AND metric = 'usage'{where} GROUP BY agent, start, name"
        )
        return sql, (DAY_SECONDS, self.days[0], *values)

    def build_ages(self, actions: str) -> tuple[str, tuple[str | int, ...]]:
        """Return the statement that counts open questions by age."""
        where, values = self._where_agents()
        bounds = [self.now - bound * _NS for bound in AGE_BOUNDS]
        counts = ", ".join("sum(CASE WHEN asked_at >= ? THEN 1 ELSE 0 END)" for _ in bounds)
        sql = f"SELECT count(*), min(asked_at), {counts} FROM {actions} WHERE status = 'PENDING'{where}"  # noqa: S608
        return sql, (*bounds, *values)

    def _where_agents(self) -> tuple[str, tuple[str, ...]]:
        if self._agents is None:
            return "", ()
        marks = ", ".join("?" * len(self._agents)) or "NULL"
        return f" AND agent IN ({marks})", tuple(self._agents)


def build_statistics(
    query: StatisticsQuery, figures: Sequence[Sequence[Any]], usage: Sequence[Sequence[Any]], ages: Sequence[Any]
) -> Statistics:
    """Return the statistics from the rows that were read."""
    rows = [FigureRow(start, metric, name, int(count), float(total)) for start, metric, name, count, total in figures]
    by_metric: dict[str, list[FigureRow]] = defaultdict(list)
    for row in rows:
        by_metric[row.metric].append(row)
    waits = _read_waits(by_metric["wait"])
    all_waits = sum(waits.values(), Counter[int]())
    count, oldest, *younger = ages
    daily = [UsageRow(agent, start, name, int(n), float(total)) for agent, start, name, n, total in usage]
    return Statistics(
        period=query.period,
        since=query.starts[0] * _NS,
        width_seconds=query.width,
        outcomes=_build_outcomes(query.starts, by_metric["outcome"]),
        answers={name: _sum_counts(by_metric["answer"])[name] for name in ("granted", "rejected", "expired")},
        waits=tuple(_build_wait(start, waits.get(start, Counter())) for start in query.starts),
        wait_p50_seconds=compute_percentile(all_waits, 0.5),
        wait_p90_seconds=compute_percentile(all_waits, 0.9),
        open_questions=count,
        oldest_question_at=oldest or 0,
        question_ages=_build_ages(count, [int(each or 0) for each in younger]),
        usage=_sum_usage(row for row in daily if row.start >= query.starts[0] - query.starts[0] % DAY_SECONDS),
        daily_usage=_build_daily_usage(daily),
        rules=_list_most_frequent(by_metric["rule"]),
        errors=_list_most_frequent(by_metric["error"]),
        refusals=_list_most_frequent(by_metric["refusal"]),
    )


def _list_starts(now: int, width: int, steps: int) -> list[int]:
    last = now - now % width
    return [last - width * back for back in range(steps - 1, -1, -1)]


def _build_outcomes(starts: Iterable[int], rows: Iterable[FigureRow]) -> tuple[OutcomeStep, ...]:
    counts: dict[int, dict[str, int]] = defaultdict(dict)
    for row in rows:
        if row.name in OUTCOMES:
            counts[row.start][row.name] = row.count
    return tuple(OutcomeStep(start=start * _NS, **counts[start]) for start in starts)


def _read_waits(rows: Iterable[FigureRow]) -> dict[int, Counter[int]]:
    waits: dict[int, Counter[int]] = defaultdict(Counter)
    for row in rows:
        waits[row.start][int(row.name)] += row.count
    return waits


def _build_wait(start: int, steps: Counter[int]) -> WaitStep:
    return WaitStep(
        start=start * _NS,
        answered=steps.total(),
        p50_seconds=compute_percentile(steps, 0.5),
        p90_seconds=compute_percentile(steps, 0.9),
    )


def _build_ages(count: int, younger: Sequence[int]) -> tuple[QuestionAge, ...]:
    """Return the counts between the bounds, from the counts below each of them."""
    bounds = [*zip(AGE_BOUNDS, younger, strict=True), (None, count)]
    below = [0, *younger]
    return tuple(
        QuestionAge(max_seconds=bound, count=reached - before)
        for (bound, reached), before in zip(bounds, below, strict=True)
    )


def _sum_usage(rows: Iterable[UsageRow]) -> tuple[AgentUsage, ...]:
    """Return the usage of each agent, most expensive first, and of the rest together."""
    sums: dict[str, AgentUsage] = {}
    for row in rows:
        sums[row.agent] = _add_usage(sums.get(row.agent, AgentUsage(agent=row.agent)), row)
    ordered = sorted(sums.values(), key=lambda usage: (-usage.cost, -usage.input_tokens - usage.output_tokens))
    named, rest = ordered[:MAX_NAMED], ordered[MAX_NAMED:]
    if rest:
        fields = ("responses", "input_tokens", "output_tokens", "cost")
        named.append(AgentUsage(agent=OTHERS, **{name: sum(getattr(each, name) for each in rest) for name in fields}))
    return tuple(named)


def _build_daily_usage(rows: Iterable[UsageRow]) -> tuple[AgentUsage, ...]:
    days: dict[tuple[int, str], AgentUsage] = {}
    for row in rows:
        key = row.start, row.agent
        days[key] = _add_usage(days.get(key, AgentUsage(agent=row.agent, start=row.start * _NS)), row)
    return tuple(days[key] for key in sorted(days))


def _add_usage(usage: AgentUsage, row: UsageRow) -> AgentUsage:
    match row.name:
        case "input":
            return msgspec.structs.replace(usage, input_tokens=usage.input_tokens + row.count)
        case "output":
            return msgspec.structs.replace(usage, output_tokens=usage.output_tokens + row.count)
        case _:
            return msgspec.structs.replace(usage, responses=usage.responses + row.count, cost=usage.cost + row.total)


def _sum_counts(rows: Iterable[FigureRow]) -> Counter[str]:
    counts = Counter[str]()
    for row in rows:
        counts[row.name] += row.count
    return counts


def _list_most_frequent(rows: Iterable[FigureRow]) -> tuple[NamedCount, ...]:
    counts = _sum_counts(rows)
    named = [NamedCount(name=name, count=count) for name, count in counts.most_common(MAX_NAMED)]
    rest = counts.total() - sum(each.count for each in named)
    return (*named, NamedCount(name=OTHERS, count=rest)) if rest else tuple(named)
