"""Ctrl-C and signals while a run is moved on, in the process: what each of them does."""

import pytest
from rich.console import Console

from interlock.cli.display.live import LiveView
from interlock.cli.display.live_region import LiveRegion
from interlock.cli.session.terminal import SECOND_INTERRUPT_SECONDS, InterruptHandler


class Handle:
    def __init__(self, running: int) -> None:
        self.running = running
        self.did: list[str] = []

    def pause(self) -> None:
        self.did.append("pause")

    def cancel_calls(self) -> int:
        self.did.append(f"cancel {self.running}")
        return self.running


class Interrupting:
    def __init__(self, running: int) -> None:
        self.console = Console(record=True, width=200, quiet=False)
        self.handle = Handle(running)
        self.now = 0.0
        self.left: list[str] = []
        view = LiveView(LiveRegion(Console(quiet=True)))
        self.interrupts = InterruptHandler(view, None, exit_now=lambda: self.left.append("left"), now=lambda: self.now)
        self.interrupts.attach(self.handle)


@pytest.mark.requirement("R225")
def test_the_first_cancels_the_calls_that_run_and_the_run_goes_on() -> None:
    here = Interrupting(running=2)

    here.interrupts.interrupt()

    assert (here.handle.did, here.interrupts.is_stopped) == (["cancel 2"], False)


def test_without_a_call_the_first_stops_the_run_here() -> None:
    here = Interrupting(running=0)

    here.interrupts.interrupt()

    assert here.interrupts.is_stopped
    assert "pause" in here.handle.did


def test_a_second_one_soon_after_stops_the_run_here() -> None:
    here = Interrupting(running=1)
    here.interrupts.interrupt()

    here.now += SECOND_INTERRUPT_SECONDS - 0.1
    here.interrupts.interrupt()

    assert here.interrupts.is_stopped
    assert here.handle.did == ["cancel 1", "pause", "cancel 1"]


def test_a_second_one_much_later_is_a_first_one_again() -> None:
    here = Interrupting(running=1)
    here.interrupts.interrupt()

    here.now += SECOND_INTERRUPT_SECONDS
    here.interrupts.interrupt()

    assert (here.handle.did, here.interrupts.is_stopped) == (["cancel 1", "cancel 1"], False)


def test_one_more_leaves_at_once() -> None:
    here = Interrupting(running=0)
    here.interrupts.interrupt()

    here.interrupts.interrupt()

    assert here.left == ["left"]


def test_a_signal_that_ends_processes_stops_the_run_here() -> None:
    here = Interrupting(running=1)

    here.interrupts.stop("This process received SIGTERM.")
    here.interrupts.stop("This process received SIGTERM.")

    assert here.interrupts.is_stopped
    assert here.handle.did == ["pause", "cancel 1"]


def test_nothing_happens_while_there_is_no_run() -> None:
    here = Interrupting(running=1)
    here.interrupts.attach(None)

    here.interrupts.interrupt()
    here.interrupts.stop()

    assert (here.handle.did, here.left) == ([], [])
