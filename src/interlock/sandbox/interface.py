"""Interfaces of the sandbox: where handlers and commands run, and what they can access there."""

import socket
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from ..domain.payload import ExecutionEnvironment
from ..domain.tool import CallContext, JsonObject, SandboxScope, ToolContext, ToolDefinition

if TYPE_CHECKING:
    from pydantic import BaseModel


class SandboxFullError(Exception):
    """No worker is free. Nothing was started."""


class Sandbox(Protocol):
    """Runs handlers, and describes what they can access."""

    @property
    def unconfined_scope(self) -> SandboxScope:
        """The scope of a tool that does not restrict itself."""
        ...

    def executor_name(self, tool: ToolDefinition) -> str:
        """Return the executor of a tool, for the record: `async`, `thread`, `process`."""
        ...

    def describe_scope(self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext) -> SandboxScope:
        """Return what a call can access once it runs."""
        ...

    def describe_environment(
        self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext, paths: Iterable[str]
    ) -> ExecutionEnvironment:
        """Return where the tool would run, and the state of the files that the call names, for the approval binding."""
        ...

    def start(self, tool: ToolDefinition, checked: "BaseModel", context: ToolContext) -> Awaitable[Any]:
        """Start the handler, and return an awaitable. Cancelling it stops the handler where that is possible."""
        ...

    def run_blocking(self, function: Callable[[], Any]) -> Awaitable[Any]:
        """Run a developer's function that may block, beside the event loop."""
        ...

    async def close(self) -> None: ...


class CommandLimits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one command, with all that it starts."""

    memory_bytes: int = 2 << 30
    processes: int = 256
    open_files: int = 1024
    #: The largest file that it may write.
    file_bytes: int = 1 << 30
    #: What it may print, both streams together.
    output_bytes: int = 100 << 20
    #: Each of the temporary folders: `/tmp`, the home, `/dev/shm`.
    temporary_bytes: int = 256 << 20
    #: Between asking it to end and killing it.
    grace_seconds: float = 1.0


class SandboxProfile(msgspec.Struct, frozen=True, kw_only=True):
    """What a command can access. Paths are absolute and real."""

    workspace: str
    #: Which folder that is, as device and inode number: a command starts in no other. Empty: what has the name then.
    identity: tuple[int, ...] = ()
    #: The workspace is the only place that may be; else nothing is.
    writable: bool
    network: bool = False
    #: Without the network: hosts are reached through a proxy at this port of 127.0.0.1, whose listening socket
    #: `CommandSpec.on_listener` gets. 0: no host is reached.
    egress_port: int = 0
    #: The programs and libraries of the system can be used, with devices, `/proc` and temporary folders; else only what
    #: is `readable`.
    system: bool = True
    #: Files and folders beside the workspace, read-only.
    readable: tuple[str, ...] = ()
    #: Files and folders that are shown empty.
    hidden: tuple[str, ...] = ()
    #: Parts of a writable workspace that cannot be changed.
    read_only: tuple[str, ...] = ()
    limits: CommandLimits = CommandLimits()

    @property
    def has_hosts(self) -> bool:
        """True if it can reach hosts, with the network or through the proxy."""
        return self.network or self.egress_port > 0


class OverlayPaths(Protocol):
    """Two private folders of one file system that take what a command changes in its workspace.

    Neither is in the workspace, nor visible in a sandbox. Both are empty before the command starts.
    """

    @property
    def upper(self) -> str: ...

    @property
    def work(self) -> str: ...


#: For how long other commands of a workspace are stopped.
ExclusiveUntil: TypeAlias = Literal["", "start", "end"]


class CommandSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A script for bash, or a program with its arguments."""

    profile: SandboxProfile
    script: str = ""
    argv: tuple[str, ...] = ()
    #: Where it starts, absolute, in the workspace. Empty: the workspace.
    cwd: str = ""
    #: A descriptor of that folder, open until the command has begun: it starts there or not at all. -1: none.
    folder_fd: int = -1
    #: No other command of the workspace runs until this one has begun, or has ended: what it uses cannot change.
    exclusive_until: ExclusiveUntil = ""
    #: Files that must be as they were when a person approved the command, looked at right before it begins.
    expected_environment: ExecutionEnvironment | None = None
    #: Where its changes of the workspace go; None: into the workspace. Requires the capability `overlay`, a profile
    #: that is writable, and `exclusive_until="end"`: nothing else may change the workspace below it.
    overlay: OverlayPaths | None = None
    #: Beside the few variables that every command gets.
    environment: Mapping[str, str] = {}
    #: Whether the profile is still valid. Called in a thread when the view is built and before the command begins.
    #: False, or an exception: `SandboxSetupError`, nothing was executed.
    is_still_valid: Callable[[], bool] | None = None
    #: Called in a thread before the command begins, with the listening socket of `SandboxProfile.egress_port`.
    on_listener: Callable[[socket.socket], None] | None = None
    #: A descriptor that is its standard input, open until the command has begun. -1: its standard input is empty.
    input_fd: int = -1
    #: It prints much, and only the whole of it is of use: its output comes in larger pieces, milliseconds late, so that
    #: reading it does not take the processor from the command.
    has_bulk_output: bool = False
    #: Files that only this command sees, by their absolute paths.
    files: Mapping[str, bytes] = {}


