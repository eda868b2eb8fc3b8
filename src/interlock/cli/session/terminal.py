"""The terminal of a run, which is restored however a command ends, the person at it, and Ctrl-C.

Keys that are typed meanwhile are not echoed. The view makes room for questions, and a question may be left open.

The first Ctrl-C interrupts the current work: running calls are cancelled and the run continues; a question stays open,
or the model call is interrupted, and then the run stops here. A second one within a few seconds stops the run in this
process in any case. The run stays resumable. One more exits at once.
"""

import asyncio
import os
import signal
import sys
import termios
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from ...domain.call import Answer, Question
from ...interaction.interface import Fallback
from ...interaction.terminal import TerminalInteractionProvider
from ...rendering.text import pluralize
from ..display.live import LiveView

_LOCAL_MODES, _CONTROL_CHARACTERS = 3, 6
_MAX_TYPED_BYTES = 4_096
_CTRL_O = b"\x0f"


class TerminalModes:
    """The original modes of standard input; nothing where it is no terminal, or not ours."""

    def __init__(self) -> None:
        self._original: list[Any] | None = None
        self._reading: asyncio.AbstractEventLoop | None = None
        with suppress(OSError, ValueError, termios.error, AttributeError):
            self._original = termios.tcgetattr(sys.stdin.fileno())

    def restore(self) -> None:
        """Restore the modes the terminal had at the start. Keys are for others from now on."""
        self._stop_reading()
        if self._original is not None:
            self._set(self._original)

    def disable_echo(self) -> None:
        """Disable the echo of keys that are typed while nothing is asked."""
        if self._original is not None:
            modes = [*self._original]
            modes[_LOCAL_MODES] &= ~termios.ECHO
            self._set(modes)

    def read_keys(self, on_key: Callable[[bytes], None]) -> bool:
        """Read single keys without an echo until the modes are restored. Return False where there are none to read."""
        if self._original is None or not self._is_in_foreground():
            return False
        modes = [*self._original]
        modes[_LOCAL_MODES] &= ~(termios.ECHO | termios.ICANON | termios.IEXTEN)
        modes[_CONTROL_CHARACTERS] = [*modes[_CONTROL_CHARACTERS]]
        modes[_CONTROL_CHARACTERS][termios.VMIN], modes[_CONTROL_CHARACTERS][termios.VTIME] = 1, 0
        self._set(modes)
        self._stop_reading()
        self._reading, keys = asyncio.get_running_loop(), sys.stdin.fileno()

        def read() -> None:
            typed = b""
            with suppress(OSError):  # the terminal is gone
                typed = os.read(keys, _MAX_TYPED_BYTES) if self._is_in_foreground() else b""
            if typed:
                on_key(typed)
            else:
                self._stop_reading()

        self._reading.add_reader(keys, read)
        return True

    def _stop_reading(self) -> None:
        reading, self._reading = self._reading, None
        if reading is not None and not reading.is_closed():
            reading.remove_reader(sys.stdin.fileno())

    def _is_in_foreground(self) -> bool:
        try:
            return os.tcgetpgrp(sys.stdin.fileno()) == os.getpgrp()
        except (OSError, ValueError):
            return False

    def _set(self, modes: list[Any]) -> None:
        """Set the modes, unless this process is in the background: it would be stopped."""
        with suppress(OSError, ValueError, termios.error):
            if self._is_in_foreground():
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSANOW, modes)


@contextmanager
def preserve_terminal() -> Generator[TerminalModes]:
    """Restore the terminal modes at the end of the block."""
    modes = TerminalModes()
    try:
        yield modes
    finally:
        modes.restore()


