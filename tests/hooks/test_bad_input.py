"""What cannot be decided is denied, with the reason: bad payloads, a socket of somebody else, a daemon that dies."""

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from interlock.hooks import thin
from tests.hooks.support import open_office, read_payloads
from tests.patience import HANG_SECONDS

PRE = json.dumps(read_payloads("claude")["PreToolUse Bash"]).encode()


def run_hook(
    agent: str, state: Path | str, body: bytes = PRE, **variables: str
) -> "subprocess.CompletedProcess[bytes]":
    """Run the client as an agent would."""
    command = [sys.executable, "-I", "-S", thin.__file__, agent, str(state)]
    return subprocess.run(command, input=body, env=variables, capture_output=True, timeout=HANG_SECONDS, check=False)


BODIES = {
    "nothing": b"",
    "not JSON": b"{nope",
    "not an object": b"[1]",
    "another event": b'{"hook_event_name": "Stop", "session_id": "s", "cwd": "/"}',
    "no event": b'{"session_id": "s"}',
    "deep": b'{"a":' + b"[" * 500 + b"]" * 500 + b"}",
    "duplicate keys": b'{"session_id": "a", "session_id": "b"}',
    "NaN": b'{"session_id": NaN}',
    "no tool": b'{"hook_event_name": "PreToolUse", "session_id": "s", "cwd": "/", "tool_use_id": "t"}',
    "input is a list": PRE.replace(b'{"command": "touch made.txt", "description": "make"}', b"[]"),
    "no folder": PRE.replace(b'"/work"', b'"/no/such/folder"'),
    "relative folder": PRE.replace(b'"/work"', b'"work"'),
    "lone surrogate": PRE.replace(b"touch", b"\\ud800"),
}


async def test_bad_payloads_are_denied() -> None:
    async with open_office() as office:
        claude = {name: await office.hook("claude", body) for name, body in BODIES.items()}
        cursor = {name: await office.hook("cursor", body) for name, body in BODIES.items()}
        runs = await office.log.run_ids()

    for name in BODIES:
        assert (claude[name].code, claude[name].stdout) == (2, b""), name
        assert b"Nothing was executed" in claude[name].stderr, name
        assert (cursor[name].code, cursor[name].answer["permission"]) == (2, "deny"), name
    assert runs == []


async def test_request_of_another_protocol_is_denied() -> None:
    async with open_office() as office:
        for request in (b"GET / HTTP/1.1\r\n\r\n", b"x" * 5000, b"interlock-hook/1 claude - - 9 99999999\n", b""):
            reader, writer = await asyncio.open_unix_connection(str(office.state / thin.SOCKET_NAME))
            writer.write(request)
            writer.write_eof()
            async with asyncio.timeout(HANG_SECONDS):
                answer = await reader.read()
            writer.close()

            assert answer.startswith(b"interlock-hook/1 2 0 ")


def test_large_payload_is_denied(tmp_path: Path) -> None:
    hooked = run_hook("claude", tmp_path, b" " * (thin.MAX_BODY_BYTES + 1))

    assert hooked.returncode == 2
    assert b"more than 1,048,576 bytes" in hooked.stderr


def test_unknown_agent_is_denied(tmp_path: Path) -> None:
    assert run_hook("nemo", tmp_path).returncode == 2


