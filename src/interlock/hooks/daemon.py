"""The daemon that hooks ask: one process for each user, with policy and log open.

It listens on a socket in the state folder that only its user can open, is started by the first hook that finds none,
and ends itself when it was not asked for a while. Every answer is durable in the log before it is given.
"""

import asyncio
import contextlib
import fcntl
import os
import socket
import stat
import sys
from collections import OrderedDict
from collections.abc import Callable, Generator
from pathlib import Path
from time import time_ns

from ..domain.errors import ConfigurationError, InterlockError
from ..domain.json import InvalidJsonError, JsonObject, encode, parse
from ..rendering.text import describe_error, shorten
from .agents import AGENTS
from .contract import (
    AgentContract,
    Confirmed,
    HookEvent,
    HookOutput,
    PayloadError,
    PermissionAsked,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
    as_object,
)
from .daemon_status import STATUS_NAME, AgentStatus, DaemonStatus, read_status
from .governor import Governor
from .thin import MAX_ADDRESS_BYTES, MAX_BODY_BYTES, MAX_HEAD_BYTES, PROTOCOL, SOCKET_NAME, refuse

LOCK_NAME = "hooks.lock"
#: For so long the daemon stays when it is not asked.
IDLE_SECONDS = 3_600.0
HOLD_SECONDS = 86_400.0
#: Of the time that an agent waits, this much is left to bring it the answer.
_MARGIN_SECONDS = 5.0
_READ_SECONDS = 10.0
_STATUS_SECONDS = 1.0
_MAX_CONNECTIONS = 256
_MAX_SESSIONS = 10_000
_MAX_REASON_CHARS = 1_000

#: Returns what decides about an agent that works in a folder.
FindGovernor = Callable[[AgentContract, str], Governor]


@contextlib.contextmanager
def lock_daemon(state: Path) -> Generator[bool]:
    """Yield True when no other daemon serves this folder, and keep others from it."""
    descriptor = os.open(state / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


class HookDaemon:
    """Answers hooks on a socket in a folder."""

    def __init__(
        self,
        state: Path,
        find_governor: FindGovernor,
        *,
        idle_seconds: float = IDLE_SECONDS,
        hold_seconds: float = HOLD_SECONDS,
    ) -> None:
        """
        Args:
            state: The folder of its socket. The caller has the folder's lock.
            find_governor: What decides about an agent in a folder.
            idle_seconds: After how long without a hook it ends.
            hold_seconds: For how long a question is held open at most. The agents' own limits are lower.
        """
        self._hold_seconds = hold_seconds
        self._state = state
        self._find_governor = find_governor
        self._idle_seconds = idle_seconds
        self._governors: set[Governor] = set()
        #: By agent and session: an agent that changes its folder stays in the session that it began.
        self._sessions: OrderedDict[tuple[str, str], Governor] = OrderedDict()
        self._connections = 0
        self._stopped = asyncio.Event()
        self._idle: asyncio.TimerHandle | None = None
        self._saving: asyncio.TimerHandle | None = None
        self._status = DaemonStatus(pid=os.getpid(), started_at=time_ns(), agents=dict(read_status(state).agents))

    def stop(self) -> None:
        """End `serve`."""
        self._stopped.set()

    @property
    def running_count(self) -> int:
        """How many calls agents execute now."""
        return sum(governor.running_count for governor in self._governors)

    async def serve(self, ready: Callable[[], None] = lambda: None) -> None:
        """Serve until `stop`, or until nothing was asked for a while and nothing runs."""
        listener = bind_socket(self._state)
        server = await asyncio.start_unix_server(self._handle, sock=listener, limit=MAX_HEAD_BYTES)
        self._watch_idle()
        self._save()
        ready()
        try:
            async with server:
                await self._stopped.wait()
        finally:
            for timer in (self._idle, self._saving):
                if timer is not None:
                    timer.cancel()
            with contextlib.suppress(OSError):
                (self._state / SOCKET_NAME).unlink()
            self._save()

    # Connections

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections += 1
        answer = b""
        try:
            answer = await self._answer(reader, writer)
        except Exception as error:  # a bug must not be silence: agents would wait
            answer = _encode_answer(*refuse("", f"a bug: {describe_error(error)}"))
        finally:
            self._connections -= 1
            self._watch_idle()
            with contextlib.suppress(OSError):
                writer.write(answer)
                await writer.drain()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        if not _is_own(writer):
            return b""
        if self._connections > _MAX_CONNECTIONS:
            return _encode_answer(*refuse("", "too many hooks are asked at once"))
        agent, event, entry, seconds, body = "", "", "", 0.0, b""
        try:
            async with asyncio.timeout(_READ_SECONDS):
                agent, event, entry, seconds, size = _parse_head(await reader.readuntil(b"\n"))
                body = await reader.readexactly(size)
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, PayloadError) as error:
            return _encode_answer(*refuse(agent, f"the request cannot be read: {describe_error(error)}"))
        left = asyncio.Event()
        watching = asyncio.ensure_future(_watch_end(reader, left))
        try:
            return await self._answer_payload(AGENTS[agent], event, entry, seconds, body, left)
        finally:
            watching.cancel()

    async def _answer_payload(  # noqa: PLR0913, PLR0917 - what a request says
        self, contract: AgentContract, event_name: str, entry: str, seconds: float, body: bytes, left: asyncio.Event
    ) -> bytes:
        status = self._status.agents.setdefault(contract.name, AgentStatus())
        status.seen_at = time_ns()
        try:
            event = contract.parse(_parse_payload(body), event_name, entry)
            seconds = min(self._hold_seconds, max(0.0, seconds - _MARGIN_SECONDS))
            verdict = await self._decide(contract, event, seconds, left)
        except Exception as error:
            reason = describe_problem(error)
            status.error, status.error_at = shorten(reason, _MAX_REASON_CHARS), time_ns()
            self._save_soon()
            return _encode_answer(*refuse(contract.name, reason))
        if isinstance(event, ToolProposed):
            status.decided_at, status.tool, status.verdict = time_ns(), shorten(event.tool, 100), verdict.kind
            status.reason = shorten(verdict.reason, _MAX_REASON_CHARS)
        elif isinstance(event, SessionEvent) and event.kind == "start":
            status.started_at = time_ns()
        self._save_soon()
        rendered: HookOutput = contract.render(event, verdict)
        return _encode_answer(rendered.exit_code, rendered.stdout, b"")

    async def _decide(self, contract: AgentContract, event: HookEvent, seconds: float, left: asyncio.Event) -> Verdict:
        governor = self._find_session_governor(contract, event)
        match event:
            case ToolProposed():
                return await governor.propose(event, seconds, left)
            case Confirmed():
                return await governor.confirm(event)
            case ToolReported():
                return await governor.report(event)
            case PermissionAsked():
                return await governor.permission(event)
            case SessionEvent(kind="start"):
                await governor.begin(event.session_id)
            case SessionEvent():
                await governor.end(event.session_id)
        return Verdict(kind="pass")

    def _find_session_governor(self, contract: AgentContract, event: HookEvent) -> Governor:
        slot = (contract.name, event.session_id)
        governor = self._sessions.get(slot)
        if governor is None:
            governor = self._sessions[slot] = self._find_governor(contract, event.cwd)
            self._governors.add(governor)
            if len(self._sessions) > _MAX_SESSIONS:
                self._sessions.popitem(last=False)
        return governor

    # Idle time and status

    def _watch_idle(self) -> None:
        if self._idle is not None:
            self._idle.cancel()
        self._idle = asyncio.get_running_loop().call_later(self._idle_seconds, self._end_idle)

    def _end_idle(self) -> None:
        if self._connections or self.running_count:
            self._watch_idle()
        else:
            self.stop()

    def _save_soon(self) -> None:
        if self._saving is None:
            self._saving = asyncio.get_running_loop().call_later(_STATUS_SECONDS, self._save)

    def _save(self) -> None:
        """Write the status for other processes. It is a hint: failing to is not fatal."""
        self._saving = None
        path = self._state / STATUS_NAME
        temporary = path.with_suffix(".new")
        with contextlib.suppress(OSError):
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(encode(self._status))
            temporary.replace(path)


