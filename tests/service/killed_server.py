"""A server that is killed: its runs append to a file, which a person has to approve, and it takes orders from stdin.

    python -m tests.service.killed_server FOLDER

It makes the runs that it is told to (`make FIRST COUNT`), each with a key of its own, approves what they ask for ever
after, and says `done` when no run is unfinished. Whoever kills it starts it again with the same orders.
"""

import asyncio
import os
import sys
from contextlib import suppress
from pathlib import Path

from interlock import SqliteLog, ToolContext, tool
from interlock.agent.agent import Agent
from interlock.artifacts.files import FileArtifacts
from interlock.domain.errors import InterlockError
from interlock.models.scripted import ScriptedProvider, Turn, proposed
from interlock.service.agents import ServedAgent
from interlock.service.deciding import Approval
from interlock.service.principal import Principal, Role
from interlock.service.rows import ActionQuery
from interlock.service.service import Service
from interlock.service.settings import ServerSettings
from interlock.service.starting import NewRun

ADA = Principal(name="user:ada", kind="person", roles=frozenset({Role.OPERATOR}))
BOB = Principal(name="user:bob", kind="person", roles=frozenset({Role.OPERATOR}))
OPEN = frozenset({"PENDING"})


def effects_in(folder: Path) -> list[str]:
    """The runs that had their effect, in order. A last line that was cut off by a kill is part of it."""
    path = folder / "effects"
    return path.read_text().split() if path.exists() else []


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
        Turn(calls=(proposed("look", {}),)),
        Turn(calls=(proposed("pay", {"amount": 1}),)),
        Turn(text="Paid."),
    ]
    return Agent(name="payer", provider=ScriptedProvider(turns, by_position=True), tools=[look, pay])


async def _approve_all(service: Service) -> None:
    """Again and again, as people do who look at an inbox."""
    while True:
        rows = (await service.index.actions(ActionQuery(statuses=OPEN, limit=20))).rows
        for row in rows:
            with suppress(InterlockError):
                decided = await service.deciding.approve(BOB, row.action_id, Approval(payload_hash=row.payload_hash))
                print("approved", decided.action.run_id, row.action_id, flush=True)
        await asyncio.sleep(0.005)


async def _make(service: Service, count: int) -> None:
    for number in range(count):
        row, _ = await service.starting.create(
            ADA, NewRun(agent="payer", task=f"Pay {number}.", idempotency_key=f"key-{number}")
        )
        print("made", row.run_id, flush=True)


async def _serve(folder: Path, count: int) -> None:
    state = folder / "state"
    state.mkdir(exist_ok=True)
    async with SqliteLog(folder / "runs.db") as log:
        service = Service(
            ServerSettings(),
            [ServedAgent(agent=agent_in(folder))],
            log=log,
            artifacts=FileArtifacts(folder / "artifacts"),
            state=state,
        )
        async with service:
            print("ready", flush=True)
            approving = asyncio.create_task(_approve_all(service))
            await _make(service, count)
            while True:
                counts = await service.index.counts()
                if counts["COMPLETED"] + counts["FAILED"] == count:
                    break
                await asyncio.sleep(0.02)
            approving.cancel()
            await asyncio.gather(approving, return_exceptions=True)
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
