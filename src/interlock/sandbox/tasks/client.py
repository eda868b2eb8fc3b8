"""The client of a supervisor: finds it, starts it, and asks it about the tasks of one workspace.

`TaskSupervisor` is the supervisor of a workspace in a private folder, `TaskFolder` has the files of one task. What uses
them to run commands is in `sandboxes`.
"""

import asyncio
import fcntl
import os
import select
import shutil
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from secrets import token_hex
from typing import Any, TypeVar

import msgspec

from ...domain.errors import ConfigurationError, SandboxSetupError
from ..commands.bubblewrap import BubblewrapSandbox
from ..commands.landlock import LandlockSandbox
from ..commands.launch import recheck_validity
from ..commands.unconfined import UnconfinedSandbox
from ..host.descriptors import closing_fd
from ..host.programs import code_folders, is_inside
from ..host.spawn import spawn_program
from ..interface import CommandSandbox
from .protocol import (
    PROTOCOL,
    AskValid,
    ConfirmStart,
    Connection,
    Done,
    ListTasks,
    OutputReader,
    PrepareCommand,
    ProtocolError,
    Refused,
    RequestMessage,
    StartTask,
    StopRun,
    SupervisorIdentity,
    TaskEnd,
    TaskEntry,
    TaskReply,
    TaskRequest,
    Tasks,
    WaitTask,
    decode,
    make_private_folder,
    name_workspace_folder,
    open_folder,
    read_file,
    socket_path,
    write_file,
)

DEFAULT_IDLE_SECONDS = 1_800.0
#: For a supervisor to listen; it waits for one before it to end.
_START_SECONDS = 60.0
_MAX_IDENTITY_BYTES = 1 << 16
#: For an answer; stopping a task that does not want to end takes some seconds.
_REPLY_SECONDS = 60.0
#: A supervisor that ends while it is asked is replaced so often.
_MAX_TRIES = 5
_PROGRAM = (
    "import sys; sys.path += [p for p in sys.argv.pop(1).split(':') if p not in sys.path]; "
    "from interlock.sandbox.tasks.supervisor import main; main(*sys.argv[1:])"
)
_KEPT_VARIABLES = ("TMPDIR",)
_BACKENDS = (BubblewrapSandbox, LandlockSandbox, UnconfinedSandbox)

T = TypeVar("T")


class SupervisorGoneError(Exception):
    """There is no supervisor, or it ended before it answered."""


class _TaskOwner(msgspec.Struct):
    run_id: str


