"""A signed checkpoint as a line: `{"checkpoint": DOCUMENT, "signature": HEX}`, in an export or in a separate file.

The signature is over exactly the bytes of the document, so they are kept, sent and checked as they are.
"""

import re
from collections.abc import Iterable
from hashlib import sha256

import msgspec

_LINE = re.compile(rb'\{"checkpoint":(.+),"signature":"([0-9a-f]{128})"\},?', re.DOTALL)
_BEGIN = b'{"checkpoint":'


class SignedCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint document with its signature."""

    document: bytes
    signature: bytes

    @property
    def digest(self) -> str:
        """SHA-256 of the signed document, in hex."""
        return sha256(self.document).hexdigest()

    @property
    def line(self) -> bytes:
        """The checkpoint and its signature as one line of an export."""
        return b'{"checkpoint":%s,"signature":"%s"}' % (self.document, self.signature.hex().encode())


def is_checkpoint_line(line: bytes) -> bool:
    """Return True if a line of an export is a checkpoint and not an event."""
    return line.startswith(_BEGIN)


def parse_checkpoint_line(line: bytes) -> SignedCheckpoint | None:
    """Parse a line; None for anything else."""
    match = _LINE.fullmatch(line.strip())
    return None if match is None else SignedCheckpoint(match[1], bytes.fromhex(match[2].decode()))


def parse_checkpoint_lines(lines: Iterable[bytes]) -> list[SignedCheckpoint]:
    """Return the checkpoints among the lines of an export, or of an external copy."""
    return [found for line in lines if is_checkpoint_line(line) and (found := parse_checkpoint_line(line)) is not None]
