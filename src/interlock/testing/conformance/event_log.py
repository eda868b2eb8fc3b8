"""What every event log promises: see the list in `interlock.storage.event_log`."""

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from ...domain.errors import LogFencedError, LogWriteError
from ...domain.event import LogEntry
from ...storage.event_log import EventLog, QueuedCommand, Snapshot, StoredRun
from ..log_entries import append_entries, chain_entries, make_entries
from .effects import EffectClaimConformance, make_claim
from .leases import LeaseConformance

#: A busy machine may take long, and a broken log takes for ever.
_HANG_SECONDS = 60


class EventLogConformance(LeaseConformance, EffectClaimConformance):
    """Define the fixture `log`: an empty log, closed when the test is over."""

    async def test_run_reads_back_byte_for_byte(self, log: EventLog) -> None:
        run = make_entries("run", 5)

        await append_entries(log, "run", run[:1])
        await append_entries(log, "run", run[1:4])
        await append_entries(log, "run", run[4:])

        assert await log.read("run") == run

    async def test_unknown_run_is_empty(self, log: EventLog) -> None:
        assert await log.read("unknown") == []
        assert await log.load_snapshot("unknown") is None
        assert await log.run_ids() == []

    async def test_read_takes_a_start_and_a_limit(self, log: EventLog) -> None:
        run = make_entries("run", 6)
        await append_entries(log, "run", run)

        assert await log.read("run", after_seq=3) == run[4:]
        assert await log.read("run", after_seq=0, limit=2) == run[1:3]
        assert await log.read("run", limit=0) == []
        assert await log.read("run", after_seq=5) == []

    @pytest.mark.parametrize("seqs", [[1], [3], [2, 4], [2, 1]], ids=["repeat", "skip", "gap", "backwards"])
    async def test_append_must_continue_the_run(self, log: EventLog, seqs: list[int]) -> None:
        run = make_entries("run", 5)
        await append_entries(log, "run", run[:2])

        with pytest.raises(LogFencedError):
            await append_entries(log, "run", [run[seq] for seq in seqs])

        assert await log.read("run") == run[:2]

    async def test_new_run_starts_at_zero(self, log: EventLog) -> None:
        with pytest.raises(LogFencedError):
            await append_entries(log, "run", make_entries("run", 2)[1:])

        assert await log.run_ids() == []

    async def test_entries_of_another_run_are_fenced(self, log: EventLog) -> None:
        with pytest.raises(LogFencedError):
            await append_entries(log, "run", make_entries("other", 1))

        assert await log.run_ids() == []

    async def test_log_works_after_a_fenced_append(self, log: EventLog) -> None:
        run = make_entries("run", 3)
        await append_entries(log, "run", run[:1])

        with pytest.raises(LogFencedError):
            await append_entries(log, "run", run[2:])
        await append_entries(log, "run", run[1:])

        assert await log.read("run") == run

    async def test_empty_append_creates_no_run(self, log: EventLog) -> None:
        await append_entries(log, "run", [])

        assert await log.run_ids() == []

    async def test_one_of_concurrent_appends_wins(self, log: EventLog) -> None:
        rivals = [make_entries("run", 2, message=f"rival {number}") for number in range(10)]

        outcomes = await asyncio.gather(
            *(append_entries(log, "run", rival) for rival in rivals), return_exceptions=True
        )

        winners = [rival for rival, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
        assert [type(outcome) for outcome in outcomes].count(LogFencedError) == 9
        assert winners == [await log.read("run")]

    async def test_runs_are_listed_oldest_first(self, log: EventLog) -> None:
        for run_id in ("c", "a", "b"):
            await append_entries(log, run_id, make_entries(run_id, 2)[:1])

        await append_entries(log, "c", make_entries("c", 2)[1:])

        assert await log.run_ids() == ["c", "a", "b"]

    async def test_lists_are_copied(self, log: EventLog) -> None:
        run = make_entries("run", 2)
        buffer = list(run)

        await append_entries(log, "run", buffer)
        buffer.clear()
        (await log.read("run")).clear()

        assert await log.read("run") == run

    async def test_append_of_a_cancelled_caller_is_written(self, log: EventLog) -> None:
        run = make_entries("run", 2)
        caller = asyncio.ensure_future(append_entries(log, "run", run[:1]))
        await asyncio.wait({caller}, timeout=0)

        caller.cancel()
        await append_entries(log, "run", run[1:])

        assert await log.read("run") == run

    async def test_close_finishes_pending_appends(self, log: EventLog) -> None:
        outcomes = await asyncio.gather(
            *(append_entries(log, f"run {n}", make_entries(f"run {n}", 2)) for n in range(20)), log.close()
        )

        assert outcomes == [None] * 21

    async def test_reopening_a_working_log_changes_nothing(self, log: EventLog) -> None:
        run = make_entries("run", 2)
        await append_entries(log, "run", run[:1])
        lease = await log.acquire("run")

        await log.reopen()

        assert not log.problem
        await append_entries(log, "run", run[1:], lease)
        assert await log.read("run") == run

    async def test_closed_log_refuses_appends(self, log: EventLog) -> None:
        await log.close()
        await log.close()

        with pytest.raises(LogWriteError):
            await append_entries(log, "run", make_entries("run", 1))

    async def test_last_snapshot_is_kept(self, log: EventLog) -> None:
        run = make_entries("run", 3)
        await append_entries(log, "run", run)

        await log.save_snapshot("run", Snapshot(0, run[0].hash, b"early"))
        await log.save_snapshot("run", Snapshot(2, run[2].hash, b"late"))
        await log.save_snapshot("unknown", Snapshot(7, b"hash", b""))

        assert await log.load_snapshot("run") == Snapshot(2, run[2].hash, b"late")
        assert await log.load_snapshot("unknown") == Snapshot(7, b"hash", b"")
        assert await log.read("run") == run
        assert await log.run_ids() == ["run"]

    async def test_load_begins_at_the_snapshot(self, log: EventLog) -> None:
        run = make_entries("run", 5)
        assert await log.load("run") == StoredRun(None, [])
        await append_entries(log, "run", run)
        assert await log.load("run", 2) == StoredRun(None, run[:2])

        snapshot = Snapshot(2, run[2].hash, b"state")
        await log.save_snapshot("run", snapshot)

        assert await log.load("run") == StoredRun(snapshot, run[2:])
        assert await log.load("run", 2) == StoredRun(snapshot, run[2:4])

    async def test_feed_follows_the_order_of_appends(self, log: EventLog) -> None:
        first, second = make_entries("a", 3), make_entries("b", 2)
        await append_entries(log, "b", second[:1])
        await append_entries(log, "a", first[:2])
        await append_entries(log, "b", second[1:])
        await append_entries(log, "a", first[2:])

        feed = await log.feed()

        assert [item.entry for item in feed] == [second[0], *first[:2], second[1], first[2]]
        assert [item.position for item in feed] == sorted({item.position for item in feed})
        assert feed[0].position > 0

    async def test_feed_continues_after_a_position(self, log: EventLog) -> None:
        run = make_entries("run", 4)
        await append_entries(log, "run", run[:3])
        [first, second, third] = await log.feed()

        await append_entries(log, "run", run[3:])

        assert await log.feed(first.position, limit=1) == [second]
        [last] = await log.feed(third.position)
        assert last.entry == run[3]
        assert await log.feed(last.position) == await log.feed(last.position + 1_000) == []

    @pytest.mark.parametrize("limit", [1, 2, 3])
    async def test_feed_pages_have_every_event_once(self, log: EventLog, limit: int) -> None:
        run = make_entries("run", 9)
        for start, end in ((0, 1), (1, 4), (4, 6), (6, 9)):
            await append_entries(log, "run", run[start:end])

        found: list[LogEntry] = []
        after = 0
        while page := await log.feed(after, limit):
            found += [item.entry for item in page]
            after = page[-1].position

        assert found == run

    async def test_feed_position_is_that_of_the_newest_event(self, log: EventLog) -> None:
        empty = await log.feed_position()
        await append_entries(log, "run", make_entries("run", 2))

        assert (empty, await log.feed_position()) == (0, (await log.feed())[-1].position)
        assert await log.feed(limit=0) == []

    @pytest.mark.parametrize("seed", range(40))
    async def test_interleaved_runs_read_back_dense(self, log: EventLog, seed: int) -> None:
        """Append to three runs in random waves; the appends of a wave are concurrent."""
        random = Random(seed)
        bodies: dict[str, list[bytes]] = {}
        for _ in range(random.randint(0, 4)):
            appends: list[tuple[str, list[LogEntry]]] = []
            for _ in range(random.randint(0, 6)):
                run_id = random.choice(["a", "b", "ü\1"])
                more = [random.randbytes(random.randint(0, 40)) for _ in range(random.randint(1, 3))]
                written = bodies.setdefault(run_id, [])
                written += more
                appends.append((run_id, chain_entries(run_id, written)[-len(more) :]))
            await asyncio.gather(*(append_entries(log, run_id, entries) for run_id, entries in appends))

        assert {run_id: await log.read(run_id) for run_id in await log.run_ids()} == {
            run_id: chain_entries(run_id, written) for run_id, written in bodies.items()
        }


class DurableEventLogConformance(EventLogConformance):
    """Define the fixture `open_log`: a function that opens the same log each time, also while another handle is open.

    The fixture closes what it opened.
    """

    @pytest.fixture
    def log(self, open_log: Callable[[], EventLog]) -> EventLog:
        return open_log()

    async def test_contents_survive_reopening(self, open_log: Callable[[], EventLog]) -> None:
        log, run = open_log(), make_entries("run", 3)
        await append_entries(log, "run", run[:2])
        await append_entries(log, "other", make_entries("other", 1))
        await log.save_snapshot("run", Snapshot(1, run[1].hash, b"state"))
        await log.close()

        log = open_log()
        await append_entries(log, "run", run[2:])

        assert await log.run_ids() == ["run", "other"]
        assert await log.read("run") == run
        assert await log.load_snapshot("run") == Snapshot(1, run[1].hash, b"state")

    async def test_appends_are_visible_to_other_handles(self, open_log: Callable[[], EventLog]) -> None:
        ours, theirs, run = open_log(), open_log(), make_entries("run", 3)

        await append_entries(ours, "run", run[:1])
        await append_entries(theirs, "run", run[1:2])
        await append_entries(ours, "run", run[2:])

        assert await ours.read("run") == await theirs.read("run") == run

    async def test_effect_claims_are_shared_by_handles(self, open_log: Callable[[], EventLog]) -> None:
        ours, theirs = open_log(), open_log()

        assert await ours.claim_effect("refund", make_claim("c1", "ours"), 0)
        assert not await theirs.claim_effect("refund", make_claim("c1", "theirs"), 0)
        await ours.close()

        assert [claim.run_id for claim in await open_log().effect_claims("refund", 10)] == ["ours"]

    async def test_overtaken_handle_is_fenced(self, open_log: Callable[[], EventLog]) -> None:
        winner, loser = open_log(), open_log()
        ours, theirs = make_entries("run", 2), make_entries("run", 2, message="too late")
        await append_entries(loser, "run", ours[:1])
        await append_entries(winner, "run", ours[1:])

        with pytest.raises(LogFencedError):
            await append_entries(loser, "run", theirs[1:])
        await append_entries(loser, "other", make_entries("other", 1))

        assert await loser.read("run") == await winner.read("run") == ours
        assert await winner.run_ids() == ["run", "other"]

    async def test_one_of_racing_handles_wins(self, open_log: Callable[[], EventLog]) -> None:
        handles = [open_log() for _ in range(4)]
        rivals = [make_entries("run", 2, message=f"rival {number}") for number in range(4)]

        outcomes = await asyncio.gather(
            *(append_entries(log, "run", rival) for log, rival in zip(handles, rivals, strict=True)),
            return_exceptions=True,
        )

        winners = [rival for rival, outcome in zip(rivals, outcomes, strict=True) if outcome is None]
        assert [type(outcome) for outcome in outcomes].count(LogFencedError) == 3
        assert winners == [await handles[0].read("run")]

    async def test_leases_and_commands_survive_reopening(self, open_log: Callable[[], EventLog]) -> None:
        log, run = open_log(), make_entries("run", 2)
        lease = await log.acquire("run", force=True)
        await append_entries(log, "run", run[:1], lease)
        await log.enqueue("run", QueuedCommand("stop", b"now"))
        await log.close()

        log = open_log()
        with pytest.raises(LogFencedError):
            await append_entries(log, "run", run[1:])
        await append_entries(log, "run", run[1:], lease)

        assert await log.queued_commands("run") == [QueuedCommand("stop", b"now")]
        assert (await log.acquire("run", force=True)).token > lease.token

    async def test_handle_with_a_lost_lease_is_fenced(self, open_log: Callable[[], EventLog]) -> None:
        ours, theirs, run = open_log(), open_log(), make_entries("run", 3)
        lost = await ours.acquire("run", force=True)
        await append_entries(ours, "run", run[:1], lost)
        newest = await theirs.acquire("run", force=True)

        with pytest.raises(LogFencedError):
            await append_entries(ours, "run", run[1:2], lost)
        await append_entries(theirs, "run", run[1:], newest)

        assert await ours.read("run") == run

    async def test_release_is_visible_to_other_handles(self, open_log: Callable[[], EventLog]) -> None:
        ours, theirs, run = open_log(), open_log(), make_entries("run", 2)
        lease = await ours.acquire("run", force=True)
        await append_entries(ours, "run", run[:1], lease)
        with pytest.raises(LogFencedError):
            await append_entries(theirs, "run", run[1:])

        await ours.release(lease)
        await append_entries(theirs, "run", run[1:])

        assert await ours.read("run") == run

    async def test_last_of_concurrent_leases_counts(self, open_log: Callable[[], EventLog]) -> None:
        handles, run = [open_log() for _ in range(4)], make_entries("run", 1)

        leases = await asyncio.gather(*(log.acquire("run", force=True) for log in handles))
        outcomes = await asyncio.gather(
            *(append_entries(log, "run", run, lease) for log, lease in zip(handles, leases, strict=True)),
            return_exceptions=True,
        )

        assert sorted(lease.token for lease in leases) == [1, 2, 3, 4]
        assert [outcome is None for outcome in outcomes] == [lease.token == 4 for lease in leases]

    async def test_version_changes_with_writes_of_others(self, open_log: Callable[[], EventLog]) -> None:
        ours, theirs = open_log(), open_log()
        await append_entries(theirs, "run", make_entries("run", 1))
        before = ours.version()
        waiting = asyncio.ensure_future(ours.wait_for_change(before, _HANG_SECONDS))

        await theirs.enqueue("run", QueuedCommand("stop", b""))

        assert await waiting
        assert ours.version() != before
        assert await ours.queued_commands("run") == [QueuedCommand("stop", b"")]
