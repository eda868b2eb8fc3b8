"""Whatever an output holds, reading it returns, in bounded time, with a report within its bounds."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from interlock.tools.reports.report import (
    MAX_CHARS,
    MAX_FAILING,
    MAX_LINE_CHARS,
    MAX_MESSAGE_CHARS,
    MAX_NAME_CHARS,
    parse_output,
)
from interlock.tools.reports.report_reader import read_report
from tests.each import each
from tests.patience import cpu_seconds_below

from .recorded import CASES, Case

programs = st.sampled_from([*dict.fromkeys(case.program for case in CASES), "npm", "unknown"])
exit_codes = st.none() | st.integers(-64, 255)
lines = st.sampled_from(sorted({line for case in CASES for line in case.text.split("\n")}))
noise = st.text(max_size=30) | st.sampled_from(["\x1b[31m", "\x1b]8;;", "\r", "\x00", "\ud800", "9" * 30, "\u2028"])


def check(program: str, text: str, exit_code: int | None) -> None:
    report = read_report(program, text, exit_code)

    if report is None:
        return
    place = report.first_failure
    texts = (report.summary, *report.failing, *((place.file, place.message) if place else ()))
    assert not report.ok or exit_code == 0
    assert len(report.failing) <= MAX_FAILING
    assert report.more_failing >= 0
    assert all(len(text) <= max(MAX_NAME_CHARS, MAX_MESSAGE_CHARS) for text in texts)
    assert all(text.isprintable() or "\t" in text or not text.isascii() for text in texts)
    assert not any(sign in text for text in texts for sign in "\n\r\x1b\x00")
    assert msgspec.json.encode(report)


@given(program=programs, text=st.text(st.characters(codec=None)), exit_code=exit_codes)
def test_any_text_is_read_without_an_error(program: str, text: str, exit_code: int | None) -> None:
    check(program, text, exit_code)


@given(program=programs, parts=st.lists(lines | noise, max_size=40), joint=st.sampled_from(["\n", "\r\n", "", " "]))
def test_any_mixture_of_real_lines_and_noise_is_read_without_an_error(
    program: str, parts: list[str], joint: str
) -> None:
    for exit_code in (0, 1, None):
        check(program, joint.join(parts), exit_code)


@given(recorded=st.sampled_from(CASES), at=st.floats(0, 1), until=st.floats(0, 1), extra=noise)
def test_a_real_output_with_a_piece_replaced_is_read_without_an_error(
    recorded: Case, at: float, until: float, extra: str
) -> None:
    text = recorded.text
    start, end = sorted((int(at * len(text)), int(until * len(text))))

    for program in (recorded.program, "make"):
        check(program, text[:start] + extra + text[end:], recorded.exit_code)


@each(
    "piece",
    [
        *("\r", "\n", "\x1b[1;", "\x1b]", "= ", "_ a ", "(1,", "a:1:", "FAILED x[a - ", "1 passed, ", "x: error: "),
        *("running 1 test\n", "=== FAILURES ===\n", "  ● x\n", "--- FAIL: T/a/a (0.00s)\n", " at (a (a:1:1"),
        "Ran 1 test in 1s\n\nOK (" + "a" * 900 + ")\n",
    ],
)
def test_a_megabyte_of_one_piece_is_read_in_bounded_time(piece: str) -> None:
    with cpu_seconds_below(10):
        check("make", piece * (MAX_CHARS // len(piece)), 1)


def test_output_beyond_the_bounds_keeps_both_ends_and_is_no_longer_whole() -> None:
    output = parse_output("first\n" + "x" * (3 * MAX_CHARS) + "\nlast", whole=True)

    assert (output.lines[0], output.lines[-1], output.is_complete) == ("first", "last", False)
    assert max(map(len, output.lines)) == MAX_LINE_CHARS


def test_output_with_too_many_lines_keeps_both_ends_and_is_no_longer_whole() -> None:
    output = parse_output("first\n" + "x\n" * 100_000 + "last", whole=True)

    assert (output.lines[0], output.lines[-1], output.is_complete) == ("first", "last", False)
    assert len(output.lines) == 20_000
