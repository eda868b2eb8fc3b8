"""What is shown of an output: what a reader needs of both streams, exactly counted, whatever its size."""

import re
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from functools import partial

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from interlock.rendering.binary import describe_binary, is_binary
from interlock.rendering.excerpt import Excerpt, TextSpan, build_excerpt, excerpt_bytes
from interlock.tools.shell.output_excerpt import LongOutput, OutputExcerpt, make_excerpt
from interlock.tools.shell.spool import OutputSpool, OutputStream
from tests.each import each
from tests.tools.test_spool import Unfiltered

MARKER = re.compile(r"\[\.\.\. ([\d,]+) bytes omitted \(bytes ([\d,]+)-([\d,]+)\) \.\.\.\]")
MEBIBYTE = 2**20

line = st.one_of(
    st.binary(max_size=30),
    st.text(max_size=20).map(str.encode),
    st.sampled_from(
        [
            b"tests/test_sum.py::test_sum FAILED",
            b"Traceback (most recent call last):",
            b'  File "a.py", line 3, in f',
            b"ValueError: \xc3\xa9\xf0\x9f\x98\x80 \xff",
            b"0 errors, no failures",
            b"Caused by: java.io.IOException",
            b"[... 12 bytes omitted (bytes 0-12) ...]",
            b"\xe6\xbc\xa2" * 40,
            b"x" * 300,
            b"\x1b[31mred\x1b[0m",
        ]
    ),
)
chunks = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), line.map(lambda text: text + b"\n")), max_size=50)


@contextmanager
def spool_of(*taken: tuple[OutputStream, bytes]) -> Generator[OutputSpool]:
    with OutputSpool(Unfiltered) as spool:
        for stream, chunk in taken:
            spool.write(stream, chunk)
        spool.finish()
        yield spool


def as_shown(content: bytes) -> str:
    return re.sub("[\ud800-\udfff]", "\ufffd", content.decode(errors="surrogateescape"))


def rebuilt(spool: OutputSpool, stream: OutputStream, part: Excerpt) -> str:
    """The excerpt, made again from nothing but the stream, its places in the output, and the ranges."""
    built = ""
    at, size = 0, spool.bytes_in(stream)
    if is_binary(content := spool.read(stream, 0, size)):
        return describe_binary(content)
    for start, end in (*part.ranges, (size, size)):
        if start > at:
            built += "\n" if built and not built.endswith("\n") else ""
            places = f"{spool.find_position(stream, at):,}-{spool.find_position(stream, start - 1) + 1:,}"
            built += f"[... {start - at:,} bytes omitted (bytes {places}) ...]\n"
        built += as_shown(spool.read(stream, start, end - start))
        at = end
    return built if part.ranges and part.ranges[-1][1] == size else built.removesuffix("\n")


def is_accounted_for(part: Excerpt) -> bool:
    return part.produced == part.shown + part.omitted and part.shown == sum(end - start for start, end in part.ranges)


@pytest.mark.requirement("P10", "R244")
@given(chunks, st.integers(500, 1_500))
def test_every_byte_of_both_streams_is_shown_or_counted(taken: list[tuple[OutputStream, bytes]], limit: int) -> None:
    with spool_of(*taken) as spool:
        shown = make_excerpt(spool, limit)

        assert len(shown.text) <= limit
        assert shown.produced == spool.total_bytes == shown.shown + shown.omitted
        if shown.sections:
            texts = [rebuilt(spool, stream, part) for stream, part in shown.sections]
            between = "" if texts[0].endswith("\n") else "\n"
            assert shown.text == f"[stdout]\n{texts[0]}{between}[stderr]\n{texts[1]}"
            assert all(is_accounted_for(part) for _, part in shown.sections)
        else:
            stream: OutputStream = "stderr" if spool.bytes_in("stderr") else "stdout"
            assert shown.text == rebuilt(spool, stream, shown)
            assert is_accounted_for(shown)


