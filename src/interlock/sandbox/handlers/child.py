"""The other side of `process.py`: a process that runs one handler and reports over the channel it was given.

Its standard input is a socket: one line of JSON comes in (`HandlerRequest`), lines of JSON go out, the last one
being `ReturnMessage` or `ErrorMessage`. Before the tool's code is loaded the socket is moved away, so that what the
tool reads and prints cannot mix with it. When the channel closes, the parent is gone, and the process ends with all
it started.
"""

import os
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.machinery import SourceFileLoader
from operator import attrgetter
from signal import SIGKILL
from threading import Lock, Thread
from types import ModuleType
from typing import Any, TypeAlias

import msgspec
from pydantic import ConfigDict, validate_call
from pydantic_core import PydanticSerializationError, from_json, to_json

from ...domain.outcome import SideEffect
from ...domain.tool import CallContext, ToolContext, ToolDefinition

#: The port that a process with its own network listens on for its proxy.
EGRESS_PORT_VARIABLE = "INTERLOCK_EGRESS_PORT"
MAX_OUTPUT_BYTES = 10 * 1024 * 1024
_MAX_ERROR_CHARS = 10_000

#: What a script is called while its tool is looked up. Not `__main__`: its program must not start again.
SCRIPT_MODULE = "__interlock_script__"

#: The module that is being imported to find the tool; see `process.refuse_while_loading`.
LOADING: set[str] = set()


class HandlerRequest(msgspec.Struct, frozen=True, kw_only=True):
    """The request to run one handler."""

    module: str
    #: The script to load when the handler is not in an importable module.
    file: str
    qualname: str
    args_parameter: str
    context_parameter: str
    #: JSON text.
    arguments: str
    sys_path: tuple[str, ...]
    situation: CallContext
    call_id: str
    tool_name: str
    access_token: str


class _TaggedMessage(msgspec.Struct, frozen=True, tag_field="type"):
    pass


class ProgressMessage(_TaggedMessage, frozen=True, tag="progress"):
    """Progress that the handler reported."""

    message: str


class EffectMessage(_TaggedMessage, frozen=True, tag="effect"):
    """A side effect that the handler reported."""

    effect: SideEffect


class ReturnMessage(_TaggedMessage, frozen=True, tag="returned"):
    """The handler's return value."""

    value: msgspec.Raw


class ErrorMessage(_TaggedMessage, frozen=True, tag="raised"):
    """The exception that the handler raised."""

    type_name: str
    text: str


HandlerMessage: TypeAlias = ProgressMessage | EffectMessage | ReturnMessage | ErrorMessage
SendMessage: TypeAlias = Callable[[HandlerMessage], None]


class _ReportingContext(ToolContext):
    """A call's context that reports over the channel."""

    __slots__ = ("_send",)

    def __init__(self, request: HandlerRequest, send: SendMessage) -> None:
        super().__init__(
            situation=request.situation,
            call_id=request.call_id,
            tool_name=request.tool_name,
            on_progress=lambda _, message: send(ProgressMessage(message)),
        )
        self.access_token = request.access_token
        self._send = send

    def side_effect(self, kind: str, target: str, detail: str = "") -> None:
        super().side_effect(kind, target, detail)
        self._send(EffectMessage(self.effects[-1]))


def run_handler(request: HandlerRequest, send: SendMessage) -> ReturnMessage | ErrorMessage:
    """Run the handler. Whatever it raises, and a value that cannot be JSON, is an outcome too."""
    try:
        returned = _call_handler(request, _ReportingContext(request, send))
        if isinstance(returned, BaseException):
            raise returned
        value = to_json_bytes(returned)
    except BaseException as error:
        return ErrorMessage(type(error).__name__, _error_text(error))
    if len(value) > MAX_OUTPUT_BYTES:
        return ErrorMessage("ValueError", f"the value is {len(value)} bytes of JSON, more than {MAX_OUTPUT_BYTES}")
    return ReturnMessage(msgspec.Raw(value))


