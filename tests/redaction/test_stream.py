"""Bytes that come bit by bit are redacted as if they had come at once, and lines come out as soon as they can."""

import base64
import random
import textwrap
from collections.abc import Iterable
from itertools import pairwise
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.redaction.patterns import SECRET_PATTERNS
from interlock.redaction.redactor import SecretRedactor
from interlock.redaction.stream import MAX_HELD_CHARS
from tests.each import each

SECRET = "hunter2-and-more"
LINES = "first line of it\nsecond\n\nlast line"
REDACTOR = SecretRedactor({"NAME": SECRET, "LINES": LINES})
WORDS = sorted({word for form in SECRET_PATTERNS for word in form.words})
TOKEN = "ghp_" + "a1" * 18
KEY = f"-----BEGIN PRIVATE KEY-----\n{textwrap.fill('aGVsbG8gd29ybGQ' * 20, 64)}\n-----END PRIVATE KEY-----"
WRAPPED = textwrap.fill(base64.b64encode(b"x" * 40 + SECRET.encode() + b"y" * 50).decode(), 64)
AWS = "AKIAIOSFODNN7EXAMPLE"
AWS_SECRET = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"

pieces = st.one_of(
    st.text(max_size=6),
    st.sampled_from(WORDS),
    st.sampled_from(["\n"] * 6 + [" ", ":", "=", ",", '"', "'", "\\", "\\\n", "bearer", "cookie", "token", "api_key"]),
    st.sampled_from([SECRET, *LINES.splitlines(keepends=True), LINES, TOKEN, KEY, WRAPPED, AWS, AWS_SECRET]),
    st.sampled_from(
        ["password=", '"api_key": "q8Zr41', "name=value12", "\u200b", "\x1b[0m", "\u00e9", "\udcff", "a" * 70]
    ),
)
texts = st.lists(pieces, max_size=25).map("".join)


def streamed(redactor: SecretRedactor, chunks: Iterable[bytes]) -> bytes:
    stream = redactor.stream()
    return b"".join([*map(stream.feed, chunks), stream.end()])


def chunks_of(content: bytes, cuts: Iterable[int]) -> list[bytes]:
    places = sorted({0, len(content), *(cut % (len(content) + 1) for cut in cuts)})
    return [content[start:end] for start, end in pairwise(places)]


def redacted(content: bytes) -> bytes:
    text = content.decode(errors="surrogateescape")
    return REDACTOR.redact(text).encode(errors="surrogateescape")


@given(texts, st.lists(st.integers(0, 2_000), max_size=12))
def test_any_chunks_of_any_text_come_out_as_the_redacted_whole(text: str, cuts: list[int]) -> None:
    content = text.encode(errors="surrogateescape")

    assert streamed(REDACTOR, chunks_of(content, cuts)) == redacted(content)


@given(texts)
def test_lines_fed_one_by_one_come_out_as_the_redacted_whole(text: str) -> None:
    content = text.encode(errors="surrogateescape")

    assert streamed(REDACTOR, content.splitlines(keepends=True)) == redacted(content)


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=6))
def test_bytes_that_are_no_text_pass_unchanged(content: bytes, cuts: list[int]) -> None:
    assert streamed(SecretRedactor(), chunks_of(content, cuts)) == content


@each("size", [1, 7, 1_000])
@each("secret", [SECRET, SECRET.encode().hex(), base64.b64encode(SECRET.encode()).decode(), LINES])
def test_a_declared_secret_never_comes_out_in_parts(secret: str, size: int) -> None:
    content = f"before {secret} after\n{secret}\n".encode()

    released = streamed(REDACTOR, [content[at : at + size] for at in range(0, len(content), size)])

    assert released.decode().count("[redacted:") == 2
    assert secret.encode() not in released


def log_line(rng: random.Random) -> str:
    words = (
        "GET /items 200",
        "worker started",
        "cache miss",
        "caf\u00e9 \u2713",
        "12 passed",
        "<module> done",
        "see a/b/c.py",
    )
    return f"2026-01-02 12:00:{rng.randrange(60):02} INFO " + " ".join(rng.choices(words, k=5))


def long_secrets(rng: random.Random) -> list[str]:
    """Secrets of every length up to 8 KiB that a form knows, and a key of 64 KiB."""
    letters = "".join(rng.choices("abcdefgh12345678", k=8_000))
    body = textwrap.fill("".join(rng.choices("abcdefgh12345678", k=60_000)), 64)
    return [
        f"cookie: name={letters}",
        f"Authorization: Bearer {letters[:4_000]}",
        f"eyJhbGciOiJIUzI1NiJ9.{letters}.{letters[:80]}",
        base64.b64encode(f"{TOKEN} {letters[:5_000]}".encode()).decode(),
        f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----",
        f"{AWS} {AWS_SECRET}",
        f"password={letters[:500]}",
    ]


@each("end_of_line", ["\n", " ", " \\\n"])
@each("size", [999, 65_536, 1_000_000])
def test_long_secrets_in_long_texts_are_redacted_as_in_the_whole(size: int, end_of_line: str) -> None:
    rng = random.Random(size)
    parts = [part for secret in long_secrets(rng) for part in (*(log_line(rng) for _ in range(900)), secret)]
    content = end_of_line.join(parts).encode()

    released = streamed(REDACTOR, [content[at : at + size] for at in range(0, len(content), size)])

    assert released == redacted(content)
    assert released.count(b"[redacted:") >= 8


