"""`interlock-hook AGENT`: hand the payload of a hook to the daemon, and print its answer.

It is started for every call of a coding agent, so it imports nothing but small parts of the standard library, and is
installed as `python -I -S .../thin.py AGENT STATE`: no site packages, no variables of the agent. Whatever goes wrong,
the answer is no: the reason on stderr, and the exit code 2, with which every agent blocks the call.

One request and one answer go over the socket, each a line and a body:

    interlock-hook/1 AGENT EVENT ENTRY SECONDS LENGTH
    interlock-hook/1 EXIT-CODE LENGTH LENGTH-ON-STDERR
"""

import _socket  # `socket` is this and much more: it would double the time that a hook takes
import os
import stat
import sys
import time

PROTOCOL = "interlock-hook/1"
SOCKET_NAME = "hooks.sock"
#: The variables that the daemon is started with, as they were when the hooks were installed.
START_FILE = "hooks.start"
#: What the daemon says when it cannot start.
ERROR_FILE = "hooks.err"
MAX_BODY_BYTES = 1 << 20
MAX_ANSWER_BYTES = 4 << 20
MAX_HEAD_BYTES = 256
#: A longer address does not fit into the structure that names a socket.
MAX_ADDRESS_BYTES = 100
#: How long an agent waits for its hook, by the configuration that `interlock hooks install` writes, less a margin.
DEADLINE_SECONDS = {"claude": 110.0, "codex": 110.0, "gemini": 110.0, "cursor": 50.0, "opencode": 86_400.0}
#: How long the daemon may take to start.
START_SECONDS = 20.0
_LOOK_SECONDS = 0.02
_BLOCKED = 2
_UNREADABLE = "the daemon gave an answer that cannot be read"
_START = "import sys; sys.argv[0] = 'interlock'; from interlock.cli.main import main; main()"
#: Which variables the daemon gets where it was not installed by a command.
_KEPT_VARIABLES = ("HOME", "PATH", "LANG", "LC_ALL", "USER", "LOGNAME", "XDG_CONFIG_HOME", "XDG_STATE_HOME")


class RefusedError(Exception):
    """The daemon cannot be asked, or gave no answer."""


def main() -> None:
    """Run the client, and end the process."""
    words = sys.argv[1:]
    agent = words[0] if words else ""
    try:
        if agent not in DEADLINE_SECONDS:
            raise RefusedError(f"unknown agent {agent[:40]!r}; use one of {', '.join(DEADLINE_SECONDS)}")
        state = words[1] if len(words) > 1 else _find_state()
        event = words[2] if len(words) > 2 else "-"  # noqa: PLR2004 - agent, state, event
        entry = os.environ.get("CLAUDE_CODE_ENTRYPOINT", "") if agent == "claude" else ""
        code, output, message = ask(agent, event, _read_body(), state, entry)
    except BaseException as error:
        reason = str(error) if isinstance(error, RefusedError) else f"{type(error).__name__}: {error}"
        code, output, message = refuse(agent, reason)
    _write(2, message)
    _write(1, output)
    os._exit(code)


def refuse(agent: str, reason: str) -> tuple[int, bytes, bytes]:
    """Return what a hook answers that could not ask: exit code, output and message."""
    text = f"Interlock denied this call: {reason}. Nothing was executed. `interlock hooks status` says more."
    message = text.encode(errors="backslashreplace") + b"\n"
    if agent != "cursor":
        return _BLOCKED, b"", message
    # Cursor reads its answer from stdout, whatever the exit code.
    shown = "".join(
        char if " " <= char <= "~" and char not in '"\\' else f"\\u{ord(char) & 0xFFFF:04x}" for char in text
    )
    answer = f'{{"permission":"deny","user_message":"{shown}","agent_message":"{shown}"}}\n'
    return _BLOCKED, answer.encode(), message


def ask(agent: str, event: str, body: bytes, state: str, entry: str = "") -> tuple[int, bytes, bytes]:
    """Return what the daemon answers: exit code, output and message. Start the daemon if there is none."""
    deadline = time.monotonic() + DEADLINE_SECONDS[agent]
    try:
        return _ask_once(agent, event, body, state, entry, deadline)
    except (ConnectionResetError, BrokenPipeError):  # it ended before it had read the request: another one is asked
        return _ask_once(agent, event, body, state, entry, deadline)


def _ask_once(  # noqa: PLR0913, PLR0917 - what a request says
    agent: str, event: str, body: bytes, state: str, entry: str, deadline: float
) -> tuple[int, bytes, bytes]:
    connection = _connect(state, deadline)
    try:
        seconds = deadline - time.monotonic()
        head = f"{PROTOCOL} {agent} {_clean(event)} {_clean(entry)} {seconds:.0f} {len(body)}\n"
        connection.settimeout(seconds)
        connection.sendall(head.encode() + body)
        return _read_answer(connection, deadline)
    except (TimeoutError, _socket.timeout):
        raise RefusedError(f"no answer within {DEADLINE_SECONDS[agent]:.0f} s") from None
    finally:
        connection.close()


def _clean(word: str) -> str:
    """Return a word that fits into the head of a request."""
    kept = "".join(char for char in word[:40] if char.isalnum() or char in "_-")
    return kept or "-"


