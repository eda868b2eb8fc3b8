"""The figures of a run: how long it took, and what it used."""

from typing import NamedTuple

from ....history.state_view import RunStateView
from .durations import format_span, sum_spans

_MS = 1_000_000


class RunFigures(NamedTuple):
    """What the header of a run shows."""

    took: str
    #: Empty: no person was asked, no call ran.
    waited: str
    executed: str
    question_count: int
    is_over: bool


def build_figures(state: RunStateView, *, is_over: bool, now: int) -> RunFigures:
    """Build the figures of a run as of its last event. Questions at the same time count once."""
    end = state.at if is_over else max(now, state.at)
    waits = [(asked.asked_at, _find_end(asked.answered_at, asked.status, end)) for asked in state.questions]
    durations = [call.duration_ms for call in state.calls if call.duration_ms is not None]
    return RunFigures(
        took=format_span(end - state.started_at),
        waited=format_span(sum_spans(waits)) if waits else "",
        executed=format_span(int(sum(durations) * _MS)) if durations else "",
        question_count=len(waits),
        is_over=is_over,
    )


def _find_end(answered_at: int, status: str, end: int) -> int:
    """Return when a wait ended. One that was voided without an answer counts as none."""
    return answered_at or (end if status == "PENDING" else 0)
