"""Ctrl-C while a run is moved on, and the signals that end a process.

The first Ctrl-C is for what is going on: calls that run are cancelled and the run goes on with that; a question stays
open, or the model is not listened to any more, and then the run stops here. A second one within a few seconds stops the
run in this process in any case. The run is kept: it can be resumed. One more does not wait for anything.
"""

import time
from collections.abc import Callable
from typing import Protocol

from ..display.live import LiveView
from ..display.output import count
from .terminal import PersonAtTerminal

AGAIN_SECONDS = 5.0


class Stoppable(Protocol):
    """What is needed of a `RunHandle`."""

    def pause(self) -> None: ...

    def cancel_calls(self) -> int: ...


class Interrupts:
    def __init__(
        self,
        view: LiveView,
        person: PersonAtTerminal | None,
        *,
        leave_now: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """`leave_now` ends the process."""
        self._view = view
        self._person = person
        self._leave_now = leave_now
        self._now = now
        self._handle: Stoppable | None = None
        self._before = float("-inf")
        #: Was the run stopped here by a person or a signal?
        self.stopped = False

    def attach(self, handle: Stoppable | None) -> None:
        self._handle = handle
        self._before = float("-inf")
        self.stopped = False
        if self._person is not None:
            self._person.back()

    def interrupt(self) -> None:
        """Ctrl-C."""
        if self._handle is None:
            return
        before, self._before = self._before, self._now()
        if self.stopped:
            self._leave_now()
        elif self._before - before < AGAIN_SECONDS:
            self.stop("Stopping the run here.")
        elif self._person is not None and self._person.is_asked:
            self.stop("The question stays open.")
        elif cancelled := self._handle.cancel_calls():
            self._view.say(
                f"Ctrl-C: {count(cancelled, 'call')} cancelled, and the run goes on. Again within "
                f"{AGAIN_SECONDS:.0f} s: the run stops here, and is kept.",
                "yellow",
            )
        else:
            self.stop("The model is not listened to any more.")

    def stop(self, why: str = "") -> None:
        """The run stops in this process, and is kept."""
        if self._handle is None or self.stopped:
            return
        self.stopped = True
        if self._person is not None:
            self._person.leave()
        self._handle.pause()
        self._handle.cancel_calls()
        self._view.say(f"{why} The run is kept. Ctrl-C again leaves at once.".strip(), "yellow")
