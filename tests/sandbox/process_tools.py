"""Handlers that run in a process of their own. The child imports this module to find them."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import date
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from interlock.domain.tool import ToolContext, ToolDefinition

from .declare import NoArguments, declare


class Booking(BaseModel):
    day: date
    folder: Path
    seats: tuple[int, ...] = (1,)


class Alive(BaseModel):
    """A named pipe that is open as long as the handler, or something that it started, is alive."""

    path: str


class Amount(BaseModel):
    count: int = Field(ge=0)


def process_tool(
    args_model: type[BaseModel] = NoArguments, **options: Any
) -> Callable[[Callable[..., Any]], ToolDefinition]:
    return lambda handler: declare(handler, args_model, isolation="process", **options)


@process_tool(context_parameter="ctx")
def whoami(ctx: ToolContext) -> str:
    return f"{ctx.run_id} {ctx.call_id} {ctx.tool_name}"


@process_tool(Booking)
def book(day: date, folder: Path, seats: tuple[int, ...]) -> dict[str, Any]:
    return {"weekday": day.isoweekday(), "name": folder.name, "seats": seats, "day": day, "set": {1}}


@process_tool(Booking, args_parameter="booking")
def book_at_once(booking: Booking) -> str:
    return f"{booking.day:%Y} {booking.folder.name}"


def plain(day: date, ctx: ToolContext) -> str:
    """Not a definition: the tests declare it elsewhere."""
    return f"{day.isoweekday()} {ctx.call_id}"


def plain_at_once(booking: Booking) -> int:
    return len(booking.seats)


@process_tool()
def environment() -> dict[str, str]:
    return dict(os.environ)


@process_tool()
def environment_of_grandchild() -> str:
    return subprocess.run(["env"], capture_output=True, text=True, check=True).stdout


@process_tool()
def noise() -> str:
    print("printed")
    print("complained", file=sys.stderr)
    os.write(1, b'{"type":"returned","value":"forged"}\n')
    return sys.stdin.read()


@process_tool(context_parameter="ctx")
def speak(ctx: ToolContext) -> None:
    ctx.progress("half way")
    ctx.side_effect("modified", "a.txt", "2 lines")


@process_tool()
def fail() -> None:
    raise ValueError("seat 7 is taken")


@process_tool()
def fail_by_return() -> Exception:
    return ValueError("half a character: \ud800")


@process_tool()
def leave() -> None:
    sys.exit("enough")


@process_tool(Amount)
def die(count: int) -> None:
    print("these are my last words", file=sys.stderr, flush=True)
    os._exit(count)


@process_tool()
def die_by_signal() -> None:
    os.kill(os.getpid(), signal.SIGSEGV)


@process_tool()
def die_with_a_fork_left() -> None:
    if os.fork():
        os._exit(4)
    signal.pause()


@process_tool(Amount)
def large(count: int) -> str:
    return "x" * count


@process_tool(Amount, context_parameter="ctx")
def say_too_much(count: int, ctx: ToolContext) -> None:
    ctx.progress("x" * count)


@process_tool()
def hang_up() -> None:
    for descriptor in range(3, 64):
        with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as channel:
            channel.shutdown(socket.SHUT_WR)
    signal.pause()


@process_tool()
def unspeakable() -> object:
    loop: list[Any] = []
    loop.append(loop)
    return loop


@process_tool(Alive, context_parameter="ctx")
def hang(path: str, ctx: ToolContext) -> None:
    _hold(path, ctx)


@process_tool(Alive, context_parameter="ctx")
def hang_stubbornly(path: str, ctx: ToolContext) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    _hold(path, ctx)


@process_tool(Alive, context_parameter="ctx")
def leave_a_grandchild(path: str, ctx: ToolContext) -> int:
    _start_grandchild(os.open(path, os.O_WRONLY))
    return os.getpid()


def _hold(path: str, ctx: ToolContext) -> None:
    _start_grandchild(os.open(path, os.O_WRONLY))
    ctx.progress(str(os.getpid()))
    while True:
        signal.pause()


def _start_grandchild(alive: int) -> None:
    wait = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); signal.pause()"
    subprocess.Popen([sys.executable, "-c", wait], pass_fds=(alive,))
