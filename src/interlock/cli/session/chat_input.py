"""Reads the messages of a chat: with an editor on a terminal, else line by line."""

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import Any

from .terminal import signal_handlers

QUIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_MAX_CHARS = 1_000_000
QUIT_HINT = "(Ctrl-C again, Ctrl-D or /quit ends the chat)"
PROMPT = "> "

#: Reads a message; None at the end of the input, after Ctrl-C twice, or when this process should end.
ReadMessage = Callable[[], Awaitable[str | None]]


def make_reader(
    history: Path | None, commands: Iterable[str], format_status: Callable[[], str], switch_mode: Callable[[], None]
) -> ReadMessage:
    """Return the reader for standard input. `history`: where messages are kept; None: for as long as the chat lasts."""
    is_terminal = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
    if is_terminal and find_spec("prompt_toolkit"):
        editor: Any = import_module(".chat_editor", __package__)
        return editor.MessageEditor(history, commands, format_status, switch_mode).read
    return _read_lines


async def _read_lines() -> str | None:
    lines: list[str] = []
    while True:
        line = await _read_line("." * (len(PROMPT) - 1) + " " if lines else PROMPT)
        if line is None:
            return "\n".join(lines) if lines else None
        if not line.endswith("\\") or sum(map(len, lines)) > _MAX_CHARS:
            return "\n".join([*lines, line])
        lines.append(line[:-1])


async def _read_line(prompt: str) -> str | None:
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str | None] = loop.create_future()
    # With it lines can be edited, and there is a history for as long as the chat lasts. A Python may lack it.
    editor: Any = import_module("readline") if find_spec("readline") else None
    interrupted = False

    def settle(line: str | None) -> None:
        if not answer.done():
            answer.set_result(line)

    def read() -> None:
        try:
            line = input(prompt if sys.stdin.isatty() else "")
        except (EOFError, OSError, ValueError):
            line = None
        with suppress(RuntimeError):  # The loop is closed, and there is no listener any more.
            loop.call_soon_threadsafe(settle, line)

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            settle(None)
        else:
            interrupted = True
            written = editor.get_line_buffer() if editor is not None else ""
            print(f"\n{QUIT_HINT}\n{prompt}{written}", end="", flush=True)

    handlers = {signal.SIGINT: interrupt} | dict.fromkeys(QUIT_SIGNALS, lambda: settle(None))
    with signal_handlers(handlers):  # Before the prompt is shown.
        # Not a thread of the loop's pool: it must not keep the process alive.
        Thread(target=read, name="prompt", daemon=True).start()
        return await answer