class TaskFolder:
    """The files of one task. Only its user can read them; what a task printed is there with its secrets."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.id = os.path.basename(path)

    def read(self, name: str, kind: type[T]) -> T | None:
        """Return the content of a file; None when there is none."""
        with suppress(OSError), closing_fd(open_folder(self.path)) as folder:
            return read_file(folder, name, kind)
        return None

    def write(self, name: str, value: Any) -> None:
        """Write a file. Raise `SandboxSetupError` when that is not possible."""
        try:
            with closing_fd(open_folder(self.path)) as folder:
                write_file(folder, name, value)
        except OSError as error:
            raise SandboxSetupError(f"The task has no place for its files: {error}. Nothing was executed.") from None

    def read_end(self) -> TaskEnd | None:
        """Return how the task ended; None when that is not recorded."""
        return self.read("ended.json", TaskEnd)

    @property
    def was_started(self) -> bool:
        """Return True if a supervisor was asked to start the task."""
        return os.path.exists(os.path.join(self.path, "output"))

    def open_output(self) -> OutputReader:
        """Return a reader of what the task printed."""
        return OutputReader(os.path.join(self.path, "output"))

    def remove(self) -> None:
        """Remove all of it."""
        shutil.rmtree(self.path, ignore_errors=True)


class SupervisorFolder:
    """The files of the tasks of one workspace, and the supervisor that runs them now."""

    def __init__(self, path: str) -> None:
        self._folder = path

    def list_tasks(self) -> list[TaskFolder]:
        """List the folders of all tasks, also of those that are over."""
        try:
            names = sorted(os.listdir(self._folder)) if self._folder else []
        except OSError:
            return []
        return [TaskFolder(os.path.join(self._folder, name)) for name in names if name.startswith("task_")]

    def read_identity(self) -> SupervisorIdentity | None:
        """Return the identity of the supervisor that runs now; None when there is none."""
        identity = TaskFolder(self._folder).read("identity.json", SupervisorIdentity)
        return identity if identity is not None and identity.is_alive else None

    async def request(self, request: TaskRequest, identity: SupervisorIdentity) -> TaskReply:
        """Ask the supervisor. Raise `SupervisorGoneError` when it is gone."""
        async with self.connect(identity) as connection:
            try:
                async with asyncio.timeout(None if isinstance(request, WaitTask) else _REPLY_SECONDS):
                    await _send(connection, identity, request)
                    return await _receive(connection)
            except TimeoutError:
                raise SandboxSetupError(
                    f"The supervisor of background tasks (process {identity.pid}) does not answer."
                ) from None

    async def list_running(self) -> tuple[TaskEntry, ...]:
        """Return the running tasks of all runs."""
        with suppress(SupervisorGoneError):
            identity = self.read_identity()
            reply = None if identity is None else await self.request(ListTasks(), identity)
            if isinstance(reply, Tasks):
                return reply.tasks
        return ()

    async def end_run(self, run_id: str) -> None:
        """Stop all tasks of a run that is over, and remove their files."""
        identity = self.read_identity()
        if identity is not None:
            with suppress(SupervisorGoneError):
                await self.request(StopRun(run_id), identity)
        await asyncio.to_thread(self._remove_tasks, run_id)

    def _remove_tasks(self, run_id: str) -> None:
        for folder in self.list_tasks():
            owner = folder.read("task.json", _TaskOwner)
            if owner is not None and owner.run_id == run_id:
                folder.remove()

    @asynccontextmanager
    async def connect(self, identity: SupervisorIdentity) -> AsyncGenerator[Connection]:
        """Connect to the supervisor. Raise `SupervisorGoneError` when it is gone."""
        if identity.protocol != PROTOCOL:
            raise SandboxSetupError(
                f"Background tasks of this workspace are run by another version of Interlock (process {identity.pid}). "
                "Stop them with that version, or end that process. Nothing was executed."
            )
        try:
            connection = Connection(*await asyncio.open_unix_connection(sock=self.open_socket()))
        except BlockingIOError:
            raise SandboxSetupError(
                f"The supervisor of background tasks (process {identity.pid}) does not answer."
            ) from None
        except OSError as error:
            raise SupervisorGoneError(str(error)) from None
        try:
            if not connection.is_trusted():
                raise SandboxSetupError(
                    "The supervisor of background tasks runs as another user, or in a container. Nothing was executed."
                )
            yield connection
        finally:
            connection.close()

    def open_socket(self) -> socket.socket:
        """Return a connected socket. Raise `OSError` when no supervisor listens."""
        with closing_fd(open_folder(self._folder)) as folder:
            channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            channel.setblocking(False)  # connecting takes no time, unless too many others wait
            try:
                channel.connect(socket_path(folder))
            except BaseException:
                channel.close()
                raise
        return channel


class TaskSupervisor(SupervisorFolder):
    """The supervisor of one workspace, as a client sees it. Without a folder there is none."""

    def __init__(self, workspace: str, workspace_identity: tuple[int, ...], commands: CommandSandbox) -> None:
        super().__init__("")
        self.workspace = workspace
        self.backend = commands.confinement.backend
        #: A supervisor can make the same sandbox.
        self.is_possible = type(commands) in _BACKENDS
        self.idle_seconds = DEFAULT_IDLE_SECONDS
        self._key = name_workspace_folder(workspace, workspace_identity)

    def use_folder(self, folder: str, idle_seconds: float = DEFAULT_IDLE_SECONDS, readable: Iterable[str] = ()) -> None:
        """Keep tasks in this folder. Raise `ConfigurationError` when commands could reach it, in or around the
        workspace or in a `readable` folder, or when the sandbox is one that a supervisor cannot make.
        """
        folder = os.path.realpath(folder)
        if not self.is_possible:
            raise ConfigurationError(f"A supervisor of background tasks cannot make the sandbox {self.backend!r}.")
        if is_inside(folder, self.workspace) or is_inside(self.workspace, folder):
            raise ConfigurationError(
                f"The folder for background tasks, {folder}, must be outside of the workspace {self.workspace}."
            )
        if shown := next((path for path in readable if is_inside(folder, os.path.realpath(path))), ""):
            raise ConfigurationError(f"Commands can read {shown}, so background tasks cannot be kept in {folder}.")
        if not idle_seconds > 0:
            raise ConfigurationError("The idle time of background tasks must be a positive number of seconds.")
        self._folder, self.idle_seconds = os.path.join(folder, self._key), idle_seconds

    @property
    def is_enabled(self) -> bool:
        """Return True if tasks are kept by a supervisor."""
        return bool(self._folder)

    def create_task(self) -> TaskFolder:
        """Create the folder of a new task. May block."""
        try:
            make_private_folder(os.path.dirname(self._folder))
            make_private_folder(self._folder)
        except ConfigurationError as error:
            raise SandboxSetupError(f"{error} Nothing was executed.") from None
        while True:
            path = os.path.join(self._folder, f"task_{token_hex(4)}")
            try:
                os.mkdir(path, 0o700)
            except FileExistsError:
                continue
            except OSError as error:
                raise SandboxSetupError(f"The task has no place: {error}. Nothing was executed.") from None
            return TaskFolder(path)

    def find_task(self, task_id: str) -> TaskFolder | None:
        """Return the folder of a task; None when there is none."""
        path = os.path.join(self._folder, os.path.basename(task_id))
        return TaskFolder(path) if self._folder and task_id.startswith("task_") and os.path.isdir(path) else None

    async def start_task(self, request: StartTask, is_still_valid: Callable[[], bool] | None) -> SupervisorIdentity:
        """Start a task, with a supervisor if there is none. Raise `SandboxSetupError` when nothing was executed."""
        for _ in range(_MAX_TRIES):
            identity = await asyncio.to_thread(self._ensure_started)
            try:
                await self._request_start(request, is_still_valid, identity)
            except SupervisorGoneError:
                continue  # it had nothing to do, and ended before it read this
            return identity
        raise SandboxSetupError("The supervisor of background tasks ends again and again. Nothing was executed.")

    async def _request_start(
        self, request: StartTask, is_still_valid: Callable[[], bool] | None, identity: SupervisorIdentity
    ) -> None:
        is_confirmed = False
        async with self.connect(identity) as connection:
            try:
                await _send(connection, identity, request)
                while isinstance(reply := await _receive(connection), AskValid):
                    is_valid = is_still_valid is None or not await asyncio.to_thread(recheck_validity, is_still_valid)
                    is_confirmed = is_confirmed or is_valid
                    await _send(connection, identity, ConfirmStart(is_valid))
            except SupervisorGoneError:
                if is_confirmed:
                    raise RuntimeError("The supervisor of background tasks died while it started one.") from None
                raise
        if not isinstance(reply, Done):
            raise SandboxSetupError(
                reply.message
                if isinstance(reply, Refused)
                else "The supervisor did not start it. Nothing was executed."
            )

    @asynccontextmanager
    async def prepare_command(self, hidden: Iterable[str], *, is_exclusive: bool) -> AsyncGenerator[None]:
        """Hide paths from running tasks; with `is_exclusive` no task that can write runs until the end of the block."""
        identity = self.read_identity() if self._folder else None
        async with AsyncExitStack() as stack:
            if identity is not None:
                with suppress(SupervisorGoneError):
                    connection = await stack.enter_async_context(self.connect(identity))
                    await _send(connection, identity, PrepareCommand(tuple(hidden), is_exclusive))
                    if isinstance(reply := await _receive(connection), Refused):
                        raise SandboxSetupError(reply.message)
            yield

    def _ensure_started(self) -> SupervisorIdentity:
        """Return the supervisor, started if there is none. Blocks."""
        with self._start_lock():
            identity = self.read_identity()
            if identity is not None:
                with suppress(OSError):
                    self.open_socket().close()
                    return identity
            return self._spawn()

    @contextmanager
    def _start_lock(self) -> Generator[None]:
        try:
            fd = os.open(
                os.path.join(self._folder, "start.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
            )
        except OSError as error:
            raise SandboxSetupError(f"Background tasks have no place: {error}. Nothing was executed.") from None
        with closing_fd(fd):
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield

    def _spawn(self) -> SupervisorIdentity:
        reading, writing = os.pipe()
        try:
            pid = spawn_program(
                (sys.executable, "-I", "-c", _PROGRAM, ":".join(_import_folders()), self._folder, self.workspace),
                {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ},
                (),
                output=(writing, writing),
                new_session=True,
            )
        except OSError as error:
            os.close(reading)
            raise SandboxSetupError(f"The supervisor cannot be started: {error}. Nothing was executed.") from None
        finally:
            os.close(writing)
        try:
            said = _read_line(reading)
        finally:
            os.close(reading)
            os.waitpid(pid, 0)  # it has forked by now, or has died
        try:
            return decode(said, SupervisorIdentity)
        except ProtocolError:
            words = said.decode(errors="replace").strip()[-500:]
            raise SandboxSetupError(
                f"The supervisor of background tasks did not start: {words or 'it said nothing'}. Nothing was executed."
            ) from None


def _import_folders() -> list[str]:
    """Return the folders that the supervisor imports from: those of this package and of the libraries of this process,
    and never the current folder.
    """
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    known = {os.path.realpath(folder) for folder in code_folders()}
    return [package, *(entry for entry in sys.path if os.path.isabs(entry) and os.path.realpath(entry) in known)]


def _read_line(fd: int) -> bytes:
    """Read until a line is complete, the writers are gone, or the time is up."""
    said, until = b"", time.monotonic() + _START_SECONDS
    while not said.endswith(b"}\n") and len(said) < _MAX_IDENTITY_BYTES:
        ready, _, _ = select.select([fd], [], [], max(0.0, until - time.monotonic()))
        chunk = os.read(fd, 4096) if ready else b""
        if not chunk:
            break
        said += chunk
    return said


async def _send(connection: Connection, identity: SupervisorIdentity, request: TaskRequest) -> None:
    try:
        await connection.send(RequestMessage(identity.token, request))
    except ProtocolError as error:
        raise SandboxSetupError(f"Background tasks cannot be asked: {error} Nothing was executed.") from None
    except OSError as error:
        raise SupervisorGoneError(str(error)) from None


async def _receive(connection: Connection) -> TaskReply:
    try:
        return await connection.receive(TaskReply)
    except (ConnectionError, EOFError) as error:
        raise SupervisorGoneError(str(error)) from None
    except ProtocolError as error:
        raise SandboxSetupError(f"The supervisor of background tasks is not understood: {error}") from None


def list_workspaces(folder: str) -> list[SupervisorFolder]:
    """Return the folders of all workspaces in a folder for tasks."""
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return []
    return [SupervisorFolder(os.path.join(folder, name)) for name in names]