@given(chunks, st.integers(0, 400))
def test_with_little_room_the_streams_are_shown_as_they_came(
    taken: list[tuple[OutputStream, bytes]], limit: int
) -> None:
    with spool_of(*taken) as spool:
        shown = make_excerpt(spool, limit)

        assume(not is_binary(content := spool.read_all(0, spool.total_bytes)))
        assert not shown.sections
        assert Excerpt(
            text=shown.text,
            produced=shown.produced,
            shown=shown.shown,
            omitted=shown.omitted,
            around=shown.around,
            ranges=shown.ranges,
        ) == excerpt_bytes(content, limit)


@given(st.lists(line, min_size=10, max_size=60).map(b"\n".join), st.integers(0, 1_500))
def test_a_long_output_seen_through_windows_is_cut_as_the_whole_is(content: bytes, limit: int) -> None:
    content = content.decode(errors="replace").encode("ascii", "replace") + b"." * 1_500
    with spool_of(("stdout", content)) as spool:
        source = LongOutput(partial(spool.read, "stdout"), len(content), TextSpan, len(content))

        assert build_excerpt(source, limit) == excerpt_bytes(content, limit)


@given(st.lists(line, min_size=10, max_size=60).map(b"\n".join), st.integers(200, 1_500))
def test_windows_that_cut_characters_lose_none(content: bytes, limit: int) -> None:
    content += b"\n" + b"\xe6\xbc\xa2" * 1_500
    with spool_of(("stdout", content)) as spool:
        shown = build_excerpt(LongOutput(spool.read_all, len(content), TextSpan, len(content)), limit)

        assert len(shown.text) <= limit
        assert shown.text == rebuilt(spool, "stdout", shown)
        assert is_accounted_for(shown)


def test_one_stream_stands_alone() -> None:
    with spool_of(("stderr", b"only \xff this\n")) as spool:
        assert make_excerpt(spool, 1_000) == OutputExcerpt(
            text="only \ufffd this\n", produced=12, shown=12, omitted=0, around="", ranges=((0, 12),)
        )


def test_nothing_is_shown_of_nothing() -> None:
    with spool_of() as spool:
        assert make_excerpt(spool, 1_000).text == ""


def test_both_streams_stand_under_their_names() -> None:
    with spool_of(("stderr", b"warning: a\n"), ("stdout", b"built"), ("stderr", b"warning: b\n")) as spool:
        shown = make_excerpt(spool, 1_000)

        assert shown.text == "[stdout]\nbuilt\n[stderr]\nwarning: a\nwarning: b\n"
        assert (shown.produced, shown.omitted) == (27, 0)


@pytest.mark.parametrize(("stdout", "stderr"), [(100, 90_000), (90_000, 100), (90_000, 90_000)])
def test_what_one_stream_does_not_need_the_other_has(stdout: int, stderr: int) -> None:
    with spool_of(("stdout", b"o" * stdout), ("stderr", b"e" * stderr)) as spool:
        shown = make_excerpt(spool, 4_000)

        assert 3_900 < len(shown.text) <= 4_000
        assert abs(shown.text.count("o") - shown.text.count("e")) < 200 or min(stdout, stderr) == 100


