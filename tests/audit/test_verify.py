"""A log is what was written, or the first bad event is named: every field, every event, every way."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.audit.verify import ChainFlaw, ChainVerification, Checkpoint, verify
from interlock.domain.event import (
    LogEntry,
    RunCompleted,
    RunStarted,
    WarningRaised,
    encode_event,
    genesis_hash,
    next_hash,
)
from tests.each import each
from tests.history.recorded import FACTS, RUN, chain, event, record

ENTRIES = record(FACTS)
COUNT = len(ENTRIES)
PLACES = range(COUNT)
WHOLE = Checkpoint(COUNT, ENTRIES[-1].hash)


def flaw_of(entries: list[LogEntry], expected: Checkpoint | None = None) -> tuple[int, str]:
    audit = verify(entries, RUN, expected)
    assert audit.flaw is not None
    assert not audit.ok
    assert audit.count == (len(entries) if audit.flaw.problem == "rewritten" else audit.flaw.seq)
    return audit.flaw.seq, audit.flaw.problem


def with_body(seq: int, body: bytes) -> list[LogEntry]:
    return [*ENTRIES[:seq], msgspec.structs.replace(ENTRIES[seq], body=body), *ENTRIES[seq + 1 :]]


def renumbered(entries: list[LogEntry]) -> list[LogEntry]:
    return [msgspec.structs.replace(entry, seq=seq) for seq, entry in enumerate(entries)]


def rehashed(entries: list[LogEntry]) -> list[LogEntry]:
    return chain([entry.body for entry in entries])


def edits(value: Any) -> Iterator[Any]:
    """The value with one thing in it changed, for every thing in it."""
    if isinstance(value, dict):
        fields = cast(dict[str, Any], value)
        yield {**fields, "added": 1}
        for name, inner in fields.items():
            yield {other: kept for other, kept in fields.items() if other != name}
            yield from ({**fields, name: changed} for changed in edits(inner))
    elif isinstance(value, list):
        items = cast(list[Any], value)
        yield [*items, 1]
        for place, inner in enumerate(items):
            yield [*items[:place], *items[place + 1 :]]
            yield from ([*items[:place], changed, *items[place + 1 :]] for changed in edits(inner))
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int | float):
        yield value + 1
    else:
        yield "edited" if value is None else f"{value}!"


def test_a_log_that_is_what_was_written_verifies() -> None:
    assert COUNT >= 15
    assert verify(ENTRIES, RUN) == ChainVerification(COUNT, ENTRIES[-1].hash)
    assert verify(ENTRIES, RUN, WHOLE).ok


def test_a_log_that_went_on_after_the_checkpoint_verifies() -> None:
    assert all(verify(ENTRIES, RUN, Checkpoint(seq + 1, ENTRIES[seq].hash)).ok for seq in PLACES)
    assert verify(ENTRIES, RUN, Checkpoint(0, genesis_hash(RUN))).ok


def test_an_empty_log_verifies_until_a_checkpoint_says_otherwise() -> None:
    assert verify([], RUN) == ChainVerification(0, genesis_hash(RUN))
    assert flaw_of([], WHOLE) == (0, "cut")


@pytest.mark.requirement("P11")
@each("seq", PLACES)
def test_every_edited_field_of_every_event_is_found(seq: int) -> None:
    edited = [msgspec.json.encode(value) for value in edits(msgspec.json.decode(ENTRIES[seq].body))]

    assert len(edited) > 7
    assert {flaw_of(with_body(seq, body)) for body in edited} == {(seq, "edited")}


@pytest.mark.requirement("P11")
@each("seq", PLACES)
def test_every_edited_column_is_found(seq: int) -> None:
    def found(**column: Any) -> int:
        entry = msgspec.structs.replace(ENTRIES[seq], **column)
        return flaw_of([*ENTRIES[:seq], entry, *ENTRIES[seq + 1 :]])[0]

    assert found(hash=bytes(32)) == seq
    assert found(run_id="run_2") == seq
    assert found(seq=seq + 1) == seq
    assert found(seq=-1) == seq
    assert found(seq=COUNT + 7) == seq


@pytest.mark.requirement("P11")
@given(data=st.data())
@settings(deadline=None)
def test_every_flipped_bit_is_found(data: st.DataObject) -> None:
    seq = data.draw(st.integers(0, COUNT - 1))
    column = data.draw(st.sampled_from(["body", "hash"]))
    stored: bytes = getattr(ENTRIES[seq], column)
    place = data.draw(st.integers(0, len(stored) - 1))
    flipped = stored[place] ^ (1 << data.draw(st.integers(0, 7)))
    entry = msgspec.structs.replace(ENTRIES[seq], **{column: stored[:place] + bytes([flipped]) + stored[place + 1 :]})

    assert flaw_of([*ENTRIES[:seq], entry, *ENTRIES[seq + 1 :]])[0] == seq


@pytest.mark.requirement("P11")
@each("seq", range(COUNT - 1))
def test_every_removed_event_is_found(seq: int) -> None:
    removed = ENTRIES[:seq] + ENTRIES[seq + 1 :]

    assert flaw_of(removed) == (seq, "missing")
    assert flaw_of(renumbered(removed))[0] == seq


@pytest.mark.requirement("P11")
@each("first", range(COUNT - 1))
def test_every_two_events_that_changed_places_are_found(first: int) -> None:
    for second in range(first + 1, COUNT):
        swapped = list(ENTRIES)
        swapped[first], swapped[second] = swapped[second], swapped[first]

        assert flaw_of(swapped) == (first, "reordered")
        assert flaw_of(renumbered(swapped))[0] == first


@pytest.mark.requirement("P11")
@each("seq", PLACES)
def test_every_copied_event_is_found(seq: int) -> None:
    for place in range(COUNT + 1):
        copied = [*ENTRIES[:place], ENTRIES[seq], *ENTRIES[place:]]

        assert flaw_of(copied) == (min(seq, place), "inserted")


FORGED = WarningRaised(message="All good.")


@pytest.mark.requirement("P11")
@each("place", range(COUNT))
@each("number", [list[LogEntry], renumbered])
def test_every_inserted_event_is_found(place: int, number: Callable[[list[LogEntry]], list[LogEntry]]) -> None:
    body = encode_event(event(place, FORGED))
    head = ENTRIES[place - 1].hash if place else genesis_hash(RUN)
    for forged_hash in (next_hash(head, body), bytes(32)):
        inserted = [*ENTRIES[:place], LogEntry(RUN, place, body, forged_hash), *ENTRIES[place:]]

        assert flaw_of(number(inserted)) in {(place, "inserted"), (place, "edited")}


def test_an_event_forged_into_the_chain_is_told_from_an_edit() -> None:
    body = encode_event(event(9, FORGED))
    inserted = [*ENTRIES[:9], LogEntry(RUN, 9, body, next_hash(ENTRIES[8].hash, body)), *ENTRIES[9:]]

    assert flaw_of(inserted) == (9, "inserted")
    assert flaw_of(renumbered(inserted)) == (9, "inserted")


@pytest.mark.requirement("P11")
@each("count", range(COUNT))
def test_a_tail_cut_anywhere_is_found_with_a_checkpoint(count: int) -> None:
    assert flaw_of(ENTRIES[:count], WHOLE) == (count, "cut")
    assert verify(ENTRIES[:count], RUN).ok  # the chain alone cannot know


@each("seq", PLACES)
def test_an_event_of_another_run_is_found(seq: int) -> None:
    foreign = record(FACTS, "run_2")

    assert flaw_of([*ENTRIES[:seq], foreign[seq], *ENTRIES[seq + 1 :]]) == (seq, "foreign_run")
    assert flaw_of(foreign) == (0, "foreign_run")


@each("seq", range(COUNT - 1))
def test_an_edited_event_with_a_new_hash_breaks_at_the_event_after_it(seq: int) -> None:
    edited = with_body(seq, encode_event(event(seq, FORGED)) if seq else ENTRIES[0].body.replace(b"fixer", b"fixed"))
    head = ENTRIES[seq - 1].hash if seq else genesis_hash(RUN)
    edited[seq] = msgspec.structs.replace(edited[seq], hash=next_hash(head, edited[seq].body))
    audit = verify(edited, RUN)

    assert audit.flaw == ChainFlaw(
        seq + 1,
        "edited",
        f"event {seq + 1} breaks the chain: it was edited, or event {seq} was and its hash was recomputed",
    )


@pytest.mark.requirement("P11")
def test_a_chain_that_was_made_anew_is_found_with_a_checkpoint() -> None:
    edited = rehashed(with_body(26, encode_event(event(26, FORGED))))

    assert verify(edited, RUN).ok  # the chain alone cannot know
    assert flaw_of(edited, WHOLE) == (27, "rewritten")
    assert flaw_of(edited, Checkpoint(27, ENTRIES[26].hash)) == (26, "rewritten")
    assert verify(edited, RUN, Checkpoint(26, ENTRIES[25].hash)).ok


def test_an_event_that_cannot_be_read_is_named() -> None:
    audit = verify(chain([ENTRIES[0].body, b'{"seq":1}']), RUN)

    assert audit.flaw is not None
    assert (audit.count, audit.flaw.seq, audit.flaw.problem) == (1, 1, "unreadable")


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b'{"seq":0,"run_id":"\xff"}', b"[" * 100_000, ENTRIES[1].body], ids=range(5)
)
def test_no_body_makes_verify_raise(body: bytes) -> None:
    assert flaw_of(chain([body])) == (0, "unreadable")


def test_a_log_that_leaves_the_tables_is_named_where_it_does() -> None:
    entries = record([RunStarted(schema=1), RunCompleted(), WarningRaised(message="late"), RunCompleted()])

    assert verify(entries, RUN).flaw == ChainFlaw(
        3,
        "illegal",
        "event 3 cannot follow: RunState 'completed' has no transition 'run.completed'",
    )


SOME_ENTRIES = st.builds(
    LogEntry,
    run_id=st.sampled_from([RUN, "run_2"]),
    seq=st.integers(-2, COUNT + 2),
    body=st.sampled_from([b"", *(entry.body for entry in ENTRIES)]),
    hash=st.sampled_from([b"", genesis_hash(RUN), *(entry.hash for entry in ENTRIES)]),
)


@given(st.lists(st.sampled_from(ENTRIES) | SOME_ENTRIES), st.none() | st.just(WHOLE))
@settings(deadline=None)
def test_nothing_but_the_log_verifies(entries: list[LogEntry], expected: Checkpoint | None) -> None:
    is_written = entries == ENTRIES[: len(entries)] and (expected is None or len(entries) == COUNT)

    assert verify(entries, RUN, expected).ok is is_written
