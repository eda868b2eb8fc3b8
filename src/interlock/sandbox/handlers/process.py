"""Runs a handler in a separate process, which can be killed.

The process is `child.py`, in its own session and process group. It inherits no environment but what a program needs to
start, and gets its request as JSON over a socket. There is no pickle: what comes back is JSON data. However the call
ends, the whole group is killed and the child is reaped, so nothing that the handler started stays, unless it left the
group on purpose.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from subprocess import DEVNULL
from tempfile import NamedTemporaryFile
from typing import Any

import msgspec
from pydantic import BaseModel

from ...domain.errors import SandboxSetupError
from ...domain.tool import ToolContext, ToolDefinition
from ..host.programs import find_bwrap
from ..network.egress import PROXY_PORT, CommandEgress, make_connection_effects
from .child import (
    EGRESS_PORT_VARIABLE,
    MAX_OUTPUT_BYTES,
    EffectMessage,
    ErrorMessage,
    HandlerMessage,
    HandlerRequest,
    ProgressMessage,
    ReturnMessage,
)

_PROGRAM = ("-P", "-m", "interlock.sandbox.handlers.child")
_KEPT_VARIABLES = ("PATH", "LANG", "LC_ALL", "TZ")
#: A message is a value and a few words around it.
_MAX_MESSAGE_BYTES = MAX_OUTPUT_BYTES + 1024
_STDERR_TAIL_BYTES = 2048
#: How long a child may take to end by itself: after its result, and after SIGTERM.
_GRACE_SECONDS = 0.25
#: How long a process may take to open its own network.
_NETWORK_SECONDS = 20.0

_encode = msgspec.json.Encoder().encode
_decode: Callable[[bytes], HandlerMessage] = msgspec.json.Decoder(HandlerMessage).decode


class ProcessToolError(RuntimeError):
    """The handler raised, or its process died: the text says which exception or signal it was."""


class _StderrTail(asyncio.Protocol):
    """The end of what was written to standard error."""

    def __init__(self) -> None:
        self._kept = b""
        self._ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self._kept = (self._kept + data)[-_STDERR_TAIL_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended.set()

    async def read(self) -> str:
        with suppress(TimeoutError):
            async with asyncio.timeout(_GRACE_SECONDS):
                await self._ended.wait()
        return self._kept.decode(errors="replace").strip()


class _ChildProcess:
    def __init__(
        self,
        process: asyncio.subprocess.Process,
        channel: tuple[asyncio.StreamReader, asyncio.StreamWriter],
        stderr: _StderrTail,
    ) -> None:
        self._process = process
        self._reader, self._writer = channel
        self._stderr = stderr

    async def run(self, request: HandlerRequest, context: ToolContext) -> Any:
        self._writer.write(_encode(request) + b"\n")
        exited = asyncio.ensure_future(self._process.wait())
        exited.add_done_callback(self._abort_soon)
        last = await self._read_last_message(context)
        await asyncio.wait((exited,), timeout=_GRACE_SECONDS)
        match last:
            case ReturnMessage():
                return msgspec.json.decode(last.value)
            case ErrorMessage():
                raise ProcessToolError(f"{last.type_name}: {last.text}")
            case None:
                raise ProcessToolError(await self._describe_exit())

    def _abort_soon(self, exited: object) -> None:
        """Stop reading soon: a process forked by the child must not hold the channel open for ever."""
        asyncio.get_running_loop().call_later(_GRACE_SECONDS, self._writer.transport.abort)

    async def _read_last_message(self, context: ToolContext) -> ReturnMessage | ErrorMessage | None:
        while True:
            try:
                message = _decode(await self._reader.readuntil())
            except (asyncio.IncompleteReadError, ConnectionError):
                return None
            except asyncio.LimitOverrunError:
                raise ProcessToolError(f"the tool sent more than {MAX_OUTPUT_BYTES} bytes") from None
            match message:
                case ProgressMessage():
                    context.progress(message.message)
                case EffectMessage(effect=effect):
                    context.side_effect(effect.kind, effect.target, effect.detail)
                case ReturnMessage() | ErrorMessage():
                    return message

    async def _describe_exit(self) -> str:
        status = self._process.returncode
        if status is None:
            cause = "the tool's process hung up before it returned"
        elif status < 0:
            cause = f"the tool's process was ended by {signal.Signals(-status).name} before it returned"
        else:
            cause = f"the tool's process exited with status {status} before it returned"
        stderr = await self._stderr.read()
        return f"{cause}; its last words: {stderr}" if stderr else cause


async def run_in_process(
    tool: ToolDefinition, checked: BaseModel, context: ToolContext, egress: CommandEgress | None = None
) -> Any:
    """Run the handler and return its value as JSON data. Raise `ProcessToolError`. Cancelling this kills the
    process. With `egress`, it reaches hosts only through a proxy; which ones it reached are side effects of the call.
    """
    refuse_while_loading(tool)
    request = _build_request(tool, checked, context)
    if egress is None:
        command = (sys.executable, *_PROGRAM)
        async with _start_child(command, _build_environment()) as started, _connect_child(*started) as child:
            return await child.run(request, context)
    with _write_certificates(egress) as trusted:
        environment = _build_environment() | trusted.environment | {EGRESS_PORT_VARIABLE: str(PROXY_PORT)}
        async with _start_child(_with_own_network(), environment) as (process, channel, stderr):
            listener = await _receive_listener(channel, stderr)
            proxy = trusted.make_proxy()
            proxy.serve(listener)
            try:
                async with _connect_child(process, channel, stderr) as child:
                    return await child.run(request, context)
            finally:
                for effect in make_connection_effects(await proxy.close()):
                    context.side_effect(effect.kind, effect.target, effect.detail)


def _with_own_network() -> tuple[str, ...]:
    """Return the command for a process without a network but its own loopback."""
    bwrap = find_bwrap()
    if bwrap is None:
        raise SandboxSetupError("A tool with `egress` needs bubblewrap: pip install 'interlock[local]'.")
    namespaces = ("--unshare-user", "--unshare-net", "--cap-drop", "ALL", "--die-with-parent", "--dev-bind", "/", "/")
    return (bwrap.path, *namespaces, "--", sys.executable, *_PROGRAM)


@contextmanager
def _write_certificates(egress: CommandEgress) -> Generator[CommandEgress]:
    """Write the certificates that the process has to trust, where the proxy reads its requests."""
    with ExitStack() as stack:
        for content in egress.files.values():
            file = stack.enter_context(NamedTemporaryFile(suffix=".pem"))
            file.write(content)
            file.flush()
            egress = CommandEgress(egress.rules, file.name)
        yield egress


async def _receive_listener(channel: socket.socket, stderr: socket.socket) -> socket.socket:
    """Return the socket that the process listens on in its own network."""
    channel.settimeout(_NETWORK_SECONDS)
    try:
        _, descriptors, _, _ = await asyncio.to_thread(socket.recv_fds, channel, 1, 1)
    except OSError:
        descriptors = []
    finally:
        channel.settimeout(None)
    if not descriptors:
        stderr.setblocking(False)
        with suppress(OSError):
            said = stderr.recv(_STDERR_TAIL_BYTES).decode(errors="replace").strip()
            raise SandboxSetupError(f"The process got no network of its own: {said or 'it ended'}.")
        raise SandboxSetupError("The process got no network of its own.")
    return socket.socket(fileno=descriptors[0])


def refuse_while_loading(tool: ToolDefinition) -> None:
    """Raise while a script is being loaded: one that calls its tools on import would start children without end."""
    if getattr(sys.modules.get("__main__"), "LOADING", None):
        raise ProcessToolError(
            f"{tool.name} was called while its module was imported to run it: "
            'start the program under `if __name__ == "__main__":`'
        )


def _build_request(tool: ToolDefinition, checked: BaseModel, context: ToolContext) -> HandlerRequest:
    module, file = _locate_handler(tool.handler)
    return HandlerRequest(
        module=module,
        file=file,
        qualname=tool.handler.__qualname__,
        args_parameter=tool.args_parameter,
        context_parameter=tool.context_parameter,
        arguments=checked.model_dump_json(by_alias=True, round_trip=True),
        sys_path=_sys_path(),
        situation=context.situation,
        call_id=context.call_id,
        tool_name=context.tool_name,
        access_token=context.access_token,
    )


def _locate_handler(handler: Callable[..., Any]) -> tuple[str, str]:
    """Return the module to import, or the script to load, that defines the handler."""
    if handler.__module__ != "__main__":
        return handler.__module__, ""
    main = sys.modules["__main__"]
    # Started as `python -m name`, it can be imported by that name.
    spec, file = getattr(main, "__spec__", None), getattr(main, "__file__", None)
    if spec is not None:
        return spec.name, ""
    if file is None:
        raise ProcessToolError(f"{handler.__qualname__} is defined in no file, so another process cannot load it")
    return "__main__", os.path.abspath(file)


def _sys_path() -> tuple[str, ...]:
    return tuple(os.path.abspath(entry) for entry in sys.path)


def _build_environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    return {**kept, "PYTHONPATH": os.pathsep.join(_sys_path())}


@asynccontextmanager
async def _start_child(
    command: tuple[str, ...], environment: dict[str, str]
) -> AsyncGenerator[tuple[asyncio.subprocess.Process, socket.socket, socket.socket]]:
    channel, its_channel = socket.socketpair()
    stderr, its_stderr = socket.socketpair()
    with channel, stderr:
        with its_channel, its_stderr:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=its_channel.fileno(),
                stdout=DEVNULL,
                stderr=its_stderr.fileno(),
                env=environment,
                start_new_session=True,
            )
        try:
            yield process, channel, stderr
        finally:
            await _terminate(process)


@asynccontextmanager
async def _connect_child(
    process: asyncio.subprocess.Process, channel: socket.socket, stderr: socket.socket
) -> AsyncGenerator[_ChildProcess]:
    reader, writer = await asyncio.open_connection(sock=channel, limit=_MAX_MESSAGE_BYTES)
    try:
        listener, tail = await asyncio.get_running_loop().create_connection(_StderrTail, sock=stderr)
        try:
            yield _ChildProcess(process, (reader, writer), tail)
        finally:
            listener.abort()
    finally:
        writer.transport.abort()


async def _terminate(process: asyncio.subprocess.Process) -> None:
    try:
        if process.returncode is None:
            _signal_group(process, signal.SIGTERM)
            with suppress(TimeoutError):
                async with asyncio.timeout(_GRACE_SECONDS):
                    await process.wait()
    finally:
        # Also when this is cancelled in turn: then without further grace.
        _signal_group(process, signal.SIGKILL)
        await process.wait()


def _signal_group(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    # The id of a group that still has members is not reused, even when its first member is gone.
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
