"""A running command: its output, its resource usage, how it is ended. Shared by all backends.

A backend makes a `Launch`: a program that confines the command, reports on it on one pipe (status) and passes on what
the shell inside says on another (report). Here it is spawned and followed:

- It has begun when the shell says so. Until then its standard error is the launcher's and is kept back: should it never
  begin, those are the words of `SandboxSetupError`.
- What it prints is read by the event loop as it comes and handed on at once; nothing is kept.
- A clock looks at the memory and the number of its processes.
- It is over when the launched program and the first process inside are both dead. The kernel kills everything else in
  a process namespace before its first process is dead, so then the pipes hold all that there will ever be.

It is spawned by the event loop's own thread, or by one that never ends (see `cgroups`): the kernel takes the end of a
thread for the end of the parent.
"""

import asyncio
import os
import signal
import time
from contextlib import suppress
from functools import partial

from ...domain.errors import SandboxSetupError
from ..host import process_tree
from ..host.cgroups import MemoryUsage, create_cgroup, prepare_cgroup, remove_unused_groups
from ..interface import CommandExit, CommandLimits, EndReason, OutputHandler, OutputStream, RunningCommand
from .launch import Launch, spawn_launch
from .pipes import CHUNK_BYTES, PipeReader, ProcessWatcher
from .status import LaunchStatus, ShellReport, find_signal
from .workspace_lease import WorkspaceLease, acquire_workspace

_STDERR_TAIL_BYTES = 2000
#: Until a command begins; setting up takes milliseconds.
_SETUP_SECONDS = 20.0
#: For a supervisor to end its tree, before it is killed itself.
_SUPERVISOR_SECONDS = 5.0
#: The sandbox is some processes, too.
_OWN_PROCESSES, _OWN_BYTES = 16, 32 << 20
POLL_SECONDS = 0.1
#: Between two looks at an output that may come late.
_BULK_PAUSE_SECONDS = 0.005
#: Control groups are removed so long after a command, when its caller has its result.
_REMOVAL_SECONDS = 0.05
#: Looking at processes may take this part of the event loop's time at most.
_POLL_SHARE = 20


async def run_launch(
    launch: Launch, limits: CommandLimits, on_output: OutputHandler, poll_seconds: float = POLL_SECONDS
) -> RunningCommand:
    """Return the command once it has begun. Raise `SandboxSetupError` when it did not: then nothing of it was
    executed.
    """
    lease: WorkspaceLease | None = None
    try:
        if launch.writable_folder:
            lease = await acquire_workspace(launch.writable_folder, launch.exclusive_until)
        if launch.gate_fd < 0 and (problem := await asyncio.to_thread(launch.prepare, 0, 0)):
            raise SandboxSetupError(f"The command was not started: {problem}. Nothing was executed.")
    except BaseException:
        launch.close_own_fds()
        launch.close_passed_fds()
        if lease is not None:
            lease.release()
        raise
    try:
        running = _CommandProcess(launch, limits, on_output, poll_seconds, lease)
    except BaseException:
        if lease is not None:
            lease.release()
        raise
    await running.wait_until_started()
    return running


