"""How batches of events are sent to a destination: into a file, over HTTP, or as syslog.

A sender is given a batch and says what became of it: sent, rejected for good, or to be tried again later.
"""

import asyncio
import fcntl
import os
import socket
import ssl
import stat
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Protocol, TypeAlias

import msgspec

from ....domain.event import Event, LogEntry
from ....domain.rendering import neutralize
from ....rendering.times import format_rfc3339
from ..addresses import AddressRefusal, Resolver, resolve_allowed_addresses
from ..safe_http import HttpFailure, HttpReply, SafeClient
from ..triggers.webhook_signature import build_signed_headers
from .destination import FACILITIES, FileDestination, HecDestination, SyslogDestination, WebhookDestination

#: An event in the schema of its destination: bytes without a line break at the end.
#: The event as it is stored and as it is read, and the agent whose run it is of.
EventRenderer: TypeAlias = Callable[[LogEntry, Event, str], bytes]


class BatchItem(msgspec.Struct, frozen=True):
    """One event as it is sent: one line."""

    position: int
    run_id: str
    seq: int
    type: str
    #: When it happened, in nanoseconds since 1970.
    at: int
    line: bytes


class EventBatch(msgspec.Struct, frozen=True):
    """Events that are sent together."""

    #: The same events have the same one, however often they are sent.
    delivery: str
    items: tuple[BatchItem, ...]


class SendSuccess(msgspec.Struct, frozen=True):
    """The receiver accepted the batch, as far as its protocol confirms it."""

    #: How the receiver calls what it accepted, where it says so.
    reference: str = ""


class SendDelay(msgspec.Struct, frozen=True):
    """Temporary failure of the network or the receiver. Sending again may help."""

    problem: str
    retry_after_seconds: float = 0.0


class SendRejection(msgspec.Struct, frozen=True):
    """The receiver answered and rejected these events."""

    problem: str


SendOutcome: TypeAlias = SendSuccess | SendDelay | SendRejection


class EventSender(Protocol):
    """Sends to one destination. Never raises for failures of the receiver or the network."""

    async def send(self, batch: EventBatch) -> SendOutcome: ...

    async def close(self) -> None: ...


_FLAGS = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY


class FileSender:
    """Appends batches to a file."""

    def __init__(self, destination: FileDestination) -> None:
        self._path = destination.path

    async def send(self, batch: EventBatch) -> SendOutcome:
        """Append the batch to the file."""
        return await asyncio.to_thread(self._append, b"".join(item.line + b"\n" for item in batch.items))

    async def close(self) -> None:
        """Do nothing: the file is open only while sending."""
        pass

    def _append(self, lines: bytes) -> SendOutcome:
        try:
            fd = os.open(self._path, _FLAGS, 0o600)
            try:
                return _append_lines(fd, self._path, lines)
            finally:
                os.close(fd)
        except OSError as error:
            return SendDelay(f"{self._path} cannot be written: {error.strerror}.")


def _append_lines(fd: int, path: str, lines: bytes) -> SendOutcome:
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        return SendDelay(f"{path} is not a regular file.")
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    size = os.fstat(fd).st_size
    if size and os.pread(fd, 1, size - 1) != b"\n":
        lines = b"\n" + lines  # the end of a line that was cut, by a crash or by hand, is not the start of ours
    try:
        _write_all(fd, lines)
        os.fsync(fd)
    except OSError:
        os.ftruncate(fd, size)  # the whole batch comes again, so no half of it stays
        raise
    if size == 0:
        _sync_folder(path)
    return SendSuccess()


def _write_all(fd: int, lines: bytes) -> None:
    rest = memoryview(lines)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _sync_folder(path: str) -> None:
    """Sync the folder of a new file: its name is durable only with the folder."""
    folder = os.open(Path(path).parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


#: Statuses about credentials and URL, not about these events: they can be sent once that is fixed.
_RETRYABLE_CLIENT_ERRORS = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 426, 429, 451})
MAX_RETRY_AFTER_SECONDS = 3600.0
_MAX_EXCERPT_CHARS = 200


