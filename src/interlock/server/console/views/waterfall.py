"""The waterfall of a run: requests to the model, executions of calls, and people who were waited for, over time.

A drawing is 1,000 wide. Where there was nothing but waiting for long, time is drawn shorter, so that work can be seen.
"""

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from ....domain.messages import Usage
from ....history.call_view import CallView
from ....history.turns import CallEntry, ModelEntry, Turn
from .charts import WIDTH
from .durations import format_span, sum_spans

#: The narrowest bar that can be seen.
_MIN_WIDTH = 4.0
_LABELS = {"model": "Model", "tool": "Tools", "human": "Waiting for people", "child": "Runs inside"}
#: Waiting is drawn at most as long as all work, or as a second.
_EARLIEST_CUT = 1_000_000_000


class Span(NamedTuple):
    """Something that took time. `end` is 0 as long as it lasts."""

    kind: str
    name: str
    start: int
    end: int
    #: The event that it began with, and its call and question, if any.
    seq: int
    call_id: str = ""
    action_id: str = ""
    usage: Usage = Usage()
    is_failed: bool = False


class SpanRow(NamedTuple):
    """A row of the waterfall."""

    span: Span
    x: float
    width: float
    begins: str
    took: str
    is_open: bool


class LegendEntry(NamedTuple):
    """A kind of spans: how many there are, and how long they took. Those at the same time count once."""

    kind: str
    label: str
    span_count: int
    took: str


class Waterfall(NamedTuple):
    """All spans of some turns."""

    rows: tuple[SpanRow, ...]
    legend: tuple[LegendEntry, ...]
    start: int
    took: str
    #: How much waiting is left out of the drawing; empty: none is.
    cut: str
    usage: Usage


def build_waterfall(turns: Sequence[Turn], now: int) -> Waterfall:
    """Build the waterfall. `now`: the end of what still lasts."""
    spans = sorted(_list_spans(turns), key=lambda span: (span.start, span.seq))
    if not spans:
        return Waterfall((), (), 0, "", "", Usage())
    start = spans[0].start
    ends = [max(span.start, span.end or max(now, span.start)) for span in spans]
    total = max(ends) - start
    place, cut = _build_scale(spans, ends, start)
    rows: list[SpanRow] = []
    for span, end in zip(spans, ends, strict=True):
        width = max(_MIN_WIDTH, place(end) - place(span.start))
        x = min(place(span.start), WIDTH - width)
        begins, took = format_span(span.start - start), format_span(end - span.start)
        rows.append(SpanRow(span, round(x, 1), round(width, 1), begins, took, not span.end))
    usage = sum((span.usage for span in spans), Usage())
    legend = tuple(_build_legend(spans, ends))
    return Waterfall(tuple(rows), legend, start, format_span(total), format_span(cut) if cut else "", usage)


def _list_spans(turns: Sequence[Turn]) -> Iterator[Span]:
    for turn in turns:
        for entry in turn.entries:
            match entry:
                case ModelEntry():
                    name = "Summary of older messages" if entry.is_summary else entry.model or entry.agent or "Model"
                    start, end, seq = entry.started_at, entry.ended_at, entry.seq
                    yield Span("model", name, start, end, seq, usage=entry.usage, is_failed=bool(entry.problem))
                case CallEntry():
                    yield from _list_call_spans(entry.view)
                case _:
                    pass


def _list_call_spans(view: CallView) -> Iterator[Span]:
    for asked in view.person_view.questions:
        is_open = asked.status == "PENDING"
        end = asked.answered_at or (0 if is_open else view.observed_at or asked.asked_at)
        yield Span("human", view.tool, asked.asked_at, end, asked.asked_seq, view.call_id, asked.question.action_id)
    observation = view.execution.observation
    for ran in view.execution.invocations:
        # Without an end in the log it lasts, or broke off: then the outcome of the call is the end that is known.
        end = ran.ended_at or view.observed_at
        is_failed = bool(observation is not None and not observation.ok)
        yield Span("tool", view.tool, ran.started_at, end, ran.started_seq, view.call_id, is_failed=is_failed)
        if ran.child_run_id:
            yield Span("child", view.tool, ran.ended_at, view.observed_at, ran.ended_seq, view.call_id)


def _build_scale(spans: Sequence[Span], ends: Sequence[int], start: int) -> tuple[Callable[[int], float], int]:
    """Return where a time is drawn, and how much waiting is left out."""
    times = sorted({start, *(span.start for span in spans), *ends})
    work = [(span.start, end) for span, end in zip(spans, ends, strict=True) if span.kind in ("model", "tool")]
    longest = max(sum_spans(work), _EARLIEST_CUT)
    ordered, busy_until, at, cut = sorted(work), start, 0, 0
    drawn = {times[0]: 0}
    for begin, end in pairwise(times):
        while at < len(ordered) and ordered[at][0] <= begin:
            busy_until = max(busy_until, ordered[at][1])
            at += 1
        length = end - begin if busy_until > begin else min(end - begin, longest)
        cut += end - begin - length
        drawn[end] = drawn[begin] + length
    whole = max(drawn[times[-1]], 1)
    return lambda time: WIDTH * drawn[time] / whole, cut


def _build_legend(spans: Sequence[Span], ends: Sequence[int]) -> Iterator[LegendEntry]:
    for kind, label in _LABELS.items():
        found = [(span.start, end) for span, end in zip(spans, ends, strict=True) if span.kind == kind]
        if found:
            yield LegendEntry(kind, label, len(found), format_span(sum_spans(found)))
