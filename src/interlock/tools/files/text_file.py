r"""Text encoding of files: bytes to text, and back to the same bytes.

What is read and written again unchanged has the same bytes: a byte order mark, the encoding, line endings and bytes
that are no UTF-8 all survive. Nothing is guessed: it is UTF-8, or a byte order mark says UTF-16, or the bytes that
are no UTF-8 are carried along as they are (`unknown-8bit`). Lines end at `\n` and nowhere else.
"""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from typing import Literal, TypeAlias

import msgspec

from ...domain.file_kind import detect_file_kind
from ...rendering.binary import NON_TEXT_BYTES

Encoding: TypeAlias = Literal["utf-8", "utf-8-bom", "utf-16-le", "utf-16-be", "unknown-8bit"]
LineEndings: TypeAlias = Literal["none", "lf", "crlf", "mixed"]

_BYTE_ORDER_MARKS: dict[Encoding, bytes] = {"utf-8-bom": BOM_UTF8, "utf-16-le": BOM_UTF16_LE, "utf-16-be": BOM_UTF16_BE}
_CODECS: dict[Encoding, tuple[str, str]] = {
    "utf-8": ("utf-8", "strict"),
    "utf-8-bom": ("utf-8", "strict"),
    "utf-16-le": ("utf-16-le", "strict"),
    "utf-16-be": ("utf-16-be", "strict"),
    "unknown-8bit": ("utf-8", "surrogateescape"),
}
_HIGH_BYTES = bytes(range(128, 256))
#: Spaces and line breaks alone are that much of a text, whichever its letters are.
_MIN_ASCII_PART = 0.1


class TextFile(msgspec.Struct, frozen=True):
    """The text of a file and its encoding."""

    #: Without a byte order mark. In `unknown-8bit`, bytes that are no UTF-8 are lone surrogates.
    text: str
    encoding: Encoding

    @property
    def display_text(self) -> str:
        r"""The text for a reader: bytes that are no UTF-8 are written `\\xe9`."""
        if self.encoding != "unknown-8bit":
            return self.text
        return encode_text(self.text, self.encoding).decode("utf-8", "backslashreplace")


class BinaryContent(msgspec.Struct, frozen=True):
    """Content that is no text."""

    #: By how it begins; empty when that says nothing.
    kind: str


def decode_content(content: bytes) -> TextFile | BinaryContent:
    """Decode a file. Return its kind if it is not text."""
    encoding = _detect_encoding(content)
    mark = _BYTE_ORDER_MARKS.get(encoding, b"")
    try:
        text = (content[len(mark) :] if mark else content).decode(_CODECS[encoding][0])
    except UnicodeDecodeError:
        return _decode_unknown(content) if encoding == "utf-8" else BinaryContent(detect_file_kind(content))
    return BinaryContent(detect_file_kind(content)) if "\0" in text else TextFile(text, encoding)


def encode_text(text: str, encoding: Encoding) -> bytes:
    """Return the bytes of a text, the reverse of reading it. Raise `UnicodeEncodeError` when it cannot be encoded."""
    codec, errors = _CODECS[encoding]
    return _BYTE_ORDER_MARKS.get(encoding, b"") + text.encode(codec, errors)


def parse_byte_order_mark(text: str, encoding: Encoding) -> TextFile:
    """Return a written text: a byte order mark in it is the file's, and is there once."""
    if not text.startswith("\ufeff"):
        return TextFile(text, encoding)
    return TextFile(text[1:], "utf-8-bom" if encoding == "utf-8" else encoding)


def count_encoded_bytes(text: str, encoding: Encoding) -> int:
    """Return how many bytes of the file a part of its text is."""
    if encoding in ("utf-16-le", "utf-16-be"):
        return len(text.encode("utf-16-le"))
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogateescape"))


def count_lines(text: str) -> int:
    """Count the lines of a text."""
    return text.count("\n") + (not text.endswith("\n") and text != "")


def detect_line_endings(text: str) -> LineEndings:
    """Return which line endings a text has."""
    if "\n" not in text:
        return "none"
    with_return = text.count("\r\n") if "\r" in text else 0
    if with_return == 0:
        return "lf"
    return "crlf" if with_return == text.count("\n") else "mixed"


def has_longer_line(text: str, max_chars: int) -> bool:
    """Return True if a line has more characters. It skips from line break to line break instead of measuring every
    line.
    """
    start, end = 0, len(text)
    while end - start > max_chars:
        start = text.rfind("\n", start, start + max_chars + 1) + 1
        if start == 0:
            return True
    return False


def _detect_encoding(content: bytes) -> Encoding:
    for encoding, mark in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return encoding
    return "utf-8"


def _decode_unknown(content: bytes) -> TextFile | BinaryContent:
    """Return text in an unknown encoding, or binary content."""
    kind = detect_file_kind(content)
    plain = content.translate(None, _HIGH_BYTES)
    if kind or len(plain) < _MIN_ASCII_PART * len(content) or len(plain.translate(None, NON_TEXT_BYTES)) < len(plain):
        return BinaryContent(kind)
    return TextFile(content.decode("utf-8", "surrogateescape"), "unknown-8bit")
