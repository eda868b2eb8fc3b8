"""A server whose agents write files as their tasks say. `other` does not keep its changes; `boss` can ask a helper."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from interlock import Rule, RulePolicy
from interlock.agent.agent import Agent
from interlock.domain.messages import ToolMessage, UserMessage
from interlock.local import LocalTools
from interlock.models.interface import ModelRequest
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.server.core.runs.served_agent import ServedAgent
from tests.server.server_process import Running, demo_agent, running_server, task

_MAX_TURNS = 8
_POLICY = RulePolicy([Rule(id="look", verdict="ask", tools="list_dir")], default="allow")
SECRET = "kx-4711-0815-secret"


def _next_call(request: ModelRequest) -> ScriptedTurn:
    """One call of the task after the other."""
    said = [message.text for message in request.messages if isinstance(message, UserMessage)][-1]
    lines = [line[2:].split(" ", 1) for line in said.split("\n") if line.startswith("> ")]
    at = sum(isinstance(message, ToolMessage) for message in request.messages)
    if at >= len(lines):
        return ScriptedTurn(text="All done.")
    name, arguments = lines[at]
    return ScriptedTurn(calls=(tool_call(name, raw=json.dumps(json.loads(arguments)), call_id=f"c{at}"),))


class ChangingServer:
    def __init__(self, server: Running, workspace: Path) -> None:
        self.server = server
        self.workspace = workspace

    async def change(self, *names: str, agent: str = "shop", **wish: str) -> str:
        """A run that is over, in which each of these files was written by a call, and the first one edited then."""
        writes = [("write_file", {"path": name, "content": f"first {name}\n"}) for name in names]
        again = ("edit_file", {"path": names[0], "old_string": "first", "new_string": "second"})
        run_id = await self.server.begin(task("Write.", *writes, again), agent=agent, **wish)
        await self.server.ended(run_id)
        return run_id

    def files(self, prefix: str) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.workspace.glob(f"{prefix}*"))}


@asynccontextmanager
async def changing_server(folder: Path, **options: Any) -> AsyncGenerator[ChangingServer]:
    workspace = folder / "workspace"
    workspace.mkdir()

    def writer(name: str, changes: Path | None, *tools: Any) -> Agent:
        model = ScriptedModel([_next_call] * _MAX_TURNS, by_position=True)
        own = LocalTools(workspace, changes=changes)
        return demo_agent(name, tools=[*own, *tools], policy=_POLICY, provider=model)

    kept = folder / "changes"
    agents = [writer("shop", kept), writer("other", None), writer("boss", kept, writer("helper", kept).as_tool())]
    served = [ServedAgent(agent=each, secrets={"TOKEN": SECRET}) for each in agents]
    async with running_server(folder / "state", served, **options) as server:
        yield ChangingServer(server, workspace)
