"""Exclusive access to a workspace: a command that must be alone stops the others until it lets them continue.

An approval is bound to the contents of files. Between the last look at them and their use nothing that a model started
may write, so such a command is alone: every other command that can write the same folder, or one in or around it, is
stopped with all that it started, and verified to be stopped; new ones wait. A stopped process cannot fork, so stopping
one after the other comes to an end.

This holds for the commands of this process. Turns are taken in threads of any event loop.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from threading import Lock

from ...domain.errors import SandboxSetupError
from ..host import process_tree
from ..host.programs import is_inside
from ..interface import ExclusiveUntil

#: Until a command that took its turn has begun; its set-up is bounded as well.
_START_SECONDS = 30.0
_STOP_SECONDS = 1.0
#: A process that waits for a vfork child counts as stopped only when that child has continued.
_MAX_TRIES = 5


class WorkspaceLease:
    """The lease of one command among those that can write its workspace."""

    def __init__(self, workspace: str, exclusive_until: ExclusiveUntil) -> None:
        self.workspace = workspace
        self.exclusive_until: ExclusiveUntil = exclusive_until
        #: The launched process, once the command has begun.
        self.pid = 0
        #: Processes that it stopped, to be continued.
        self.stopped: list[int] = []

    def mark_started(self, pid: int) -> None:
        """Record the process of the command and let other commands continue."""
        self.pid = pid
        if self.exclusive_until == "start":
            self._resume_others()
        _wake_waiters()

    def release(self) -> None:
        """Release the lease and let other commands continue."""
        with _lock:
            _leases.discard(self)
        self._resume_others()
        _wake_waiters()

    def _resume_others(self) -> None:
        self.exclusive_until = ""
        stopped, self.stopped = self.stopped, []
        for pid in stopped:
            _send_signal(pid, signal.SIGCONT)

    def overlaps(self, workspace: str) -> bool:
        """Return True if one of the workspaces contains the other."""
        return is_inside(workspace, self.workspace) or is_inside(self.workspace, workspace)


_lock = Lock()
_leases: set[WorkspaceLease] = set()
#: Those who wait for another command to begin or to end.
_waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []


async def acquire_workspace(workspace: str, exclusive_until: ExclusiveUntil) -> WorkspaceLease:
    """Wait until no other command must be alone in the workspace; stop the others where this one must.

    `SandboxSetupError` when they cannot be stopped.
    """
    lease = WorkspaceLease(workspace, exclusive_until)
    while (changed := _try_acquire(lease)) is not None:
        await changed.wait()
    if exclusive_until:
        try:
            async with asyncio.timeout(_START_SECONDS):
                await _wait_until_others_started(lease)
            await asyncio.to_thread(_stop_trees, lease, [other.pid for other in _find_overlapping(lease)])
        except TimeoutError:
            lease.release()
            raise SandboxSetupError("Another command of this workspace did not begin. Nothing was executed.") from None
        except BaseException:
            lease.release()
            raise
    return lease


def _try_acquire(lease: WorkspaceLease) -> asyncio.Event | None:
    """Return what to wait for when another command must be alone; None: the lease is acquired."""
    with _lock:
        if any(other.exclusive_until and other.overlaps(lease.workspace) for other in _leases):
            return _add_waiter()
        _leases.add(lease)
        return None


async def _wait_until_others_started(lease: WorkspaceLease) -> None:
    while not all(other.pid for other in _find_overlapping(lease)):
        with _lock:
            changed = _add_waiter()
        if all(other.pid for other in _find_overlapping(lease)):
            return
        await changed.wait()


def _add_waiter() -> asyncio.Event:
    changed = asyncio.Event()
    _waiters.append((asyncio.get_running_loop(), changed))
    return changed


def _wake_waiters() -> None:
    with _lock:
        waiting = tuple(_waiters)
        _waiters.clear()
    for loop, changed in waiting:
        with suppress(RuntimeError):  # that event loop is closed
            loop.call_soon_threadsafe(changed.set)


def _find_overlapping(lease: WorkspaceLease) -> list[WorkspaceLease]:
    with _lock:
        return [other for other in _leases if other is not lease and other.overlaps(lease.workspace)]


def _stop_trees(lease: WorkspaceLease, roots: list[int]) -> None:
    for _ in range(_MAX_TRIES):
        if _stop_all(lease.stopped, roots):
            return
        for pid in lease.stopped:
            _send_signal(pid, signal.SIGCONT)
        lease.stopped.clear()
    raise SandboxSetupError(
        "Commands in the background could not be stopped while this one starts, so they could change its files. "
        "Nothing was executed. End them with stop_task and try again."
    )


def _stop_all(stopped: list[int], roots: list[int]) -> bool:
    """Stop everything below these processes. False: something did not stop in time."""
    until = time.monotonic() + _STOP_SECONDS
    while True:
        found = [pid for root in roots for pid in process_tree.list_descendants(root)]
        new = [pid for pid in found if pid not in stopped]
        for pid in new:
            _send_signal(pid, signal.SIGSTOP)
        stopped += new
        if not new and all(map(process_tree.is_stopped, found)):
            return True
        if time.monotonic() > until:
            return False
        os.sched_yield()


def _send_signal(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