def classify_reply(reply: HttpReply | HttpFailure, secret: str, now: Callable[[], int]) -> SendOutcome:
    """Classify a reply. The result never holds the secret, even if the receiver echoes it."""
    if isinstance(reply, HttpFailure):
        return SendDelay(reply.problem.replace(secret, "***"))
    if 200 <= reply.status < 300:  # noqa: PLR2004 - as the RFC writes them
        return SendSuccess()
    problem = f"The receiver answered {reply.status}{_format_body_excerpt(reply.body, secret)}"
    if 400 <= reply.status < 500 and reply.status not in _RETRYABLE_CLIENT_ERRORS:  # noqa: PLR2004
        return SendRejection(problem)
    if 300 <= reply.status < 400:  # noqa: PLR2004
        problem += " Redirects are not followed: put the final URL in the configuration."
    return SendDelay(problem, parse_retry_after(reply.headers.get("retry-after", ""), now()))


def parse_retry_after(value: str, now: int) -> float:
    """Parse `Retry-After`, up to an hour: seconds, or a date. 0 for invalid values."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), MAX_RETRY_AFTER_SECONDS)
    try:
        date = parsedate_to_datetime(value)
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.fromtimestamp(now / 1e9, UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _format_body_excerpt(body: bytes, secret: str) -> str:
    text = body[:4096].decode(errors="replace").replace(secret, "***")
    line = " ".join(neutralize(text).split())
    return f": {line[:_MAX_EXCERPT_CHARS]}" if line else "."


_decode_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


class HecSender:
    """Sends batches to Splunk's HTTP Event Collector."""

    def __init__(self, destination: HecDestination, token: str, client: SafeClient, now: Callable[[], int]) -> None:
        self._destination = destination
        self._token = token
        self._client = client
        self._now = now

    async def send(self, batch: EventBatch) -> SendOutcome:
        """Send the batch to the HTTP Event Collector."""
        body = b"\n".join(self._add_index(item.line) for item in batch.items)
        headers = {"authorization": f"Splunk {self._token}", "content-type": "application/json"}
        return classify_reply(await self._client.post(self._destination.url, body, headers), self._token, self._now)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.close()

    def _add_index(self, envelope: bytes) -> bytes:
        """Add the index beside the event."""
        if not self._destination.index:
            return envelope
        return _encode({**_decode_envelope(envelope), "index": self._destination.index})


_NANOSECONDS_PER_SECOND = 1_000_000_000