@pytest.mark.parametrize(
    ("start", "end_of_line"),
    [
        (base64.b64encode(TOKEN.encode()).decode().rstrip("="), ""),
        (TOKEN.encode().hex(), ""),
        ("eyJhbGciOiJIUzI1NiJ9.abcdefgh.", ""),
        ("-----BEGIN PRIVATE KEY-----\\n", ""),
        ("-----BEGIN PRIVATE KEY-----\n", "\n"),
    ],
)
def test_a_secret_without_end_becomes_one_mark(start: str, end_of_line: str) -> None:
    stream = REDACTOR.stream()
    line = ("ab12" * 16 + end_of_line).encode()

    released = [stream.feed(f"a\nthe key is {start}".encode()), *(stream.feed(line * 100) for _ in range(60))]
    released += [stream.feed(b'"\nb\n'), stream.feed(b"c\n"), stream.end()]

    assert b"".join(released).count(b"[redacted:") == 1
    assert b"".join(released).startswith(b"a\nthe key is [redacted:")
    assert b"".join(released).endswith(b']"\nb\nc\n')


def test_base64_in_wrapped_lines_without_end_is_redacted_where_a_secret_is() -> None:
    rng = random.Random(1)
    content = rng.randbytes(150_000) + TOKEN.encode() + b" " + SECRET.encode() + rng.randbytes(50_000)
    encoded = base64.encodebytes(content)

    released = streamed(REDACTOR, [encoded[at : at + 4_096] for at in range(0, len(encoded), 4_096)])

    assert released == redacted(encoded)
    assert b"[redacted:" in released


def test_secrets_that_overlap_without_end_do_not_come_out() -> None:
    filler = "b1" * 4_000
    content = f"cookie:a={filler}authorization:{filler[:280]}".encode() * 40

    released = streamed(REDACTOR, [content[at : at + 5_000] for at in range(0, len(content), 5_000)])

    assert redacted(content) == b"cookie:[redacted:authorization]"
    assert b"b1b1" not in released


def test_a_declared_secret_of_any_length_is_redacted() -> None:
    secret = "".join(random.Random(5).choices("abcdefgh \n", k=50_000))
    redactor = SecretRedactor({"LONG": secret})
    content = f"before\n{secret}\nafter {secret}!".encode()

    for size in (5_000, 200_000):
        chunks = [content[at : at + size] for at in range(0, len(content), size)]
        assert streamed(redactor, chunks) == b"before\n[redacted:LONG]\nafter [redacted:LONG]!"


@each(
    "line",
    [
        "collected 12 items",
        "Listening on http://localhost:8000",
        "Tokens used: 1024",
        "usage: tool --help",
        "  File /usr/lib/python3/dist-packages/package/module.py",
        "\x1b[32mgreen\x1b[0m \u2713 caf\u00e9",
        "not UTF-8: \udcff\udcfe",
        "0123456789abcdef" * 3 + ".",
        f"password={TOKEN}",
        "with carriage return\r",
        "",
    ],
)
def test_a_whole_line_comes_out_with_the_chunk_that_ends_it(line: str) -> None:
    stream = SecretRedactor({"NAME": SECRET}).stream()
    stream.feed(b"started\n")
    content = f"{line}\n".encode(errors="surrogateescape")

    assert stream.feed(content[:-1]) == b""
    assert stream.feed(content[-1:]) == redacted(content)


@each(
    "line",
    [
        "a",
        "a\n",
        "a \\\n",
        "bearer\n",
        "cookie\n",
        "\0",
        "\0\n",
        f"{AWS}\n",
        "ab12" * 16 + "\n",
        "hunter2-and-",
    ],
)
def test_what_is_held_back_is_bounded(line: str) -> None:
    stream = REDACTOR.stream()
    chunk = (line * (10_000 // len(line))).encode()
    fed = released = 0

    for _ in range(30):
        fed += len(chunk)
        released += len(stream.feed(chunk))
        assert fed - released <= 3 * MAX_HELD_CHARS
    assert fed == released + len(stream.end()) or "[redacted" in REDACTOR.redact(line)


def test_a_stream_that_ended_can_begin_again() -> None:
    stream = REDACTOR.stream()

    assert stream.feed(b"a\nb") + stream.end() == b"a\nb"
    assert stream.end() == b""
    assert stream.feed(b"c\xc3") + stream.end() == b"c\xc3"


def test_a_line_that_comes_byte_by_byte_takes_bounded_time() -> None:
    stream = REDACTOR.stream()
    started = process_time()

    for _ in range(200_000):
        stream.feed(b"a")

    assert process_time() - started < 5


def test_plain_text_is_passed_quickly() -> None:
    rng = random.Random(3)
    content = "".join(log_line(rng).replace("caf\u00e9 \u2713", "ok") + "\n" for _ in range(50_000)).encode()
    stream = REDACTOR.stream()
    started = process_time()

    for at in range(0, len(content), 65_536):
        stream.feed(content[at : at + 65_536])

    assert process_time() - started < 2
