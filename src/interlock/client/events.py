"""The stream of a run: server-sent events to typed items, and where to continue after a broken connection."""

from collections.abc import Iterator
from typing import Any, TypeAlias, cast

import msgspec

from .errors import ConnectionFailedError, PermissionDeniedError, UnexpectedResponseError
from .models import RecordedEvent
from .requests import ApiRequest, RetryPolicy, stream_request

MAX_MESSAGE_BYTES = 32 << 20
_decode = msgspec.json.Decoder().decode


class ModelDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Text that the model writes now. It is recorded nowhere until the answer is complete."""

    run_id: str
    #: The last event that was recorded before.
    seq: int
    text: str
    #: Where the text begins in the answer.
    offset: int = 0
    #: How often the answer was begun again before.
    restarts: int = 0


class ModelRestarted(msgspec.Struct, frozen=True, kw_only=True):
    """The model begins its answer again: the text so far does not count."""

    run_id: str
    seq: int
    reason: str = ""


class ToolProgress(msgspec.Struct, frozen=True, kw_only=True):
    """A message of a tool that runs."""

    run_id: str
    seq: int
    call_id: str = ""
    message: str = ""


class StreamEnd(msgspec.Struct, frozen=True, kw_only=True):
    """The run is over. This is the last item of its stream."""

    reason: str
    status: str = ""
    message: str = ""


StreamItem: TypeAlias = RecordedEvent | ModelDelta | ModelRestarted | ToolProgress | StreamEnd
_TRANSIENT: dict[str, type[ModelDelta | ModelRestarted | ToolProgress]] = {
    "model.delta": ModelDelta,
    "model.restarted": ModelRestarted,
    "tool.progress": ToolProgress,
}


class RunStream:
    """Where a reader of a run is, over any number of connections. It does no I/O."""

    def __init__(self, run_id: str, after_seq: int, deltas: bool, policy: RetryPolicy) -> None:
        self._run_id, self._after_seq, self._deltas, self._policy = run_id, after_seq, deltas, policy
        self._last_id = ""
        self._failures = 0
        self._retry_seconds = 1.0
        self._buffer = bytearray()
        #: The last text of the model.
        self._delta: ModelDelta | None = None
        self.is_over = False

    def connect(self) -> ApiRequest[Any]:
        """Return the request of the next connection, which continues after the last event."""
        self._buffer.clear()
        return stream_request(self._run_id, self._after_seq, self._deltas, self._last_id)

    def feed(self, chunk: bytes) -> Iterator[StreamItem]:
        """Yield the items that are complete with these bytes. An item is taken when the next one is asked for."""
        # Between messages is an empty line. Texts may have other line ends, such as U+2028, which are part of them.
        searched = max(0, len(self._buffer) - 1)
        self._buffer += chunk
        while (end := self._buffer.find(b"\n\n", searched)) >= 0:
            message = bytes(self._buffer[:end])
            del self._buffer[: end + 2]
            searched = 0
            if not message.startswith(
                b"retry:"
            ):  # it is the first of every connection, also of one that breaks at once
                self._failures = 0
            yield from self._read_message(message)
            if self.is_over:
                return
        if len(self._buffer) > MAX_MESSAGE_BYTES:
            raise UnexpectedResponseError(f"An event is longer than {MAX_MESSAGE_BYTES} bytes.")

    def fail(self, reason: str) -> float:
        """Return how many seconds to wait before the next connection. Raise after too many without any event."""
        if self._failures >= self._policy.reconnects:
            raise ConnectionFailedError(
                f"The stream of {self._run_id} broke, and {self._failures} attempts to continue it failed: {reason}. "
                f"To continue it later, pass after_seq={self._last_id or self._after_seq}."
            )
        self._failures += 1
        return self._policy.delay(self._failures, self._retry_seconds)

    def _read_message(self, message: bytes) -> Iterator[StreamItem]:
        name = data = event_id = ""
        for line in message.decode(errors="replace").split("\n"):
            word, _, value = line.partition(":")
            value = value.removeprefix(" ")
            if word == "event":
                name = value
            elif word == "data":
                data = value
            elif word == "id":
                event_id = value
            elif word == "retry" and value.isdecimal():
                self._retry_seconds = min(int(value) / 1_000, self._policy.max_seconds)
        if data and (item := self._read_item(name, data)) is not None:
            if event_id:
                self._last_id = event_id
            if isinstance(item, ModelDelta):
                yield from self._take_delta(item)
                return
            if isinstance(item, ModelRestarted):
                self._delta = None
            yield item

    def _take_delta(self, delta: ModelDelta) -> Iterator[StreamItem]:
        """Yield what is new: a server repeats the answer so far for a reader that comes back. If the model began again
        meanwhile, that is said first.
        """
        last, known = self._delta, 0
        if last is not None and last.seq == delta.seq:
            if last.restarts != delta.restarts:
                yield ModelRestarted(run_id=delta.run_id, seq=delta.seq)
            else:
                known = max(0, last.offset + len(last.text) - delta.offset)
        if len(delta.text) > known:
            self._delta = delta
            yield msgspec.structs.replace(delta, text=delta.text[known:], offset=delta.offset + known)

    def _read_item(self, name: str, data: str) -> StreamItem | None:
        try:
            found: Any = _decode(data.encode())
            if name == "end":
                return self._read_end(msgspec.convert(found, StreamEnd))
            if not cast(dict[str, Any], found).get("transient"):
                return msgspec.convert(found, RecordedEvent)
            kind = _TRANSIENT.get(name)
            common = {"run_id": found["run_id"], "seq": found["seq"]}
            return None if kind is None else msgspec.convert(found["data"] | common, kind)
        except (msgspec.MsgspecError, AttributeError, KeyError, TypeError) as error:
            raise UnexpectedResponseError(f"An event of {self._run_id} cannot be read: {error}") from None

    def _read_end(self, end: StreamEnd) -> StreamEnd | None:
        if end.reason == "stopping":
            return None
        if end.reason == "not_allowed":
            raise PermissionDeniedError(
                403, "not_allowed", f"The key may not read {self._run_id} any more: it was revoked or changed."
            )
        self.is_over = True
        return end
