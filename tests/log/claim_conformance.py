"""What every log promises about claims, notes, the ends of runs, and its version. See `conformance`."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from interlock.domain.errors import LogError, LogFencedError, LogWriteError, RunClaimedError
from interlock.storage.event_log import EventLog, Lease, QueuedCommand, RunSummary, Snapshot
from interlock.storage.leases import this_process

from .conformance import OpenLog
from .runs import append, chained

#: Everything that writes, besides an append.
WRITES: dict[str, Callable[[EventLog], Awaitable[object]]] = {
    "claim": lambda log: log.acquire("run", force=True),
    "release": lambda log: log.release(Lease("run", 1)),
    "post": lambda log: log.enqueue("run", QueuedCommand("new", b"body")),
    "take_away": lambda log: log.ack("run", "old"),
    "save_snapshot": lambda log: log.save_snapshot("run", Snapshot(0, b"hash", b"state")),
}


class ClaimConformance:
    async def test_only_the_newest_claim_can_append(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 3)
        lost = await log.acquire("run", force=True)
        await append(log, "run", run[:1], lost)
        newest = await log.acquire("run", force=True)

        for claim in (lost, None, Lease("run", newest.token + 1), Lease("run", 0)):
            with pytest.raises(LogFencedError, match=r"run .*Nothing was written"):
                await append(log, "run", run[1:], claim)
        await append(log, "run", run[1:2], newest)

        assert await log.read("run") == run[:2]

    async def test_a_claim_in_force_is_refused_to_everybody_else_in_words_and_uses_no_token(
        self, open_log: OpenLog
    ) -> None:
        log, run = open_log(), chained("run", 1)
        claim = await log.acquire("run")

        with pytest.raises(RunClaimedError, match=r"this very process.*Nothing was written"):
            await log.acquire("run")
        await append(log, "run", run, claim)
        await log.release(claim)

        assert (await log.acquire("run")).token == claim.token + 1

    async def test_the_holders_are_the_runs_that_are_claimed_now_with_their_process(self, open_log: OpenLog) -> None:
        log = open_log()
        claim = await log.acquire("run")
        given_back = await log.acquire("other")
        await log.release(given_back)

        assert await log.lease_holders() == {"run": str(this_process())}
        await log.release(claim)
        assert await log.lease_holders() == {}

    async def test_after_a_release_anybody_may_append_except_with_the_old_claim(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 2)
        claim = await log.acquire("run", force=True)
        await append(log, "run", run[:1], claim)

        await log.release(claim)
        with pytest.raises(LogFencedError, match="given back"):
            await append(log, "run", run[1:], claim)
        await append(log, "run", run[1:])

        assert await log.read("run") == run

    async def test_tokens_grow_also_over_a_release(self, open_log: OpenLog) -> None:
        log = open_log()

        tokens: list[int] = []
        for number in range(6):
            claim = await log.acquire("run", force=True)
            tokens.append(claim.token)
            if number % 2:
                await log.release(claim)

        assert tokens == sorted(set(tokens))
        assert tokens[0] > 0

    async def test_releasing_a_lost_claim_leaves_the_newest_in_force(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 1)
        lost, newest = await log.acquire("run", force=True), await log.acquire("run", force=True)

        await log.release(lost)
        await log.release(Lease("nobody", 7))
        with pytest.raises(LogFencedError):
            await append(log, "run", run)
        await append(log, "run", run, newest)

        assert await log.read("run") == run

    async def test_a_run_can_be_claimed_before_it_begins_and_is_not_listed_until_then(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 1)

        claim = await log.acquire("run", force=True)
        assert (await log.run_ids(), await log.list_runs()) == ([], [])
        with pytest.raises(LogFencedError):
            await append(log, "run", run)
        await append(log, "run", run, claim)

        assert await log.run_ids() == ["run"]

    async def test_a_claim_is_worth_nothing_for_another_run(self, open_log: OpenLog) -> None:
        log = open_log()
        ours, _ = await log.acquire("run", force=True), await log.acquire("other")

        with pytest.raises(LogFencedError, match="a claim of run is none of other"):
            await append(log, "other", chained("other", 1), ours)
        await append(log, "third", chained("third", 1))

        assert await log.run_ids() == ["third"]

    async def test_with_the_claim_an_append_must_still_continue_the_run(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 3)
        claim = await log.acquire("run", force=True)
        await append(log, "run", run[:1], claim)

        for wrong in (run[:1], run[2:]):
            with pytest.raises(LogFencedError, match="does not continue run"):
                await append(log, "run", wrong, claim)

        assert await log.read("run") == run[:1]

    async def test_what_was_handed_in_before_a_claim_is_written_and_what_comes_after_it_is_not(
        self, open_log: OpenLog
    ) -> None:
        log, run = open_log(), chained("run", 4)
        lost = await log.acquire("run", force=True)

        before = asyncio.ensure_future(append(log, "run", run[:2], lost))
        claiming = asyncio.ensure_future(log.acquire("run", force=True))
        after = asyncio.ensure_future(append(log, "run", run[2:3], lost))
        await asyncio.wait({before, claiming, after})
        await append(log, "run", run[2:], claiming.result())

        assert before.exception() is None
        assert isinstance(after.exception(), LogFencedError)
        assert await log.read("run") == run

    async def test_notes_are_kept_in_order_until_they_are_taken_away(self, open_log: OpenLog) -> None:
        log = open_log()
        await append(log, "run", chained("run", 1))
        notes = [QueuedCommand("stop", b"now"), QueuedCommand("answer q1", b"\x00yes"), QueuedCommand("", b"")]

        assert [await log.enqueue("run", note) for note in notes] == [True, True, True]
        assert await log.queued_commands("run") == notes
        await log.ack("run", "stop")
        await log.ack("run", "stop")
        await log.ack("nobody", "stop")

        assert await log.queued_commands("run") == notes[1:]
        assert await log.enqueue("run", notes[0])
        assert await log.queued_commands("run") == [*notes[1:], notes[0]]

    async def test_of_several_notes_under_one_key_the_first_one_stands(self, open_log: OpenLog) -> None:
        log, first = open_log(), QueuedCommand("answer", b"yes")
        for run_id in ("run", "other"):
            await append(log, run_id, chained(run_id, 1))

        assert await log.enqueue("run", first)
        assert not await log.enqueue("run", first)
        assert not await log.enqueue("run", QueuedCommand("answer", b"no"))
        assert await log.enqueue("other", QueuedCommand("answer", b"no"))

        assert await log.queued_commands("run") == [first]

    async def test_of_many_notes_posted_at_once_under_one_key_one_wins(self, open_log: OpenLog) -> None:
        log = open_log()
        await append(log, "run", chained("run", 1))
        notes = [QueuedCommand("answer", bytes([number])) for number in range(10)]

        won = await asyncio.gather(*(log.enqueue("run", note) for note in notes))

        assert won.count(True) == 1
        assert await log.queued_commands("run") == [notes[won.index(True)]]

    async def test_a_note_needs_no_claim(self, open_log: OpenLog) -> None:
        log = open_log()
        claim = await log.acquire("run", force=True)
        await append(log, "run", chained("run", 2)[:1], claim)

        assert await log.enqueue("run", QueuedCommand("answer", b"yes"))
        await append(log, "run", chained("run", 2)[1:], claim)

        assert await log.queued_commands("run") == [QueuedCommand("answer", b"yes")]

    async def test_a_note_for_a_run_that_is_not_there_is_refused_in_words_and_the_log_goes_on(
        self, open_log: OpenLog
    ) -> None:
        log = open_log()
        await log.acquire("claimed but not begun")

        for run_id in ("nobody", "claimed but not begun"):
            with pytest.raises(LogError, match=f"there is no run {run_id}"):
                await log.enqueue(run_id, QueuedCommand("answer", b"yes"))
        await append(log, "run", chained("run", 1))

        assert await log.queued_commands("nobody") == []

    async def test_the_ends_of_runs_come_newest_first(self, open_log: OpenLog) -> None:
        log = open_log()
        runs = {name: chained(name, count) for name, count in (("a", 3), ("b", 1), ("c", 5))}
        assert await log.list_runs() == []
        for name, run in runs.items():
            await append(log, name, run[:1])
        for name, run in runs.items():
            await append(log, name, run[1:])

        ends = [RunSummary(runs[name][0], runs[name][-1]) for name in ("c", "b", "a")]
        assert await log.list_runs() == await log.list_runs(9) == ends
        assert await log.list_runs(2) == ends[:2]
        assert await log.list_runs(0) == []

    async def test_the_version_changes_with_every_write_and_only_then(self, open_log: OpenLog) -> None:
        log = open_log()
        await append(log, "run", chained("run", 1))
        await log.enqueue("run", QueuedCommand("old", b""))
        seen = [log.version()]

        for name, write in WRITES.items():
            await write(log)
            assert log.version() not in seen, name
            seen.append(log.version())
        await append(log, "other", chained("other", 1))
        assert log.version() not in seen

        seen.append(log.version())
        await asyncio.gather(
            log.read("run"), log.list_runs(), log.queued_commands("run"), log.run_ids(), log.load_snapshot("run")
        )
        assert log.version() == seen[-1]

    @pytest.mark.parametrize("name", WRITES)
    async def test_a_closed_log_refuses_it(self, open_log: OpenLog, name: str) -> None:
        log = open_log()
        await append(log, "run", chained("run", 1))
        await log.close()

        with pytest.raises(LogWriteError, match="closed"):
            await WRITES[name](log)

    @pytest.mark.parametrize(
        "text", ["", "\0", "\udcff", "run\ud800", "x" * 100_000, "'; DROP TABLE runs; --", "%", "ß"]
    )
    async def test_any_text_can_be_asked_for_and_the_log_goes_on(self, open_log: OpenLog, text: str) -> None:
        log = open_log()
        await append(log, "run", chained("run", 1))

        asked = (
            log.acquire(text),
            log.release(Lease(text, 1)),
            log.enqueue(text, QueuedCommand(text, b"")),
            log.enqueue("run", QueuedCommand(text, b"")),
            log.ack("run", text),
            log.ack(text, text),
        )
        outcomes = await asyncio.gather(*asked, return_exceptions=True)
        assert all(not isinstance(outcome, BaseException) or type(outcome) is LogError for outcome in outcomes)
        assert (await log.read(text), await log.queued_commands(text), await log.load_snapshot(text)) == ([], [], None)

        await append(log, "other", chained("other", 1))
        assert await log.queued_commands("run") == []
        assert await log.run_ids() == ["run", "other"]


class DurableClaimConformance(ClaimConformance):
    async def test_claims_and_notes_are_there_after_reopening(self, open_log: OpenLog) -> None:
        log, run = open_log(), chained("run", 2)
        claim = await log.acquire("run", force=True)
        await append(log, "run", run[:1], claim)
        await log.enqueue("run", QueuedCommand("stop", b"now"))
        await log.close()

        log = open_log()
        with pytest.raises(LogFencedError):
            await append(log, "run", run[1:])
        await append(log, "run", run[1:], claim)

        assert await log.queued_commands("run") == [QueuedCommand("stop", b"now")]
        assert (await log.acquire("run", force=True)).token > claim.token

    async def test_a_handle_that_lost_its_claim_is_fenced_although_it_is_in_step(self, open_log: OpenLog) -> None:
        ours, theirs, run = open_log(), open_log(), chained("run", 3)
        lost = await ours.acquire("run", force=True)
        await append(ours, "run", run[:1], lost)
        newest = await theirs.acquire("run", force=True)

        with pytest.raises(LogFencedError, match="taken over by process"):
            await append(ours, "run", run[1:2], lost)
        await append(theirs, "run", run[1:], newest)

        assert await ours.read("run") == run

    async def test_a_release_by_one_handle_is_seen_by_the_others(self, open_log: OpenLog) -> None:
        ours, theirs, run = open_log(), open_log(), chained("run", 2)
        claim = await ours.acquire("run", force=True)
        await append(ours, "run", run[:1], claim)
        with pytest.raises(LogFencedError, match="is claimed by process"):
            await append(theirs, "run", run[1:])

        await ours.release(claim)
        await append(theirs, "run", run[1:])

        assert await ours.read("run") == run

    async def test_of_many_handles_that_claim_at_once_every_one_gets_another_token_and_the_last_one_counts(
        self, open_log: OpenLog
    ) -> None:
        handles, run = [open_log() for _ in range(4)], chained("run", 1)

        claims = await asyncio.gather(*(log.acquire("run", force=True) for log in handles))
        outcomes = await asyncio.gather(
            *(append(log, "run", run, claim) for log, claim in zip(handles, claims, strict=True)),
            return_exceptions=True,
        )

        assert sorted(claim.token for claim in claims) == [1, 2, 3, 4]
        assert [outcome is None for outcome in outcomes] == [claim.token == 4 for claim in claims]

    async def test_the_version_changes_with_the_writes_of_other_handles(self, open_log: OpenLog) -> None:
        ours, theirs = open_log(), open_log()
        await append(theirs, "run", chained("run", 1))
        before = ours.version()

        await theirs.enqueue("run", QueuedCommand("stop", b""))

        assert ours.version() != before
        assert await ours.queued_commands("run") == [QueuedCommand("stop", b"")]
