"""The socket of a supervisor: what is no valid request changes nothing, and starts nothing."""

import asyncio
import os
import socket
import stat
import struct
import sys
from pathlib import Path

import msgspec
import pytest

from interlock.sandbox.host.programs import python_folders
from interlock.sandbox.interface import CommandSpec, SandboxProfile
from interlock.sandbox.tasks import protocol
from interlock.sandbox.tasks.client import SupervisorFolder, TaskSupervisor, list_workspaces
from interlock.sandbox.tasks.protocol import (
    MAX_MESSAGE_BYTES,
    ConfirmStart,
    Connection,
    ListTasks,
    Refused,
    RequestMessage,
    StartTask,
    StopRun,
    SupervisorIdentity,
    encode,
    write_file,
)
from interlock.sandbox.tasks.supervisor import Supervisor
from tests.patience import HANG_SECONDS
from tests.sandbox.commands import run as run_command
from tests.sandbox.commands import usable

from .runs import find_supervisor, kill_supervisor, open_run

FOREVER = "echo up; sleep 1000"
CLIENT = """
import socket, sys
channel = socket.socket(socket.AF_UNIX)
channel.connect("socket")
print("connected")
try:
    channel.sendall(open(sys.argv[1], "rb").read())
    print(channel.recv(999).decode() or "no answer")
except ConnectionError:
    print("no answer")
"""


def make_start(workspace: Path, **changes: object) -> StartTask:
    found = workspace.stat()
    request = StartTask(
        task_id="task_00000000",
        run_id="run_hostile",
        backend="bubblewrap",
        profile=SandboxProfile(workspace=str(workspace), writable=True),
        script="touch hostile",
        cwd="",
        folder=(found.st_dev, found.st_ino),
        timeout_seconds=10,
        idle_seconds=10,
    )
    return msgspec.structs.replace(request, **changes)


