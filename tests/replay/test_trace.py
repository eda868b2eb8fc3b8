"""What a log has of a run beside its events contradicts a log whose end was cut off, and nothing else."""

import pytest

from interlock.audit.verify import ChainFlaw, Checkpoint, ProgressTrace, verify
from tests.history.recorded import FACTS, RUN, record

ENTRIES = record(FACTS)
COUNT = len(ENTRIES)
LATE = ProgressTrace(COUNT - 1, ENTRIES[COUNT - 2].hash)


def test_a_run_that_is_known_and_has_no_events_is_a_flaw() -> None:
    for trace in (ProgressTrace(), LATE):
        flaw = verify([], RUN, trace=trace).flaw
        assert flaw == ChainFlaw(0, "missing", "the log knows this run, and none of its events is there")
    assert verify([], RUN).ok


@pytest.mark.parametrize("trace", [ProgressTrace(), LATE, ProgressTrace(COUNT, ENTRIES[-1].hash)])
def test_a_whole_run_agrees_with_its_traces(trace: ProgressTrace) -> None:
    assert verify(ENTRIES, RUN, trace=trace).ok


def test_a_snapshot_beyond_the_end_shows_that_the_end_was_cut_off() -> None:
    for left in range(1, COUNT - 1):
        audit = verify(ENTRIES[:left], RUN, trace=LATE)
        assert audit.flaw is not None
        assert (audit.flaw.seq, audit.flaw.problem, audit.count) == (left, "cut", left)
        assert f"there is a snapshot of event {COUNT - 2}" in audit.flaw.message


def test_what_was_cut_off_after_the_snapshot_needs_a_checkpoint() -> None:
    assert verify(ENTRIES[:-1], RUN, trace=LATE).ok

    flaw = verify(ENTRIES[:-1], RUN, Checkpoint(COUNT, ENTRIES[-1].hash), LATE).flaw
    assert flaw is not None
    assert flaw.problem == "cut"


def test_a_snapshot_of_another_event_shows_that_the_chain_was_made_anew() -> None:
    flaw = verify(ENTRIES, RUN, trace=ProgressTrace(2, b"another hash")).flaw

    assert flaw is not None
    assert (flaw.seq, flaw.problem) == (1, "rewritten")
