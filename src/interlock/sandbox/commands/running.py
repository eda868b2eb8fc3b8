"""A command under way: what it prints, what it uses, how it is ended. Shared by all backends.

A backend makes a `Launch`: a program that confines the command, tells about it on one pipe (status) and passes on what
the shell inside says on another (report). Here it is spawned and followed:

- It has begun when the shell says so. Until then its standard error is the launcher's and is kept back: should it never
  begin, those are the words of `SandboxSetupError`.
- What it prints is read by the event loop as it comes and handed on at once; nothing is kept.
- A clock looks at the memory and the number of its processes.
- It is over when the launched program and the first process inside are both dead. The kernel kills everything else in
  a process namespace before its first process is dead, so then the pipes hold all that there will ever be.

It is spawned by the event loop's own thread: the kernel takes the end of a thread for the end of the parent.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress

from ...domain.errors import SandboxSetupError
from ..host import process_tree
from ..host.cgroups import MemoryUse, make_group
from ..interface import CommandLimits, Ended, OnOutput, Reason, Running, Stream
from .launch import Launch, spawn
from .pipes import CHUNK_BYTES, PipeReader, WatchedProcess
from .status import Report, Status, signal_of
from .turns import Turn, take_turn

_LAST_WORDS_BYTES = 2000
#: Until a command begins; setting up takes milliseconds.
_SETUP_SECONDS = 20.0
#: For a supervisor to end its tree, before it is killed itself.
_SUPERVISOR_SECONDS = 5.0
#: The sandbox is some processes, too.
_OWN_PROCESSES, _OWN_BYTES = 16, 32 << 20
POLL_SECONDS = 0.1
#: Looking at processes may take this part of the event loop's time at most.
_POLL_SHARE = 20


async def run_launch(
    launch: Launch, limits: CommandLimits, on_output: OnOutput, poll_seconds: float = POLL_SECONDS
) -> Running:
    """Return the command once it has begun. `SandboxSetupError` when it did not: then nothing of it was executed."""
    turn: Turn | None = None
    try:
        if launch.writes:
            turn = await take_turn(launch.writes, launch.alone)
        if launch.gate_fd < 0 and (problem := await asyncio.to_thread(launch.prepare, 0, 0)):
            raise SandboxSetupError(f"The command was not started: {problem}. Nothing was executed.")
    except BaseException:
        launch.close_ours()
        launch.close_given()
        if turn is not None:
            turn.end()
        raise
    try:
        running = _RunningCommand(launch, limits, on_output, poll_seconds, turn)
    except BaseException:
        if turn is not None:
            turn.end()
        raise
    await running.begin()
    return running


class _RunningCommand:
    def __init__(
        self, launch: Launch, limits: CommandLimits, on_output: OnOutput, poll_seconds: float, turn: Turn | None
    ) -> None:
        self._launch = launch
        self._turn = turn
        self._limits = limits
        self._on_output = on_output
        self._poll_seconds = poll_seconds
        self._status = Status()
        self._report = Report()
        self._reason: Reason = "exited"
        self._error: Exception | None = None
        self._printed_bytes = 0
        self._peak_bytes = 0
        #: Standard error of the set-up, handed on when the command begins.
        self._held: bytes | None = None if launch.silent else b""
        self._last_words = b""
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._started_at = time.monotonic()
        self._process, output_fds = spawn(launch)
        #: Where nothing else holds the number of its processes. With room for those of the sandbox itself.
        self._group = make_group(limits.processes + _OWN_PROCESSES, limits.memory_bytes + _OWN_BYTES)
        self._shared_memory = process_tree.SharedMemory()
        if self._group is not None:
            self._group.take(self._process.pid)
        self._launched = WatchedProcess(self._loop, self._process.pid)
        #: The first process of the namespace, where there is one.
        self._inside: WatchedProcess | None = None
        # In this order they are read to their ends: the first two decide what the others mean.
        self._readers = (
            PipeReader(self._loop, launch.status_fd, self._hear_status),
            PipeReader(self._loop, launch.report_fd, self._hear_report, self._report_closed),
            PipeReader(self._loop, output_fds["stdout"], lambda chunk: self._receive("stdout", chunk)),
            PipeReader(self._loop, output_fds["stderr"], lambda chunk: self._receive("stderr", chunk)),
        )
        # At a gate the status is asked for when it is needed: it comes in many pieces.
        for reader in self._readers[1 if launch.gate_fd >= 0 else 0 :]:
            reader.watch()
        self._gate_fd = launch.gate_fd
        self._preparing: asyncio.Task[None] | None = None
        if self._gate_fd >= 0 and launch.silent:
            self._loop.add_writer(self._gate_fd, self._at_gate)
        self._watch = self._loop.call_later(poll_seconds, self._look)
        self._life = self._loop.create_task(self._live())
        self._life.add_done_callback(_retrieve)

    async def begin(self) -> None:
        if self._launch.silent:
            return
        either = (self._begun, self._life)
        try:
            await asyncio.wait(either, timeout=_SETUP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._end_now("stopped")
            raise
        if not self._begun.done() and not self._life.done():
            await self._end_now("stopped")
            raise SandboxSetupError(f"The sandbox was not ready after {_SETUP_SECONDS:g} s. Nothing was executed.")
        if self._life.done():
            self._life.result()

    async def wait(self, timeout_seconds: float | None = None) -> Ended:
        try:
            await asyncio.wait((self._life,), timeout=timeout_seconds)
        except asyncio.CancelledError:
            await self._end("stopped")
            raise
        return self._life.result() if self._life.done() else await self._end("timeout")

    async def stop(self) -> Ended:
        return await self._end("stopped")

    async def _end(self, reason: Reason) -> Ended:
        """Ask all of it to end; kill it after the grace, or at once when this is cancelled."""
        if self._life.done():
            return self._life.result()
        self._because(reason)
        for pid in process_tree.descendants(self._process.pid):
            # Namespaces' first processes do not hear this.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        try:
            await asyncio.wait((self._life,), timeout=self._limits.grace_seconds)
        finally:
            await self._end_now(reason)
        return self._life.result()

    async def _end_now(self, reason: Reason) -> None:
        self._kill(reason)
        await asyncio.wait((self._life,), timeout=_SUPERVISOR_SECONDS)
        if not self._life.done():
            self._launched.send(signal.SIGKILL)
            await asyncio.wait((self._life,))

    def _because(self, reason: Reason) -> None:
        """The first reason is the one."""
        if self._reason == "exited":
            self._reason = reason

    def _kill(self, reason: Reason) -> None:
        if self._life.done():
            return
        self._because(reason)
        if self._launch.kill_signal == signal.SIGKILL:
            self._kill_inside()
        self._launched.send(self._launch.kill_signal)

    def _kill_inside(self) -> None:
        """First, so that the launched program is still there to reap it.

        Bubblewrap's child is bound to the life of its parent only once the sandbox is made. Killed before that, the
        parent would leave it behind; so the parent is held still until its child is known.
        """
        self._readers[0].drain()
        if self._inside is None:
            self._launched.send(signal.SIGSTOP)
            if children := process_tree.children_when_stopped(self._process.pid):
                self._inside = WatchedProcess(self._loop, children[0])
        if self._inside is not None:
            self._inside.send(signal.SIGKILL)

    async def _live(self) -> Ended:
        try:
            await self._dead()
        except asyncio.CancelledError:
            # The event loop ends: nothing may outlive it.
            self._kill("stopped")
            await self._dead()
            raise
        finally:
            self._watch.cancel()
            if self._preparing is not None:
                self._preparing.cancel()
            self._close_gate()
            self._close()
        if self._error is not None:
            raise self._error
        return self._ended()

    async def _dead(self) -> None:
        await self._launched.dead.wait()
        status = self._readers[0]
        status.drain()
        if self._inside is not None:
            # It was told by the kernel when its parent died; this is for a kernel that was slow to.
            self._inside.send(signal.SIGKILL)
            await self._inside.dead.wait()

    def _close(self) -> None:
        # Dead already, so this does not block.
        self._process.wait()
        if self._group is not None:
            self._group.close()
            self._check_group()
        for reader in self._readers:
            reader.drain()
            reader.close()
            if self._status.exit_code is not None:
                self._begin()
        self._launched.close()
        if self._inside is not None:
            self._inside.close()
        if self._turn is not None:
            self._turn.end()
        if self._launch.after is not None:
            self._launch.after()

    def _ended(self) -> Ended:
        code = self._status.exit_code
        if self._reason == "exited":
            self._raise_unless_executed(code)
        by_signal = signal_of(code, self._process.wait(), self._report.exit_code, self._reason)
        return Ended(
            reason=self._reason,
            exit_code=None if by_signal else code,
            signal=by_signal,
            duration_seconds=time.monotonic() - self._started_at,
            cwd=self._report.cwd,
            peak_memory_bytes=self._peak_bytes,
        )

    def _raise_unless_executed(self, code: int | None) -> None:
        words = self._status.setup_error
        if not words and self._report.missing:
            words = "there is no such program"
        elif not words and self._report.moved:
            words = "the folder it was to start in was moved"
        elif not words:
            if code is not None or self._begun.done() or (self._launch.silent and self._process.wait() < 0):
                return
            words = self._last_words.decode(errors="replace").strip()
        cause = words or f"the sandbox ended with status {self._process.wait()}"
        raise SandboxSetupError(f"The command could not be started in its sandbox: {cause}. Nothing was executed.")

    def _receive(self, stream: Stream, chunk: bytes) -> None:
        if stream == "stderr":
            self._last_words = (self._last_words + chunk)[-_LAST_WORDS_BYTES:]
            if self._held is not None:
                self._held += chunk
                if len(self._held) > CHUNK_BYTES:
                    self._release()
                return
        self._hand_on(stream, chunk)

    def _release(self) -> None:
        held, self._held = self._held, None
        if held:
            self._hand_on("stderr", held)

    def _hand_on(self, stream: Stream, chunk: bytes) -> None:
        room = self._limits.output_bytes - self._printed_bytes
        self._printed_bytes += len(chunk)
        if len(chunk) > room:
            self._kill("output_limit")
            chunk = chunk[: max(room, 0)]
        if not chunk or self._error is not None:
            return
        try:
            self._on_output(stream, chunk)
        except Exception as error:
            self._error = error
            self._kill("stopped")

    def _hear_status(self, chunk: bytes) -> None:
        self._status.hear(chunk)
        if self._status.started:
            self._begin()
        pid = self._status.child_pid
        if (
            self._inside is None
            and self._launch.kill_signal == signal.SIGKILL
            and process_tree.is_first_of_its_own(pid)
        ):
            self._inside = WatchedProcess(self._loop, pid)

    def _hear_report(self, chunk: bytes) -> None:
        self._report.hear(chunk)
        if self._report.waiting and self._gate_fd >= 0:
            self._at_gate()
        if self._report.begins:
            self._begin()

    def _report_closed(self) -> None:
        if self._report.ready:
            self._begin()

    def _at_gate(self) -> None:
        """The sandbox is made, or failed to be: then it has said why, and there is nothing to look at."""
        if self._preparing is not None:
            return
        self._loop.remove_writer(self._gate_fd)
        self._readers[0].drain()
        if self._inside is None or self._inside.dead.is_set():
            self._leave_gate(False)
        elif self._launch.prepares_fast:
            self._begin_prepared(self._launch.prepare(self._process.pid, self._status.child_pid))
        else:
            self._preparing = self._loop.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Complete the sandbox, and ask whether it is still the right one; in a thread, since both may block."""
        problem = await asyncio.to_thread(self._launch.prepare, self._process.pid, self._status.child_pid)
        self._begin_prepared(problem)

    def _begin_prepared(self, problem: str) -> None:
        self._status.setup_error = self._status.setup_error or problem
        self._leave_gate(True)

    def _leave_gate(self, is_made: bool) -> None:
        if not is_made or self._status.setup_error:
            self._kill("exited")
        elif self._gate_fd >= 0:
            self._take_into_group()
            with suppress(BrokenPipeError):
                os.write(self._gate_fd, b"\n")
        self._close_gate()

    def _take_into_group(self) -> None:
        """Those that were started before the first one was taken; all of them wait at the gate now."""
        if self._group is not None:
            for pid in process_tree.descendants(self._process.pid):
                self._group.take(pid)

    def _check_group(self) -> bool:
        """Take over what the control group counted. Return whether the kernel ended something for the limit."""
        use = MemoryUse() if self._group is None else self._group.memory_use()
        self._peak_bytes = max(self._peak_bytes, use.peak_bytes)
        if use.is_exceeded:
            self._because("memory_limit")
        return use.is_exceeded

    def _close_gate(self) -> None:
        if self._gate_fd >= 0:
            self._loop.remove_writer(self._gate_fd)
            os.close(self._gate_fd)
            self._gate_fd = -1

    def _begin(self) -> None:
        if not self._begun.done():
            self._begun.set_result(None)
            if self._turn is not None:
                self._turn.begin(self._process.pid)
        self._release()

    def _look(self) -> None:
        before = time.monotonic()
        tree = process_tree.descendants(self._process.pid, most=self._limits.processes + 1)
        is_counted = self._group is not None and self._group.holds_memory
        shared = None if is_counted else self._shared_memory
        memory = process_tree.used_bytes(tree, self._limits.memory_bytes, shared)
        self._peak_bytes = max(self._peak_bytes, memory)
        if memory > self._limits.memory_bytes or self._check_group():
            self._kill("memory_limit")
        # One of them is the sandbox's own.
        if len(tree) - 1 > self._limits.processes:
            self._kill("process_limit")
        took = time.monotonic() - before
        self._watch = self._loop.call_later(max(self._poll_seconds, took * _POLL_SHARE), self._look)


def _retrieve(life: "asyncio.Task[Ended]") -> None:
    """Nobody may ask how it ended; that is no news for the log."""
    if not life.cancelled():
        life.exception()