def failing_output(size: int) -> bytes:
    """A build log with a failure at two thirds of it."""
    lines = b"".join(b"compiling module %06d of the project\n" % number for number in range(size // 40))
    failure = b"src/sum.c:12: error: expected expression\n"
    at = lines.index(b"\n", len(lines) * 2 // 3) + 1
    return lines[:at] + failure + lines[at:]


@pytest.mark.requirement("P10", "R245")
def test_the_first_failing_line_of_a_long_output_is_shown_with_its_ends() -> None:
    content = failing_output(3 * MEBIBYTE)
    with spool_of(("stdout", content)) as spool:
        shown = make_excerpt(spool, 2_000)

    assert shown.text.startswith("compiling module 000000")
    assert "src/sum.c:12: error: expected expression\n" in shown.text
    assert shown.text.endswith(content[-100:].decode())
    assert shown.around == "src/sum.c:12: error: expected expression"
    assert len(MARKER.findall(shown.text)) == 2


@each("shift", range(-40, 40, 9))
def test_a_failing_line_where_two_parts_of_the_scan_meet_is_found(shift: int) -> None:
    before = b"12 passed, 0 failed\n" * (5 * 256 * 1024 // 20)
    at = 4 * 256 * 1024 + shift
    content = before[:at] + b"\nthread 'main' panicked at src/main.rs:3\n" + before[at:]
    with spool_of(("stderr", content)) as spool:
        shown = make_excerpt(spool, 2_000)

    assert shown.around == "thread 'main' panicked at src/main.rs:3"


def test_the_end_of_the_last_traceback_of_a_long_output_is_shown() -> None:
    trace = (
        b"Traceback (most recent call last):\n" + b'  File "deep.py", line 1, in f\n' * 20_000 + b"KeyError: 'last'\n"
    )
    content = b"starting\n" * 100_000 + trace + b"retrying\n" * 100_000
    with spool_of(("stderr", content)) as spool:
        shown = make_excerpt(spool, 3_000)

    assert "KeyError: 'last'\n" in shown.text
    assert "Traceback (most recent call last):" in shown.text


def test_the_places_of_a_long_stream_are_those_of_the_interleaving() -> None:
    content = failing_output(2 * MEBIBYTE)
    parts = [content[at : at + 1_000] for at in range(0, len(content), 1_000)]
    taken: list[tuple[OutputStream, bytes]] = []
    for part in parts:
        taken.extend([("stdout", part), ("stderr", part)])
    with spool_of(*taken) as spool:
        shown = make_excerpt(spool, 4_000)

        assert all(is_accounted_for(part) for _, part in shown.sections)
        for stream, part in shown.sections:
            assert part.text == rebuilt(spool, stream, part)
            _, first, last = (int(number.replace(",", "")) for number in MARKER.findall(part.text)[0])
            assert (first, last) == (
                spool.find_position(stream, part.ranges[0][1]),
                spool.find_position(stream, part.ranges[1][0] - 1) + 1,
            )


PROGRAM = """
import sys
from interlock.storage.file_artifacts import FileArtifacts
from interlock.redaction.redactor import SecretRedactor
from interlock.tools.shell.output_excerpt import make_excerpt
from interlock.tools.shell.spool import OutputSpool

def used_kibibytes():
    fields = dict(line.split(":") for line in open("/proc/self/status") if line.startswith("Vm"))
    return int(fields["VmHWM"].split()[0])

folder, size = sys.argv[1], int(sys.argv[2])
redactor = SecretRedactor({"NAME": "hunter2-and-more"})
line = b"2026-01-02 12:00:%02d INFO [worker-%d] request done in %d ms\\n"
chunk = b"".join(line % (n % 60, n % 7, n % 997) for n in range(1000))

def run(size):
    with OutputSpool(redactor.stream, folder) as spool:
        for number in range(size // len(chunk)):
            spool.write("stderr" if number % 10 == 3 else "stdout", chunk)
        spool.write("stdout", b"Error: it failed\\n")
        spool.finish()
        artifacts = FileArtifacts(folder + "/store")
        kept = artifacts.keep_stream(spool.read_all(at, 1 << 18) for at in range(0, spool.total_bytes, 1 << 18))
        artifacts.keep_stream(spool.index_chunks())
        shown = make_excerpt(spool, 30_000)
        assert artifacts.size_bytes(kept) == spool.total_bytes == shown.produced, shown
        assert "Error: it failed" in shown.text

run(len(chunk))
before = used_kibibytes()
run(size)
print(used_kibibytes() - before)
"""


def grown_kibibytes(folder: str, size: int) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, str(size)], capture_output=True, text=True, check=True
    )
    return int(done.stdout)


def test_an_output_of_20_megabytes_takes_less_than_10_of_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert grown_kibibytes(str(tmp_path_factory.mktemp("spool")), 20 * 10**6) < 10_000


@pytest.mark.soak
def test_an_output_of_100_megabytes_takes_less_than_10_of_memory(tmp_path_factory: pytest.TempPathFactory) -> None:
    assert grown_kibibytes(str(tmp_path_factory.mktemp("spool")), 100 * 10**6) < 10_000
