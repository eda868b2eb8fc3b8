"""Syslog as in RFC 5424: over TLS (RFC 5425) or TCP (RFC 6587) with octet counting, or one datagram each (RFC 5426).

Syslog confirms nothing. A connection serves one batch: it is ended in order, and a receiver that ends it, too, has read
all of it; one that resets it has not. With UDP, what the network took counts as sent.
"""

import asyncio
import socket
import ssl
from contextlib import suppress

from ....rendering.times import format_rfc3339
from ..addresses import AddressRefusal, Resolver, resolve_allowed_addresses
from .destination import FACILITIES, SyslogDestination
from .interface import BatchItem, EventBatch, SendDelay, SendOutcome, SendSuccess

#: With an enterprise number that nobody owns (RFC 5612).
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
    """Printable ASCII without spaces, as the header wants it; `-` for nothing."""
    return "".join(char for char in text if "!" <= char <= "~")[:limit] or "-"
