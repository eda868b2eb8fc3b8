"""A spool keeps all that a command prints, both streams and their order, without the secrets and without memory."""

import json
import os
from collections.abc import Iterator
from hashlib import sha256
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.redaction.redactor import SecretRedactor
from interlock.storage.memory_artifacts import MemoryArtifacts
from interlock.tools.shell.output_excerpt import OutputSpool, OutputStream

SECRET = "hunter2-and-more"
redactor = SecretRedactor({"NAME": SECRET})


class Unfiltered:
    def feed(self, chunk: bytes) -> bytes:
        return chunk

    def end(self) -> bytes:
        return b""


@pytest.fixture
def spool() -> Iterator[OutputSpool]:
    with OutputSpool(redactor.stream) as spool:
        yield spool


taken = st.lists(st.tuples(st.sampled_from(["stdout", "stderr"]), st.binary(max_size=12)), max_size=40)


@given(taken, st.integers(0, 200), st.integers(0, 200))
def test_each_stream_and_their_order_can_be_read_exactly(
    chunks: list[tuple[OutputStream, bytes]], start: int, size: int
) -> None:
    whole = {name: b"".join(chunk for stream, chunk in chunks if stream == name) for name in ("stdout", "stderr")}
    everything = b"".join(chunk for _, chunk in chunks)

    with OutputSpool(Unfiltered) as spool:
        for stream, chunk in chunks:
            spool.write(stream, chunk)
        spool.finish()

        assert spool.total_bytes == len(everything)
        assert spool.read_all(0, spool.total_bytes) == everything
        for stream in ("stdout", "stderr"):
            assert spool.bytes_in(stream) == len(whole[stream])
            assert spool.read(stream, start, size) == whole[stream][start : start + size]
            assert spool.read(stream, 0, spool.bytes_in(stream)) == whole[stream]
        assert spool.read_all(start, size) == everything[start : start + size]
        assert spool.tail(size) == everything[max(0, len(everything) - size) :]


@given(taken)
def test_the_index_says_which_bytes_are_of_which_stream(chunks: list[tuple[OutputStream, bytes]]) -> None:
    with OutputSpool(Unfiltered) as spool:
        for stream, chunk in chunks:
            spool.write(stream, chunk)
        index = json.loads(b"".join(spool.index_chunks()))
        everything = spool.read_all(0, spool.total_bytes)

        ends = [0]
        for length in index["lengths"]:
            ends.append(ends[-1] + length)
        for number, stream in enumerate(("stdout", "stderr")):
            assert index["streams"][number] == stream
            pieces = [everything[start:end] for start, end in list(pairwise(ends))[number::2]]
            assert b"".join(pieces) == spool.read(stream, 0, spool.total_bytes)
            places = (spool.find_position(stream, at) for at in range(spool.bytes_in(stream)))
            assert bytes(everything[place] for place in places) == b"".join(pieces)


def test_more_segments_than_fit_in_memory_are_as_exact(tmp_path: Path) -> None:
    digests = {"stdout": sha256(), "stderr": sha256()}
    with OutputSpool(Unfiltered, tmp_path) as spool:
        for number in range(50_000):
            stream: OutputStream = "stderr" if number % 3 == 1 else "stdout"
            chunk = b"%d " % number
            spool.write(stream, chunk)
            digests[stream].update(chunk)

        for stream in ("stdout", "stderr"):
            content = spool.read(stream, 0, spool.bytes_in(stream))
            assert sha256(content).digest() == digests[stream].digest()
            for start in range(0, len(content), 9_973):
                assert spool.read(stream, start, 300) == content[start : start + 300]
        assert sum(json.loads(b"".join(spool.index_chunks()))["lengths"]) == spool.total_bytes
        assert len(json.loads(b"".join(spool.index_chunks()))["lengths"]) > 30_000
    assert list(tmp_path.iterdir()) == []


def test_what_is_kept_of_it_is_all_of_it(spool: OutputSpool) -> None:
    artifacts = MemoryArtifacts()
    spool.write("stdout", b"one\n" * 100_000)
    spool.write("stderr", b"two\n")
    spool.finish()

    everything = artifacts.keep_stream([spool.read_all(0, spool.total_bytes)])
    assert artifacts.read(everything) == b"one\n" * 100_000 + b"two\n"
    assert json.loads(artifacts.read(artifacts.keep_stream(spool.index_chunks()))) == {
        "streams": ["stdout", "stderr"],
        "lengths": [400_000, 4],
    }


def test_no_secret_gets_in_even_in_parts_and_between_the_other_stream(spool: OutputSpool) -> None:
    for at in range(0, len(SECRET), 5):
        spool.write("stdout", SECRET[at : at + 5].encode())
        spool.write("stderr", b"meanwhile\n")
    spool.finish()

    assert spool.read("stdout", 0, 100) == b"[redacted:NAME]"
    assert spool.read("stderr", 0, 100) == b"meanwhile\n" * 4
    assert b"hunter" not in spool.read_all(0, 1_000)


def test_whole_lines_of_both_streams_keep_their_order_at_once(spool: OutputSpool) -> None:
    spool.write("stdout", b"first\nsec")
    spool.write("stderr", b"error\n")
    spool.write("stdout", b"ond\n")

    assert spool.read_all(0, 100) == b"first\nerror\nsecond\n"


def test_the_end_comes_once(spool: OutputSpool) -> None:
    spool.write("stdout", b"no line break")
    assert spool.total_bytes == 0

    spool.finish()
    spool.finish()

    assert spool.read_all(0, 100) == b"no line break"


@pytest.mark.parametrize(
    ("printed", "lines"),
    [
        (b"", []),
        (b"one\n\ntwo\n\n  \n", ["one", "two"]),
        (b"1\n2\n3\n4\n", ["2", "3", "4"]),
        (b"  if x:\n\treturn\n", ["  if x:", "        return"]),
        (b"\x1b[32mgreen\x1b[0m\x1b[K done\n", ["green done"]),
        (b"\x1b]0;title\x07text\n", [r"\u{1b}]0;title\u{7}text"]),
        (b"10%\r50%\r100%\r\n", ["10%", "50%", "100%"]),
        (b"bell\x07 null\x00 back\x08\n", [r"bell\u{7} null\u{0} back\u{8}"]),
        (b"not UTF-8 \xff\xfe\n", ["not UTF-8 \ufffd\ufffd"]),
        ("right to left \u202e\u200b\n".encode(), [r"right to left \u{202e}\u{200b}"]),
        (b"a\x1b[2J\n", [r"a\u{1b}[2J"]),
        (b"x" * 10_000 + b"\n", ["x" * 200]),
        (b"x" * 5_000 + b"\nend\n", ["end"]),
    ],
)
def test_last_lines_are_safe_for_any_terminal(spool: OutputSpool, printed: bytes, lines: list[str]) -> None:
    spool.write("stdout", printed)
    spool.finish()

    assert spool.last_lines(3) == lines


@given(st.binary(max_size=60))
def test_last_lines_are_short_and_printable_for_any_bytes(printed: bytes) -> None:
    with OutputSpool(Unfiltered) as spool:
        spool.write("stderr", printed)
        lines = spool.last_lines(3)

    assert len(lines) <= 3
    assert all(line.isprintable() and len(line) <= 200 for line in lines)


def test_a_spool_leaves_no_file_and_no_descriptor(tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))
    with OutputSpool(redactor.stream, tmp_path) as spool:
        spool.write("stdout", b"text\n")
        assert list(tmp_path.iterdir()) == []

    assert len(os.listdir("/proc/self/fd")) == before
