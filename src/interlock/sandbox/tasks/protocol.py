"""What a supervisor of background tasks and its clients share: the private folder, and the messages of the socket.

    FOLDER/WORKSPACE/lock             held by the supervisor for as long as it lives
    FOLDER/WORKSPACE/start.lock       held by a client while it starts a supervisor
    FOLDER/WORKSPACE/socket           where the supervisor listens
    FOLDER/WORKSPACE/identity.json    which supervisor that is
    FOLDER/WORKSPACE/TASK/task.json   what was started, by which run
    FOLDER/WORKSPACE/TASK/before.json the workspace before it
    FOLDER/WORKSPACE/TASK/output      what it printed: see `OutputReader`
    FOLDER/WORKSPACE/TASK/ended.json  how it ended

A message is its length in four bytes and JSON. Lone surrogates, which names of files can hold, are escapes.
"""

import asyncio
import json
import os
import re
import socket
import stat
import struct
from contextlib import suppress
from hashlib import sha256
from math import isfinite
from typing import Any, TypeAlias, TypeVar

import msgspec

from ...domain.errors import ConfigurationError
from ...domain.payload import ExecutionEnvironment
from ..host.descriptors import closing_fd, write_all
from ..host.process_tree import read_bytes
from ..interface import CommandExit, ExclusiveUntil, OutputHandler, OutputStream, SandboxProfile

#: Another one is not understood. Counts up when a message or a file changes its meaning.
PROTOCOL = 1
MAX_MESSAGE_BYTES = 8 << 20
MAX_FILE_BYTES = 64 << 20
#: Beside the output itself, a spool holds this much for each part of it. More is the end of the task.
PART_HEADER = struct.Struct(">BI")
_STREAMS: tuple[OutputStream, OutputStream] = ("stdout", "stderr")
_LENGTH = struct.Struct(">I")
_CREDENTIALS = struct.Struct("3i")
_NAMESPACES = ("mnt", "pid", "user")
_START_TIME_FIELD = 19
_READ_BYTES = 1 << 20
_is_task_id = re.compile(r"task_[0-9a-f]{8}").fullmatch

T = TypeVar("T")


class SupervisorIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """Which supervisor runs in a workspace."""

    id: str
    #: What a request must know. It is never recorded in a log.
    token: str
    pid: int
    #: In ticks since the start of the host.
    start_time: int
    protocol: int = PROTOCOL
    workspace: str = ""

    @property
    def ref(self) -> str:
        """Return what the state of a run records: no other supervisor has the same id, number and start time."""
        return f"{self.id}:{self.pid}:{self.start_time}"

    @property
    def is_alive(self) -> bool:
        """Return True if this very process exists."""
        return read_start_time(self.pid) == self.start_time