def frame(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content


async def send_raw(folder: SupervisorFolder, content: bytes) -> bytes:
    """Return what the supervisor says until it closes the connection."""
    reader, writer = await asyncio.open_unix_connection(sock=folder.open_socket())
    writer.write(content)
    writer.write_eof()
    try:
        return await asyncio.wait_for(reader.read(), HANG_SECONDS)
    except ConnectionResetError:
        return b""  # closed before all of it was read
    finally:
        writer.close()


def test_every_field_of_a_command_is_passed_on() -> None:
    """A new field of a command is a decision: it crosses the socket, or is asked for at the gate."""
    # These belong to commands that a process holds itself: in an overlay, with a proxy, servers, and searches.
    held = {"overlay", "on_listener", "files", "input_fd", "has_bulk_output"}
    asked_or_replaced = {"argv", "folder_fd", "is_still_valid", *held}

    assert set(CommandSpec.__struct_fields__) - asked_or_replaced == set(StartTask.__struct_fields__) & set(
        CommandSpec.__struct_fields__
    )


async def test_hostile_messages_change_nothing(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        (files,) = list_workspaces(str(folder / "tasks"))
        identity, workspace = find_supervisor(folder), folder / "workspace"
        (folder / "other").mkdir()
        valid = RequestMessage(identity.token, make_start(workspace))
        nested = b'{"token":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
        silent = [
            b"",
            b"GET / HTTP/1.1\r\n\r\n",
            struct.pack(">I", MAX_MESSAGE_BYTES + 1),
            struct.pack(">I", 2**32 - 1) + b"x" * 1000,
            frame(b""),
            frame(b"\xff\xfe"),
            frame(b"[]"),
            frame(b'{"token":"x","request":{"type":"shell"}}'),
            frame(nested),
            frame(encode(valid))[:-1],
            frame(encode(valid).replace(b"task_00000000", b"../../x")),
            frame(encode(valid).replace(b'"timeout_seconds": 10', b'"timeout_seconds": NaN')),
            frame(encode(RequestMessage(identity.token, ConfirmStart(True)))),
        ]
        refused = [
            RequestMessage("", StopRun("run_tasks")),
            RequestMessage(identity.token, StopRun("run_tasks"), protocol=2),
            RequestMessage(identity.token, make_start(folder / "other")),
            RequestMessage(identity.token, make_start(workspace, backend="shell")),
            RequestMessage(identity.token, make_start(workspace, task_id=task_id)),
        ]
        said = [await send_raw(files, content) for content in silent]
        answers = [await send_raw(files, frame(encode(message))) for message in refused]
        status = await run.status(task_id)
        await run.call("stop_task", task_id=task_id)

    assert said == [b""] * len(silent)
    assert all(b'"type": "refused"' in answer for answer in answers), answers
    assert status == "running"
    assert not (workspace / "hostile").exists()


async def test_a_start_needs_the_client_at_the_gate(folder: Path) -> None:
    """A client that asked for a command and does not say that it is still valid starts nothing."""
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        (files,) = list_workspaces(str(folder / "tasks"))
        identity, workspace = find_supervisor(folder), folder / "workspace"
        (next((folder / "tasks").iterdir()) / "task_00000000").mkdir()
        message = RequestMessage(identity.token, make_start(workspace))
        alone = await send_raw(files, frame(encode(message)))
        connection = Connection(*await asyncio.open_unix_connection(sock=files.open_socket()))
        await connection.send(message)
        assert isinstance(await connection.receive(protocol.TaskReply), protocol.AskValid)
        await connection.send(RequestMessage(identity.token, ConfirmStart(False)))
        reply = await connection.receive(protocol.TaskReply)
        connection.close()
        listed = await files.list_running()
        await run.call("stop_task", task_id=task_id)

    assert b'"type": "done"' not in alone
    assert isinstance(reply, Refused)
    assert [entry.id for entry in listed] == [task_id]
    assert not (workspace / "hostile").exists()


async def test_a_supervisor_that_dies_at_the_gate_starts_nothing(folder: Path) -> None:
    sandbox, workspace = usable("bubblewrap"), folder / "workspace"
    workspace.mkdir()
    found = workspace.stat()
    supervisor = TaskSupervisor(str(workspace), (found.st_dev, found.st_ino), sandbox)
    supervisor.use_folder(str(folder / "tasks"))
    task = supervisor.create_task()

    def die() -> bool:
        kill_supervisor(folder)
        return True

    with pytest.raises(RuntimeError, match="died while it started one"):
        await supervisor.start_task(make_start(workspace, task_id=task.id), die)

    assert not (workspace / "hostile").exists()


async def test_only_this_user_reaches_the_files(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        await run.printed(task_id, "up")
        modes = {stat.S_IMODE(path.lstat().st_mode) & 0o077 for path in (folder / "tasks").rglob("*")}
        await run.call("stop_task", task_id=task_id)

    assert modes == {0}
    assert stat.S_IMODE((folder / "tasks").stat().st_mode) == 0o700


async def test_another_user_gets_no_answer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    identity = SupervisorIdentity(id="supervisor_0", token="t", pid=os.getpid(), start_time=0)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(folder / "socket"))
    listener.listen()
    serving = asyncio.create_task(Supervisor(-1, identity).run(listener))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)

    said = await send_raw(SupervisorFolder(str(folder)), frame(encode(RequestMessage("t", ListTasks()))))
    await serving

    assert said == b""


async def test_a_sandboxed_command_gets_no_answer(folder: Path) -> None:
    """Even one that is shown the folder, with the token in it."""
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        (place,) = (folder / "tasks").iterdir()
        request = folder / "workspace" / "request"
        request.write_bytes(frame(encode(RequestMessage(find_supervisor(folder).token, ListTasks()))))
        script = folder / "workspace" / "client.py"
        script.write_text(CLIENT)
        readable = (str(place), *python_folders())
        command = f"cd {place} && {sys.executable} {script} {request}"
        inside = await run_command(usable("bubblewrap"), command, script.parent, readable=readable)
        (files,) = list_workspaces(str(folder / "tasks"))
        outside = await send_raw(files, request.read_bytes())
        await run.call("stop_task", task_id=task_id)

    assert inside.stdout == "connected\nno answer\n", inside
    assert task_id.encode() in outside


async def test_a_supervisor_of_another_version_is_refused(folder: Path) -> None:
    async with open_run(folder) as run:
        task_id = await run.start(FOREVER)
        identity = find_supervisor(folder)
        place = os.open(next((folder / "tasks").iterdir()), os.O_RDONLY)
        write_file(place, "identity.json", msgspec.structs.replace(identity, protocol=99))
        started = await run.call("bash", command="touch ran", background=True)
        write_file(place, "identity.json", identity)
        os.close(place)
        await run.call("stop_task", task_id=task_id)

    assert f"another version of Interlock (process {identity.pid})" in started.summary
    assert not (folder / "workspace" / "ran").exists()
