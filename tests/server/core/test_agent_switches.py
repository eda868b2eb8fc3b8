"""An agent that was switched off starts nothing and continues nothing, on any server, until it is switched on."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import tool
from interlock.agent.agent import Agent
from interlock.domain.state.lifecycle import RunState
from interlock.server.core.errors import ConflictError, ForbiddenError, InvalidRequestError, NotFoundError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.service import Service
from interlock.server.core.switches import Switches
from tests.logs import keep_in_postgres
from tests.patience import eventually, eventually_read
from tests.postgres.server import PostgresServer
from tests.runs.support import calls

from .people import opened
from .serving import ADA, ASK_CHANGE, World, approve, asked, create, scripted, serving, status

ADMIN = Principal(name="user:root", kind="person", roles=frozenset({Role.ADMIN}))
WHY = "Agent one was switched off by user:ada: It refunds too much."


class SlowWork:
    """An agent with a call that ends when the test says so."""

    def __init__(self) -> None:
        self.entered, self.go = asyncio.Event(), asyncio.Event()
        self.done = 0

    def agent(self) -> Agent:
        @tool
        async def work() -> str:
            """Work."""
            self.entered.set()
            await self.go.wait()
            self.done += 1
            return "worked"

        return scripted("one", calls(("c1", "work", {})), "Done.", tools=[work])


async def wait_message(service: Service, run_id: str) -> str:
    """Why a run waits that cannot continue."""

    async def read() -> str:
        reasons = await service.worker.engine.waiting_reasons([run_id])
        return (await service.run_queries.get_run(ADA, run_id)).message if reasons else ""

    return await eventually_read(read)


async def refuse(service: Service, agent: str = "one") -> ConflictError:
    with pytest.raises(ConflictError) as caught:
        await create(service, agent)
    return caught.value


@pytest.mark.usefixtures("database_backend")
async def test_switched_off_agent_refuses_new_runs(tmp_path: Path) -> None:
    world = World()
    async with serving(tmp_path, world.one(), scripted("plain", "Hello.")) as service:
        known, _ = await service.run_service.create(ADA, NewRun(agent="one", task="Do it.", idempotency_key="k"))
        result = await service.agent_switches.switch_off(ADA, "one", "It refunds too much.", cancel_runs=False)
        again = await service.agent_switches.switch_off(ADMIN, "one", "Another reason.", cancel_runs=False)
        refused = await refuse(service)
        same, is_new = await service.run_service.create(ADA, NewRun(agent="one", task="Do it.", idempotency_key="k"))
        plain = await create(service, "plain")
        await status(service, plain, "COMPLETED")
        journal = [(each.by, each.action, each.target, dict(each.detail)) for each in await service.audit_log.read()]
        rows = {row.name: row.switched_off for row in await service.run_queries.list_agents(ADA)}

    assert (result.changed, again.changed) == (True, False)
    assert (refused.code, str(refused)) == ("agent_switched_off", f"{WHY} Nothing was started.")
    assert (same.run_id, is_new) == (known.run_id, False)
    assert ("user:ada", "agent.switched_off", "one", {"reason": "It refunds too much."}) in journal
    assert rows["plain"] is None
    assert rows["one"] is not None
    assert (rows["one"].actor, rows["one"].reason) == ("user:ada", "It refunds too much.")


@pytest.mark.usefixtures("database_backend")
async def test_answered_run_waits_until_switched_on(tmp_path: Path) -> None:
    world = World()
    async with serving(tmp_path, world.one(policy=ASK_CHANGE)) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)
        await service.agent_switches.switch_off(ADA, "one", "It refunds too much.", cancel_runs=False)
        await approve(service, row)
        assert await wait_message(service, run_id) == WHY
        assert world.changes == []

        on = await service.agent_switches.switch_on(ADA, "one", "It was fixed.")
        await status(service, run_id, "COMPLETED")
    assert (on.is_on, on.changed, world.changes) == (True, True, ["x"])


@pytest.mark.usefixtures("database_backend")
async def test_active_run_is_held_after_its_call(tmp_path: Path) -> None:
    slow = SlowWork()
    async with serving(tmp_path, slow.agent()) as service:
        run_id = await create(service, "one")
        await slow.entered.wait()
        await service.agent_switches.switch_off(ADA, "one", "It refunds too much.", cancel_runs=False)
        handles = service.runners.by_agent["one"].live_handles
        await eventually(lambda: handles[run_id].is_pause_requested)
        slow.go.set()
        assert await wait_message(service, run_id) == WHY
        assert slow.done == 1

        await service.agent_switches.switch_on(ADA, "one", "It was fixed.")
        row = await status(service, run_id, "COMPLETED")
    assert (row.message, slow.done) == ("Done.", 1)


async def test_held_run_can_be_cancelled(tmp_path: Path) -> None:
    world = World()
    async with serving(tmp_path, world.one(policy=ASK_CHANGE)) as service:
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)
        await service.agent_switches.switch_off(ADA, "one", "It refunds too much.", cancel_runs=False)
        await approve(service, row)
        await wait_message(service, run_id)
        cancelled = await service.run_service.cancel(ADA, run_id, "Enough.")
    assert (cancelled.state, world.changes) == (RunState.CANCELLED, [])


async def test_switching_off_cancels_all_runs(tmp_path: Path) -> None:
    world = World()
    async with serving(tmp_path, world.one(policy=ASK_CHANGE), world.two(policy=ASK_CHANGE)) as service:
        runs = [await create(service, name) for name in ("one", "one", "two")]
        for run_id, count in zip(runs, (1, 1, 2), strict=True):
            await asked(service, run_id, count)
        one = await service.agent_switches.switch_off(ADA, "one", "Stop.")
        everything = await service.agent_switches.switch_off(ADMIN, "", "Stop it all.")
        refused = await refuse(service, "two")

        await service.agent_switches.switch_on(ADMIN, "", "Go on.")
        still_off = await refuse(service)
        again = await create(service, "two")
        await asked(service, again, 2)
    assert (one.cancelled, one.unfinished) == (2, ())
    assert (everything.cancelled, everything.unfinished) == (1, ())
    assert refused.details["all_agents"] is True
    assert str(refused) == "Every agent was switched off by user:root: Stop it all. Nothing was started."
    assert still_off.details["all_agents"] is False


async def test_operators_switch_only_their_agents(tmp_path: Path) -> None:
    mine = Principal(name="user:eve", kind="person", roles=frozenset({Role.OPERATOR}), agents=frozenset({"one"}))
    async with serving(tmp_path, World().one(), World().two()) as service:
        switches = service.agent_switches
        for who, agent, error in (
            (mine, "two", ForbiddenError),
            (mine, "", ForbiddenError),
            (ADA, "", ForbiddenError),
            (ADA, "oen", NotFoundError),
        ):
            with pytest.raises(error):
                await switches.switch_off(who, agent, "Stop.")
        with pytest.raises(InvalidRequestError):
            await switches.switch_off(mine, "one", "  ")
        assert await service.switches.list("agent") == {}
        assert (await switches.switch_off(mine, "one", "Stop.\ud800")).changed


async def test_it_holds_on_other_servers_and_after_a_restart(tmp_path: Path, postgres: PostgresServer) -> None:
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    world = World()
    agent = world.one(policy=ASK_CHANGE)
    async with serving(tmp_path, agent, is_worker=False) as here:
        async with serving(tmp_path, agent, state="other") as there:
            run_id = await create(here, "one")
            (row,) = await asked(there, run_id)
            await here.agent_switches.switch_off(ADA, "one", "It refunds too much.", cancel_runs=False)
            await approve(here, row)
            assert await wait_message(here, run_id) == WHY
            await refuse(there)
        async with serving(tmp_path, agent, state="third") as there:
            await refuse(there)
            assert world.changes == []
            await there.agent_switches.switch_on(ADMIN, "one", "It was fixed.")
            await status(here, run_id, "COMPLETED")
    assert world.changes == ["x"]


async def test_run_that_starts_while_it_is_switched_off_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The check before the start may be a moment too early."""
    slow = SlowWork()
    async with serving(tmp_path, slow.agent()) as service:

        async def pass_unchecked(agent: str) -> None:
            await service.agent_switches.switch_off(ADA, agent, "It refunds too much.", cancel_runs=False)

        monkeypatch.setattr(service.switches, "require_agent", pass_unchecked)
        run_id = await create(service, "one")
        await slow.entered.wait()
        handles = service.runners.by_agent["one"].live_handles
        await eventually(lambda: handles[run_id].is_pause_requested)
        slow.go.set()
        assert await wait_message(service, run_id) == WHY


_STEPS = st.lists(st.tuples(st.booleans(), st.sampled_from(["", "one", "two"])), max_size=8)


@given(_STEPS)
async def test_no_agent_is_let_through_while_it_is_off(steps: list[tuple[bool, str]]) -> None:
    off: set[str] = set()
    with opened() as database:
        switches = Switches(database)
        for is_on, name in steps:
            change = switches.switch_on if is_on else switches.switch_off
            assert await change("agent", name, by="user:ada", reason="Why.") is (is_on == (name in off))
            off = off - {name} if is_on else off | {name}
            for agent in ("one", "two"):
                if off & {"", agent}:
                    with pytest.raises(ConflictError):
                        await switches.require_agent(agent)
                else:
                    await switches.require_agent(agent)
