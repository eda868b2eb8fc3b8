"""What every event log promises about leases, queued commands, run summaries and its version."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from ...domain.errors import LogError, LogFencedError, LogWriteError, RunClaimedError
from ...storage.event_log import EffectClaim, EventLog, Lease, QueuedCommand, RunSummary, Snapshot
from ..log_entries import append_entries, make_entries
from .suite import ConformanceSuite

#: Everything that writes, besides an append.
WRITES: dict[str, Callable[[EventLog], Awaitable[object]]] = {
    "acquire": lambda log: log.acquire("run", force=True),
    "release": lambda log: log.release(Lease("run", 1)),
    "enqueue": lambda log: log.enqueue("run", QueuedCommand("new", b"body")),
    "ack": lambda log: log.ack("run", "old"),
    "claim_effect": lambda log: log.claim_effect("effect", EffectClaim(0, "run", "call", 0), 0),
    "save_snapshot": lambda log: log.save_snapshot("run", Snapshot(0, b"hash", b"state")),
}


class LeaseConformance(ConformanceSuite):
    """Part of `EventLogConformance`."""

    async def test_only_the_newest_lease_can_append(self, log: EventLog) -> None:
        run = make_entries("run", 3)
        lost = await log.acquire("run", force=True)
        await append_entries(log, "run", run[:1], lost)
        newest = await log.acquire("run", force=True)

        for lease in (lost, None, Lease("run", newest.token + 1), Lease("run", 0)):
            with pytest.raises(LogFencedError):
                await append_entries(log, "run", run[1:], lease)
        await append_entries(log, "run", run[1:2], newest)

        assert await log.read("run") == run[:2]

    async def test_held_lease_is_refused_without_using_a_token(self, log: EventLog) -> None:
        lease = await log.acquire("run")

        with pytest.raises(RunClaimedError):
            await log.acquire("run")
        await append_entries(log, "run", make_entries("run", 1), lease)
        await log.release(lease)

        assert (await log.acquire("run")).token == lease.token + 1

    async def test_lease_holders_are_named_until_release(self, log: EventLog) -> None:
        lease = await log.acquire("run")
        await log.release(await log.acquire("other"))

        holders = await log.lease_holders()
        assert list(holders) == ["run"]
        assert holders["run"]
        await log.release(lease)
        assert await log.lease_holders() == {}

    async def test_release_invalidates_the_lease(self, log: EventLog) -> None:
        run = make_entries("run", 2)
        lease = await log.acquire("run", force=True)
        await append_entries(log, "run", run[:1], lease)

        await log.release(lease)
        with pytest.raises(LogFencedError):
            await append_entries(log, "run", run[1:], lease)
        await append_entries(log, "run", run[1:])

        assert await log.read("run") == run

    async def test_tokens_grow_across_releases(self, log: EventLog) -> None:
        tokens: list[int] = []
        for number in range(6):
            lease = await log.acquire("run", force=True)
            tokens.append(lease.token)
            if number % 2:
                await log.release(lease)

        assert tokens == sorted(set(tokens))
        assert tokens[0] > 0

    async def test_releasing_a_lost_lease_keeps_the_newest(self, log: EventLog) -> None:
        run = make_entries("run", 1)
        lost, newest = await log.acquire("run", force=True), await log.acquire("run", force=True)

        await log.release(lost)
        await log.release(Lease("unknown", 7))
        with pytest.raises(LogFencedError):
            await append_entries(log, "run", run)
        await append_entries(log, "run", run, newest)

        assert await log.read("run") == run

    async def test_lease_can_be_acquired_before_first_event(self, log: EventLog) -> None:
        run = make_entries("run", 1)

        lease = await log.acquire("run", force=True)
        assert (await log.run_ids(), await log.list_runs()) == ([], [])
        with pytest.raises(LogFencedError):
            await append_entries(log, "run", run)
        await append_entries(log, "run", run, lease)

        assert await log.run_ids() == ["run"]

    async def test_lease_of_another_run_is_fenced(self, log: EventLog) -> None:
        ours, _ = await log.acquire("run", force=True), await log.acquire("other")

        with pytest.raises(LogFencedError):
            await append_entries(log, "other", make_entries("other", 1), ours)
        await append_entries(log, "third", make_entries("third", 1))

        assert await log.run_ids() == ["third"]

    async def test_leased_append_must_continue_the_run(self, log: EventLog) -> None:
        run = make_entries("run", 3)
        lease = await log.acquire("run", force=True)
        await append_entries(log, "run", run[:1], lease)

        for wrong in (run[:1], run[2:]):
            with pytest.raises(LogFencedError):
                await append_entries(log, "run", wrong, lease)

        assert await log.read("run") == run[:1]

    async def test_takeover_fences_only_later_appends(self, log: EventLog) -> None:
        run = make_entries("run", 4)
        lost = await log.acquire("run", force=True)

        before = asyncio.ensure_future(append_entries(log, "run", run[:2], lost))
        acquiring = asyncio.ensure_future(log.acquire("run", force=True))
        after = asyncio.ensure_future(append_entries(log, "run", run[2:3], lost))
        await asyncio.wait({before, acquiring, after})
        await append_entries(log, "run", run[2:], acquiring.result())

        assert before.exception() is None
        assert isinstance(after.exception(), LogFencedError)
        assert await log.read("run") == run

    async def test_commands_stay_in_order_until_acknowledged(self, log: EventLog) -> None:
        await append_entries(log, "run", make_entries("run", 1))
        commands = [QueuedCommand("stop", b"now"), QueuedCommand("answer q1", b"\x00yes"), QueuedCommand("", b"")]

        assert [await log.enqueue("run", command) for command in commands] == [True, True, True]
        assert await log.queued_commands("run") == commands
        await log.ack("run", "stop")
        await log.ack("run", "stop")
        await log.ack("unknown", "stop")

        assert await log.queued_commands("run") == commands[1:]
        assert await log.enqueue("run", commands[0])
        assert await log.queued_commands("run") == [*commands[1:], commands[0]]

    async def test_commands_of_many_runs_are_read_at_once(self, log: EventLog) -> None:
        first, second = QueuedCommand("stop", b"now"), QueuedCommand("answer", b"yes")
        for run_id in ("a", "b", "c"):
            await append_entries(log, run_id, make_entries(run_id, 1))
        for run_id, command in (("a", first), ("b", first), ("a", second)):
            await log.enqueue(run_id, command)

        assert await log.queued_commands_of(["c", "a", "unknown"]) == {"a": [first, second]}
        assert await log.queued_commands_of([]) == {}

    async def test_release_says_whether_commands_are_queued(self, log: EventLog) -> None:
        await append_entries(log, "run", make_entries("run", 1))

        assert not await log.release(await log.acquire("run"))
        lease = await log.acquire("run")
        await log.enqueue("run", QueuedCommand("stop", b""))
        assert await log.release(lease)

    async def test_holder_of_one_run_is_described(self, log: EventLog) -> None:
        assert await log.lease_holder("run") == ""

        lease = await log.acquire("run")
        assert await log.lease_holder("run") == (await log.lease_holders())["run"]
        await log.release(lease)

        assert await log.lease_holder("run") == ""

    async def test_first_command_of_a_key_wins(self, log: EventLog) -> None:
        first = QueuedCommand("answer", b"yes")
        for run_id in ("run", "other"):
            await append_entries(log, run_id, make_entries(run_id, 1))

        assert await log.enqueue("run", first)
        assert not await log.enqueue("run", first)
        assert not await log.enqueue("run", QueuedCommand("answer", b"no"))
        assert await log.enqueue("other", QueuedCommand("answer", b"no"))

        assert await log.queued_commands("run") == [first]

    async def test_one_of_concurrent_commands_wins(self, log: EventLog) -> None:
        await append_entries(log, "run", make_entries("run", 1))
        commands = [QueuedCommand("answer", bytes([number])) for number in range(10)]

        won = await asyncio.gather(*(log.enqueue("run", command) for command in commands))

        assert won.count(True) == 1
        assert await log.queued_commands("run") == [commands[won.index(True)]]

    async def test_command_needs_no_lease(self, log: EventLog) -> None:
        run = make_entries("run", 2)
        lease = await log.acquire("run", force=True)
        await append_entries(log, "run", run[:1], lease)

        assert await log.enqueue("run", QueuedCommand("answer", b"yes"))
        await append_entries(log, "run", run[1:], lease)

        assert await log.queued_commands("run") == [QueuedCommand("answer", b"yes")]

    async def test_command_for_an_unknown_run_is_refused(self, log: EventLog) -> None:
        await log.acquire("leased, without events")

        for run_id in ("unknown", "leased, without events"):
            with pytest.raises(LogError):
                await log.enqueue(run_id, QueuedCommand("answer", b"yes"))
        await append_entries(log, "run", make_entries("run", 1))

        assert await log.queued_commands("unknown") == []

    async def test_run_summaries_are_newest_first(self, log: EventLog) -> None:
        runs = {name: make_entries(name, count) for name, count in (("a", 3), ("b", 1), ("c", 5))}
        assert await log.list_runs() == []
        for name, run in runs.items():
            await append_entries(log, name, run[:1])
        for name, run in runs.items():
            await append_entries(log, name, run[1:])

        summaries = [RunSummary(runs[name][0], runs[name][-1]) for name in ("c", "b", "a")]
        assert await log.list_runs() == await log.list_runs(9) == summaries
        assert await log.list_runs(2) == summaries[:2]
        assert await log.list_runs(0) == []

    async def test_version_changes_only_with_writes(self, log: EventLog) -> None:
        await append_entries(log, "run", make_entries("run", 1))
        await log.enqueue("run", QueuedCommand("old", b""))
        seen = [log.version()]

        for name, write in WRITES.items():
            await write(log)
            assert log.version() not in seen, name
            seen.append(log.version())
        await append_entries(log, "other", make_entries("other", 1))
        assert log.version() not in seen

        seen.append(log.version())
        await asyncio.gather(
            log.read("run"), log.list_runs(), log.queued_commands("run"), log.run_ids(), log.load_snapshot("run")
        )
        assert log.version() == seen[-1]
        assert not await log.wait_for_change(seen[-1], 0)
        assert await log.wait_for_change(seen[-2], 0)

    @pytest.mark.parametrize("name", WRITES)
    async def test_closed_log_refuses_to_write(self, log: EventLog, name: str) -> None:
        await append_entries(log, "run", make_entries("run", 1))
        await log.close()

        with pytest.raises(LogWriteError):
            await WRITES[name](log)

    @pytest.mark.parametrize(
        "text", ["", "\0", "\udcff", "run\ud800", "x" * 100_000, "'; DROP TABLE runs; --", "%", "ß"]
    )
    async def test_any_text_is_accepted_or_refused(self, log: EventLog, text: str) -> None:
        """Check that an id that cannot be stored raises `LogError` and that the log still works."""
        await append_entries(log, "run", make_entries("run", 1))

        calls = (
            log.acquire(text),
            log.release(Lease(text, 1)),
            log.enqueue(text, QueuedCommand(text, b"")),
            log.enqueue("run", QueuedCommand(text, b"")),
            log.ack("run", text),
            log.ack(text, text),
        )
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
        assert all(not isinstance(outcome, BaseException) or type(outcome) is LogError for outcome in outcomes)
        assert (await log.read(text), await log.queued_commands(text), await log.load_snapshot(text)) == ([], [], None)

        await append_entries(log, "other", make_entries("other", 1))
        assert await log.queued_commands("run") == []
        assert await log.run_ids() == ["run", "other"]
