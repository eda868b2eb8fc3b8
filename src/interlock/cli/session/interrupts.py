"""Ctrl-C while a run is driven, and the signals that end a process.

The first Ctrl-C interrupts the current work: running calls are cancelled and the run continues; a question stays open,
or the model call is interrupted, and then the run stops here. A second one within a few seconds stops the run in this
process in any case. The run stays resumable. One more exits at once.
"""

import asyncio
import signal
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from typing import Protocol

from ...rendering.text import pluralize
from ..display.live import LiveView
from .terminal import TerminalPerson

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
        """`exit_now` ends the process."""
        self._view = view
        self._person = person
        self._exit_now = exit_now
        self._now = now
        self._handle: InterruptibleRun | None = None
        self._last_interrupt = float("-inf")
        #: Whether the run was stopped here by a person or a signal.
        self.is_stopped = False

    def attach(self, handle: InterruptibleRun | None) -> None:
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
                f"Ctrl-C: {pluralize(cancelled, 'call')} cancelled, and the run goes on. Again within "
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