@contextmanager
def fake_daemon(state: Path, *serves: Callable[[socket.socket], None], mode: int = 0o600) -> Generator[None]:
    """Listen where the daemon would, and do something else with each connection."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(state / thin.SOCKET_NAME))
    os.chmod(state / thin.SOCKET_NAME, mode)
    listener.listen()

    def accept() -> None:
        with suppress(OSError):  # the client did not come, or is gone
            for serve in serves:
                connection, _ = listener.accept()
                with connection:
                    serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            listener.shutdown(socket.SHUT_RDWR)
        thread.join(HANG_SECONDS)
        listener.close()


def _answer(data: bytes) -> Callable[[socket.socket], None]:
    def serve(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(data)

    return serve


def _end_unread(connection: socket.socket) -> None:
    """End when the request is there, and leave it unread."""
    connection.recv(1, socket.MSG_PEEK)


ALLOW = b'{"hookSpecificOutput":{"hookEventName":"PreToolUse","permissionDecision":"allow"}}\n'
#: What a daemon may have written when it dies: at every point nothing is allowed.
PARTIAL = {
    "before it reads": b"",
    "in the head": b"interlock-ho",
    "after the head": b"interlock-hook/1 0 %d 0\n" % len(ALLOW),
    "in the answer": b"interlock-hook/1 0 %d 0\n" % len(ALLOW) + ALLOW[:-10],
    "another code": b"interlock-hook/1 1 0 0\n",
    "another protocol": b"HTTP/1.1 200 OK\r\n\r\n" + ALLOW,
    "too much": b"interlock-hook/1 0 3 0\n" + ALLOW,
    "endless head": b"x" * 1000,
}


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "cursor", "opencode"])
@pytest.mark.parametrize("data", PARTIAL.values(), ids=PARTIAL)
def test_daemon_that_dies_lets_nothing_run(agent: str, data: bytes, short_folder: Path) -> None:
    """Asked within this process: `main` prints nothing before the whole answer is there."""
    with fake_daemon(short_folder, _answer(data)), pytest.raises(thin.RefusedError):
        thin.ask(agent, "-", PRE, str(short_folder))


def test_answer_is_printed_whole(short_folder: Path) -> None:
    with fake_daemon(short_folder, _answer(b"interlock-hook/1 0 %d 0\n" % len(ALLOW) + ALLOW)):
        hooked = run_hook("claude", short_folder)

    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (0, ALLOW, b"")


@pytest.mark.parametrize("agent", ["codex", "cursor"])
def test_hook_whose_daemon_died_exits_with_2(agent: str, short_folder: Path) -> None:
    with fake_daemon(short_folder, _answer(PARTIAL["in the answer"])):
        hooked = run_hook(agent, short_folder)

    assert hooked.returncode == 2
    assert b"ended before it answered" in hooked.stderr
    assert not hooked.stdout or json.loads(hooked.stdout)["permission"] == "deny"


def test_daemon_that_read_nothing_is_asked_again(short_folder: Path) -> None:
    answer = _answer(b"interlock-hook/1 0 %d 0\n" % len(ALLOW) + ALLOW)

    with fake_daemon(short_folder, _end_unread, answer):
        assert thin.ask("claude", "", PRE, str(short_folder)) == (0, ALLOW, b"")


def test_open_socket_is_refused(short_folder: Path) -> None:
    with fake_daemon(short_folder, _answer(ALLOW), mode=0o666), pytest.raises(thin.RefusedError, match="not a private"):
        thin.ask("claude", "-", PRE, str(short_folder))


def test_folder_of_others_is_refused(short_folder: Path) -> None:
    with fake_daemon(short_folder, _answer(ALLOW)):
        short_folder.chmod(0o777)
        with pytest.raises(thin.RefusedError, match="others may write"):
            thin.ask("claude", "-", PRE, str(short_folder))


def test_file_in_place_of_the_socket_is_refused(short_folder: Path) -> None:
    (short_folder / thin.SOCKET_NAME).write_text("")

    with pytest.raises(thin.RefusedError, match="not a private"):
        thin.ask("claude", "-", PRE, str(short_folder))


def test_slow_daemon_is_refused(short_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    monkeypatch.setitem(thin.DEADLINE_SECONDS, "claude", 0.1)

    with fake_daemon(short_folder, lambda connection: _hang(released)):
        with pytest.raises(thin.RefusedError, match="no answer"):
            thin.ask("claude", "-", PRE, str(short_folder))
        released.set()


def _hang(released: threading.Event) -> None:
    released.wait(HANG_SECONDS)


def test_daemon_that_cannot_start_is_named(short_folder: Path) -> None:
    """The recorded variables lead to a home whose settings cannot be read."""
    config = short_folder / "config" / "interlock"
    config.mkdir(parents=True)
    state = short_folder / "state" / "interlock"
    state.mkdir(parents=True, mode=0o770)
    state.chmod(0o770)
    start = {"XDG_CONFIG_HOME": str(config.parent), "XDG_STATE_HOME": str(state.parent), "HOME": str(short_folder)}
    (state / thin.START_FILE).write_bytes("\0".join(f"{name}={value}" for name, value in start.items()).encode())

    hooked = run_hook("claude", state)

    assert hooked.returncode == 2
    assert b"could not start" in hooked.stderr
    assert b"chmod" in hooked.stderr


async def test_hook_of_an_agent_that_left_starts_nothing() -> None:
    """The agent is gone while its question is held: an approval then does not start the call."""
    payload: dict[str, Any] = {"tool_name": "Bash", "tool_use_id": "t1", "tool_input": {"command": "touch a"}}
    async with open_office() as office:
        body = json.dumps(office.payload("PreToolUse", **payload)).encode()
        reader, writer = await asyncio.open_unix_connection(str(office.state / thin.SOCKET_NAME))
        writer.write(f"{thin.PROTOCOL} claude - cli 100 {len(body)}\n".encode() + body)
        await writer.drain()
        await office.until_asked()
        writer.close()
        async with asyncio.timeout(HANG_SECONDS):
            await reader.read()
        await office.answer()
        kinds = await office.kinds()
        again = await office.claude("PreToolUse", "Bash", "t2", "cli", tool_input={"command": "touch a"})

    assert "InvocationStarted" not in kinds
    assert again.decision == "allow"
