"""Sandboxes that know of the supervisor of a workspace.

`SupervisedSandbox` starts one command there. `CoordinatedSandbox` runs commands in this process, and keeps running
tasks to what holds between commands of one process: they are stopped while a command must be alone, and files that are
to be hidden now are hidden from them too.
"""

import os
from contextlib import AsyncExitStack, suppress

from ...domain.errors import SandboxSetupError
from ..commands.workspace_lease import acquire_workspace
from ..host.descriptors import get_identity
from ..interface import CommandExit, CommandSandbox, CommandSpec, Confinement, OutputHandler, RunningCommand
from .client import SupervisorGoneError, TaskFolder, TaskSupervisor
from .protocol import Ended, ListTasks, StartTask, StopTask, TaskEnd, TaskReply, TaskRequest, Tasks, WaitTask


class SupervisedCommand:
    """A command that a supervisor runs: `RunningCommand`, but cancelling a wait leaves it alone."""

    def __init__(self, supervisor: TaskSupervisor, supervisor_ref: str, folder: TaskFolder) -> None:
        #: Which supervisor runs it. Another one in its place does not know it.
        self.supervisor_ref = supervisor_ref
        self._supervisor = supervisor
        self._folder = folder

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        """Wait for the end. The timeout is kept by the supervisor."""
        end = await self.wait_end()
        if end.exit is None:
            raise RuntimeError(end.note)
        return end.exit

    async def stop(self) -> CommandExit:
        """Stop the command."""
        await self.end()
        return await self.wait()

    async def end(self) -> None:
        """Stop the command, and wait until its supervisor says that it is over, or is gone."""
        with suppress(SupervisorGoneError):
            await self._request(StopTask(self._folder.id))

    async def is_running(self) -> bool:
        """Return True if the recorded supervisor runs it now."""
        with suppress(SupervisorGoneError):
            reply = await self._request(ListTasks())
            return isinstance(reply, Tasks) and any(entry.id == self._folder.id for entry in reply.tasks)
        return False

    async def wait_end(self) -> TaskEnd:
        """Wait for the end. Without a supervisor that recorded one, it is lost."""
        note = "its supervisor is gone, so its end is unknown; only the output until then is known"
        try:
            if (end := self._folder.read_end()) is not None:
                return end
            reply = await self._request(WaitTask(self._folder.id))
            if isinstance(reply, Ended):
                return reply.end
        except SandboxSetupError as error:
            note = str(error)
        except SupervisorGoneError:
            pass
        # Written before the supervisor lets go of a task.
        return self._folder.read_end() or TaskEnd(is_lost=True, note=note)

    async def _request(self, request: TaskRequest) -> TaskReply:
        identity = self._supervisor.read_identity()
        if identity is None or identity.ref != self.supervisor_ref:
            raise SupervisorGoneError
        return await self._supervisor.request(request, identity)


class SupervisedSandbox:
    """Starts one command at the supervisor of its workspace."""

    def __init__(
        self,
        supervisor: TaskSupervisor,
        folder: TaskFolder,
        run_id: str,
        timeout_seconds: float,
        confinement: Confinement,
    ) -> None:
        self.confinement = confinement
        self._supervisor = supervisor
        self._folder = folder
        self._run_id = run_id
        self._timeout_seconds = timeout_seconds

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> SupervisedCommand:
        """Start the command. Its output goes to the folder of the task."""
        if command.overlay is not None or command.on_listener is not None or command.files:
            raise SandboxSetupError("A supervisor runs no command in an overlay or with a proxy. Nothing was executed.")
        request = StartTask(
            task_id=self._folder.id,
            run_id=self._run_id,
            backend=self._supervisor.backend,
            profile=command.profile,
            script=command.script,
            cwd=command.cwd,
            folder=get_identity(os.fstat(command.folder_fd)),
            exclusive_until=command.exclusive_until,
            expected_environment=command.expected_environment,
            environment=dict(command.environment),
            timeout_seconds=self._timeout_seconds,
            idle_seconds=self._supervisor.idle_seconds,
        )
        # Commands of this process that can write are stopped as well, where this one must be alone.
        workspace = command.profile.workspace if command.profile.writable else ""
        lease = await acquire_workspace(workspace, command.exclusive_until) if workspace else None
        try:
            identity = await self._supervisor.start_task(request, command.is_still_valid)
        finally:
            if lease is not None:
                lease.release()
        return SupervisedCommand(self._supervisor, identity.ref, self._folder)


class CoordinatedSandbox:
    """Runs commands in this process, and coordinates them with the tasks of a supervisor."""

    def __init__(self, commands: CommandSandbox, supervisor: TaskSupervisor) -> None:
        self._commands = commands
        self._supervisor = supervisor

    @property
    def confinement(self) -> Confinement:
        """Restrictions of the sandbox inside."""
        return self._commands.confinement

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        """Start a command when running tasks are prepared for it."""
        if not self._supervisor.is_enabled:
            return await self._commands.start(command, on_output)
        prepared = AsyncExitStack()
        is_exclusive = bool(command.exclusive_until)
        await prepared.enter_async_context(
            self._supervisor.prepare_command(command.profile.hidden, is_exclusive=is_exclusive)
        )
        try:
            running = await self._commands.start(command, on_output)
        except BaseException:
            await prepared.aclose()
            raise
        if command.exclusive_until == "end":
            return _ExclusiveCommand(running, prepared)
        await prepared.aclose()
        return running


class _ExclusiveCommand:
    """A command that tasks of a supervisor are stopped for."""

    def __init__(self, running: RunningCommand, prepared: AsyncExitStack) -> None:
        self._running = running
        self._prepared = prepared

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        async with self._prepared:
            return await self._running.wait(timeout_seconds)

    async def stop(self) -> CommandExit:
        async with self._prepared:
            return await self._running.stop()
