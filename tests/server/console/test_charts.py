"""Charts and waterfalls in numbers: what is drawn is what was counted, and it fits."""

from datetime import UTC, datetime

from hypothesis import given
from hypothesis import strategies as st

from interlock.domain import event as facts
from interlock.domain.event import Event
from interlock.domain.messages import Usage
from interlock.history.turns import build_turns
from interlock.server.console.views.charts import (
    draw_outcomes,
    draw_usage,
    draw_waits,
    format_cost,
    format_seconds,
    list_ages,
    list_rules,
)
from interlock.server.console.views.durations import format_span, sum_spans
from interlock.server.console.views.waterfall import build_waterfall
from interlock.server.core.index.statistics import (
    OTHERS,
    NamedCount,
    Statistics,
    StatisticsPeriod,
    StatisticsQuery,
    build_statistics,
)
from tests.each import each

NOW = int(datetime(2026, 3, 5, 12, 30, tzinfo=UTC).timestamp()) * 1_000_000_000
HOUR, DAY, SECOND = 3_600, 86_400, 1_000_000_000
_START = NOW // SECOND // HOUR * HOUR
_TODAY = NOW // SECOND // DAY * DAY
_NO_QUESTIONS = (0, None, *[None] * 5)


def _statistics(
    *figures: tuple[int, str, str, int, float], usage: tuple[tuple[str, int, str, int, float], ...] = ()
) -> Statistics:
    return build_statistics(StatisticsQuery(StatisticsPeriod.DAY, NOW, None), figures, usage, _NO_QUESTIONS)


def test_bars_are_as_high_as_their_counts() -> None:
    found = _statistics((_START, "outcome", "completed", 3, 0.0), (_START, "outcome", "rejected", 1, 0.0))
    chart = draw_outcomes(found)
    last = chart.bars[-1]
    assert [(part.style, part.hatch, part.y, part.height) for part in last.segments] == [
        ("completed", "", 25.0, 75.0),
        ("rejected", "stripes", 0.0, 25.0),
    ]
    assert (last.at // SECOND, last.words) == (_START, "Completed: 3, Rejected: 1")
    assert (chart.ticks, chart.is_empty, len(chart.bars)) == (("4", "2", "0"), False, 24)
    assert [(row.at // SECOND, row.cells) for row in chart.rows] == [(_START, ("3", "0", "1", "0", "0", "0"))]


def test_every_series_is_told_apart_without_colour() -> None:
    usage = tuple((f"agent-{number}", _TODAY, "responses", 1, 1.0 + number) for number in range(8))
    found = _statistics(usage=usage)
    for chart in (draw_outcomes(found), draw_waits(found), draw_usage(found, 7)):
        hatches = [series.hatch for series in chart.series]
        assert len(set(hatches)) == len(hatches)


def test_agents_beyond_the_fifth_are_one_series() -> None:
    usage = tuple((f"agent-{number}", _TODAY, "responses", 1, 1.0 + number) for number in range(8))
    chart = draw_usage(_statistics(usage=usage), 7)
    assert [(series.label, series.total) for series in chart.series] == [
        ("agent-7", "8.00"),
        ("agent-6", "7.00"),
        ("agent-5", "6.00"),
        ("agent-4", "5.00"),
        ("agent-3", "4.00"),
        (OTHERS, "6.00"),
    ]


def test_rules_lead_to_their_questions() -> None:
    counts = [NamedCount(name="a&b=<i>", count=4), NamedCount(name="(default)", count=1)]
    assert [(row.name, row.words, row.share, row.href, row.more_href) for row in list_rules(counts)] == [
        ("a&b=<i>", "4", 100.0, "/console/inbox?rule=a%26b%3D%3Ci%3E", ""),
        ("(default)", "1", 25.0, "", ""),
    ]


def test_rules_lead_to_suggestions_for_those_who_read_policies() -> None:
    counts = [NamedCount(name="a&b=<i>", count=4), NamedCount(name="(default)", count=1)]
    assert [row.more_href for row in list_rules(counts, can_read_policy=True)] == [
        "/console/policy/suggestions?rule=a%26b%3D%3Ci%3E",
        "/console/policy/suggestions",
    ]


def test_without_runs_there_are_empty_charts() -> None:
    found = _statistics()
    for chart in (draw_outcomes(found), draw_waits(found), draw_usage(found, 7)):
        assert (chart.is_empty, chart.rows) == (True, ())
        assert all(bar.segments == () and bar.words == "none" for bar in chart.bars)
    assert [row.share for row in list_ages(found.question_ages)] == [0.0] * 6


@each(
    ("seconds", "expected"),
    [(None, "-"), (0, "0 s"), (0.4, "under 1 s"), (59, "59 s"), (61, "1 min 1 s"), (3_600, "1 h"), (90_000, "1 d 1 h")],
)
def test_durations_are_short(seconds: float | None, expected: str) -> None:
    assert format_seconds(seconds) == expected


def test_small_amounts_keep_their_digits() -> None:
    assert [format_cost(each) for each in (0, 0.0123, 0.1, 1234.5)] == ["0.00", "0.0123", "0.10", "1,234.50"]
    assert [format_span(each) for each in (-5, 2_000_000, 2_500_000_000)] == ["0 ms", "2 ms", "2.5 s"]


@given(st.lists(st.integers(0, 10**15), min_size=1, max_size=24))
def test_no_bar_is_higher_than_its_chart(counts: list[int]) -> None:
    figures = [(_START - HOUR * back, "outcome", "failed", count, 0.0) for back, count in enumerate(counts)]
    chart = draw_outcomes(_statistics(*figures))
    for bar in chart.bars:
        assert 0 <= bar.left <= bar.x <= bar.x + bar.width <= 1_000.1
        for part in bar.segments:
            assert -0.01 <= part.y <= part.y + part.height <= 100.02


_TIMES = st.lists(st.integers(1, 10**13), min_size=2, max_size=30)


@given(_TIMES)
def test_every_span_of_a_waterfall_is_inside_of_it(times: list[int]) -> None:
    """Also where a clock was set back."""
    asked = facts.ModelRequested(menu_digest="0", message_count=1, model="m")
    said = facts.ModelResponded(text="Hm.", usage=Usage(input_tokens=1))
    events = [Event(seq, "run_1", at, "run_1", None, said if seq % 2 else asked) for seq, at in enumerate(times)]
    found = build_waterfall(build_turns(events), now=10**13)
    assert len(found.rows) == (len(times) + 1) // 2
    assert found.usage.input_tokens == len(times) // 2
    for row in found.rows:
        assert 0 <= row.x <= row.x + row.width <= 1_000.1
    assert [row.is_open for row in found.rows if row.is_open] == [True] * (len(times) % 2)


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda span: (min(span), max(span)))))
def test_time_at_once_counts_once(spans: list[tuple[int, int]]) -> None:
    assert sum_spans(spans) == len({moment for start, end in spans for moment in range(start, end)})
