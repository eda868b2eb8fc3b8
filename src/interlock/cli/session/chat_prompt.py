"""What a person types in a conversation. They are waited for in a thread, so that tasks in the background live.

A line that ends with a backslash goes on in the next one; what is pasted in several lines stays one text where the
terminal says that it was pasted.
"""

import asyncio
import signal
import sys
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import Any

from .signals import signal_handlers

_QUIT_SIGNALS = (signal.SIGTERM, signal.SIGHUP)
_MAX_CHARS = 1_000_000
_QUIT_HINT = "(Ctrl-C again, Ctrl-D or /quit ends the chat)"


async def read_message(prompt: str) -> str | None:
    """What was typed; None at the end of the input, after Ctrl-C twice, or when this process is told to end."""
    lines: list[str] = []
    while True:
        line = await _read_line("." * (len(prompt) - 1) + " " if lines else prompt)
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
        with suppress(RuntimeError):  # The loop is closed, and nobody listens any more.
            loop.call_soon_threadsafe(settle, line)

    def interrupt() -> None:
        nonlocal interrupted
        if interrupted:
            settle(None)
        else:
            interrupted = True
            written = editor.get_line_buffer() if editor is not None else ""
            print(f"\n{_QUIT_HINT}\n{prompt}{written}", end="", flush=True)

    handlers = {signal.SIGINT: interrupt} | dict.fromkeys(_QUIT_SIGNALS, lambda: settle(None))
    with signal_handlers(handlers):  # Before the prompt is shown.
        # Not a thread of the loop's pool: it must not keep the process alive.
        Thread(target=read, name="prompt", daemon=True).start()
        return await answer
