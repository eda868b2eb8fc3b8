"""How events are stored: those of one append in one row, compressed.

The bodies are a MessagePack list of bytes behind one byte that names the form: plain, or deflated with a dictionary of
what most events have in common. Their hashes follow each other, 32 bytes each. What is hashed, read and exported are
the bodies themselves, so nothing but this file knows of the form.

A row that cannot be read, such as one that was edited by hand, gives events without a body, which fail verification.
"""

import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import msgspec

from ..domain.event import LogEntry

#: The first `seq`, the number of events, their bodies and their hashes.
PackedRow: TypeAlias = tuple[int, int, bytes, bytes]

HASH_BYTES = 32
#: A row has fewer bytes of events, or one event.
_MAX_ROW_BYTES = 16 << 20
#: More than any row has: the plain size of one that was edited by hand is unknown.
_MAX_UNPACKED_BYTES = 256 << 20
#: Smaller than zlib's default: 8 KiB hold an append, and starting costs less.
_WINDOW_BITS, _MEMORY_LEVEL = 13, 6
_LEVEL = 3
#: A row of fewer bytes is hardly made smaller.
_MIN_DEFLATED_BYTES = 96

_PLAIN, _DEFLATED = b"\0", b"\1"
#: Part of the form: what was deflated with it is read with it.
_DICTIONARY = Path(__file__).with_name("event_dictionary.txt").read_bytes().replace(b"\n", b"")

_PRIMED = zlib.compressobj(_LEVEL, zlib.DEFLATED, -_WINDOW_BITS, _MEMORY_LEVEL, zlib.Z_DEFAULT_STRATEGY, _DICTIONARY)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[bytes]).decode


def pack(entries: Sequence[LogEntry]) -> Iterator[PackedRow]:
    """Yield the rows of an append. The entries follow each other."""
    start, size = 0, 0
    for index, entry in enumerate(entries):
        if index > start and size + len(entry.body) > _MAX_ROW_BYTES:
            yield _pack_row(entries[start:index])
            start, size = index, 0
        size += len(entry.body)
    yield _pack_row(entries[start:])


def _pack_row(entries: Sequence[LogEntry]) -> PackedRow:
    plain = _encode([entry.body for entry in entries])
    hashes = b"".join([entry.hash for entry in entries])
    if len(plain) < _MIN_DEFLATED_BYTES:
        return entries[0].seq, len(entries), _PLAIN + plain, hashes
    deflating = _PRIMED.copy()
    return entries[0].seq, len(entries), _DEFLATED + deflating.compress(plain) + deflating.flush(), hashes


def unpack(run_id: str, seq: int, count: int | None, bodies: bytes, hashes: bytes) -> list[LogEntry]:
    """Return the events of a row. `count` is None for a row of an older version, which has one event as it is."""
    if count is None:
        return [LogEntry(run_id, seq, bodies, hashes)]
    found = _unpack_bodies(bodies)
    if len(found) != count or len(hashes) != count * HASH_BYTES:
        return [LogEntry(run_id, seq, b"", hashes[:HASH_BYTES])]
    return [
        LogEntry(run_id, seq + at, body, hashes[at * HASH_BYTES : at * HASH_BYTES + HASH_BYTES])
        for at, body in enumerate(found)
    ]


def _unpack_bodies(packed: bytes) -> list[bytes]:
    form, content = packed[:1], packed[1:]
    try:
        if form == _PLAIN:
            return _decode(content)
        if form == _DEFLATED:
            inflating = zlib.decompressobj(-_WINDOW_BITS, zdict=_DICTIONARY)
            plain = inflating.decompress(content, _MAX_UNPACKED_BYTES)
            if inflating.eof and not inflating.unused_data:
                return _decode(plain)
    except (zlib.error, msgspec.MsgspecError):
        pass
    return []


def pack_state(state: bytes) -> bytes:
    """Return the state of a snapshot, compressed."""
    return zlib.compress(state, 1)


def unpack_state(packed: bytes, form: int) -> bytes:
    """Return the state of a snapshot; empty when it is damaged. The form 0 is that of older versions: as it is."""
    if form == 0:
        return packed
    try:
        return zlib.decompressobj().decompress(packed, _MAX_UNPACKED_BYTES)
    except zlib.error:
        return b""
