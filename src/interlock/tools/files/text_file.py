r"""Text encoding of files: bytes to text, and back to the same bytes.

What is read and written again unchanged has the same bytes: a byte order mark, the encoding, line endings and bytes
that are no UTF-8 all survive. Nothing is guessed: it is UTF-8, or a byte order mark says UTF-16, or the bytes that
are no UTF-8 are carried along as they are (`unknown-8bit`). Lines end at `\n` and nowhere else.
"""

from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from typing import Literal, TypeAlias

import msgspec

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
#: How files begin whose kind is known; the bytes that matter, and where they are.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x89PNG\r\n\x1a\n", "png"),
    (0, b"\xff\xd8\xff", "jpeg"),
    (0, b"GIF8", "gif"),
    (8, b"WEBP", "webp"),
    (0, b"%PDF-", "pdf"),
    (0, b"PK\x03\x04", "zip"),
    (0, b"PK\x05\x06", "zip"),
    (0, b"\x1f\x8b", "gzip"),
    (0, b"BZh", "bzip2"),
    (0, b"\xfd7zXZ\x00", "xz"),
    (0, b"\x28\xb5\x2f\xfd", "zstd"),
    (0, b"7z\xbc\xaf\x27\x1c", "7z"),
    (257, b"ustar", "tar"),
    (0, b"\x7fELF", "elf"),
    (0, b"MZ", "exe"),
    (0, b"\xcf\xfa\xed\xfe", "mach-o"),
    (0, b"\xca\xfe\xba\xbe", "java class or mach-o"),
    (0, b"\x00asm", "wasm"),
    (0, b"SQLite format 3\x00", "sqlite"),
    (4, b"ftyp", "mp4"),
    (0, b"ID3", "mp3"),
    (0, b"OggS", "ogg"),
    (0, b"RIFF", "riff"),
    (0, b"wOF2", "woff2"),
)
#: Controls that text has: tab, the line breaks, backspace, bell, escape.
_TEXT_CONTROLS = b"\t\n\r\f\v\b\a\x1b"
_NON_TEXT_BYTES = bytes(byte for byte in (*range(32), 127) if byte not in _TEXT_CONTROLS)
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
    return text.count("\n") + (not text.endswith("\n") and text != "")


def detect_line_endings(text: str) -> LineEndings:
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


def detect_file_kind(content: bytes) -> str:
    """Return the kind of a file by its first bytes; empty when unknown."""
    return next((kind for at, magic, kind in _MAGIC if content.startswith(magic, at)), "")


def _detect_encoding(content: bytes) -> Encoding:
    for encoding, mark in _BYTE_ORDER_MARKS.items():
        if content.startswith(mark):
            return encoding
    return "utf-8"


def _decode_unknown(content: bytes) -> TextFile | BinaryContent:
    """Text in an unknown encoding, or no text at all."""
    kind = detect_file_kind(content)
    plain = content.translate(None, _HIGH_BYTES)
    if kind or len(plain) < _MIN_ASCII_PART * len(content) or len(plain.translate(None, _NON_TEXT_BYTES)) < len(plain):
        return BinaryContent(kind)
    return TextFile(content.decode("utf-8", "surrogateescape"), "unknown-8bit")
