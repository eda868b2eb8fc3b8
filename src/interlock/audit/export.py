"""Exports of a run as a file that can be read and verified elsewhere.

One JSON object per event, `{"hash": ..., "event": ...}`, with the stored bytes of the event unchanged: the chain is
over bytes, so a copy that was parsed and written again does not verify. `to_ndjson` has one object per line; `to_json`
is the same lines as one JSON array. A signed export ends with a checkpoint, `{"checkpoint": ..., "signature": ...}`,
which `read_checkpoints` reads. The schemas of other systems are in `exports/`.
"""

import re
from collections.abc import Iterable, Iterator

import msgspec

from ..domain.errors import LogCorruptError
from ..domain.event import LogEntry
from ..domain.json import MAX_FILE_DEPTH, is_too_deep
from .signed_checkpoint import SignedCheckpoint, is_checkpoint_line, parse_checkpoint_line

_LINE = re.compile(rb'\{"hash":"((?:[0-9a-f]{2})*)","event":(.+)\},?', re.DOTALL)


class _EventPosition(msgspec.Struct):
    seq: int
    run_id: str


_decode_position = msgspec.json.Decoder(_EventPosition).decode


def to_ndjson(entries: Iterable[LogEntry], signed: SignedCheckpoint | None = None) -> Iterator[bytes]:
    """Yield one line per event, each with its line feed."""
    yield from (line + b"\n" for line in _export_lines(entries, signed))


def to_json(entries: Iterable[LogEntry], signed: SignedCheckpoint | None = None) -> Iterator[bytes]:
    """Yield the parts of one JSON array, one event per line."""
    return join_json_array(_export_lines(entries, signed))


def join_json_array(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the parts of a JSON array with one item per line."""
    separator = b"[\n"
    for line in lines:
        yield separator + line
        separator = b",\n"
    yield b"[]\n" if separator == b"[\n" else b"\n]\n"


def read_export(lines: Iterable[bytes]) -> list[LogEntry]:
    """Return the entries of an export in either form, unverified: see `verify`."""
    written = (line for line in _content_lines(lines) if not is_checkpoint_line(line))
    return [_parse_entry(line, number) for number, line in enumerate(written)]


def read_checkpoints(lines: Iterable[bytes]) -> list[SignedCheckpoint]:
    """Return the checkpoints in an export. Raise `LogCorruptError` for a damaged one."""
    found = [parse_checkpoint_line(line) for line in _content_lines(lines) if is_checkpoint_line(line)]
    if None in found:
        raise LogCorruptError("the checkpoint in the export is damaged: it is not one that was signed")
    return [signed for signed in found if signed is not None]


def _content_lines(lines: Iterable[bytes]) -> Iterator[bytes]:
    for number, line in enumerate(map(bytes.strip, lines), start=1):
        if is_too_deep(line):
            raise LogCorruptError(
                f"line {number} of the export is nested deeper than {MAX_FILE_DEPTH} levels (nested_too_deep): "
                "Interlock writes no such line, so nothing of it was read"
            )
        if line not in {b"", b"[", b"]", b"[]"}:
            yield line


def _export_lines(entries: Iterable[LogEntry], signed: SignedCheckpoint | None) -> Iterator[bytes]:
    yield from map(format_event_line, entries)
    if signed is not None:
        yield signed.line


def format_event_line(entry: LogEntry) -> bytes:
    """Return an event as a line of an export, without its line feed."""
    if b"\n" in entry.body or b"\r" in entry.body:
        raise LogCorruptError(
            f"event {entry.seq} of {entry.run_id} holds a line break: it was not written by Interlock"
        )
    return b'{"hash":"%s","event":%s}' % (entry.hash.hex().encode(), entry.body)


def _parse_entry(line: bytes, number: int) -> LogEntry:
    match = _LINE.fullmatch(line)
    if match is None:
        raise LogCorruptError(f"event {number} of the export is not an exported event")
    body = match[2]
    try:
        place = _decode_position(body)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        place = _EventPosition(number, "")
    return LogEntry(place.run_id, place.seq, body, bytes.fromhex(match[1].decode()))
