"""The supervisor: a process for each workspace that runs background tasks, whatever happens to who started them.

It starts exactly what the handler of a permitted call asks for, in the same sandboxes, and asks that handler right
before the command begins whether it is still valid. Tasks end at their timeout, when no process of their run was
connected for a while, when they are stopped, and with this process: the kernel ends sandboxes with their parent. It
ends itself when there is neither a task nor a connection.

Run as `python -c ... FOLDER WORKSPACE`, by `client`. When it listens, it writes its identity to standard output; until
then standard error says what went wrong. It ignores the signals of a terminal; SIGTERM stops all tasks.
"""

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import sys
import time
from collections.abc import Awaitable
from contextlib import ExitStack, suppress
from secrets import token_hex
from typing import TypeVar

from ...domain.errors import ConfigurationError, SandboxSetupError
from ...rendering.text import describe_error
from ..commands.bubblewrap import hide_from_running
from ..commands.probe import BACKENDS, create_sandbox
from ..commands.workspace_lease import acquire_workspace
from ..host.descriptors import closing_fd, get_identity
from ..interface import CommandSpec, RunningCommand
from .protocol import (
    PROTOCOL,
    AskValid,
    ConfirmStart,
    Connection,
    Done,
    Ended,
    ListTasks,
    OutputWriter,
    PrepareCommand,
    ProtocolError,
    Refused,
    RequestMessage,
    StartTask,
    StopRun,
    StopTask,
    SupervisorIdentity,
    TaskEnd,
    TaskEntry,
    TaskReply,
    Tasks,
    WaitTask,
    encode,
    open_folder,
    read_start_time,
    socket_path,
    write_file,
)

MAX_RUNNING = 64
MAX_RUNNING_OF_RUN = 8
_MAX_CONNECTIONS = 256
#: For a message to arrive, and for the client to say whether a command is still valid.
_REQUEST_SECONDS = 30.0
#: For the supervisor before this one to end.
_LOCK_SECONDS = 20
#: Until the client that started this process connects.
_FIRST_SECONDS = 30.0
#: Files of tasks that no run asked for are kept so long.
_KEPT_SECONDS = 7 * 24 * 3600
_IGNORED = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU)

T = TypeVar("T")


class SupervisedTask:
    """A running task, and who is connected to it."""

    def __init__(self, request: StartTask, running: RunningCommand, output: OutputWriter, folder: int) -> None:
        self.entry = TaskEntry(id=request.task_id, run_id=request.run_id, started_at=time.time())
        self._request = request
        self._running = running
        self._output = output
        self._folder = folder
        self._note = ""
        self._connected = 0
        self._idle_timer: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Task[TaskEnd] | None = None
        self.follow = asyncio.create_task(self._follow(), name=request.task_id)
        self._await_connection()

    async def wait(self) -> TaskEnd:
        """Wait for the end. Until then a client counts as connected."""
        self._connected += 1
        self._cancel_timer()
        try:
            return await asyncio.shield(self.follow)
        finally:
            self._connected -= 1
            if not self._connected:
                self._await_connection()

    async def stop(self, note: str = "") -> TaskEnd:
        """Stop the task and wait for its end."""
        self._note = self._note or note
        with suppress(Exception):  # the end says what went wrong
            await self._running.stop()
        return await asyncio.shield(self.follow)

    def _await_connection(self) -> None:
        if not self.follow.done():
            self._idle_timer = asyncio.get_running_loop().call_later(self._request.idle_seconds, self._stop_idle)

    def _cancel_timer(self) -> None:
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def _stop_idle(self) -> None:
        self._note = f"no run asked for it for {self._request.idle_seconds:g} s"
        self._stopping = asyncio.create_task(self.stop())

    async def _follow(self) -> TaskEnd:
        try:
            end = TaskEnd(exit=await self._running.wait(self._request.timeout_seconds), note=self._note)
        except Exception as error:
            end = TaskEnd(note=describe_error(error))
        self._cancel_timer()
        self._output.close()
        try:
            write_file(self._folder, "ended.json", end)
        except OSError as error:
            # Connected clients still get it; for others its end is not known.
            self._note = describe_error(error)
        finally:
            os.close(self._folder)
        return end


