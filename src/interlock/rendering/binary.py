"""Binary content: recognized, and described by its size, type and digest instead of shown as escapes."""

from hashlib import sha256

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
#: Controls that text does not have.
NON_TEXT_BYTES = bytes(byte for byte in (*range(32), 127) if byte not in _TEXT_CONTROLS)
#: So much of a content is looked at.
_SAMPLE_BYTES = 1 << 16
#: Shorter content is shown with escapes.
_MIN_BYTES = 1024
#: At most one of so many bytes of a text is no text.
_TEXT_BYTES_PER_OTHER = 10


def is_binary(content: bytes) -> bool:
    """Return True if more than a tenth of the content is neither UTF-8 nor a control that text has."""
    sample = content[:_SAMPLE_BYTES]
    controls = len(sample) - len(sample.translate(None, NON_TEXT_BYTES))
    malformed = sample.decode(errors="replace").count("\ufffd")
    return len(sample) >= _MIN_BYTES and (controls + malformed) * _TEXT_BYTES_PER_OTHER > len(sample)


def detect_file_kind(content: bytes) -> str:
    """Return the kind of a file by its first bytes; empty when unknown."""
    return next((kind for at, magic, kind in _MAGIC if content.startswith(magic, at)), "")


def describe_binary(content: bytes) -> str:
    """Return the description to show instead of binary content."""
    return format_binary(len(content), detect_file_kind(content), sha256(content).hexdigest())


def format_binary(size_bytes: int, kind: str, digest: str) -> str:
    """Format the placeholder that stands for binary output."""
    return f"[binary output: {size_bytes:,} bytes, {kind or 'unknown type'}, sha256:{digest}]"
