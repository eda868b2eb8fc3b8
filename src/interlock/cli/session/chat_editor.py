"""The editor for messages of a chat on a terminal. It needs `prompt_toolkit`."""

import asyncio
import os
import signal
from collections.abc import Callable, Iterable
from pathlib import Path

from prompt_toolkit import PromptSession
from prompt_toolkit.application import run_in_terminal
from prompt_toolkit.completion import WordCompleter
from prompt_toolkit.history import FileHistory, InMemoryHistory
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.output.defaults import create_output
from prompt_toolkit.output.vt100 import Vt100_Output
from prompt_toolkit.shortcuts import CompleteStyle

from .chat_input import PROMPT, QUIT_HINT, QUIT_SIGNALS
from .terminal import signal_handlers


class MessageEditor:
    """An editor for messages of several lines, with a history, completion of commands, and a status line."""

    def __init__(
        self,
        history: Path | None,
        commands: Iterable[str],
        format_status: Callable[[], str],
        switch_mode: Callable[[], None],
    ) -> None:
        output = create_output()
        if isinstance(output, Vt100_Output):
            output.enable_cpr = False  # Not every terminal says where its cursor is.
        self._is_interrupted = False
        if history is not None:
            os.close(os.open(history, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600))
        self._session: PromptSession[str | None] = PromptSession(
            lambda: [("ansibrightblack", f"{format_status()}\n"), ("", PROMPT)],
            multiline=True,
            history=InMemoryHistory() if history is None else FileHistory(str(history)),
            completer=WordCompleter([*commands], sentence=True),
            complete_style=CompleteStyle.READLINE_LIKE,
            reserve_space_for_menu=0,
            prompt_continuation="." * (len(PROMPT) - 1) + " ",
            key_bindings=self._bind_keys(switch_mode),
            output=output,
        )

    async def read(self) -> str | None:
        """Read a message."""
        self._is_interrupted = False
        reading = asyncio.ensure_future(self._session.prompt_async(handle_sigint=False))
        stop: dict[signal.Signals, Callable[[], object]] = dict.fromkeys(QUIT_SIGNALS, reading.cancel)
        with signal_handlers({signal.SIGINT: self._interrupt, **stop}):
            await asyncio.wait([reading])
        if reading.cancelled() or isinstance(reading.exception(), EOFError):
            return None
        return reading.result()

    def _bind_keys(self, switch_mode: Callable[[], None]) -> KeyBindings:
        bindings = KeyBindings()

        @bindings.add("enter")
        def send(event: KeyPressEvent) -> None:
            buffer = event.current_buffer
            if buffer.document.text_before_cursor.endswith("\\"):
                buffer.delete_before_cursor()
                buffer.insert_text("\n")
            else:
                buffer.validate_and_handle()

        @bindings.add("escape", "enter")
        def insert_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @bindings.add("s-tab")
        def switch(event: KeyPressEvent) -> None:
            switch_mode()
            event.app.invalidate()

        @bindings.add("c-c")
        def interrupt(event: KeyPressEvent) -> None:
            self._interrupt()

        _ = (send, insert_line, switch, interrupt)
        return bindings

    def _interrupt(self) -> None:
        if self._is_interrupted:
            self._session.app.exit(result=None)
        else:
            self._is_interrupted = True
            run_in_terminal(lambda: print(QUIT_HINT))