def _read_body() -> bytes:
    parts: list[bytes] = []
    size = 0
    while chunk := os.read(0, 1 << 16):
        parts.append(chunk)
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise RefusedError(f"the payload of the hook has more than {MAX_BODY_BYTES:,} bytes")
    return b"".join(parts)


def _read_answer(connection: "_socket.socket", deadline: float) -> tuple[int, bytes, bytes]:
    data = b""
    while b"\n" not in data[:MAX_HEAD_BYTES]:
        if len(data) >= MAX_HEAD_BYTES:
            raise RefusedError(_UNREADABLE)
        data += _receive(connection, deadline)
    head, _, rest = data.partition(b"\n")
    protocol, *numbers = head.decode(errors="replace").split(" ")
    if protocol != PROTOCOL or len(numbers) != 3 or not all(map(str.isdecimal, numbers)):  # noqa: PLR2004
        raise RefusedError(_UNREADABLE)
    code, size, message_size = map(int, numbers)
    if code not in (0, _BLOCKED) or size + message_size > MAX_ANSWER_BYTES:
        raise RefusedError(_UNREADABLE)
    parts, missing = [rest], size + message_size - len(rest)
    while missing > 0:
        parts.append(_receive(connection, deadline))
        missing -= len(parts[-1])
    if missing:
        raise RefusedError(_UNREADABLE)
    answer = b"".join(parts)
    return code, answer[:size], answer[size:]


def _receive(connection: "_socket.socket", deadline: float) -> bytes:
    connection.settimeout(max(0.001, deadline - time.monotonic()))
    data = connection.recv(1 << 16)
    if not data:
        raise RefusedError("the daemon ended before it answered")
    return data


# The daemon


def _connect(state: str, deadline: float) -> "_socket.socket":
    """Return a connection to the daemon of this user; start it if it does not run."""
    connection = _try_connect(state)
    if connection is not None:
        return connection
    process, status = _start_daemon(state), 0
    until = min(deadline, time.monotonic() + START_SECONDS)
    while time.monotonic() < until:
        connection = _try_connect(state)
        if connection is not None:
            return connection
        if process:
            ended, status = os.waitpid(process, os.WNOHANG)
            process = 0 if ended else process
        if not process and status:
            raise RefusedError(f"its daemon could not start: {_read_error(state)}")
        time.sleep(_LOOK_SECONDS)
    raise RefusedError(f"its daemon did not start within {START_SECONDS:.0f} s: {_read_error(state)}")


def _try_connect(state: str) -> "_socket.socket | None":
    """Return a connection, or None where no daemon listens. Raise `RefusedError` where the socket is not ours."""
    try:
        folder, found = os.stat(state), os.lstat(os.path.join(state, SOCKET_NAME))
    except FileNotFoundError:
        return None
    own = os.geteuid()
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != own or found.st_mode & 0o077:
        raise RefusedError(f"{state}/{SOCKET_NAME} is not a private socket of this user")
    if folder.st_uid != own or folder.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise RefusedError(f"others may write into {state}")
    connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        address = os.path.join(state, SOCKET_NAME)
        if len(os.fsencode(address)) > MAX_ADDRESS_BYTES:
            os.chdir(state)
            address = SOCKET_NAME
        connection.settimeout(1.0)
        connection.connect(address)
    except (FileNotFoundError, ConnectionRefusedError):
        connection.close()
        return None
    if hasattr(_socket, "SO_PEERCRED"):
        peer = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
        if int.from_bytes(peer[4:8], sys.byteorder) != own:
            raise RefusedError("the daemon belongs to another user")
    return connection


def _start_daemon(state: str) -> int:
    """Start the daemon in a session of its own, with the variables that were recorded at the installation."""
    try:
        with open(os.path.join(state, START_FILE), "rb") as file:
            pairs = [pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair]
        variables = {os.fsdecode(name): os.fsdecode(value) for name, value in pairs}
    except FileNotFoundError:
        variables = {name: os.environ[name] for name in _KEPT_VARIABLES if name in os.environ}
    write = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        os.makedirs(state, mode=0o700, exist_ok=True)
        return os.posix_spawn(
            sys.executable,
            [sys.executable, "-I", "-c", _START, "hooks", "serve"],
            variables,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
                (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
                (os.POSIX_SPAWN_OPEN, 2, os.path.join(state, ERROR_FILE), write, 0o600),
            ],
            setsid=True,
        )
    except OSError as error:
        raise RefusedError(
            f"its daemon cannot be started: {error.strerror}. Do `interlock hooks install` again"
        ) from None


def _read_error(state: str) -> str:
    try:
        with open(os.path.join(state, ERROR_FILE), "rb") as file:
            return " ".join(file.read(2_000).decode(errors="replace").split()) or "no reason is known"
    except OSError:
        return "no reason is known"


def _find_state() -> str:
    """Return the state folder, by the rules of `cli.config.user_paths`."""
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        home = os.environ.get("HOME", "")
        if not os.path.isabs(home):
            raise RefusedError("this user has no home folder. Set HOME or XDG_STATE_HOME")
        base = os.path.join(home, ".local", "state")
    return os.path.join(base, "interlock")


def _write(descriptor: int, data: bytes) -> None:
    try:
        while data:
            data = data[os.write(descriptor, data) :]
    except OSError:  # the agent left
        os._exit(_BLOCKED)


if __name__ == "__main__":
    main()