class _CommandProcess:
    def __init__(
        self,
        launch: Launch,
        limits: CommandLimits,
        on_output: OutputHandler,
        poll_seconds: float,
        lease: WorkspaceLease | None,
    ) -> None:
        self._launch = launch
        self._lease = lease
        self._limits = limits
        self._on_output = on_output
        self._poll_seconds = poll_seconds
        self._status = LaunchStatus()
        self._report = ShellReport()
        self._reason: EndReason = "exited"
        self._error: Exception | None = None
        self._printed_bytes = 0
        self._peak_bytes = 0
        #: Standard error of the set-up, handed on when the command begins.
        self._held_stderr: bytes | None = None if launch.has_no_start_report else b""
        self._stderr_tail = b""
        self._loop = asyncio.get_running_loop()
        self._started: asyncio.Future[None] = self._loop.create_future()
        self._gate_passed: asyncio.Future[None] = self._loop.create_future()
        self._started_at = time.monotonic()
        #: Where nothing else holds the number of its processes. With room for those of the sandbox itself.
        self._cgroup = create_cgroup(limits.processes + _OWN_PROCESSES, limits.memory_bytes + _OWN_BYTES)
        try:
            self._process, output_fds = spawn_launch(launch, self._cgroup)
        except BaseException:
            if self._cgroup is not None:
                self._cgroup.close()
            raise
        self._shared_memory = process_tree.SharedMemoryCounter()
        self._launched_process = ProcessWatcher(self._loop, self._process.pid)
        #: The first process of the namespace, where there is one.
        self._inner_process: ProcessWatcher | None = None
        pause_seconds = _BULK_PAUSE_SECONDS if launch.has_bulk_output else 0.0
        # In this order they are read to their ends: the first two decide what the others mean.
        self._readers = (
            PipeReader(self._loop, launch.status_fd, self._on_status),
            PipeReader(self._loop, launch.report_fd, self._on_report, self._on_report_closed),
            *(
                PipeReader(self._loop, fd, partial(self._receive, stream), pause_seconds=pause_seconds)
                for stream, fd in output_fds.items()
            ),
        )
        for reader in self._readers:
            reader.watch()
        self._gate_fd = launch.gate_fd
        self._prepare_task: asyncio.Task[None] | None = None
        if self._gate_fd >= 0 and launch.has_no_start_report:
            self._loop.add_writer(self._gate_fd, self._on_gate_reached)
        self._loop.call_soon(prepare_cgroup)
        self._usage_timer = self._loop.call_later(poll_seconds, self._check_usage)
        self._lifecycle = self._loop.create_task(self._run_lifecycle())
        self._lifecycle.add_done_callback(_consume_exception)

    async def wait_until_started(self) -> None:
        if self._launch.has_no_start_report and self._launch.gate_fd < 0:
            return
        # A program that cannot report is let go at the gate: whether it could be executed is known at its end.
        has_begun = self._gate_passed if self._launch.has_no_start_report else self._started
        either = (has_begun, self._lifecycle)
        try:
            await asyncio.wait(either, timeout=_SETUP_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await self._kill_and_wait("stopped")
            raise
        if not has_begun.done() and not self._lifecycle.done():
            await self._kill_and_wait("stopped")
            raise SandboxSetupError(f"The sandbox was not ready after {_SETUP_SECONDS:g} s. Nothing was executed.")
        if self._lifecycle.done():
            self._lifecycle.result()

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        try:
            await asyncio.wait((self._lifecycle,), timeout=timeout_seconds)
        except asyncio.CancelledError:
            await self._terminate("stopped")
            raise
        return self._lifecycle.result() if self._lifecycle.done() else await self._terminate("timeout")

    async def stop(self) -> CommandExit:
        return await self._terminate("stopped")

    async def _terminate(self, reason: EndReason) -> CommandExit:
        """Ask all of it to end; kill it after the grace, or at once when this is cancelled."""
        if self._lifecycle.done():
            return self._lifecycle.result()
        self._set_reason(reason)
        for pid in process_tree.list_descendants(self._process.pid):
            # The first process of a namespace ignores this signal.
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)
        try:
            await asyncio.wait((self._lifecycle,), timeout=self._limits.grace_seconds)
        finally:
            await self._kill_and_wait(reason)
        return self._lifecycle.result()

    async def _kill_and_wait(self, reason: EndReason) -> None:
        self._kill(reason)
        await asyncio.wait((self._lifecycle,), timeout=_SUPERVISOR_SECONDS)
        if not self._lifecycle.done():
            self._launched_process.send(signal.SIGKILL)
            await asyncio.wait((self._lifecycle,))

    def _set_reason(self, reason: EndReason) -> None:
        """Set the reason of the end. The first one counts."""
        if self._reason == "exited":
            self._reason = reason

    def _kill(self, reason: EndReason) -> None:
        if self._lifecycle.done():
            return
        self._set_reason(reason)
        if self._launch.kill_signal == signal.SIGKILL:
            self._kill_inner_process()
        self._launched_process.send(self._launch.kill_signal)

    def _kill_inner_process(self) -> None:
        """Kill the inner process first, while the launched program exists to reap it.

        Bubblewrap's child is bound to the life of its parent only once the sandbox is made. Killed before that, the
        parent would leave it behind; so the parent is stopped until its child is known.
        """
        self._readers[0].drain()
        if self._inner_process is None:
            self._launched_process.send(signal.SIGSTOP)
            if children := process_tree.list_children_when_stopped(self._process.pid):
                self._inner_process = ProcessWatcher(self._loop, children[0])
        if self._inner_process is not None:
            self._inner_process.send(signal.SIGKILL)

    async def _run_lifecycle(self) -> CommandExit:
        try:
            await self._wait_until_dead()
        except asyncio.CancelledError:
            # The event loop ends: nothing may outlive it.
            self._kill("stopped")
            await self._wait_until_dead()
            raise
        finally:
            self._usage_timer.cancel()
            if self._prepare_task is not None:
                self._prepare_task.cancel()
            self._close_gate()
            self._close()
        if self._error is not None:
            raise self._error
        return self._build_exit()

    async def _wait_until_dead(self) -> None:
        await self._launched_process.has_exited.wait()
        status = self._readers[0]
        status.drain()
        if self._inner_process is not None:
            # The kernel signals it when its parent dies; this is for a kernel that is slow to.
            self._inner_process.send(signal.SIGKILL)
            await self._inner_process.has_exited.wait()

    def _close(self) -> None:
        # Dead already, so this does not block.
        self._process.wait()
        if self._process.watched is not None:
            self._process.watched.close()
        if self._cgroup is not None:
            self._cgroup.give_up()
            self._check_cgroup()
            self._loop.call_later(_REMOVAL_SECONDS, remove_unused_groups)
        for reader in self._readers:
            reader.drain()
            reader.close()
            if self._status.exit_code is not None:
                self._mark_started()
        self._launched_process.close()
        if self._inner_process is not None:
            self._inner_process.close()
        if self._lease is not None:
            self._lease.release()
        if self._launch.on_end is not None:
            self._launch.on_end()

    def _build_exit(self) -> CommandExit:
        code = self._status.exit_code
        if self._reason == "exited":
            self._raise_unless_executed(code)
        by_signal = find_signal(code, self._process.wait(), self._report.exit_code, self._reason)
        return CommandExit(
            reason=self._reason,
            exit_code=None if by_signal else code,
            signal=by_signal,
            duration_seconds=time.monotonic() - self._started_at,
            cwd=self._report.cwd,
            peak_memory_bytes=self._peak_bytes,
        )

    def _raise_unless_executed(self, code: int | None) -> None:
        words = self._status.setup_error
        if not words and self._report.says("missing"):
            words = "there is no such program"
        elif not words and self._report.says("moved"):
            words = "the folder it was to start in was moved"
        elif not words:
            if (
                code is not None
                or self._started.done()
                or (self._launch.has_no_start_report and self._process.wait() < 0)
            ):
                return
            words = self._stderr_tail.decode(errors="replace").strip()
        cause = words or f"the sandbox ended with status {self._process.wait()}"
        raise SandboxSetupError(f"The command could not be started in its sandbox: {cause}. Nothing was executed.")

    def _receive(self, stream: OutputStream, chunk: bytes) -> None:
        if stream == "stderr":
            self._stderr_tail = (self._stderr_tail + chunk)[-_STDERR_TAIL_BYTES:]
            if self._held_stderr is not None:
                self._held_stderr += chunk
                if len(self._held_stderr) > CHUNK_BYTES:
                    self._release_stderr()
                return
        self._forward_output(stream, chunk)

    def _release_stderr(self) -> None:
        held, self._held_stderr = self._held_stderr, None
        if held:
            self._forward_output("stderr", held)

    def _forward_output(self, stream: OutputStream, chunk: bytes) -> None:
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

    def _on_status(self, chunk: bytes) -> None:
        self._status.feed(chunk)
        if self._status.started:
            self._mark_started()
        pid = self._status.child_pid
        if (
            self._inner_process is None
            and self._launch.kill_signal == signal.SIGKILL
            and process_tree.is_namespace_init(pid)
        ):
            self._inner_process = ProcessWatcher(self._loop, pid)
            if self._process.watched is not None:
                self._process.watched.add(pid)
            # What follows is asked for when it is needed.
            self._readers[0].unwatch()

    def _on_report(self, chunk: bytes) -> None:
        self._report.feed(chunk)
        if self._report.is_waiting and self._gate_fd >= 0:
            self._on_gate_reached()
        if self._report.says("started"):
            self._mark_started()

    def _on_report_closed(self) -> None:
        if self._report.says("ready"):
            self._mark_started()

    def _on_gate_reached(self) -> None:
        """Prepare the start. If the sandbox could not be created, it has reported why: abort."""
        if self._prepare_task is not None:
            return
        self._loop.remove_writer(self._gate_fd)
        self._readers[0].drain()
        if self._inner_process is None or self._inner_process.has_exited.is_set():
            self._open_or_abort_gate(False)
        elif self._launch.can_prepare_inline:
            self._begin_prepared(self._launch.prepare(self._process.pid, self._status.child_pid))
        else:
            self._prepare_task = self._loop.create_task(self._prepare())

    async def _prepare(self) -> None:
        """Complete the sandbox, and ask whether it is still the right one; in a thread, since both may block."""
        problem = await asyncio.to_thread(self._launch.prepare, self._process.pid, self._status.child_pid)
        self._begin_prepared(problem)

    def _begin_prepared(self, problem: str) -> None:
        self._status.setup_error = self._status.setup_error or problem
        self._open_or_abort_gate(True)

    def _open_or_abort_gate(self, is_ready: bool) -> None:
        if not is_ready or self._status.setup_error:
            self._kill("exited")
        elif self._gate_fd >= 0:
            self._add_to_cgroup()
            with suppress(BrokenPipeError):
                os.write(self._gate_fd, b"\n")
        self._close_gate()
        if not self._gate_passed.done():
            self._gate_passed.set_result(None)

    def _add_to_cgroup(self) -> None:
        """Add processes that were started before the first one was added; all of them wait at the gate now."""
        if self._cgroup is not None and not self._cgroup.has_all:
            for pid in process_tree.list_descendants(self._process.pid):
                self._cgroup.add_process(pid)

    def _check_cgroup(self) -> bool:
        """Take over what the control group counted. Return whether the kernel ended something for the limit."""
        use = MemoryUsage() if self._cgroup is None else self._cgroup.read_memory_usage()
        self._peak_bytes = max(self._peak_bytes, use.peak_bytes)
        if use.is_exceeded:
            self._set_reason("memory_limit")
        return use.is_exceeded

    def _close_gate(self) -> None:
        if self._gate_fd >= 0:
            self._loop.remove_writer(self._gate_fd)
            os.close(self._gate_fd)
            self._gate_fd = -1

    def _mark_started(self) -> None:
        if not self._started.done():
            self._started.set_result(None)
            if self._lease is not None:
                self._lease.mark_started(self._process.pid)
        self._release_stderr()

    def _check_usage(self) -> None:
        before = time.monotonic()
        tree = process_tree.list_descendants(self._process.pid, limit=self._limits.processes + 1)
        is_counted = self._cgroup is not None and self._cgroup.can_limit_memory
        shared = None if is_counted else self._shared_memory
        memory = process_tree.measure_used_bytes(tree, self._limits.memory_bytes, shared)
        self._peak_bytes = max(self._peak_bytes, memory)
        if memory > self._limits.memory_bytes or self._check_cgroup():
            self._kill("memory_limit")
        # One of them is the sandbox's own.
        if len(tree) - 1 > self._limits.processes:
            self._kill("process_limit")
        took = time.monotonic() - before
        self._usage_timer = self._loop.call_later(max(self._poll_seconds, took * _POLL_SHARE), self._check_usage)


def _consume_exception(life: "asyncio.Task[CommandExit]") -> None:
    """Retrieve the exception: an unobserved end is no news for the log."""
    if not life.cancelled():
        life.exception()