def to_json_bytes(value: Any) -> bytes:
    """Encode a value as JSON. Other types become the nearest JSON: a list for a set, text for a path or an unknown
    object.
    """
    try:
        return to_json(value, inf_nan_mode="strings", fallback=_to_nearest_json)
    except (PydanticSerializationError, UnicodeDecodeError):
        # Bytes that are no text are the one thing with another encoding.
        return to_json(value, inf_nan_mode="strings", fallback=_to_nearest_json, bytes_mode="base64")


def _to_nearest_json(value: Any) -> Any:
    return msgspec.to_builtins(value, enc_hook=str)


def _error_text(error: BaseException) -> str:
    try:
        return str(error)[:_MAX_ERROR_CHARS].encode(errors="backslashreplace").decode()
    except Exception:
        return ""


def _call_handler(request: HandlerRequest, context: ToolContext) -> Any:
    module = _load_module(request)
    found = attrgetter(request.qualname)(module)
    given = {request.context_parameter: context} if request.context_parameter else {}
    tool = _find_definition(found, module)
    if tool is None:
        return _call_function(found, request, given)
    checked = tool.args_model.model_validate_json(request.arguments)
    arguments = {request.args_parameter: checked} if request.args_parameter else checked.__dict__
    return tool.handler(**arguments, **given)


def _call_function(function: Callable[..., Any], request: HandlerRequest, given: dict[str, Any]) -> Any:
    """Call a function whose definition the module does not name: its annotations give the argument types."""
    arguments = from_json(request.arguments)
    if request.args_parameter:
        arguments = {request.args_parameter: arguments}
    checked = validate_call(config=ConfigDict(arbitrary_types_allowed=True))(function)
    return checked(**arguments, **given)


def _find_definition(found: Any, module: ModuleType) -> ToolDefinition | None:
    if isinstance(found, ToolDefinition):
        return found
    tools = (value for value in vars(module).values() if isinstance(value, ToolDefinition))
    return next((tool for tool in tools if tool.handler is found), None)


def _load_module(request: HandlerRequest) -> ModuleType:
    sys.path[:] = request.sys_path
    LOADING.add(request.module)
    try:
        return _load_script(request.file) if request.file else import_module(request.module)
    finally:
        LOADING.clear()


def _load_script(file: str) -> ModuleType:
    module = sys.modules[SCRIPT_MODULE] = ModuleType(SCRIPT_MODULE)
    module.__file__ = file
    SourceFileLoader(SCRIPT_MODULE, file).exec_module(module)
    return module


def _claim_channel() -> socket.socket:
    channel = socket.socket(fileno=os.dup(0))
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return channel


def _kill_on_close(channel: socket.socket) -> None:
    with suppress(ConnectionError):
        channel.recv(1)
    os.killpg(os.getpgrp(), SIGKILL)


def _open_network(channel: socket.socket) -> None:
    """Give the parent process a socket of this process's own network: its proxy serves that."""
    port = os.environ.pop(EGRESS_PORT_VARIABLE, "")
    if port:
        with socket.create_server(("127.0.0.1", int(port))) as listener:
            socket.send_fds(channel, [b"L"], [listener.fileno()])


def main() -> None:
    """Run the handler named in the request and send its result."""
    channel = _claim_channel()
    _open_network(channel)
    # It was for finding this module; what the tool starts must not inherit it.
    os.environ.pop("PYTHONPATH", None)
    with channel.makefile("rb") as lines:
        request = msgspec.json.decode(lines.readline(), type=HandlerRequest)
    Thread(target=_kill_on_close, args=(channel,), daemon=True).start()
    encode, sending = msgspec.json.Encoder().encode, Lock()

    def send(message: HandlerMessage) -> None:
        line = encode(message) + b"\n"
        with sending:
            channel.sendall(line)

    send(run_handler(request, send))


if __name__ == "__main__":
    main()
