"""`python -m bench.live_view`: the CPU that the live view of a command uses while it prints 1,000 lines a second."""

from io import StringIO
from time import process_time

from rich.console import Console

from interlock.cli.display.live import LiveView
from interlock.cli.display.live_region import LiveRegion
from interlock.domain.event import CallProposed, Event, InvocationStarted
from interlock.tools.shell.command import PROGRESS_LINES, PROGRESS_SECONDS
from interlock.tools.shell.spool import OutputSpool

SECONDS = 20
LINES_PER_SECOND = 1_000
_FRAMES_PER_SECOND = 10
_NANOSECONDS = 1_000_000_000


class _Unfiltered:
    def feed(self, chunk: bytes) -> bytes:
        return chunk

    def end(self) -> bytes:
        return b""


def cpu_percent(seconds: int = SECONDS) -> float:
    """Return the CPU time of the view, in percent of the time that the command would take. Storing is not counted."""
    now, used = _NANOSECONDS, 0.0
    console = Console(file=StringIO(), force_terminal=True, width=120, height=40, color_system="truecolor")
    view = LiveView(LiveRegion(console), now=lambda: now, mode="contained")
    facts = (
        CallProposed(call_id="c1", tool="bash", raw_input={"command": "make"}),
        InvocationStarted(
            invocation_id="i", call_id="c1", tool="bash", executor="x", tool_version="1", timeout_seconds=600
        ),
    )
    for seq, fact in enumerate(facts):
        view.on_event(Event(seq, "run", now, "", None, fact))
    with OutputSpool(_Unfiltered) as spool:
        for frame in range(seconds * _FRAMES_PER_SECOND):
            for number in range(LINES_PER_SECOND // _FRAMES_PER_SECOND):
                spool.write("stdout", b"src/module_%d.c:%d: warning: comparison of integers\n" % (frame, number))
            began = process_time()
            if frame % int(PROGRESS_SECONDS * _FRAMES_PER_SECOND) == 0:
                view.on_progress("c1", "\n".join(spool.last_lines(PROGRESS_LINES)))
            now += _NANOSECONDS // _FRAMES_PER_SECOND
            view.refresh()
            used += process_time() - began
    return 100 * used / seconds


def main() -> None:
    print(f"live view at {LINES_PER_SECOND:,} lines a second: {cpu_percent():.2f} % CPU (to reach: 2)")


if __name__ == "__main__":
    main()