def bind_socket(state: Path) -> socket.socket:
    """Return a listening socket in the folder that only its owner can connect to. The caller has the folder's lock."""
    path = state / SOCKET_NAME
    with contextlib.suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise ConfigurationError(f"{path} is not a socket. Remove it first. Nothing was started.")
        path.unlink()
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    folder = -1
    try:
        address = str(path)
        if len(os.fsencode(address)) > MAX_ADDRESS_BYTES:
            folder = os.open(state, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            address = f"/proc/self/fd/{folder}/{SOCKET_NAME}"
        before = os.umask(0o177)
        try:
            listener.bind(address)
        finally:
            os.umask(before)
        listener.listen(_MAX_CONNECTIONS)
    except OSError as error:
        listener.close()
        raise ConfigurationError(f"{path} cannot be used: {error.strerror}. Nothing was started.") from None
    finally:
        if folder >= 0:
            os.close(folder)
    return listener


def describe_problem(error: BaseException) -> str:
    """Return why a hook cannot be answered by the policy, for the model and for people."""
    match error:
        case InvalidJsonError():
            text = f"the payload is not JSON that can be read: {error}"
        case PayloadError():
            text = f"the payload does not fit the agent's contract: {error}"
        case InterlockError():
            text = str(error)
        case _:
            text = f"a bug: {describe_error(error)}"
    return text.rstrip(".")


def _parse_payload(body: bytes) -> JsonObject:
    payload = as_object(parse(body.removeprefix(b"\xef\xbb\xbf")))
    if payload is None:
        raise PayloadError("it must be an object")
    return payload


def _parse_head(line: bytes) -> tuple[str, str, str, float, int]:
    words = line.decode(errors="replace").rstrip("\n").split(" ")
    if len(words) != 6 or words[0] != PROTOCOL or not (words[4].isdecimal() and words[5].isdecimal()):  # noqa: PLR2004
        raise PayloadError("its first line is not one of this version of Interlock. Do `interlock hooks install` again")
    _, agent, event, entry, seconds, size = words
    if agent not in AGENTS:
        raise PayloadError("unknown agent")
    if int(size) > MAX_BODY_BYTES:
        raise PayloadError(f"the payload has more than {MAX_BODY_BYTES:,} bytes")
    return agent, event, entry, float(seconds), int(size)


def _encode_answer(exit_code: int, stdout: bytes, message: bytes) -> bytes:
    return f"{PROTOCOL} {exit_code} {len(stdout)} {len(message)}\n".encode() + stdout + message


async def _watch_end(reader: asyncio.StreamReader, left: asyncio.Event) -> None:
    """Notice that the other side is gone."""
    with contextlib.suppress(OSError):
        await reader.read(1)
    left.set()


def _is_own(writer: asyncio.StreamWriter) -> bool:
    """Return True if the other side belongs to the user of this process."""
    connection: socket.socket = writer.get_extra_info("socket")
    if not hasattr(socket, "SO_PEERCRED"):
        return True  # the mode of the socket keeps others out
    peer = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
    return int.from_bytes(peer[4:8], sys.byteorder) == os.geteuid()
