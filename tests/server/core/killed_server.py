"""A server that is killed: its runs append to a file, which a person has to approve.

    python -m tests.server.core.killed_server FOLDER COUNT

It makes so many runs, each with a key of its own, approves what they ask meanwhile, and says `done` when all of them
are over. Whoever kills it starts it again in the same way.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from interlock import SqliteLog, ToolContext, tool
from interlock.agent.agent import Agent
from interlock.domain.errors import InterlockError
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionQuery
from interlock.server.core.runs.approval_service import Approval
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings
from interlock.storage.file_artifacts import FileArtifacts

ADA = Principal(name="user:ada", kind="person", roles=frozenset({Role.OPERATOR}))
BOB = Principal(name="user:bob", kind="person", roles=frozenset({Role.OPERATOR}))
OPEN = frozenset({"PENDING"})


def effects_in(folder: Path) -> list[str]:
    """The runs that had their effect, in order. A last line that was cut off by a kill is part of it."""
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


def payer() -> Agent:
    """For workers, which are told the folder by their environment."""
    return agent_in(Path(os.environ["PAYER_FOLDER"]))


def agent_in(folder: Path) -> Agent:
    @tool(risk="write")
    def pay(amount: int, context: ToolContext) -> str:
        """Pay it."""
        descriptor = os.open(folder / "effects", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{context.run_id}:{context.call_id}\n".encode())
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        return f"paid {amount}"

    @tool(risk="read")
    def look() -> str:
        """Look at it."""
        return "seen"

    turns = [
        ScriptedTurn(calls=(tool_call("look"),)),
        ScriptedTurn(calls=(tool_call("pay", amount=1),)),
        ScriptedTurn(text="Paid."),
    ]
    return Agent(name="payer", provider=ScriptedModel(turns, by_position=True), tools=[look, pay])


async def approve_all(service: Service) -> None:
    """Again and again, as people do who look at an inbox."""
    while True:
        rows = (await service.index.list_actions(ActionQuery(statuses=OPEN, limit=20))).rows
        for row in rows:
            with suppress(InterlockError):
                decided = await service.approval_service.approve(
                    BOB, row.action_id, Approval(payload_hash=row.payload_hash)
                )
                print("approved", decided.action.run_id, row.action_id, flush=True)
        await written(service)


async def make_all(service: Service, count: int) -> None:
    """All at once."""

    async def make(number: int) -> None:
        wish = NewRun(agent="payer", task=f"Pay {number}.", idempotency_key=f"key-{number}")
        row, _ = await service.run_service.create(ADA, wish)
        print("made", row.run_id, flush=True)

    await asyncio.gather(*map(make, range(count)))


async def _serve(folder: Path, count: int) -> None:
    state = folder / "state"
    state.mkdir(exist_ok=True)
    async with SqliteLog(folder / "runs.db") as log:
        service = Service(
            ServerSettings(),
            [ServedAgent(agent=agent_in(folder))],
            log=log,
            artifacts=FileArtifacts(folder / "artifacts"),
            state_folder=state,
        )
        async with service:
            print("ready", flush=True)
            approving = asyncio.create_task(approve_all(service))
            await make_all(service, count)
            while not await is_done(service, count):
                await written(service)
            approving.cancel()
            await asyncio.gather(approving, return_exceptions=True)
            print("done", flush=True)


async def is_done(service: Service, count: int) -> bool:
    counts = await service.index.count_runs()
    return counts["COMPLETED"] + counts["FAILED"] == count


async def written(service: Service) -> None:
    """Somebody wrote something, or soon will have."""
    changed = asyncio.Event()
    end = service.hub.subscribe(lambda page: changed.set())
    with suppress(TimeoutError):
        async with asyncio.timeout(0.05):
            await changed.wait()
    end()


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
