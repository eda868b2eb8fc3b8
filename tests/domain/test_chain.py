"""One event is one line of bytes, and each hash covers everything up to and with its event."""

import json
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import LogCorruptError
from interlock.domain.event import (
    CallProposed,
    Event,
    Fact,
    LogEntry,
    RunStarted,
    WarningRaised,
    decode_event,
    encode_event,
    genesis_hash,
    next_hash,
)
from tests.each import each


def event_of(fact: Fact, seq: int = 3, run_id: str = "run_1") -> Event:
    return Event(seq, run_id, 1_700_000_000_000_000_000, "c", 2, fact)


def entry_of(body: bytes, seq: int = 3, run_id: str = "run_1") -> LogEntry:
    return LogEntry(run_id, seq, body, b"")


def test_the_bytes_of_an_event_hold_every_field() -> None:
    assert json.loads(encode_event(event_of(RunStarted(schema=1, agent="fixer")))) == {
        "seq": 3,
        "run_id": "run_1",
        "at": 1_700_000_000_000_000_000,
        "correlation_id": "c",
        "causation_id": 2,
        "fact": {"type": "run.started", "schema": 1, "agent": "fixer"},
    }


@given(st.text(), st.text())
def test_an_event_is_read_back_as_it_was_written(message: str, correlation_id: str) -> None:
    event = Event(3, "run_1", 1, correlation_id, None, WarningRaised(message=message))

    assert decode_event(entry_of(encode_event(event))) == event


@given(st.text() | st.text("\n\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029\u0085é"))
def test_an_event_is_one_line_for_every_reader(text: str) -> None:
    body = encode_event(event_of(CallProposed(call_id="c", tool=text, raw_input={text: [text]})))

    assert len(body.splitlines()) == 1
    assert len(body.decode().splitlines()) == 1


def test_a_hash_covers_the_hash_before_it_and_the_bytes() -> None:
    head = genesis_hash("run_1")

    assert head == sha256(b"interlock/log/v1\nrun_1").digest()
    assert next_hash(head, b"body") == sha256(head + b"body").digest()


def test_two_runs_have_different_chains() -> None:
    assert genesis_hash("run_1") != genesis_hash("run_2")


DEEP = encode_event(event_of(CallProposed(call_id="c", tool="t", raw_input=0))).replace(
    b'"raw_input":0', b'"raw_input":' + b"[" * 100_000 + b"]" * 100_000
)


@each(
    "body",
    [
        b"",
        b"not json",
        b"\xff",
        b'{"seq":3,"run_id":"\xff"}',
        b'{"seq":3,"run_id":"run_1"}',
        encode_event(event_of(WarningRaised(message="m"))).replace(b'"warning"', b'"no.such.fact"'),
        encode_event(event_of(WarningRaised(message="m"))).replace(b'"m"', b"7"),
        DEEP,
    ],
)
def test_an_event_that_cannot_be_read_is_named(body: bytes) -> None:
    with pytest.raises(LogCorruptError, match="event 3 of run_1 cannot be read"):
        decode_event(entry_of(body))


@pytest.mark.parametrize(("seq", "run_id"), [(4, "run_1"), (3, "run_2")])
def test_an_event_that_says_it_is_another_is_refused(seq: int, run_id: str) -> None:
    body = encode_event(event_of(WarningRaised(message="m")))

    with pytest.raises(LogCorruptError, match=f"event {seq} of {run_id} says it is 3 of run_1"):
        decode_event(entry_of(body, seq, run_id))
