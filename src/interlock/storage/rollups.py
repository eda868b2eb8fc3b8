"""Figures of runs by hour and by day: what an event adds to them.

A figure has a metric, a name and the agent of its run. The figures of an hour and of a day are rows of their own, so
that a chart of any period reads about as many rows, however many runs there were. Names come from tables of the
runtime or from policies and are limited; a figure holds no text of a task or a call.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from ..domain import event as facts
from ..domain.event import Event
from ..domain.outcome import ERROR_CODES, Phase
from ..domain.rendering import truncate
from ..domain.state.lifecycle import RunState
from ..rendering.run_states import to_display_state

HOUR_SECONDS = 3_600
DAY_SECONDS = 86_400
#: The widths of figures, in seconds.
WIDTHS = (HOUR_SECONDS, DAY_SECONDS)

#: Bounds of waiting times grow by this factor, so a percentile is off by less than 12 %.
_WAIT_FACTOR = 1.25
_MAX_WAIT_STEP = 80
_MAX_NAME_CHARS = 200
_MAX_SECONDS = 1 << 40
#: Of tokens in one response: a log edited by hand may have any number.
_MAX_TOKENS = 1 << 40
_MAX_COST = 1e12

#: Every outcome of a run, in the order in which they are shown.
OUTCOMES = ("completed", "degraded", "rejected", "expired", "cancelled", "failed")
#: Failures that follow from the end of a run.
_CONSEQUENCES = frozenset({"skipped", "cancelled", "cancelled_before_start"})


class Figure(msgspec.Struct, frozen=True, gc=False):
    """What an event adds to a figure: a count, and an amount that is no integer."""

    metric: str
    name: str = ""
    count: int = 1
    total: float = 0.0


class RunFacts(NamedTuple):
    """What has to be known of the run of an event."""

    agent: str
    is_child: bool
    #: When a question was asked; 0: it is not known.
    find_asked_at: Callable[[str], int]


class RollupKey(NamedTuple):
    """The key of a row."""

    width: int
    #: The begin of the hour or day, in seconds since 1970.
    start: int
    metric: str
    agent: str
    name: str


Rollups: TypeAlias = dict[RollupKey, tuple[int, float]]


class RollupCounter:
    """Adds up the figures of events. Pages have to come in the order of the log."""

    def __init__(self) -> None:
        #: The last event of each fork that was copied from its source, while such events follow.
        self._forks: dict[str, int] = {}

    @staticmethod
    def needs(event: Event) -> bool:
        """Return False for an event that changes no figure, and need not be given to `count`."""
        return type(event.fact) in _COUNTED

    def count(self, events: Iterable[tuple[Event, RunFacts]]) -> Rollups:
        """Return the sums of a page of events. What a fork repeats was counted in its source."""
        sums: Rollups = {}
        for event, run in events:
            list_figures = _FIGURES.get(type(event.fact))
            if self._is_copy(event) or list_figures is None:
                continue
            seconds = min(max(event.at // 1_000_000_000, 0), _MAX_SECONDS)
            for figure in list_figures(event.fact, event, run):
                name = truncate(figure.name, _MAX_NAME_CHARS)
                for width in WIDTHS:
                    key = RollupKey(width, seconds - seconds % width, figure.metric, run.agent, name)
                    count, total = sums.get(key, (0, 0.0))
                    sums[key] = count + figure.count, total + figure.total
        return sums

    def _is_copy(self, event: Event) -> bool:
        fact = event.fact
        if isinstance(fact, facts.RunStarted) and fact.forked_from:
            self._forks[event.run_id] = fact.forked_at
        if event.run_id not in self._forks:
            return False
        if event.seq <= self._forks[event.run_id]:
            return True
        del self._forks[event.run_id]
        return False


def to_wait_step(seconds: float) -> int:
    """Return the step of a waiting time: the first whose bound it does not exceed."""
    return 0 if seconds <= 1 else min(math.ceil(math.log(seconds, _WAIT_FACTOR)), _MAX_WAIT_STEP)


def compute_percentile(steps: Mapping[int, int], share: float) -> float | None:
    """Return the waiting time in seconds that this share of the waits does not exceed; None: there were none."""
    rank = share * sum(steps.values())
    for step, count in sorted(steps.items()):
        if rank <= count:
            upper = _WAIT_FACTOR**step
            lower = _WAIT_FACTOR ** (step - 1) if step else 0.0
            return lower + (upper - lower) * rank / count
        rank -= count
    return None


def _list_outcomes(fact: Any, event: Event, run: RunFacts) -> Iterator[Figure]:
    if not run.is_child:
        state = RunState(facts.event_type(fact).removeprefix("run."))
        yield Figure("outcome", to_display_state(state, getattr(fact, "code", "")))


def _list_rules(fact: facts.ApprovalRequested, event: Event, run: RunFacts) -> Iterator[Figure]:
    question = fact.question
    for rule in question.rule_ids or (f"({question.layer or 'default'})",):
        yield Figure("rule", rule)


def _list_answers(fact: Any, event: Event, run: RunFacts) -> Iterator[Figure]:
    answer = facts.event_type(fact).partition(".")[2]
    asked_at = run.find_asked_at(fact.action_id)
    seconds = max(event.at - asked_at, 0) / 1e9 if asked_at else 0.0
    yield Figure("answer", answer, 1, seconds)
    if asked_at and answer != "expired":
        yield Figure("wait", str(to_wait_step(seconds)))


def _list_usage(fact: facts.ModelResponded, event: Event, run: RunFacts) -> Iterator[Figure]:
    usage = fact.usage
    yield Figure("usage", "responses", 1, min(max(usage.cost, 0.0), _MAX_COST) if math.isfinite(usage.cost) else 0.0)
    for name, count in (("input", usage.input_tokens), ("output", usage.output_tokens)):
        if count > 0:
            yield Figure("usage", name, min(count, _MAX_TOKENS))


def _list_call_errors(fact: facts.CallObserved, event: Event, run: RunFacts) -> Iterator[Figure]:
    failure = fact.observation.failure
    if failure is not None and failure.code not in _CONSEQUENCES:
        row = ERROR_CODES.get(failure.code)
        yield Figure("refusal" if row and row.phase is Phase.PERMIT else "error", failure.code)


def _list_model_errors(fact: facts.ModelFailed, event: Event, run: RunFacts) -> Iterator[Figure]:
    yield Figure("error", fact.code or "model_failed")


_FIGURES = cast(
    Mapping[type, Callable[[Any, Event, RunFacts], Iterator[Figure]]],
    {
        **dict.fromkeys((facts.RunCompleted, facts.RunDegraded, facts.RunFailed, facts.RunCancelled), _list_outcomes),
        facts.ApprovalRequested: _list_rules,
        **dict.fromkeys((facts.ApprovalGranted, facts.ApprovalRejected, facts.ApprovalExpired), _list_answers),
        facts.ModelResponded: _list_usage,
        facts.CallObserved: _list_call_errors,
        facts.ModelFailed: _list_model_errors,
    },
)
#: A fork begins with events that were counted.
_COUNTED: Collection[type] = frozenset((*_FIGURES, facts.RunStarted))
