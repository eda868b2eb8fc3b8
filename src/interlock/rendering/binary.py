"""Binary content: recognized, and described by its size, type and digest instead of shown as escapes."""

from hashlib import sha256

from ..domain.file_kind import detect_file_kind

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


def describe_binary(content: bytes) -> str:
    """Return the description to show instead of binary content."""
    return format_binary(len(content), detect_file_kind(content), sha256(content).hexdigest())


def format_binary(size_bytes: int, kind: str, digest: str) -> str:
    """Format the placeholder that stands for binary output."""
    return f"[binary output: {size_bytes:,} bytes, {kind or 'unknown type'}, sha256:{digest}]"
