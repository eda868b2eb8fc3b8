"""A snapshot never says more than the log has, so one that does shows that somebody cut the log."""

from interlock import MemoryLog, tool
from interlock.app import App
from interlock.domain.call import ToolIntent
from interlock.domain.tool import CallContext
from interlock.storage.event_log import Snapshot
from tests.log_around import LogAround


@tool(risk="read")
def look(n: int) -> int:
    """Look."""
    return n


class Looking(LogAround):
    """Knows how many events there were when a snapshot was saved."""

    def __init__(self) -> None:
        self.log = MemoryLog()
        super().__init__(self.log)
        self.saved: list[tuple[int, int]] = []

    async def save_snapshot(self, run_id: str, snapshot: Snapshot) -> None:
        self.saved.append((snapshot.seq, len(await self.log.read(run_id))))
        await super().save_snapshot(run_id, snapshot)


async def test_a_snapshot_is_saved_when_the_events_that_it_holds_are_durable() -> None:
    log = Looking()
    app = App(tools=[look], log=log)
    run = await app.open(CallContext(run_id="run"))
    run.recorder.commits_later = True  # as it is when an agent moves the run on

    await app.execute(run, [ToolIntent(call_id=f"c{n}", tool_name="look", arguments={"n": n}) for n in range(150)])
    await app.close()

    ((seq, events),) = log.saved
    assert seq < events
