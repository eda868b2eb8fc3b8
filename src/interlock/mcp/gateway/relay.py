"""What servers behind the gateway report and ask during a call, relayed to the client that makes it.

Progress is always relayed. Questions of a server to the client (elicitation, sampling, roots) are relayed where the
servers file says so, and only those that the client declares. At protocol versions with requests of servers the client
is asked at once. At others the request of the client ends with `input_required` while the call waits in this process,
and the next request of the client, with its answers, continues it.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from secrets import token_urlsafe
from typing import Any, TypeVar, get_args

import mcp_types as types
import msgspec
from mcp.server.session import ServerSession
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ...domain.json import encode
from ...domain.redaction import redact_leaves
from ...rendering.text import shorten
from ..client.call_relay import CALL_RELAY
from .clients import Caller, Context

_MAX_MESSAGE_CHARS = 2_000
#: A call that waits for the answers of its client is cancelled after so long.
_WAIT_SECONDS = 600.0
_MAX_WAITING = 256

#: The data of the error for a request state that is refused, as the SDK has it.
INVALID_STATE = {"reason": "invalid_request_state"}
ResultT = TypeVar("ResultT")


def refuse_state() -> MCPError:
    """Return the error for a request state that is refused, without the reason: its sender may have made it up."""
    return MCPError(types.INVALID_PARAMS, "Invalid or expired requestState", INVALID_STATE)


class InputState(msgspec.Struct, frozen=True, tag="input"):
    """What a sealed request state says: the call that waits for the answers of its client."""

    token: str


class ClientRelay:
    """The client of one call."""

    def __init__(
        self,
        ctx: Context,
        redact: Callable[[str], str],
        given: types.InputResponses | None,
        logging: types.LoggingLevel | None,
    ) -> None:
        self._ctx = ctx
        self._logging: types.LoggingLevel | None = logging
        self._redact = redact
        #: Answers that came with the request, before they were asked for.
        self._given: dict[str, types.InputResponse] = dict(given or {})
        self._progress = 0.0
        #: Set while the client has to be asked with the answer to its request.
        self.is_asked = asyncio.Event()
        self.requests: dict[str, types.InputRequest] = {}
        self._answers: asyncio.Future[dict[str, types.InputResponse]] | None = None

    def continue_with(self, ctx: Context, given: types.InputResponses | None) -> None:
        """Continue with another request of the client. What it did not answer stays asked."""
        self._ctx = ctx
        found = {key: response for key, response in (given or {}).items() if key in self.requests}
        if self._answers is None or self._answers.done() or found.keys() != self.requests.keys():
            return
        self.is_asked.clear()
        self._answers.set_result(found)

    @property
    def log_level(self) -> types.LoggingLevel | None:
        """The level of log messages that the client wants."""
        if self._ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return self._logging
        asked: Any = (self._ctx.meta or {}).get(types.LOG_LEVEL_META_KEY)
        return asked if asked in get_args(types.LoggingLevel) else None

    async def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """Relay a log message of a server."""
        if self.log_level is None:
            return
        data = redact_leaves(params.data, self._redact)
        note = types.LoggingMessageNotification(params=params.model_copy(update={"data": data}))
        await self._ctx.session.send_notification(note, self._ctx.request_id)

    async def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Relay progress. It only ever grows."""
        self._progress = done = max(self._progress, done)
        text = None if message is None else shorten(self._redact(message), _MAX_MESSAGE_CHARS)
        await self._ctx.session.report_progress(done, total, text)

    async def answer(self, server: str, requests: Mapping[str, types.InputRequest]) -> dict[str, types.InputResponse]:
        """Ask the client what a server asks. What it does not declare is answered with a refusal here."""
        declared = {key: request for key, request in requests.items() if self._declares(request)}
        answers = {key: _refuse(request) for key, request in requests.items() if key not in declared}
        if not declared:
            return answers
        if declared.keys() <= self._given.keys():
            found, self._given = {key: self._given[key] for key in declared}, {}
            return answers | found
        shown = {key: _name_server(server, request) for key, request in declared.items()}
        if self._ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
            return answers | {key: await self._ask_now(request) for key, request in shown.items()}
        self.requests = shown
        self._answers = asyncio.get_running_loop().create_future()
        self.is_asked.set()
        return answers | await self._answers

    async def _ask_now(self, request: types.InputRequest) -> Any:
        session, related = self._ctx.session, ServerMessageMetadata(related_request_id=self._ctx.request_id)
        match request:
            case types.ElicitRequest():
                return await session.send_request(request, types.ElicitResult, metadata=related)
            case types.CreateMessageRequest():
                return await session.send_request(request, types.CreateMessageResult, metadata=related)
            case types.ListRootsRequest():
                return await session.send_request(request, types.ListRootsResult, metadata=related)

    def _declares(self, request: types.InputRequest) -> bool:
        return declares(self._ctx.session, request)