class Supervisor:
    """Serves the clients of one workspace."""

    def __init__(self, folder: int, identity: SupervisorIdentity) -> None:
        self._folder = folder
        self._identity = identity
        self._tasks: dict[str, SupervisedTask] = {}
        #: Those that are being started, by the id of the task.
        self._starting: dict[str, str] = {}
        self._connections = 0
        self._over = asyncio.Event()

    async def run(self, listener: socket.socket) -> None:
        """Serve until there is nothing left to do, or SIGTERM comes."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._over.set)
        first = loop.call_later(_FIRST_SECONDS, self._end_if_unused)
        server = await asyncio.start_unix_server(self._serve, sock=listener)
        await self._over.wait()
        first.cancel()
        server.close()
        await asyncio.gather(*(task.stop("its supervisor was stopped") for task in self._tasks.values()))

    def _end_if_unused(self) -> None:
        if not self._tasks and not self._connections:
            self._over.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = Connection(reader, writer)
        self._connections += 1
        try:
            if connection.is_trusted() and self._connections <= _MAX_CONNECTIONS:
                await self._answer(connection)
        except (ProtocolError, EOFError, OSError, TimeoutError):
            pass  # whatever it is, it is no client of ours
        finally:
            connection.close()
            self._connections -= 1
            self._end_if_unused()

    async def _answer(self, connection: Connection) -> None:
        async with asyncio.timeout(_REQUEST_SECONDS):
            message: RequestMessage = await connection.receive(RequestMessage)
        if message.token != self._identity.token or message.protocol != PROTOCOL:
            await connection.send(Refused("The supervisor is another one than was asked for. Nothing was executed."))
            return
        try:
            reply = await self._carry_out(message.request, connection)
        except (SandboxSetupError, ConfigurationError) as error:
            reply = Refused(str(error))
        if reply is not None:
            await connection.send(reply)

    async def _carry_out(self, request: object, connection: Connection) -> TaskReply | None:
        match request:
            case StartTask():
                return await self._start(request, connection)
            case WaitTask() | StopTask():
                return await self._end_task(request, connection)
            case StopRun(run_id):
                theirs = [task for task in self._tasks.values() if task.entry.run_id == run_id]
                await asyncio.gather(*(task.stop("its run is over") for task in theirs))
                return Done()
            case ListTasks():
                return Tasks(tuple(task.entry for task in self._tasks.values()))
            case PrepareCommand():
                return await self._prepare(request, connection)
            case _:
                raise ProtocolError("not a request")

    async def _end_task(self, request: WaitTask | StopTask, connection: Connection) -> TaskReply | None:
        task = self._tasks.get(request.task_id)
        if task is None:
            return Refused("The task does not run here.")
        if isinstance(request, StopTask):
            return Ended(await task.stop())
        end = await _unless_closed(connection.wait_closed(), task.wait())
        return None if end is None else Ended(end)

    async def _prepare(self, request: PrepareCommand, connection: Connection) -> TaskReply | None:
        await asyncio.to_thread(hide_from_running, request.hidden)
        if not request.is_exclusive:
            return Done()
        lease = await _unless_closed(connection.wait_closed(), acquire_workspace(self._identity.workspace, "end"))
        if lease is not None:
            try:
                await connection.send(Done())
                await connection.wait_closed()
            finally:
                lease.release()
        return None

    async def _start(self, request: StartTask, connection: Connection) -> TaskReply | None:
        self._check_room(request)
        self._starting[request.task_id] = request.run_id
        try:
            return await self._start_command(request, connection)
        finally:
            del self._starting[request.task_id]

    def _check_room(self, request: StartTask) -> None:
        runs = [*self._starting.values(), *(task.entry.run_id for task in self._tasks.values())]
        if request.task_id in self._starting or request.task_id in self._tasks:
            raise SandboxSetupError(f"{request.task_id} runs already. Nothing was executed.")
        if len(runs) >= MAX_RUNNING or runs.count(request.run_id) >= MAX_RUNNING_OF_RUN:
            raise SandboxSetupError(
                f"{runs.count(request.run_id)} tasks of this run and {len(runs)} of the workspace are running, which "
                "is the most. Stop one. Nothing was executed."
            )
        if request.profile.workspace != self._identity.workspace or request.backend not in BACKENDS:
            raise SandboxSetupError("The command belongs to another workspace or sandbox. Nothing was executed.")

    async def _start_command(self, request: StartTask, connection: Connection) -> TaskReply | None:
        with ExitStack() as opened:
            try:
                folder = open_folder(request.task_id, self._folder)
                opened.callback(os.close, folder)
                output = OutputWriter(folder, request.profile.limits.output_bytes)
                opened.callback(output.close)
                running = await self._launch(request, connection, output)
            except OSError as error:
                raise SandboxSetupError(f"The task cannot be started: {error}. Nothing was executed.") from None
            if running is None:
                return None
            opened.pop_all()
        task = SupervisedTask(request, running, output, folder)
        self._tasks[request.task_id] = task
        task.follow.add_done_callback(lambda _: self._on_end(request.task_id))
        return Done()

    def _on_end(self, task_id: str) -> None:
        self._tasks.pop(task_id, None)
        self._end_if_unused()

    async def _launch(self, request: StartTask, connection: Connection, output: OutputWriter) -> RunningCommand | None:
        """Start the command. Return None when the client went away meanwhile: then it is over, if it had begun."""
        loop = asyncio.get_running_loop()
        answers: asyncio.Queue[bool] = asyncio.Queue()

        async def listen() -> None:
            with suppress(EOFError, OSError, ProtocolError):
                while True:
                    message: RequestMessage = await connection.receive(RequestMessage)
                    answers.put_nowait(isinstance(message.request, ConfirmStart) and message.request.is_valid)
            answers.put_nowait(False)

        async def ask() -> bool:
            await connection.send(AskValid())
            async with asyncio.timeout(_REQUEST_SECONDS):
                return await answers.get()

        with closing_fd(_open_cwd(request)) as cwd:
            command = CommandSpec(
                profile=request.profile,
                script=request.script,
                cwd=request.cwd,
                folder_fd=cwd,
                exclusive_until=request.exclusive_until,
                expected_environment=request.expected_environment,
                environment=request.environment,
                is_still_valid=lambda: asyncio.run_coroutine_threadsafe(ask(), loop).result(),
            )
            sandbox = create_sandbox(request.backend)  # pyright: ignore[reportArgumentType] - it is one of them
            return await _unless_closed(listen(), sandbox.start(command, output.write))


def _open_cwd(request: StartTask) -> int:
    try:
        fd = os.open(request.cwd or request.profile.workspace, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxSetupError(f"The folder to start in cannot be entered: {error}. Nothing was executed.") from None
    if get_identity(os.fstat(fd)) != request.folder:
        os.close(fd)
        raise SandboxSetupError("The folder to start in was replaced. Nothing was executed.")
    return fd


async def _unless_closed(closing: Awaitable[None], work: Awaitable[T]) -> T | None:
    """Return the result, or None, with the work cancelled, when the client goes away first."""
    working, closed = asyncio.ensure_future(work), asyncio.ensure_future(closing)
    try:
        await asyncio.wait((working, closed), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        for task in (working, closed):
            task.cancel()
        await asyncio.wait((working, closed))


def main(folder_path: str, workspace: str) -> None:
    """Serve the tasks of a workspace, detached from the process that started this one."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    if os.fork():
        os._exit(0)  # so that it is a child of no client
    os.umask(0o077)
    os.chdir("/")
    folder = open_folder(folder_path)
    lock = os.open("lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    signal.alarm(_LOCK_SECONDS)
    fcntl.flock(lock, fcntl.LOCK_EX)
    signal.alarm(0)
    _remove_old_tasks(folder)
    pid = os.getpid()
    identity = SupervisorIdentity(
        id=f"supervisor_{token_hex(4)}",
        token=token_hex(32),
        pid=pid,
        start_time=read_start_time(pid),
        workspace=workspace,
    )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with suppress(FileNotFoundError):
        os.unlink("socket", dir_fd=folder)
    listener.bind(socket_path(folder))
    listener.listen(_MAX_CONNECTIONS)
    write_file(folder, "identity.json", identity)
    os.write(1, encode(identity) + b"\n")
    null = os.open(os.devnull, os.O_RDWR)
    for number in (1, 2):
        os.dup2(null, number)
    try:
        asyncio.run(Supervisor(folder, identity).run(listener))
    finally:
        for name in ("socket", "identity.json"):
            with suppress(OSError):
                os.unlink(name, dir_fd=folder)


def _remove_old_tasks(folder: int) -> None:
    """Remove what tasks left that no run asked for any more."""
    for name in os.listdir(folder):
        with suppress(OSError):
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if name.startswith("task_") and time.time() - found.st_mtime > _KEPT_SECONDS:
                shutil.rmtree(name, dir_fd=folder)


if __name__ == "__main__":
    main(*sys.argv[1:])