class WebhookSender:
    """Sends batches to a webhook."""

    def __init__(
        self, destination: WebhookDestination, secret: str, client: SafeClient, now: Callable[[], int]
    ) -> None:
        self._url = destination.url
        self._secret = secret
        self._client = client
        self._now = now

    async def send(self, batch: EventBatch) -> SendOutcome:
        """Post the batch, signed."""
        body = b"".join(item.line + b"\n" for item in batch.items)
        signed = build_signed_headers(self._secret, self._now() // _NANOSECONDS_PER_SECOND, batch.delivery, body)
        headers = {"content-type": "application/x-ndjson", **signed}
        return classify_reply(await self._client.post(self._url, body, headers), self._secret, self._now)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.close()


#: With the enterprise number reserved for examples (RFC 5612).
_STRUCTURED_DATA_ID = "interlock@32473"
_INFORMATIONAL = 6
_MAX_BYTES = {"udp": 2048, "tcp": 64 * 1024, "tls": 64 * 1024}
_MAX_PARAM_CHARS = 256
_SEND_SECONDS = 30.0
#: How long to wait for the receiver's end of the connection. Some never end it.
_CLOSE_SECONDS = 5.0


class SyslogSender:
    """Sends batches over syslog."""

    def __init__(
        self, destination: SyslogDestination, verify: ssl.SSLContext | None, resolve: Resolver, hostname: str = ""
    ) -> None:
        self._destination = destination
        self._verify = verify
        self._resolve = resolve
        self._hostname = _to_printable_ascii(hostname or socket.gethostname(), 255)
        self._priority = FACILITIES[destination.facility] * 8 + _INFORMATIONAL

    async def send(self, batch: EventBatch) -> SendOutcome:
        """Send the batch over a new connection to an allowed address."""
        destination = self._destination
        try:
            async with asyncio.timeout(_SEND_SECONDS):
                addresses = await resolve_allowed_addresses(
                    destination.host, destination.port, destination.network_access, self._resolve
                )
                if isinstance(addresses, AddressRefusal):
                    return SendDelay(addresses.problem)
                messages = [self.format_message(item) for item in batch.items]
                if destination.transport == "udp":
                    return await _send_datagrams(addresses[0], destination.port, messages)
                return await self._send_stream(addresses, messages)
        except TimeoutError:
            return SendDelay(f"{destination.host} did not take the messages within {_SEND_SECONDS:g} s.")
        except (OSError, UnicodeError) as error:
            return SendDelay(f"{destination.host} cannot be reached: {error}.")

    async def close(self) -> None:
        """Do nothing: connections are not kept."""
        pass

    def format_message(self, item: BatchItem) -> bytes:
        """Return one message within the limit of the transport. A truncated one is marked at its end."""
        moment = format_rfc3339(round(item.at, -3), 6)
        params = f'run="{_escape_param(item.run_id)}" seq="{item.seq}" type="{_escape_param(item.type)}"'
        kind = _to_printable_ascii(item.type, 32)
        origin = f"{moment} {self._hostname} interlock"
        head = f"<{self._priority}>1 {origin} - {kind} [{_STRUCTURED_DATA_ID} {params}] ".encode()
        room = _MAX_BYTES[self._destination.transport] - len(head)
        return head + (item.line if len(item.line) <= room else _truncate(item.line, room))

    async def _send_stream(self, addresses: tuple[str, ...], messages: list[bytes]) -> SendOutcome:
        reader, writer = await self._connect(addresses)
        try:
            for message in messages:
                writer.write(b"%d %s" % (len(message), message))
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()
                await _wait_for_close(reader)
        finally:
            writer.close()
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await writer.wait_closed()
        return SendSuccess()

    async def _connect(self, addresses: tuple[str, ...]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        destination = self._destination
        verify = self._verify if destination.transport == "tls" else None
        name = destination.host if verify else None
        for address in addresses[:-1]:
            with suppress(OSError):
                return await asyncio.open_connection(address, destination.port, ssl=verify, server_hostname=name)
        return await asyncio.open_connection(addresses[-1], destination.port, ssl=verify, server_hostname=name)


async def _wait_for_close(reader: asyncio.StreamReader) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            while await reader.read(4096):
                pass


async def _send_datagrams(address: str, port: int, messages: list[bytes]) -> SendOutcome:
    refused: list[Exception] = []

    class Errors(asyncio.DatagramProtocol):
        def error_received(self, exc: Exception) -> None:
            refused.append(exc)

    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(Errors, remote_addr=(address, port))
    try:
        for message in messages:
            transport.sendto(message)
            await asyncio.sleep(0)
    finally:
        transport.close()
    return SendDelay(f"{address} does not take datagrams: {refused[0]}.") if refused else SendSuccess()


def _truncate(line: bytes, room: int) -> bytes:
    note = b" [cut: %d bytes in all]" % len(line)
    # A character that was cut in two is left out.
    return line[: max(room - len(note), 0)].decode(errors="ignore").encode() + note


def _escape_param(text: str) -> str:
    return "".join(f"\\{char}" if char in '"\\]' else char for char in text[:_MAX_PARAM_CHARS] if char.isprintable())


def _to_printable_ascii(text: str, limit: int) -> str:
    """Convert a text to printable ASCII without spaces for the header; `-` if nothing is left."""
    return "".join(char for char in text if "!" <= char <= "~")[:limit] or "-"