def declares(session: ServerSession, request: types.InputRequest) -> bool:
    """Return True if the client declares that it can be asked this."""
    capabilities = session.client_capabilities
    match request:
        case types.ElicitRequest():
            return capabilities is not None and capabilities.elicitation is not None
        case types.CreateMessageRequest():
            return capabilities is not None and capabilities.sampling is not None
        case types.ListRootsRequest():
            return capabilities is not None and capabilities.roots is not None


def _refuse(request: types.InputRequest) -> types.InputResponse:
    match request:
        case types.ElicitRequest():
            return types.ElicitResult(action="cancel")
        case types.ListRootsRequest():
            return types.ListRootsResult(roots=[])
        case types.CreateMessageRequest():
            raise MCPError(
                types.MISSING_REQUIRED_CLIENT_CAPABILITY,
                "The client does not declare the capability `sampling`.",
                {"requiredCapabilities": {"sampling": {}}},
            )


def _name_server(server: str, request: types.InputRequest) -> types.InputRequest:
    """Say who asks: a server must not pass for the client or for Interlock."""
    if isinstance(request, types.ElicitRequest):
        params = request.params.model_copy(update={"message": f"[{server}] {request.params.message}"})
        return request.model_copy(update={"params": params})
    return request


class _Waiting(msgspec.Struct):
    task: "asyncio.Task[Any]"
    relay: ClientRelay
    caller: Caller
    timer: asyncio.TimerHandle


class Relay:
    """Runs the requests of clients, with those that wait for the answers of their clients."""

    def __init__(self, redact: Callable[[str], str]) -> None:
        self._redact = redact
        self._waiting: dict[str, _Waiting] = {}
        #: What clients of versions with `logging/setLevel` have set.
        self.log_levels: dict[Caller, types.LoggingLevel] = {}
        #: Whether any server may ask something.
        self.is_enabled = False

    async def run(
        self,
        ctx: Context,
        caller: Caller,
        given: types.InputResponses | None,
        work: Callable[[], Coroutine[Any, Any, ResultT]],
    ) -> ResultT | types.InputRequiredResult:
        """Run the work for a request. What servers report and ask meanwhile is relayed to the client."""
        relay = ClientRelay(ctx, self._redact, given, self.log_levels.get(caller, "info"))
        token = CALL_RELAY.set(relay)
        try:
            if not self.is_enabled or ctx.protocol_version not in MODERN_PROTOCOL_VERSIONS:
                return await work()
            task = asyncio.create_task(work())
            return await self._finish(task, relay, caller)
        finally:
            CALL_RELAY.reset(token)

    async def resume(self, ctx: Context, caller: Caller, state: InputState, given: types.InputResponses | None) -> Any:
        """Continue a call with the answers of its client."""
        waiting = self._waiting.pop(state.token, None)
        if waiting is None or waiting.caller != caller:
            raise refuse_state()
        waiting.timer.cancel()
        waiting.relay.continue_with(ctx, given)
        return await self._finish(waiting.task, waiting.relay, caller)

    async def _finish(self, task: "asyncio.Task[Any]", relay: ClientRelay, caller: Caller) -> Any:
        asked = asyncio.ensure_future(relay.is_asked.wait())
        try:
            await asyncio.wait((task, asked), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            asked.cancel()
        if task.done():
            return task.result()
        if len(self._waiting) >= _MAX_WAITING:
            task.cancel()
            raise MCPError(types.INTERNAL_ERROR, "Too many calls wait for answers of their clients.")
        token = token_urlsafe(16)
        timer = asyncio.get_running_loop().call_later(_WAIT_SECONDS, self._expire, token)
        self._waiting[token] = _Waiting(task, relay, caller, timer)
        state = encode(InputState(token)).decode()
        return types.InputRequiredResult(input_requests=dict(relay.requests), request_state=state)

    def _expire(self, token: str) -> None:
        with suppress(KeyError):
            self._waiting.pop(token).task.cancel()

    def close(self) -> None:
        """Cancel the calls that wait."""
        for token in list(self._waiting):
            self._expire(token)
