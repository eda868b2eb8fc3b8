"""Events as syslog messages, and as lines of a file."""

import asyncio
import fcntl
import os
import socket
import ssl
import stat
import subprocess
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.server.core.addresses import resolve_with_system
from interlock.server.core.audit_sinks.destination import FileDestination, SyslogDestination
from interlock.server.core.audit_sinks.forwarder import create_sender
from interlock.server.core.audit_sinks.senders import (
    BatchItem,
    EventBatch,
    FileSender,
    SendDelay,
    SendSuccess,
    SyslogSender,
)
from tests.patience import HANG_SECONDS

from .certificates import server_tls

AT = 1_700_000_000_123_456_789


def batch(*lines: bytes) -> EventBatch:
    return EventBatch("d", tuple(BatchItem(n + 1, "run_a", n, "tool.intent", AT, line) for n, line in enumerate(lines)))


def syslog(port: int, transport: Literal["udp", "tcp", "tls"], ca_file: str = "") -> SyslogDestination:
    return SyslogDestination(
        name="siem",
        host="siem.example",
        port=port,
        transport=transport,
        facility="local3",
        allow_plain=True,
        allow_private=True,
        ca_file=ca_file,
    )


async def here(host: str, port: int) -> Sequence[str]:
    return ["127.0.0.1"]


@asynccontextmanager
async def collecting(tls: ssl.SSLContext | None = None) -> AsyncGenerator[tuple[int, asyncio.Queue[bytes]], None]:
    """The port of a stream receiver, and what each connection brought up to its end."""
    got: asyncio.Queue[bytes] = asyncio.Queue()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        got.put_nowait(await reader.read())
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield server.sockets[0].getsockname()[1], got
    finally:
        server.close()
        await server.wait_closed()


HEAD = (
    b"<158>1 2023-11-14T22:13:20.123457Z box interlock - tool.intent "
    b'[interlock@32473 run="run_a" seq="%d" type="tool.intent"] '
)


async def test_tcp_messages_are_counted_in_octets_and_carry_run_seq_and_type() -> None:
    async with collecting() as (port, got):
        sender = SyslogSender(syslog(port, "tcp"), None, here, hostname="box")
        assert await sender.send(batch(b'{"a":1}', b"two")) == SendSuccess()

        messages = [HEAD % 0 + b'{"a":1}', HEAD % 1 + b"two"]
        assert await got.get() == b"".join(b"%d %s" % (len(message), message) for message in messages)


async def test_tls_is_checked_for_the_name(tmp_path: Path) -> None:
    tls, ca_file = server_tls(tmp_path, "siem.example")
    async with collecting(tls) as (port, got):
        sender = create_sender(syslog(port, "tls", ca_file), {}, resolve=here)
        stranger = create_sender(syslog(port, "tls"), {}, resolve=here)

        assert await sender.send(batch(b"one")) == SendSuccess()
        assert (await got.get()).endswith(b"one")
        assert isinstance(await stranger.send(batch(b"one")), SendDelay)
        assert got.empty()


async def test_a_datagram_is_at_most_2048_bytes_and_says_when_it_was_cut() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:
        receiver.bind(("127.0.0.1", 0))
        receiver.settimeout(HANG_SECONDS)
        sender = SyslogSender(syslog(receiver.getsockname()[1], "udp"), None, here, hostname="box")
        assert await sender.send(batch(b"short", "\u00e4".encode() * 3000)) == SendSuccess()

        assert receiver.recv(9000) == HEAD % 0 + b"short"
        long = receiver.recv(9000)
    assert 2046 <= len(long) <= 2048
    assert long.endswith(b" [cut: 6000 bytes in all]")
    assert long.decode()


@given(st.text(), st.text(), st.binary(max_size=200))
def test_no_run_or_type_can_end_the_structured_data_or_add_a_line(run_id: str, kind: str, line: bytes) -> None:
    sender = SyslogSender(syslog(1, "udp"), None, resolve_with_system, hostname="a b\nc")
    item = BatchItem(1, run_id.encode(errors="replace").decode(), 5, kind.encode(errors="replace").decode(), AT, line)

    head, _, rest = sender.format_message(item).partition(b" [interlock@32473 ")
    assert head.count(b" ") == 5
    assert b"\n" not in head
    inside = rest.replace(b"\\\\", b"").replace(b'\\"', b"").replace(b"\\]", b"")
    params = inside[: inside.index(b"] ")]
    assert params.count(b'"') == 6
    assert b"\n" not in params


