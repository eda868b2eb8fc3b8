"""Who may run in a workspace at the moment: a command that must be alone stops the others until it lets them continue.

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
from pathlib import Path
from threading import Lock

from ...domain.errors import SandboxSetupError
from ..host import process_tree
from ..host.programs import is_inside
from ..interface import Alone

#: Until a command that took its turn has begun; its set-up is bounded as well.
_BEGIN_SECONDS = 30.0
_STOP_SECONDS = 1.0
#: A process that waits for a child it shares its memory with counts as stopped only when that child has moved on.
_MAX_TRIES = 5
_STOPPED = frozenset({b"T", b"t", b"Z", b"X"})


class Turn:
    """The place of one command among those that can write its workspace."""

    def __init__(self, workspace: str, alone: Alone) -> None:
        self.workspace = workspace
        self.alone: Alone = alone
        #: The launched process, once the command has begun.
        self.pid = 0
        #: Processes that it stopped, to be continued.
        self.stopped: list[int] = []

    def begin(self, pid: int) -> None:
        self.pid = pid
        if self.alone == "start":
            self._let_others_continue()
        _wake_waiting()

    def end(self) -> None:
        with _lock:
            _turns.discard(self)
        self._let_others_continue()
        _wake_waiting()

    def _let_others_continue(self) -> None:
        self.alone = ""
        stopped, self.stopped = self.stopped, []
        for pid in stopped:
            _send(pid, signal.SIGCONT)

    def concerns(self, workspace: str) -> bool:
        return is_inside(workspace, self.workspace) or is_inside(self.workspace, workspace)


_lock = Lock()
_turns: set[Turn] = set()
#: Those who wait for another command to begin or to end.
_waiting: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []


async def take_turn(workspace: str, alone: Alone) -> Turn:
    """Wait until no other command must be alone in the workspace; stop the others where this one must.

    `SandboxSetupError` when they cannot be stopped.
    """
    turn = Turn(workspace, alone)
    while (changed := _enter(turn)) is not None:
        await changed.wait()
    if alone:
        try:
            async with asyncio.timeout(_BEGIN_SECONDS):
                await _others_begun(turn)
            await asyncio.to_thread(_stop_trees, turn, [other.pid for other in _others(turn)])
        except TimeoutError:
            turn.end()
            raise SandboxSetupError("Another command of this workspace did not begin. Nothing was executed.") from None
        except BaseException:
            turn.end()
            raise
    return turn


def _enter(turn: Turn) -> asyncio.Event | None:
    """Return what to wait for when another command must be alone; None: the turn is taken."""
    with _lock:
        if any(other.alone and other.concerns(turn.workspace) for other in _turns):
            return _next_change()
        _turns.add(turn)
        return None


async def _others_begun(turn: Turn) -> None:
    while not all(other.pid for other in _others(turn)):
        with _lock:
            changed = _next_change()
        if all(other.pid for other in _others(turn)):
            return
        await changed.wait()


def _next_change() -> asyncio.Event:
    changed = asyncio.Event()
    _waiting.append((asyncio.get_running_loop(), changed))
    return changed


def _wake_waiting() -> None:
    with _lock:
        waiting = tuple(_waiting)
        _waiting.clear()
    for loop, changed in waiting:
        with suppress(RuntimeError):  # that event loop is closed
            loop.call_soon_threadsafe(changed.set)


def _others(turn: Turn) -> list[Turn]:
    with _lock:
        return [other for other in _turns if other is not turn and other.concerns(turn.workspace)]


def _stop_trees(turn: Turn, roots: list[int]) -> None:
    for _ in range(_MAX_TRIES):
        if _are_stopped(turn.stopped, roots):
            return
        for pid in turn.stopped:
            _send(pid, signal.SIGCONT)
        turn.stopped.clear()
    raise SandboxSetupError(
        "Commands in the background could not be stopped while this one starts, so they could change its files. "
        "Nothing was executed. End them with stop_task and try again."
    )


def _are_stopped(stopped: list[int], roots: list[int]) -> bool:
    """Stop everything below these processes. False: something did not stop in time."""
    until = time.monotonic() + _STOP_SECONDS
    while True:
        found = [pid for root in roots for pid in process_tree.descendants(root)]
        new = [pid for pid in found if pid not in stopped]
        for pid in new:
            _send(pid, signal.SIGSTOP)
        stopped += new
        if not new and all(map(_is_stopped, found)):
            return True
        if time.monotonic() > until:
            return False
        os.sched_yield()


def _is_stopped(pid: int) -> bool:
    """Return True when no thread of it runs, or when it is gone."""
    try:
        states = [_state(f"/proc/{pid}/task/{task}/stat") for task in os.listdir(f"/proc/{pid}/task")]
    except OSError:
        return True
    return all(state in _STOPPED for state in states)


def _state(path: str) -> bytes:
    try:
        # The name before it may hold anything.
        return Path(path).read_bytes().rpartition(b")")[2].split()[0]
    except OSError:
        return b"X"


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)
