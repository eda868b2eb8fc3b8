"""A server that is killed in the middle of a conversation.

    python -m tests.server.core.killed_conversation FOLDER COUNT

It starts a conversation and sends so many messages, each with a key of its own, prints what it did, and at last `done`.
Whoever kills it starts it again in the same way: it sends all of them again.
"""

import asyncio
import sys
from pathlib import Path

from interlock import Agent, SqliteLog
from interlock.domain.messages import UserMessage
from interlock.models.interface import ModelRequest
from interlock.models.scripted import ScriptedModel, ScriptedTurn
from interlock.server.core.errors import ConflictError
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings
from interlock.storage.file_artifacts import FileArtifacts

from .killed_server import ADA, written


def talker(turns: int) -> Agent:
    """Repeats the last message."""

    def repeat(request: ModelRequest) -> ScriptedTurn:
        said = [message.text for message in request.messages if isinstance(message, UserMessage)]
        return ScriptedTurn(text=f"You said: {said[-1]}")

    return Agent(name="talker", provider=ScriptedModel([repeat] * turns, by_position=True), tools=[])


async def send(service: Service, run_id: str, text: str, key: str) -> tuple[int, bool]:
    """Send a message as soon as it is the user's turn."""
    while True:
        try:
            return await service.run_service.send_message(ADA, run_id, text, key)
        except ConflictError as error:
            if error.code != "not_your_turn":
                raise
        await written(service)


async def _serve(folder: Path, count: int) -> None:
    state = folder / "state"
    state.mkdir(exist_ok=True)
    async with SqliteLog(folder / "runs.db") as log:
        agents = [ServedAgent(agent=talker(2 * count))]
        artifacts = FileArtifacts(folder / "artifacts")
        async with Service(ServerSettings(), agents, log=log, artifacts=artifacts, state_folder=state) as service:
            new = NewRun(agent="talker", task="Hello.", idempotency_key="first", is_chat=True)
            run_id = (await service.run_service.create(ADA, new))[0].run_id
            for number in range(count):
                seq, _ = await send(service, run_id, f"Message {number}.", f"key-{number}")
                print("sent", number, seq, flush=True)
            await send(service, run_id, "The last one.", "last")
            print("done", flush=True)


if __name__ == "__main__":
    asyncio.run(_serve(Path(sys.argv[1]), int(sys.argv[2])))
