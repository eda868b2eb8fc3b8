"""The hash chain over a run's events.

An event is encoded once; the same bytes are hashed, stored, exported and sent. `hash = sha256(previous hash + body)`,
and the body holds every field, so an edited, removed, reordered or inserted event breaks the chain at a known place.
The chain of a run starts from its id, so events cannot be moved between runs. A chain alone does not show a cut tail:
compare the count and head with a checkpoint kept elsewhere.
"""

from hashlib import sha256

import msgspec

from .errors import LogCorruptError
from .event import Event
from .json import escape_surrogates

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Event).decode

#: Line breaks to some readers and not to others; escaped so that one event is one line for everybody.
_LINE_BREAKS = ((b"\xc2\x85", b"\\u0085"), (b"\xe2\x80\xa8", b"\\u2028"), (b"\xe2\x80\xa9", b"\\u2029"))


class LogEntry(msgspec.Struct, frozen=True, gc=False):
    """An event as it is stored: its place, its exact bytes and the chain's hash up to and with it."""

    run_id: str
    seq: int
    body: bytes
    hash: bytes


def genesis_hash(run_id: str) -> bytes:
    return sha256(b"interlock/log/v1\n" + run_id.encode()).digest()


def next_hash(previous: bytes, body: bytes) -> bytes:
    return sha256(previous + body).digest()


def encode_event(event: Event) -> bytes:
    """The bytes of an event: one line of ASCII or UTF-8. What cannot be UTF-8 is written as escapes."""
    try:
        body = _encode(event)
    except UnicodeEncodeError:
        body = _encode(escape_surrogates(msgspec.to_builtins(event)))
    return escape_line_breaks(body)


def escape_line_breaks(body: bytes) -> bytes:
    for raw, escaped in _LINE_BREAKS:
        if raw in body:
            body = body.replace(raw, escaped)
    return body


def decode_event(entry: LogEntry) -> Event:
    try:
        event = _decode(entry.body)
    except RecursionError:
        raise LogCorruptError(
            f"event {entry.seq} of {entry.run_id} cannot be read: it is nested too deep (nested_too_deep)"
        ) from None
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LogCorruptError(f"event {entry.seq} of {entry.run_id} cannot be read: {error}") from None
    if event.seq != entry.seq or event.run_id != entry.run_id:
        raise LogCorruptError(f"event {entry.seq} of {entry.run_id} says it is {event.seq} of {event.run_id}")
    return event
