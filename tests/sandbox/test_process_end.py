"""However a call ends, nothing that its process started stays."""

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock.domain.tool import ToolDefinition
from interlock.sandbox.handlers.process import run_in_process
from tests.patience import HANG_SECONDS

from . import process_tools
from .declare import context_for
from .process_tools import Alive


class Pipe:
    """A named pipe that everything under test holds open for writing, so that its end is theirs."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        self.path = str(path)
        self._read_end = os.open(path, os.O_RDONLY | os.O_NONBLOCK)

    def everybody_is_dead(self) -> bool:
        readable, _, _ = select.select([self._read_end], [], [], HANG_SECONDS)
        return bool(readable) and os.read(self._read_end, 1) == b""

    def close(self) -> None:
        os.close(self._read_end)


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    pipe = Pipe(tmp_path / "alive")
    yield pipe
    pipe.close()


async def start(tool: ToolDefinition, pipe: Pipe) -> "tuple[asyncio.Task[object], int]":
    """The call, and the process id of its handler, which hangs."""
    said: asyncio.Queue[str] = asyncio.Queue()
    call = asyncio.create_task(run_in_process(tool, Alive(path=pipe.path), context_for(tool, said.put_nowait)))
    return call, int(await asyncio.wait_for(said.get(), HANG_SECONDS))


def is_reaped(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def has_children() -> bool:
    """Return True for any child, also one that ended, but the database that other tests share."""
    children = " ".join(path.read_text() for path in Path("/proc/self/task").glob("*/children")).split()
    return any(Path(f"/proc/{pid}/comm").read_text().strip() != "postgres" for pid in children)


@pytest.mark.parametrize("tool", [process_tools.hang, process_tools.hang_stubbornly], ids=lambda tool: tool.name)
async def test_cancelling_the_call_kills_and_reaps_the_handler_and_what_it_started(
    tool: ToolDefinition, pipe: Pipe
) -> None:
    call, pid = await start(tool, pipe)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, HANG_SECONDS)

    assert is_reaped(pid)
    assert pipe.everybody_is_dead()


@pytest.mark.requirement("D06")
async def test_a_timeout_ends_a_handler_that_hangs(pipe: Pipe) -> None:
    call, pid = await start(process_tools.hang, pipe)

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(call, 0)

    assert is_reaped(pid)
    assert pipe.everybody_is_dead()


async def test_cancelling_twice_kills_at_once(pipe: Pipe) -> None:
    call, pid = await start(process_tools.hang_stubbornly, pipe)

    call.cancel()
    await asyncio.wait((call,), timeout=0)
    call.cancel()
    await asyncio.wait((call,), timeout=HANG_SECONDS)

    assert call.cancelled()
    assert is_reaped(pid)
    assert pipe.everybody_is_dead()


async def test_cancelling_before_the_child_is_up_leaves_nothing(pipe: Pipe) -> None:
    tool = process_tools.hang
    call = asyncio.create_task(run_in_process(tool, Alive(path=pipe.path), context_for(tool)))
    await asyncio.wait((call,), timeout=0)

    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(call, HANG_SECONDS)

    assert not has_children()


async def test_what_a_handler_left_running_ends_with_its_call(pipe: Pipe) -> None:
    tool = process_tools.leave_a_grandchild

    pid = await run_in_process(tool, Alive(path=pipe.path), context_for(tool))

    assert is_reaped(pid)
    assert pipe.everybody_is_dead()


PROGRAM = """
import asyncio, sys
from tests.sandbox import process_tools
from tests.sandbox.declare import context_for
from interlock.sandbox.handlers.process import run_in_process

tool = process_tools.hang
started = lambda pid: print(pid, flush=True)
asyncio.run(run_in_process(tool, process_tools.Alive(path=sys.argv[1]), context_for(tool, started)))
"""


def test_when_our_own_process_is_killed_the_handler_and_what_it_started_die_too(pipe: Pipe) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", PROGRAM, pipe.path]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as program:
        assert program.stdout is not None
        assert program.stdout.readline().strip().isdigit()
        program.send_signal(signal.SIGKILL)

    assert pipe.everybody_is_dead()
