"""Workers of a log in Postgres, and agents that were switched off at a server."""

from contextlib import closing
from pathlib import Path

import pytest

from interlock.engine.switches import SwitchedOffAgent, find_switch
from interlock.server.core.database.postgres import PostgresDatabase
from interlock.server.core.switches import Switches
from tests.patience import eventually_read
from tests.postgres.server import PostgresServer

from .workers import Office, approve, wait_until_over


@pytest.fixture
def office(postgres: PostgresServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Office:
    monkeypatch.setenv("CLERK_FOLDER", str(tmp_path))
    return Office(postgres, tmp_path)


@pytest.mark.parametrize("name", ["clerk", ""], ids=["one agent", "all agents"])
async def test_worker_leaves_runs_of_a_switched_off_agent(office: Office, name: str) -> None:
    what = "Agent clerk" if name else "Every agent"
    with closing(PostgresDatabase(office.server.server_url, office.schema)) as database:
        switches = Switches(database)
        await switches.switch_off("agent", name, by="user:ada", reason="Stop.")
        async with office.open_log() as log:
            assert [row[:3] for row in await log.queues.list_switched_off_agents()] == [(name, "user:ada", "Stop.")]
            with office.worker():
                await office.submit(log, "held")
                reasons = await eventually_read(lambda: log.queues.waiting_reasons(["held"]))
                assert reasons == {"held": f"{what} was switched off by user:ada: Stop."}
                assert office.effects() == []

                await switches.switch_on("agent", name, by="user:ada", reason="Go.")
                await log.queues.wake(["held"])
                await approve(log, "held")
                assert await wait_until_over(log, "held") == "completed"


def test_own_switch_or_that_of_all_agents_applies() -> None:
    one, everything = (SwitchedOffAgent(name=name, actor="user:ada", reason="Stop", at=1) for name in ("one", ""))
    assert find_switch([one], "one") is one
    assert find_switch([one], "two") is None
    assert find_switch([everything, one], "two") is everything
    assert one.describe("one") == "Agent one was switched off by user:ada: Stop."
    assert find_switch([], "one") is None