class TaskEnd(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a task ended. Without an exit: it could not be followed to its end, or was lost."""

    exit: CommandExit | None = None
    #: Why it could not be followed, or who stopped it.
    note: str = ""
    #: Its supervisor is gone, and recorded no end.
    is_lost: bool = False


class TaskEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A task that a supervisor runs."""

    id: str
    run_id: str
    started_at: float


class StartTask(msgspec.Struct, frozen=True, kw_only=True, tag="start", forbid_unknown_fields=True):
    """Start exactly this command. The supervisor asks back whether it is still valid right before it begins."""

    task_id: str
    run_id: str
    backend: str
    profile: SandboxProfile
    script: str
    cwd: str
    #: Device and inode of that folder: it starts there, or not at all.
    folder: tuple[int, int]
    exclusive_until: ExclusiveUntil = ""
    expected_environment: ExecutionEnvironment | None = None
    environment: dict[str, str] = {}
    timeout_seconds: float
    #: It is stopped when no process of its run was connected for so long.
    idle_seconds: float

    def __post_init__(self) -> None:
        if not _is_task_id(self.task_id):
            raise ValueError("invalid id of a task")
        if not all(isfinite(seconds) and seconds > 0 for seconds in (self.timeout_seconds, self.idle_seconds)):
            raise ValueError("a time must be a positive number of seconds")


class ConfirmStart(msgspec.Struct, frozen=True, tag="confirm", forbid_unknown_fields=True):
    """Answer whether the planned sandbox is still valid."""

    is_valid: bool


class WaitTask(msgspec.Struct, frozen=True, tag="wait", forbid_unknown_fields=True):
    """Wait for the end of a task. While this is asked, its run counts as connected."""

    task_id: str


class StopTask(msgspec.Struct, frozen=True, tag="stop", forbid_unknown_fields=True):
    """Stop a task, and wait for its end."""

    task_id: str


class StopRun(msgspec.Struct, frozen=True, tag="stop_run", forbid_unknown_fields=True):
    """Stop all tasks of a run."""

    run_id: str


class ListTasks(msgspec.Struct, frozen=True, tag="list", forbid_unknown_fields=True):
    """List the running tasks."""


class PrepareCommand(msgspec.Struct, frozen=True, tag="prepare", forbid_unknown_fields=True):
    """Hide these paths from running tasks, and, for a command that must be alone, stop those that can write until the
    connection ends.
    """

    hidden: tuple[str, ...] = ()
    is_exclusive: bool = False


TaskRequest: TypeAlias = StartTask | ConfirmStart | WaitTask | StopTask | StopRun | ListTasks | PrepareCommand


class RequestMessage(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request, for the supervisor with this token."""

    token: str
    request: TaskRequest
    protocol: int = PROTOCOL


class AskValid(msgspec.Struct, frozen=True, tag="ask"):
    """Ask the client whether the command may still begin."""


class Done(msgspec.Struct, frozen=True, tag="done"):
    """The request was carried out."""


class Refused(msgspec.Struct, frozen=True, tag="refused"):
    """Nothing was executed."""

    message: str


class Ended(msgspec.Struct, frozen=True, tag="ended"):
    """The task is over."""

    end: TaskEnd


class Tasks(msgspec.Struct, frozen=True, tag="tasks"):
    """The running tasks."""

    tasks: tuple[TaskEntry, ...]


TaskReply: TypeAlias = AskValid | Done | Refused | Ended | Tasks


class ProtocolError(Exception):
    """A message that is none, or too large."""


class Connection:
    """One connection between a supervisor and a client."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def send(self, message: RequestMessage | TaskReply) -> None:
        """Send a message. Raise `ProtocolError` when it is too large, and `OSError` when the other side is gone."""
        content = encode(message)
        if len(content) > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"A message has {len(content):,} bytes; {MAX_MESSAGE_BYTES:,} is the most.")
        self._writer.write(_LENGTH.pack(len(content)) + content)
        await self._writer.drain()

    async def receive(self, kind: Any) -> Any:
        """Return the next message of that type. Raise `EOFError` at the end, and `ProtocolError` for anything else."""
        (size,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
        if size > MAX_MESSAGE_BYTES:
            raise ProtocolError(f"A message of {size:,} bytes is announced; {MAX_MESSAGE_BYTES:,} is the most.")
        return decode(await self._reader.readexactly(size), kind)

    async def wait_closed(self) -> None:
        """Wait until the other side closes the connection. What it sends is dropped."""
        with suppress(OSError):
            while await self._reader.read(_LENGTH.size):
                pass

    def is_trusted(self) -> bool:
        """Return True if the process on the other side runs as the user of this one, and in no sandbox: should a
        command be shown the folder of the tasks, it must not start commands without one.
        """
        found = self._writer.get_extra_info("socket")
        raw = found.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        pid, user, _ = _CREDENTIALS.unpack(raw)
        try:
            is_outside = all(
                os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(f"/proc/self/ns/{kind}") for kind in _NAMESPACES
            )
        except OSError:
            is_outside = False
        return user == os.geteuid() and is_outside

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()


def encode(value: Any) -> bytes:
    """Return the value as JSON."""
    return json.dumps(msgspec.to_builtins(value)).encode()


def decode(content: bytes, kind: type[T]) -> T:
    """Return JSON as a value of that type. Raise `ProtocolError` for anything else."""
    try:
        return msgspec.convert(json.loads(content), kind)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise ProtocolError(f"A message is invalid: {type(error).__name__}: {error}"[:500]) from None


def read_start_time(pid: int) -> int:
    """Return when a process started, in ticks since the start of the host; -1 when it does not exist."""
    try:
        # The name before the bracket may hold anything.
        return int(read_bytes(f"/proc/{pid}/stat").rpartition(b")")[2].split()[_START_TIME_FIELD])
    except (OSError, IndexError, ValueError):
        return -1


def name_workspace_folder(workspace: str, identity: tuple[int, ...]) -> str:
    """Return the name of the folder for a workspace: another folder of the same path has another."""
    text = f"{workspace}\0{':'.join(map(str, identity))}"
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:24]


def make_private_folder(path: str) -> None:
    """Create a folder for the user alone. Raise `ConfigurationError` when others have access to it."""
    try:
        os.makedirs(os.path.dirname(path) or ".", 0o700, exist_ok=True)
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        found = os.lstat(path)
    except OSError as error:
        raise ConfigurationError(
            f"The folder for background tasks, {path}, cannot be used: {error.strerror or error}."
        ) from None
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or stat.S_IMODE(found.st_mode) & 0o077:
        raise ConfigurationError(
            f"The folder for background tasks, {path}, must be a folder of this user that no one else can enter: "
            f"`chmod 700 {path}`."
        )


def open_folder(path: str, parent: int | None = None) -> int:
    """Open a folder, which must not be a link."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)


def socket_path(folder: int) -> str:
    """Return the path of the socket in an open folder: short enough for an address, whatever the folder is called."""
    return f"/proc/self/fd/{folder}/socket"


def write_file(folder: int, name: str, value: Any) -> None:
    """Write a file in an open folder: all of it or nothing."""
    temporary = f".{name}.new"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600, dir_fd=folder)
    with closing_fd(fd):
        write_all(fd, encode(value))
    os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)


def read_file(folder: int, name: str, kind: type[T]) -> T | None:
    """Return what a file holds; None when there is none, or when it is damaged."""
    try:
        fd = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
    except OSError:
        return None
    with open(fd, "rb") as file, suppress(ProtocolError, OSError):
        content = file.read(MAX_FILE_BYTES + 1)
        return decode(content, kind) if len(content) <= MAX_FILE_BYTES else None
    return None


class OutputWriter:
    """The spool of a task's output: parts, each with its stream and length before it."""

    def __init__(self, folder: int, max_bytes: int) -> None:
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open("output", flags, 0o600, dir_fd=folder)
        self._room = 2 * max_bytes + (1 << 20)

    def write(self, stream: OutputStream, chunk: bytes) -> None:
        """Append a part. Raise `OSError` when there is no room."""
        self._room -= PART_HEADER.size + len(chunk)
        if self._room < 0:
            raise OSError("the output has more parts than its file may hold")
        write_all(self._fd, PART_HEADER.pack(_STREAMS.index(stream), len(chunk)) + chunk)

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class OutputReader:
    """Reads the spool of a task from where it stopped, while it grows."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._at = 0

    def read_new(self, receive: OutputHandler) -> None:
        """Pass on the complete parts that are new. A file that is gone has none."""
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            return
        with closing_fd(fd):
            while parts := self._read_parts(fd):
                for stream, chunk in parts:
                    receive(stream, chunk)

    def _read_parts(self, fd: int) -> list[tuple[OutputStream, bytes]]:
        window = os.pread(fd, _READ_BYTES, self._at)
        found: list[tuple[OutputStream, bytes]] = []
        start = 0
        while len(window) - start >= PART_HEADER.size:
            side, size = PART_HEADER.unpack_from(window, start)
            end = start + PART_HEADER.size + size
            if side >= len(_STREAMS) or size > _READ_BYTES // 2:
                raise OSError("the file with its output is damaged")
            if end > len(window):
                break
            found.append((_STREAMS[side], window[start + PART_HEADER.size : end]))
            start = end
        self._at += start
        return found
