"""What every log promises. An implementation proves it by a subclass with the fixture `open_log`.

`open_log(name)` opens a log. A durable log finds under the same name what was there before, also while another handle
is open; a log in memory is new each time. The fixture closes what it opened.
Claims and notes are in `claim_conformance`.
"""

import asyncio
from typing import Protocol

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.domain.errors import LogFencedError, LogWriteError
from interlock.domain.event import LogEntry
from interlock.storage.event_log import EventLog, Snapshot

from .runs import append, chain, chained


class OpenLog(Protocol):
    def __call__(self, name: str = "log") -> EventLog: ...


#: A wave of appends that are under way together, each as a run and the bodies of its events.
WAVES = st.lists(
    st.lists(
        st.tuples(st.sampled_from(["a", "b", "ü\0"]), st.lists(st.binary(max_size=40), min_size=1, max_size=3)),
        max_size=6,
    ),
    max_size=4,
)


#: The fixture opens another log for each example, of the subclass's kind.
FIXTURE_OPENS_ANEW = (HealthCheck.function_scoped_fixture, HealthCheck.differing_executors)


class LogConformance:
    @pytest.mark.requirement("R138")
    async def test_a_run_reads_back_in_order_and_byte_for_byte(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 5)

        await append(log, "run", run[:1])
        await append(log, "run", run[1:4])
        await append(log, "run", run[4:])

        assert await log.read("run") == run

    async def test_an_unknown_run_has_no_entries_and_no_snapshot(self, open_log: OpenLog) -> None:
        log = open_log()

        assert await log.read("nobody") == []
        assert await log.load_snapshot("nobody") is None
        assert await log.run_ids() == []

    async def test_a_read_can_start_after_an_entry_and_stop_early(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 6)
        await append(log, "run", run)

        assert await log.read("run", after_seq=3) == run[4:]
        assert await log.read("run", after_seq=0, limit=2) == run[1:3]
        assert await log.read("run", limit=0) == []
        assert await log.read("run", after_seq=5) == []

    @pytest.mark.parametrize(
        ("name", "seqs"), [("repeats", [1]), ("skips", [3]), ("has a gap", [2, 4]), ("turns back", [2, 1])]
    )
    async def test_an_append_that_does_not_continue_the_run_is_fenced_and_writes_nothing(
        self, open_log: OpenLog, name: str, seqs: list[int]
    ) -> None:
        log, run = open_log(), chained("run", 5)
        await append(log, "run", run[:2])

        with pytest.raises(LogFencedError, match="does not continue run"):
            await append(log, "run", [run[seq] for seq in seqs])

        assert await log.read("run") == run[:2], name

    async def test_a_new_run_starts_at_zero_or_does_not_start(self, open_log: OpenLog) -> None:
        log = open_log()

        with pytest.raises(LogFencedError):
            await append(log, "run", chained("run", 2)[1:])

        assert await log.run_ids() == []

    async def test_entries_of_another_run_are_fenced(self, open_log: OpenLog) -> None:
        log = open_log()

        with pytest.raises(LogFencedError):
            await append(log, "run", chained("other", 1))

        assert await log.run_ids() == []

    async def test_the_log_goes_on_after_a_fenced_append(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 3)
        await append(log, "run", run[:1])

        with pytest.raises(LogFencedError):
            await append(log, "run", run[2:])
        await append(log, "run", run[1:])

        assert await log.read("run") == run

    async def test_an_empty_append_is_nothing(self, open_log: OpenLog) -> None:
        log = open_log()

        await append(log, "run", [])

        assert await log.run_ids() == []

    async def test_of_many_appends_for_one_place_exactly_one_wins(self, open_log: OpenLog) -> None:
        log = open_log()
        rivals = [chained("run", 2, message=f"rival {number}") for number in range(10)]

        outcomes = await asyncio.gather(*(append(log, "run", rival) for rival in rivals), return_exceptions=True)

        winners = [rival for rival, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
        assert [type(outcome) for outcome in outcomes].count(LogFencedError) == 9
        assert winners == [await log.read("run")]

    async def test_runs_are_listed_oldest_first(self, open_log: OpenLog) -> None:
        log = open_log()
        for run_id in ("c", "a", "b"):
            await append(log, run_id, chained(run_id, 2)[:1])

        await append(log, "c", chained("c", 2)[1:])

        assert await log.run_ids() == ["c", "a", "b"]

    async def test_what_was_appended_stays_when_the_caller_reuses_its_list(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 2)
        buffer = list(run)

        await append(log, "run", buffer)
        buffer.clear()
        (await log.read("run")).clear()

        assert await log.read("run") == run

    async def test_an_append_is_written_even_if_its_caller_is_cancelled(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 2)
        caller = asyncio.ensure_future(append(log, "run", run[:1]))
        await asyncio.wait({caller}, timeout=0)

        caller.cancel()
        await append(log, "run", run[1:])

        assert await log.read("run") == run

    async def test_closing_finishes_what_was_handed_in(self, open_log: OpenLog) -> None:
        log = open_log()

        outcomes = await asyncio.gather(
            *(append(log, f"run {n}", chained(f"run {n}", 2)) for n in range(20)), log.close()
        )

        assert outcomes == [None] * 21

    async def test_a_closed_log_refuses_to_write_and_can_be_closed_again(self, open_log: OpenLog) -> None:
        log = open_log()
        await log.close()
        await log.close()

        with pytest.raises(LogWriteError, match="closed"):
            await append(log, "run", chained("run", 1))
        with pytest.raises(LogWriteError, match="closed"):
            await log.save_snapshot("run", Snapshot(0, b"hash", b"state"))

    async def test_the_last_snapshot_is_kept_and_changes_nothing_else(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 3)
        await append(log, "run", run)

        await log.save_snapshot("run", Snapshot(0, run[0].hash, b"early"))
        await log.save_snapshot("run", Snapshot(2, run[2].hash, b"late"))
        await log.save_snapshot("unknown", Snapshot(7, b"hash", b""))

        assert await log.load_snapshot("run") == Snapshot(2, run[2].hash, b"late")
        assert await log.load_snapshot("unknown") == Snapshot(7, b"hash", b"")
        assert await log.read("run") == run
        assert await log.run_ids() == ["run"]

    @pytest.mark.requirement("R138")
    @settings(max_examples=40, deadline=None, suppress_health_check=FIXTURE_OPENS_ANEW)
    @given(waves=WAVES)
    async def test_any_interleaving_of_runs_reads_back_dense_and_byte_identical(
        self, open_log: OpenLog, waves: list[list[tuple[str, list[bytes]]]]
    ) -> None:
        self.examples = getattr(self, "examples", 0) + 1
        log = open_log(f"example {self.examples}")
        bodies: dict[str, list[bytes]] = {}
        for wave in waves:
            appends: list[tuple[str, list[LogEntry]]] = []
            for run_id, more in wave:
                known = bodies.setdefault(run_id, [])
                known += more
                appends.append((run_id, chain(run_id, known)[-len(more) :]))
            await asyncio.gather(*(append(log, run_id, entries) for run_id, entries in appends))

        assert {run_id: await log.read(run_id) for run_id in await log.run_ids()} == {
            run_id: chain(run_id, written) for run_id, written in bodies.items()
        }
        await log.close()


class DurableLogConformance(LogConformance):
    async def test_everything_is_there_after_reopening(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 3)
        await append(log, "run", run[:2])
        await append(log, "other", chained("other", 1))
        await log.save_snapshot("run", Snapshot(1, run[1].hash, b"state"))
        await log.close()

        log = open_log()
        await append(log, "run", run[2:])

        assert await log.run_ids() == ["run", "other"]
        assert await log.read("run") == run
        assert await log.load_snapshot("run") == Snapshot(1, run[1].hash, b"state")

    async def test_an_append_that_returned_is_seen_by_every_other_handle(self, open_log: OpenLog) -> None:
        ours, theirs, run = open_log(), open_log(), chained("run", 3)

        await append(ours, "run", run[:1])
        await append(theirs, "run", run[1:2])
        await append(ours, "run", run[2:])

        assert await ours.read("run") == await theirs.read("run") == run

    async def test_the_handle_that_lost_a_run_is_fenced_and_may_go_on_with_others(self, open_log: OpenLog) -> None:
        winner, loser = open_log(), open_log()
        ours, theirs = chained("run", 2), chained("run", 2, message="too late")
        await append(loser, "run", ours[:1])
        await append(winner, "run", ours[1:])

        with pytest.raises(LogFencedError):
            await append(loser, "run", theirs[1:])
        await append(loser, "other", chained("other", 1))

        assert await loser.read("run") == await winner.read("run") == ours
        assert await winner.run_ids() == ["run", "other"]

    async def test_of_many_handles_that_race_for_one_place_exactly_one_wins(self, open_log: OpenLog) -> None:
        handles = [open_log() for _ in range(4)]
        rivals = [chained("run", 2, message=f"rival {number}") for number in range(4)]

        outcomes = await asyncio.gather(
            *(append(log, "run", rival) for log, rival in zip(handles, rivals, strict=True)), return_exceptions=True
        )

        winners = [rival for rival, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
        assert [type(outcome) for outcome in outcomes].count(LogFencedError) == 3
        assert winners == [await handles[0].read("run")]

    async def test_the_feed_has_the_events_of_all_runs_in_the_order_of_their_appends(self, open_log: OpenLog) -> None:
        log, first, second = open_log(), chained("a", 3), chained("b", 2)
        await append(log, "b", second[:1])
        await append(log, "a", first[:2])
        await append(log, "b", second[1:])
        await append(log, "a", first[2:])

        feed = await log.feed()

        assert [placed.entry for placed in feed] == [second[0], *first[:2], second[1], first[2]]
        assert [placed.position for placed in feed] == sorted({placed.position for placed in feed})
        assert feed[0].position > 0

    async def test_the_feed_goes_on_after_a_position_with_what_came_later(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 4)
        await append(log, "run", run[:3])
        [first, second, third] = await log.feed()

        await append(log, "run", run[3:])

        assert await log.feed(first.position, limit=1) == [second]
        assert [placed.entry for placed in await log.feed(third.position)] == [run[3]]
        assert await log.feed(third.position + 1_000) == []
        assert await log.feed(limit=0) == []