OutputStream: TypeAlias = Literal["stdout", "stderr"]
#: Called with the output of a command as it comes; the bytes belong to the receiver.
OutputHandler: TypeAlias = Callable[[OutputStream, bytes], None]
#: Why a command is over: by itself, or who ended it.
EndReason: TypeAlias = Literal["exited", "timeout", "stopped", "memory_limit", "process_limit", "output_limit"]


class CommandExit(msgspec.Struct, frozen=True, kw_only=True):
    """How a started command ended."""

    reason: EndReason
    #: None when a signal ended it.
    exit_code: int | None
    #: `SIGTERM`, ...; empty when it exited.
    signal: str = ""
    duration_seconds: float
    #: Folder of a script at its end, if it was reported.
    cwd: str = ""
    peak_memory_bytes: int = 0


class RunningCommand(Protocol):
    """A running command, with all that it started."""

    async def wait(self, timeout_seconds: float | None = None) -> CommandExit:
        """Wait for the end and return it, with the output read to the last byte. At the timeout the command is ended
        first. Cancelling this wait stops the command: nothing of it is left when `CancelledError` propagates.
        """
        ...

    async def stop(self) -> CommandExit:
        """Request the end, kill what is left after the grace period, and return how it ended."""
        ...


class Confinement(msgspec.Struct, frozen=True, kw_only=True):
    """How commands are confined on this host."""

    #: `bubblewrap`, `landlock`, `none`.
    backend: str
    #: What it does: see `CAPABILITIES`.
    capabilities: tuple[str, ...]
    #: The confinement is incomplete: every command requires approval.
    degraded: bool
    #: What people should know, and what they can do about it.
    notes: tuple[str, ...] = ()


#: What a backend can do for commands, and what that means.
CAPABILITIES: Mapping[str, str] = {
    "files": "only the workspace and system folders can be read",
    "read_only": "the workspace can be made read-only",
    "write_only_workspace": "nothing outside the workspace and temporary folders can be written",
    "hide": "single files and folders can be hidden",
    "network_off": "no host can be reached",
    "egress": "hosts can be opened one by one, through a proxy",
    "processes": "other processes cannot be seen or signalled",
    "kill_tree": "everything that a command started ends with it",
    "syscalls": "dangerous system calls are refused",
    "metadata": "modes and times of files outside cannot be changed",
    "overlay": "changes of the workspace can be kept apart until they are approved",
}


class CommandSandbox(Protocol):
    """Runs commands, confined."""

    @property
    def confinement(self) -> Confinement: ...

    async def start(self, command: CommandSpec, on_output: OutputHandler) -> RunningCommand:
        """Start a command. Raise `SandboxSetupError` when it could not be confined: then nothing of it was executed."""
        ...