class TerminalPerson:
    """The interaction provider of a terminal. No answer is no refusal: after its time a question stays open, and the
    run waits.
    """

    approval_fallback: Fallback = "wait"

    def __init__(self, terminal: TerminalInteractionProvider, view: LiveView, modes: TerminalModes) -> None:
        self._terminal = terminal
        self._view = view
        self._modes = modes
        self._asking: set[asyncio.Future[Answer | None]] = set()
        self._is_dismissed = False

    @property
    def approval_timeout_s(self) -> float | None:
        """Seconds until an unanswered question expires, or None."""
        return self._terminal.approval_timeout_s

    @property
    def interactive(self) -> bool:
        """True if a person can be asked on this terminal."""
        return self._terminal.interactive

    @property
    def is_asking(self) -> bool:
        """True when a question is on the terminal, or about to be."""
        return bool(self._asking)

    async def ask(self, question: Question) -> Answer | None:
        """Ask the person, with the live view suspended. Return None if they are not available."""
        if not self._terminal.interactive:
            return None
        await self._view.wait_until_shown(question.action_id)
        if self._is_dismissed:
            return None
        with self._view.suspended():
            self._modes.restore()
            asking = asyncio.ensure_future(self._terminal.ask(question))
            self._asking.add(asking)
            try:
                answer = await asking
            except asyncio.CancelledError:
                if asking in self._asking:  # Answered elsewhere, or the question was withdrawn.
                    raise
                return None
            finally:
                self._asking.discard(asking)
                if not self._asking:
                    watch_keys(self._view, self._modes)
        if answer is not None:
            self._view.answered_locally.add(question.action_id)
        return answer

    def dismiss_questions(self) -> None:
        """Leave the questions open, those on the terminal and those to come, until they are `back`."""
        self._is_dismissed = True
        dismissed, self._asking = self._asking, set()
        for asking in dismissed:
            asking.cancel()

    def accept_questions(self) -> None:
        """Ask the person again after their questions were dismissed."""
        self._is_dismissed = False


def watch_keys(view: LiveView, modes: TerminalModes) -> None:
    """Let the key for more output reach the view. What else is typed while nothing is asked is discarded."""

    def handle(typed: bytes) -> None:
        if typed == _CTRL_O:
            view.toggle_output()

    view.has_keys = modes.read_keys(handle)


SECOND_INTERRUPT_SECONDS = 5.0


class InterruptibleRun(Protocol):
    """The part of `RunHandle` that is needed here."""

    def pause(self) -> None: ...

    def cancel_calls(self) -> int: ...


class InterruptHandler:
    """Handles Ctrl-C and signals for one run."""

    def __init__(
        self,
        view: LiveView,
        person: TerminalPerson | None,
        *,
        exit_now: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Handle interrupts of a session. `exit_now` ends the process."""
        self._view = view
        self._person = person
        self._exit_now = exit_now
        self._now = now
        self._handle: InterruptibleRun | None = None
        self._last_interrupt = float("-inf")
        #: Whether the run was stopped here by a person or a signal.
        self.is_stopped = False

    def attach(self, handle: InterruptibleRun | None) -> None:
        """Direct interrupts at a run, and forget earlier ones."""
        self._handle = handle
        self._last_interrupt = float("-inf")
        self.is_stopped = False
        if self._person is not None:
            self._person.accept_questions()

    def interrupt(self) -> None:
        """Handle Ctrl-C."""
        if self._handle is None:
            return
        previous, self._last_interrupt = self._last_interrupt, self._now()
        if self.is_stopped:
            self._exit_now()
        elif self._last_interrupt - previous < SECOND_INTERRUPT_SECONDS:
            self.stop("Stopping the run here.")
        elif self._person is not None and self._person.is_asking:
            self.stop("The question stays open.")
        elif cancelled := self._handle.cancel_calls():
            self._view.print_note(
                f"Ctrl-C: {pluralize(cancelled, 'call')} cancelled, and the run continues. Again within "
                f"{SECOND_INTERRUPT_SECONDS:.0f} s: the run stops here, and is kept.",
                "yellow",
            )
        else:
            self.stop("The model is not listened to any more.")

    def stop(self, reason: str = "") -> None:
        """Stop the run in this process; it stays resumable."""
        if self._handle is None or self.is_stopped:
            return
        self.is_stopped = True
        if self._person is not None:
            self._person.dismiss_questions()
        self._handle.pause()
        self._handle.cancel_calls()
        self._view.print_note(f"{reason} The run is kept. Ctrl-C again leaves at once.".strip(), "yellow")


@contextmanager
def signal_handlers(handlers: Mapping[signal.Signals, Callable[[], object]]) -> Generator[None]:
    """Call these on the running loop, and restore what was in force before.

    An ignored signal stays ignored: `nohup` ignores SIGHUP, and a script SIGINT in its background jobs, so that the
    command outlives the terminal. SIGTERM is always handled.
    """
    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in handlers}
    handled = [number for number in handlers if number == signal.SIGTERM or before[number] is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, handlers[number])
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            signal.signal(number, before[number])