async def test_a_receiver_that_resets_or_is_not_there_only_delays() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        linger = (1).to_bytes(4, "little") + bytes(4)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        await reader.readexactly(10)
        writer.transport.abort()

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    place = syslog(server.sockets[0].getsockname()[1], "tcp")
    sender = SyslogSender(place, None, here)
    assert isinstance(await sender.send(batch(*[b"x" * 60_000] * 50)), SendDelay)
    server.close()
    await server.wait_closed()
    assert isinstance(await sender.send(batch(b"x")), SendDelay)


async def test_syslog_goes_nowhere_that_it_may_not_go() -> None:
    async with collecting() as (port, got):
        place = SyslogDestination(name="siem", host="siem.example", port=port, transport="tcp", allow_plain=True)
        said = await SyslogSender(place, None, here).send(batch(b"x"))

        assert isinstance(said, SendDelay)
        assert "loopback" in said.problem
        assert got.empty()


def file_sender(path: Path) -> FileSender:
    return FileSender(FileDestination(name="disk", path=str(path)))


async def test_lines_are_appended_for_the_owner_only_and_a_renamed_file_is_left_behind(tmp_path: Path) -> None:
    path, sender = tmp_path / "audit.log", file_sender(tmp_path / "audit.log")

    assert await sender.send(batch(b"1", b"2")) == SendSuccess()
    path.rename(tmp_path / "audit.log.1")
    assert await sender.send(batch(b"3")) == SendSuccess()

    assert (tmp_path / "audit.log.1").read_bytes() == b"1\n2\n"
    assert path.read_bytes() == b"3\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_line_that_was_cut_before_does_not_run_into_the_next_one(tmp_path: Path) -> None:
    (tmp_path / "audit.log").write_bytes(b"whole\nha")

    assert await file_sender(tmp_path / "audit.log").send(batch(b"next")) == SendSuccess()

    assert (tmp_path / "audit.log").read_bytes() == b"whole\nha\nnext\n"


async def test_a_link_a_pipe_a_folder_or_a_file_in_use_is_not_written_to(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(tmp_path / "pipe")
    with (tmp_path / "used").open("wb") as used:
        fcntl.flock(used, fcntl.LOCK_EX)
        for name in ("link", "pipe", ".", "used", "no/such/folder"):
            said = await file_sender(tmp_path / name).send(batch(b"x"))
            assert isinstance(said, SendDelay), name
    assert (tmp_path / "elsewhere").read_bytes() == b""
    assert (tmp_path / "used").read_bytes() == b""


FULL_DISK = """
import asyncio, resource, signal, sys
from interlock.server.core.audit_sinks.destination import FileDestination
from interlock.server.core.audit_sinks.senders import FileSender
from interlock.server.core.audit_sinks.senders import BatchItem, EventBatch
sender = FileSender(FileDestination(name="disk", path=sys.argv[1]))
def send(line):
    print(type(asyncio.run(sender.send(EventBatch("d", (BatchItem(1, "r", 0, "t", 0, line),))))).__name__)
send(b"a" * 50)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (80, 80))
send(b"b" * 50)
"""


def test_a_batch_that_does_not_fit_on_the_disk_leaves_no_half_of_it(tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk."""
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path / "audit.log")]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=HANG_SECONDS)

    assert done.stdout.split() == ["SendSuccess", "SendDelay"]
    assert (tmp_path / "audit.log").read_bytes() == b"a" * 50 + b"\n"


@pytest.mark.parametrize("lines", [(), (b"",), (b"x" * 200_000,)])
async def test_any_batch_of_lines_is_written_as_it_is(tmp_path: Path, lines: tuple[bytes, ...]) -> None:
    assert await file_sender(tmp_path / "audit.log").send(batch(*lines)) == SendSuccess()

    assert (tmp_path / "audit.log").read_bytes() == b"".join(line + b"\n" for line in lines)
