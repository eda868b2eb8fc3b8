"""Bytes of a file as text and back: the same bytes again, and nothing guessed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.tools.files.text_file import (
    BinaryContent,
    TextFile,
    count_encoded_bytes,
    count_lines,
    decode_content,
    detect_file_kind,
    detect_line_endings,
    encode_text,
    has_longer_line,
)
from tests.each import each

pytestmark = pytest.mark.requirement("R229")

TEXT = "héllo\r\nwörld 🎉\n"


@each(
    ("content", "expected"),
    [
        (b"", TextFile("", "utf-8")),
        (TEXT.encode(), TextFile(TEXT, "utf-8")),
        (b"\xef\xbb\xbf" + TEXT.encode(), TextFile(TEXT, "utf-8-bom")),
        (b"\xff\xfe" + TEXT.encode("utf-16-le"), TextFile(TEXT, "utf-16-le")),
        (b"\xfe\xff" + TEXT.encode("utf-16-be"), TextFile(TEXT, "utf-16-be")),
        ("na\u00efve caf\u00e9\n".encode("latin-1"), TextFile("na\udcefve caf\udce9\n", "unknown-8bit")),
        (b"\x1b[31mred\x1b[0m\n", TextFile("\x1b[31mred\x1b[0m\n", "utf-8")),
        (b"a\0b", BinaryContent("")),
        (b"\xff\xfea", BinaryContent("")),
        (b"\xff\xfe\x00\x00a\x00\x00\x00", BinaryContent("")),
        (b"\x89PNG\r\n\x1a\n\x00\x00", BinaryContent("png")),
        (b"%PDF-1.7\n\xe2\xe3\xcf\xd3\n", BinaryContent("pdf")),
        (b"PK\x03\x04\x14\x00", BinaryContent("zip")),
        (b"\x7fELF\x02\x01\x01\x00", BinaryContent("elf")),
        (b"\x1f\x8b\x08\x00\xff", BinaryContent("gzip")),
        (bytes(range(1, 256)), BinaryContent("")),
        (b"\xe9\xff\xfa" * 10, BinaryContent("")),
    ],
)
def test_content_is_text_in_a_known_encoding_or_binary(content: bytes, expected: TextFile | BinaryContent) -> None:
    assert decode_content(content) == expected


def test_cyrillic_in_an_old_encoding_is_text_and_shown_with_escapes() -> None:
    content = "слово и дело\n".encode("cp1251")
    text = decode_content(content)

    assert isinstance(text, TextFile)
    assert text.encoding == "unknown-8bit"
    assert text.display_text.startswith("\\xf1\\xeb")
    assert text.display_text.isascii()


@given(st.binary(max_size=80) | st.text(max_size=40).map(lambda text: text.encode("utf-8", "replace")))
def test_any_text_has_the_same_bytes_again(content: bytes) -> None:
    text = decode_content(content)

    if isinstance(text, TextFile):
        assert encode_text(text.text, text.encoding) == content
        assert text.display_text.encode().decode() == text.display_text
        mark = {"utf-8-bom": 3, "utf-16-le": 2, "utf-16-be": 2}.get(text.encoding, 0)
        assert count_encoded_bytes(text.text, text.encoding) == len(content) - mark


@each(
    ("text", "lines", "endings"),
    [
        ("", 0, "none"),
        ("a", 1, "none"),
        ("a\n", 1, "lf"),
        ("a\nb", 2, "lf"),
        ("a\r\nb\r\n", 2, "crlf"),
        ("a\r\nb\n", 2, "mixed"),
        ("a\rb", 1, "none"),
        ("a\x0cb\u2028c\x85d\n", 1, "lf"),
        ("\n\n", 2, "lf"),
    ],
)
def test_only_a_line_feed_ends_a_line(text: str, lines: int, endings: str) -> None:
    assert (count_lines(text), detect_line_endings(text)) == (lines, endings)


@given(st.text("ab\n", max_size=60), st.integers(1, 10))
def test_long_lines_are_found_by_leaps_as_by_measuring(text: str, max_chars: int) -> None:
    assert has_longer_line(text, max_chars) == (max(map(len, text.split("\n"))) > max_chars)


def test_kinds_are_told_by_how_files_begin() -> None:
    assert [
        detect_file_kind(content) for content in (b"GIF89a", b"RIFF\0\0\0\0WEBP", b"SQLite format 3\0", b"\0asm", b"")
    ] == [
        *("gif", "webp", "sqlite", "wasm", ""),
    ]
