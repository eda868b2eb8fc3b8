"""A run as a file that anybody can read and check again.

One JSON object per event, `{"hash": ..., "event": ...}`, with the stored bytes of the event unchanged: the chain is
over bytes, so a copy that was parsed and written again does not verify. `to_ndjson` has one object per line; `to_json`
is the same lines as one JSON array.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from ..domain.chain import Entry
from ..domain.errors import LogCorruptError

_LINE = re.compile(rb'\{"hash":"((?:[0-9a-f]{2})*)","event":(.+)\},?', re.DOTALL)


class _Place(msgspec.Struct):
    seq: int
    run_id: str


_decode_place = msgspec.json.Decoder(_Place).decode


def to_ndjson(entries: Iterable[Entry]) -> Iterator[bytes]:
    """One line per event, each with its line feed."""
    for entry in entries:
        yield _line(entry) + b"\n"


def to_json(entries: Iterable[Entry]) -> Iterator[bytes]:
    """The parts of one JSON array, one event per line."""
    separator = b"[\n"
    for entry in entries:
        yield separator + _line(entry)
        separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"


def read_export(lines: Iterable[bytes]) -> list[Entry]:
    """The entries of an export in either form, as they are: `verify` says whether they are what was written."""
    stripped = (line.strip() for line in lines)
    written = (line for line in stripped if line not in {b"", b"[", b"]", b"[]"})
    return [_entry(line, number) for number, line in enumerate(written)]


def _line(entry: Entry) -> bytes:
    if b"\n" in entry.body or b"\r" in entry.body:
        raise LogCorruptError(
            f"event {entry.seq} of {entry.run_id} holds a line break: it was not written by Interlock"
        )
    return b'{"hash":"%s","event":%s}' % (entry.hash.hex().encode(), entry.body)


def _entry(line: bytes, number: int) -> Entry:
    match = _LINE.fullmatch(line)
    if match is None:
        raise LogCorruptError(f"event {number} of the export is not an exported event")
    body = match[2]
    try:
        place = _decode_place(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        place = _Place(number, "")
    return Entry(place.run_id, place.seq, body, bytes.fromhex(match[1].decode()))
