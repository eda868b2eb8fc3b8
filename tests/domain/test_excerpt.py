"""What is kept of an output that is too long, and how what is missing is accounted for."""

import re
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.rendering.excerpt import MIN_EXCERPT_CHARS, Excerpt, TextSpan, apply_tool_output_limits, excerpt_bytes
from tests.each import each

MARKER = re.compile(r"\[\.\.\. ([\d,]+) bytes omitted \(bytes ([\d,]+)-([\d,]+)\) \.\.\.\]")
MEBIBYTE = 2**20

#: Lines as programs print them, and lines that nobody prints.
line = st.one_of(
    st.text(max_size=30),
    st.sampled_from(
        [
            "tests/test_sum.py::test_sum FAILED",
            "E   AssertionError: assert 5 == 4",
            "Traceback (most recent call last):",
            '  File "a.py", line 3, in f',
            "ValueError: \u00e9\u6f22\U0001f600",
            "0 errors, no failures",
            "Caused by: java.io.IOException",
            "[... 12 bytes omitted (bytes 0-12) ...]",
            "\u6f22" * 40,
            "x" * 300,
            "\ud800",
        ]
    ),
)
output = st.lists(line, max_size=60).map("\n".join)


def size(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def rebuilt(text: str, excerpt: Excerpt) -> str:
    """The excerpt, made again from nothing but the output and the ranges."""
    content = text.encode("utf-8", "surrogatepass")
    built = ""
    at = 0
    for start, end in (*excerpt.ranges, (len(content), len(content))):
        if start > at:
            built += "\n" if built and not built.endswith("\n") else ""
            built += f"[... {start - at:,} bytes omitted (bytes {at:,}-{start:,}) ...]\n"
        built += content[start:end].decode("utf-8", "surrogatepass")
        at = end
    return built if excerpt.ranges and excerpt.ranges[-1][1] == len(content) else built.removesuffix("\n")


@pytest.mark.requirement("R059")
@given(output, st.integers(MIN_EXCERPT_CHARS, 1_500))
def test_an_excerpt_is_within_the_limit_markers_included(text: str, limit: int) -> None:
    assert len(apply_tool_output_limits(text, limit).text) <= limit


@given(output, st.integers(0, 1_500))
def test_an_excerpt_is_exact_slices_and_every_missing_byte_is_counted(text: str, limit: int) -> None:
    excerpt = apply_tool_output_limits(text, limit)

    assert excerpt.produced == size(text)
    assert excerpt.shown == sum(end - start for start, end in excerpt.ranges)
    assert excerpt.omitted == excerpt.produced - excerpt.shown
    assert excerpt.truncated == (excerpt.omitted > 0) == (excerpt.text != text)
    assert excerpt.text == rebuilt(text, excerpt)


@pytest.mark.requirement("R244")
@given(output, st.integers(0, 1_500))
def test_a_cut_is_never_silent(text: str, limit: int) -> None:
    excerpt = apply_tool_output_limits(text, limit)

    if excerpt.truncated:
        assert MARKER.search(excerpt.text)
    else:
        assert excerpt.text == text


@given(output, st.integers(0, 1_500))
def test_what_to_look_for_stands_in_the_output(text: str, limit: int) -> None:
    around = apply_tool_output_limits(text, limit).around

    assert around in text
    assert len(around) <= 60
    assert around.isprintable()


def test_a_short_output_is_shown_whole() -> None:
    assert apply_tool_output_limits("Error: caf\u00e9", 10_000) == Excerpt(
        text="Error: caf\u00e9", produced=12, shown=12, omitted=0, around="", ranges=((0, 12),)
    )


def test_under_the_least_limit_there_is_a_marker_and_a_little_of_the_end() -> None:
    assert apply_tool_output_limits("x" * 1_000 + "the end", 70).text == (
        "[... 988 bytes omitted (bytes 0-988) ...]\nxxxxxxxxxxxxthe end"
    )
    assert apply_tool_output_limits("x" * 1_000, 5).text == "[... 1,000 bytes omitted (bytes 0-1,000) ...]"


PYTEST = "\n".join(
    [
        "collected 501 items",
        *(f"tests/a.py::test_{number} PASSED" for number in range(500)),
        "tests/test_sum.py::test_sum FAILED",
        ">   assert sum(2, 2) == 4",
        "E   AssertionError: assert 5 == 4",
        *(f"captured log {number}" for number in range(500)),
        "Traceback (most recent call last):",
        '  File "conftest.py", line 3, in close',
        "    pool.close()",
        "ConnectionError: pool is gone",
        *(f"teardown {number}" for number in range(500)),
        "1 failed, 500 passed in 3.21s",
    ]
)


@pytest.mark.requirement("R245")
@pytest.mark.parametrize("limit", [600, 1_500, 6_000])
def test_head_first_failure_end_of_the_last_traceback_and_tail_are_kept(limit: int) -> None:
    excerpt = apply_tool_output_limits(PYTEST, limit)

    assert excerpt.text.startswith("collected 501 items\n")
    assert "\ntests/test_sum.py::test_sum FAILED\n" in excerpt.text
    assert "\nE   AssertionError: assert 5 == 4\n" in excerpt.text
    assert "\nConnectionError: pool is gone\n" in excerpt.text
    assert excerpt.text.endswith("\n1 failed, 500 passed in 3.21s")
    assert excerpt.around == "tests/test_sum.py::test_sum FAILED"
    assert len(MARKER.findall(excerpt.text)) == 3


@pytest.mark.requirement("R245")
def test_with_little_room_the_failure_and_the_tail_are_kept() -> None:
    excerpt = apply_tool_output_limits(PYTEST, 250)

    assert "tests/test_sum.py::test_sum FAILED" in excerpt.text
    assert excerpt.text.endswith("\n1 failed, 500 passed in 3.21s")


def test_without_a_failure_head_and_tail_are_kept() -> None:
    excerpt = apply_tool_output_limits("\n".join(f"line {number}" for number in range(1_000)), 400)

    assert excerpt.text.startswith("line 0\n")
    assert excerpt.text.endswith("\nline 999")
    assert excerpt.around == ""
    assert len(excerpt.ranges) == 2


@each(
    ("failing", "around"),
    [
        ("src/a.ts(3,5): error TS2322: no", "src/a.ts(3,5): error TS2322: no"),
        ("error[E0308]: mismatched types", "error[E0308]: mismatched types"),
        ("npm ERR! code ELIFECYCLE", "npm ERR! code ELIFECYCLE"),
        ("--- FAIL: TestSum (0.00s)", "--- FAIL: TestSum (0.00s)"),
        ("panic: runtime error: index out of range", "panic: runtime error: index out of range"),
        ("  Expected: 4, received: 5", "Expected: 4, received: 5"),
        ("make: *** [all] 1 test failed", "make: *** [all] 1 test failed"),
        ("\x1b[31mFAIL\x1b[0m tests/sum.test.ts", "[31mFAIL"),
        ("x" * 400 + " Error: deep in a long line", "Error: deep in a long line"),
    ],
)
def test_the_first_failing_line_is_found(failing: str, around: str) -> None:
    noise = "all good here\n" * 200
    excerpt = apply_tool_output_limits(f"{noise}{failing}\n{noise}", 1_000)

    assert excerpt.around == around
    assert around in excerpt.text


@pytest.mark.parametrize(
    "harmless", ["0 errors", "no errors found", "Failures: 0, Errors: 0", "ran without error", "0 failed, 3 passed"]
)
def test_a_line_that_counts_no_failure_is_not_one(harmless: str) -> None:
    noise = "all good here\n" * 200

    assert apply_tool_output_limits(f"{noise}{harmless}\n{noise}", 1_000).around == ""
    assert apply_tool_output_limits(f"{harmless}\n{noise}\n10 errors\n{noise}", 1_000).around == "10 errors"


@pytest.mark.parametrize(
    "hostile",
    [
        "x" * 10 * MEBIBYTE,
        "Error: no\n" * MEBIBYTE,
        "0 errors\n" * MEBIBYTE,
        "\n" * 10 * MEBIBYTE,
        "\u00e9" * 5 * MEBIBYTE,
        "Traceback (most recent call last)\n" + "  x\n" * 2 * MEBIBYTE,
        "Caused by:" * MEBIBYTE,
    ],
    ids=["one line", "errors", "no errors", "empty lines", "two bytes", "endless traceback", "causes"],
)
def test_ten_mebibytes_are_cut_in_bounded_time(hostile: str) -> None:
    started = process_time()
    excerpt = apply_tool_output_limits(hostile, 30_000)

    assert process_time() - started < 5
    assert len(excerpt.text) <= 30_000
    assert excerpt.shown > 25_000


@given(output.map(lambda text: text.encode(errors="replace")), st.integers(MIN_EXCERPT_CHARS, 1_500))
def test_bytes_that_are_text_are_cut_as_the_text_is(content: bytes, limit: int) -> None:
    assert excerpt_bytes(content, limit) == apply_tool_output_limits(content.decode(), limit)


@given(st.lists(st.binary(max_size=60), max_size=60).map(b"\n".join), st.integers(MIN_EXCERPT_CHARS, 1_500))
def test_bytes_that_are_no_text_are_counted_as_they_are(content: bytes, limit: int) -> None:
    excerpt = excerpt_bytes(content, limit)

    assert len(excerpt.text) <= limit
    assert excerpt.produced == len(content) == excerpt.shown + excerpt.omitted
    for start, end in excerpt.ranges:
        shown = re.sub("[\ud800-\udfff]", "\ufffd", content[start:end].decode(errors="surrogateescape"))
        assert shown in excerpt.text


def test_markers_name_places_in_the_artifact_that_holds_the_output() -> None:
    content = b"a" * 10_000

    def twice(start: int, end: int) -> TextSpan:
        return TextSpan(2 * start, 2 * end)

    excerpt = excerpt_bytes(content, 1_000, places=twice, artifact_bytes=20_000)

    (start, _), (_, end) = excerpt.ranges[0], excerpt.ranges[-1]
    (size, first, last) = MARKER.findall(excerpt.text)[0]
    assert (start, end) == (0, 10_000)
    assert int(last.replace(",", "")) - int(first.replace(",", "")) == 2 * int(size.replace(",", ""))
