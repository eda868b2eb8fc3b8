"""What every log promises that offers appends with which the lease of a run begins, or ends."""

from collections.abc import Callable
from typing import Protocol

import pytest

from ...domain.errors import LogError, LogFencedError, RunClaimedError
from ...storage.event_log import EventLog, Lease, LeasingAppend, QueuedCommand
from ..log_entries import append_entries, make_entries
from .suite import ConformanceSuite

RUN = make_entries("run", 8)


class LeasingLog(EventLog, LeasingAppend, Protocol):
    """A log that offers `LeasingAppend`."""


class LeasingAppendConformance(ConformanceSuite):
    """Define the fixture `open_log`: a function that opens the same log each time, also while another handle is open.

    The fixture closes what it opened.
    """

    @pytest.fixture
    def ours(self, open_log: Callable[[], LeasingLog]) -> LeasingLog:
        return open_log()

    @pytest.fixture
    def theirs(self, open_log: Callable[[], LeasingLog]) -> LeasingLog:
        return open_log()

    async def test_first_append_acquires_the_lease(self, ours: LeasingLog, theirs: LeasingLog) -> None:
        lease = await ours.append_and_acquire("run", RUN[:2])

        with pytest.raises(RunClaimedError):
            await theirs.acquire("run")
        with pytest.raises(LogFencedError):
            await append_entries(theirs, "run", RUN[2:3])
        await append_entries(ours, "run", RUN[2:3], lease)
        assert (lease, await ours.read("run")) == (Lease("run", 1), RUN[:3])

    async def test_tokens_grow_with_every_lease(self, ours: LeasingLog) -> None:
        await ours.release(await ours.acquire("run"))

        assert await ours.append_and_acquire("run", RUN[:2]) == Lease("run", 2)

    @pytest.mark.parametrize("has_events", [True, False])
    async def test_run_that_is_not_new_is_not_begun(
        self, ours: LeasingLog, theirs: LeasingLog, has_events: bool
    ) -> None:
        lease = await theirs.acquire("run")
        if has_events:
            await append_entries(theirs, "run", RUN[:1], lease)
            await theirs.release(lease)

        with pytest.raises(LogFencedError):
            await ours.append_and_acquire("run", RUN[:2])

        assert len(await ours.read("run")) == has_events
        assert bool(await ours.lease_holder("run")) != has_events

    async def test_append_that_continues_a_run_does_not_begin_it(self, ours: LeasingLog) -> None:
        lease = await ours.append_and_acquire("run", RUN[:1])
        await ours.release(lease)

        with pytest.raises(LogFencedError):
            await ours.append_and_acquire("run", RUN[1:2])

        assert await ours.read("run") == RUN[:1]

    async def test_append_releases_the_lease(self, ours: LeasingLog, theirs: LeasingLog) -> None:
        lease = await ours.append_and_acquire("run", RUN[:2])

        assert not await ours.append_and_release("run", RUN[2:4], lease)

        with pytest.raises(LogFencedError):
            await append_entries(ours, "run", RUN[4:5], lease)
        assert (await theirs.read("run"), await theirs.lease_holders()) == (RUN[:4], {})
        lease = await theirs.acquire("run")
        await append_entries(theirs, "run", RUN[4:5], lease)
        assert (lease, await ours.read("run")) == (Lease("run", 2), RUN[:5])

    async def test_lost_lease_is_not_released_by_an_append(self, ours: LeasingLog, theirs: LeasingLog) -> None:
        lost = await ours.append_and_acquire("run", RUN[:2])
        lease = await theirs.acquire("run", force=True)

        with pytest.raises(LogFencedError):
            await ours.append_and_release("run", RUN[2:4], lost)

        await append_entries(theirs, "run", RUN[2:3], lease)
        assert await ours.read("run") == RUN[:3]

    async def test_append_that_does_not_continue_keeps_the_lease(self, ours: LeasingLog) -> None:
        lease = await ours.append_and_acquire("run", RUN[:2])

        with pytest.raises(LogFencedError):
            await ours.append_and_release("run", RUN[3:4], lease)

        await append_entries(ours, "run", RUN[2:3], lease)
        assert await ours.lease_holder("run")

    async def test_release_reports_queued_commands(self, ours: LeasingLog, theirs: LeasingLog) -> None:
        lease = await ours.append_and_acquire("run", RUN[:2])
        await theirs.enqueue("run", QueuedCommand("stop", b"1"))

        assert await ours.append_and_release("run", RUN[2:4], lease)

    async def test_append_of_nothing_changes_no_lease(self, ours: LeasingLog) -> None:
        lease = await ours.append_and_acquire("run", RUN[:2])

        for nothing in (lambda: ours.append_and_acquire("new", []), lambda: ours.append_and_release("run", [], lease)):
            with pytest.raises(LogError):
                nothing()
        await append_entries(ours, "run", RUN[2:3], lease)
