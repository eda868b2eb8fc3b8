"""Calls of tools on the pipes of a server, beside the session of the SDK.

A session validates and copies a message several times, and hands it from task to task. A call of a tool needs none of
that: its request is one line, and its answer is the line with the same id. What a server reports during a call
(progress and log messages) is handed on before the answer. Everything else that comes from a server, such as what it
asks or lists, goes to the session. The ids of calls are far above those that a session gives.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any, NamedTuple, TypeAlias

import anyio
import msgspec
from mcp.shared.dispatcher import ProgressFnT
from mcp_types import (
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCResponse,
    LoggingMessageNotificationParams,
)
from pydantic import ValidationError

from ...domain.errors import InterlockError
from ...domain.json import encode
from ...domain.tool import JsonObject

_FIRST_ID = 1_000_000_000
_MAX_ID_DIGITS = 18
#: Of one call, that are not yet taken.
_MAX_REPORTS = 1_000


class UpstreamRpcError(InterlockError):
    """The server answered with a JSON-RPC error."""

    def __init__(self, code: int, message: str, data: Any) -> None:
        super().__init__(message)
        self.code = code
        self.data = data


class _Response(msgspec.Struct):
    """A line with the answer to a call."""

    jsonrpc: str
    id: int
    result: JsonObject
    method: Any = None


#: Takes a log message of the server.
LogFn: TypeAlias = Callable[[LoggingMessageNotificationParams], Coroutine[Any, Any, None]]


class _Pending(NamedTuple):
    answer: "asyncio.Future[JsonObject]"
    on_progress: ProgressFnT | None
    on_log: LogFn | None
    #: What is being handed on.
    reports: "set[asyncio.Task[None]]"


_responses = msgspec.json.Decoder(_Response)


class CallChannel:
    """The calls under way at one server."""

    def __init__(self, write: Callable[[bytes], Coroutine[Any, Any, None]]) -> None:
        """
        Args:
            write: Sends a line to the server.
        """
        self._write = write
        self._ids = count(_FIRST_ID)
        self._pending: dict[int, _Pending] = {}
        self._is_closed = False
        self._tasks: set[asyncio.Task[None]] = set()

    async def call(
        self, params: JsonObject, meta: JsonObject, on_progress: ProgressFnT | None, on_log: LogFn | None = None
    ) -> JsonObject:
        """Call a tool, and return the result as the server sent it. Cancelling this cancels the call at the server.

        Args:
            params: The parameters of the request.
            meta: Its metadata.
            on_progress: Takes the progress of this call.
            on_log: Takes log messages while this is the only call under way: they do not say which call they are of.

        Raises:
            UpstreamRpcError: The server answered with an error.
            anyio.ClosedResourceError: The connection was closed, before or during the call.
            anyio.BrokenResourceError: The server reads no more.
        """
        if self._is_closed:
            raise anyio.ClosedResourceError
        number = next(self._ids)
        if on_progress is not None:
            meta = {**meta, "progressToken": number}
        params = {**params, "_meta": meta} if meta else params
        answer: asyncio.Future[JsonObject] = asyncio.get_running_loop().create_future()
        self._pending[number] = pending = _Pending(answer, on_progress, on_log, set())
        try:
            await self._write(encode({"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}))
            result = await answer
            if pending.reports:
                await asyncio.wait(pending.reports)
            return result
        except UpstreamRpcError:
            if pending.reports:
                await asyncio.wait(pending.reports)
            raise
        except asyncio.CancelledError:
            self._spawn(self._cancel(number))
            raise
        finally:
            del self._pending[number]

    def take_line(self, line: bytes) -> bool:
        """Take the result of a call. Return False for any other line: it has to be read as a message."""
        if not self._pending:
            return False
        try:
            response = _responses.decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
            return False
        return response.jsonrpc == "2.0" and not response.method and self._resolve(response.id, response.result)

    def take_message(self, message: JSONRPCMessage) -> bool:
        """Take a message that is about a call. Return False for any other: it is for the session."""
        match message:
            case JSONRPCResponse():
                return self._resolve(_read_id(message.id), message.result)
            case JSONRPCError():
                return self._resolve(_read_id(message.id), message.error)
            case JSONRPCNotification(method="notifications/progress"):
                return self._report(message.params or {})
            case JSONRPCNotification(method="notifications/message"):
                return self._log(message.params or {})
            case _:
                return False

    def close(self) -> None:
        """End the calls under way: no answer comes any more."""
        self._is_closed = True
        for pending in self._pending.values():
            if not pending.answer.done():
                pending.answer.set_exception(anyio.ClosedResourceError())

    def _resolve(self, number: int, outcome: JsonObject | ErrorData) -> bool:
        pending = self._pending.get(number)
        if pending is None:
            return number >= _FIRST_ID  # it was cancelled
        if not pending.answer.done():
            if isinstance(outcome, ErrorData):
                pending.answer.set_exception(UpstreamRpcError(outcome.code, outcome.message, outcome.data))
            else:
                pending.answer.set_result(outcome)
        return True

    def _report(self, params: JsonObject) -> bool:
        """Report progress as the SDK does: what is not as the protocol has it is ignored."""
        number = _read_id(params.get("progressToken"))
        if number < _FIRST_ID:
            return False
        pending, message = self._pending.get(number), params.get("message")
        done, total = _read_number(params.get("progress")), _read_number(params.get("total"))
        if pending is not None and pending.on_progress is not None and done is not None:
            text = message if type(message) is str else None
            self._hand_on(pending, partial(_report, pending.on_progress, done, total, text))
        return True

    def _log(self, params: JsonObject) -> bool:
        """Hand on a log message. What is not as the protocol has it is ignored."""
        if not self._pending:
            return False
        [pending, *others] = self._pending.values()
        if pending.on_log is not None and not others:
            with suppress(ValidationError):
                note = LoggingMessageNotificationParams.model_validate(params)
                self._hand_on(pending, partial(pending.on_log, note))
        return True

    def _hand_on(self, pending: _Pending, report: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Hand on a report. A server that sends them faster than they are taken loses those above a limit."""
        if len(pending.reports) < _MAX_REPORTS:
            pending.reports.add(task := self._spawn(report()))
            task.add_done_callback(pending.reports.discard)

    async def _cancel(self, number: int) -> None:
        params = {"requestId": number, "reason": "the call was cancelled"}
        await self._write(encode({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params}))

    def _spawn(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        self._tasks.add(task := asyncio.create_task(work))
        task.add_done_callback(self._end)
        return task

    def _end(self, task: "asyncio.Task[None]") -> None:
        """Forget a task. One that failed, such as at a pipe that is closed, changes nothing for the call."""
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()


def _read_id(value: object) -> int:
    """Return the id of a call; -1 for any other. Some servers return numbers as text."""
    if type(value) is int:
        return value
    return (
        int(value)
        if type(value) is str and value.isascii() and value.isdigit() and len(value) <= _MAX_ID_DIGITS
        else -1
    )


def _read_number(value: object) -> float | None:
    return float(value) if type(value) is int or type(value) is float else None


async def _report(on_progress: ProgressFnT, done: float, total: float | None, message: str | None) -> None:
    await on_progress(done, total, message)
