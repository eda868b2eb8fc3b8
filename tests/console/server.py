"""A server to look at in a browser: people with roles, and an agent that does what its task says.

Which calls a task is about is kept here by the words of the task, so a test can have any call asked for. A task may
also say it itself, in lines that begin with `>`: the name of a tool and its arguments in JSON. After the calls the
agent says that it is done.
"""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from time import time_ns
from typing import Any, TypeAlias

import uvicorn
from msgspec.structs import replace

from interlock import FileArtifacts, Rule, RulePolicy, SqliteLog, tool
from interlock.agent.agent import Agent
from interlock.domain.messages import AssistantMessage, UserMessage
from interlock.models.interface import ModelRequest
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.server.console.app import mount_console
from interlock.server.core.identity import account_rows
from interlock.server.core.identity.account_rows import Account
from interlock.server.core.identity.passwords import hash_password
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionQuery, ActionRow, RunRow
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings, ServerTable
from interlock.server.rest.app import create_api
from tests.patience import HANG_SECONDS

PASSWORD = "correct horse battery"
#: By name, what people are trusted with.
PEOPLE: dict[str, frozenset[Role]] = {
    "olga": frozenset((Role.OPERATOR,)),
    "audrey": frozenset((Role.AUDITOR,)),
    "alex": frozenset((Role.ADMIN,)),
    "sam": frozenset(),
}
_MAX_TURNS = 4
Call: TypeAlias = tuple[str, dict[str, Any]]
#: By the words of a task, the calls of its run.
_PLANS: dict[str, tuple[Call, ...]] = {}


@tool
def lookup_order(order: str) -> str:
    """What is known about an order."""
    return f"{order}: paid 42.00 EUR, delivered"


@tool(risk="network")
def refund(order: str, amount: float, note: str = "") -> str:
    """Give money back."""
    return f"refunded {amount} for {order}"


@tool(risk="write")
def publish(path: str, content: str) -> str:
    """Write a page."""
    return f"published {path}"


@tool(risk="write")
def edit_page(path: str, old_string: str, new_string: str) -> str:
    """Change a page."""
    return f"edited {path}"


@tool(risk="write")
def keep(anything: dict[str, Any]) -> str:
    """Keep whatever it is."""
    return "kept"


@tool
def rename(name: str) -> str:
    """A person gives the value."""
    return f"renamed to {name}"


@tool
def fail(why: str) -> str:
    """Does not work."""
    raise RuntimeError(why)


POLICY = RulePolicy(
    [
        Rule(id="money-needs-a-person", verdict="ask", tools="refund", reason="Money leaves the house."),
        Rule(id="pages-need-a-look", verdict="ask", tools="publish", scope="run"),
        Rule(id="edits-need-a-look", verdict="ask", tools="edit_page"),
        Rule(id="keep-asks", verdict="ask", tools="keep"),
        Rule(id="a-person-names-it", verdict="request_input", tools="rename", target_arg="name"),
    ],
    default="allow",
)


def _turn(request: ModelRequest) -> ScriptedTurn:
    said = [message.text for message in request.messages if isinstance(message, UserMessage)]
    calls = _PLANS.get(said[-1]) or tuple(_written(said[-1]))
    if not calls or any(isinstance(message, AssistantMessage) for message in request.messages):
        return ScriptedTurn(text="All done.")
    return ScriptedTurn(
        calls=tuple(tool_call(name, **arguments, call_id=f"c{at}") for at, (name, arguments) in enumerate(calls))
    )


def _written(task: str) -> Iterator[Call]:
    for line in task.split("\n"):
        if line.startswith("> "):
            name, arguments = line.removeprefix("> ").split(" ", 1)
            yield name, json.loads(arguments)


def demo_agent(name: str = "shop", **declared: Any) -> Agent:
    given: dict[str, Any] = {
        "tools": (lookup_order, refund, publish, edit_page, keep, rename, fail),
        "policy": POLICY,
    }
    return Agent(provider=ScriptedModel([_turn] * _MAX_TURNS, by_position=True), name=name, **(given | declared))


class _Quiet(uvicorn.Server):
    def install_signal_handlers(self) -> None: ...


class House:
    """A running server."""

    def __init__(self, service: Service, app: Any) -> None:
        self.service = service
        #: Where it listens, or did.
        self.base = ""
        self._app = app
        self._server: _Quiet | None = None
        self._gone = asyncio.Event()

    @asynccontextmanager
    async def listening(self, port: int) -> AsyncGenerator[None]:
        config = uvicorn.Config(self._app, host="127.0.0.1", port=port, log_level="error", lifespan="off", ws="none")
        self._server = server = _Quiet(config)
        serving = asyncio.create_task(server.serve())
        serving.add_done_callback(lambda _: self._gone.set())
        self._gone.clear()
        try:
            while not server.started and not serving.done():
                await asyncio.wait({serving}, timeout=0.01)
            if serving.done():
                await serving
            self.base = f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
            yield
        finally:
            await self.stop_listening()
            await serving

    async def stop_listening(self) -> None:
        """All connections break; runs go on."""
        assert self._server is not None
        self._server.should_exit = self._server.force_exit = True
        for connection in list(self._server.server_state.connections):
            connection.transport.abort()
        await self._gone.wait()

    async def begin(
        self, words: str, *calls: Call, by: str = "key:bot", agent: str = "shop", on_behalf_of: str = "sam"
    ) -> str:
        """A run that a program makes for somebody. The run's id."""
        who = Principal(name=by, kind="key", roles=frozenset((Role.AGENT,)), agents=frozenset((agent,)))
        _PLANS[words] = calls
        wish = NewRun(agent=agent, task=words, on_behalf_of=on_behalf_of)
        return (await self.service.run_service.create(who, wish))[0].run_id

    async def asked(self, run_id: str, count: int = 1) -> tuple[ActionRow, ...]:
        """The open questions of a run, once there are so many."""
        query = ActionQuery(run_id=run_id, statuses=frozenset(("PENDING",)))

        async def enough() -> tuple[ActionRow, ...]:
            rows = (await self.service.index.list_actions(query)).rows
            return rows if len(rows) >= count else ()

        return await self.until(enough)

    async def ended(self, run_id: str, state: str = "completed") -> RunRow:
        async def is_over() -> RunRow | None:
            row = await self.service.index.get_run(run_id)
            return row if row is not None and row.state == state else None

        return await self.until(is_over)

    async def until(self, look: Any) -> Any:
        """What `look` finds, looked for again after every event."""
        changed = asyncio.Event()
        end = self.service.hub.subscribe(lambda _: changed.set())
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while not (found := await look()):
                    await changed.wait()
                    changed.clear()
                return found
        finally:
            end()


@cache
def _hashed() -> str:
    """Made once: it is meant to take long."""
    return hash_password(PASSWORD)


def _add_people(connection: sqlite3.Connection) -> None:
    for name, roles in PEOPLE.items():
        new = Account(name=name, roles=roles, created_at=time_ns(), has_password=True)
        if account_rows.find_by_name(connection, name) is None:
            account_rows.insert_account(connection, new, _hashed(), "test")


@asynccontextmanager
async def house(folder: Path, port: int = 0, served: Sequence[ServedAgent] = (), **table: Any) -> AsyncGenerator[House]:
    """On a loopback port that is free, or on that one, with the demo agent, or these; `table` is for `[server]`."""
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    settings = ServerSettings(server=replace(ServerTable(port=port), **table))
    log, artifacts = SqliteLog(folder / "runs.db"), FileArtifacts(folder / "artifacts")
    demo = ServedAgent(agent=demo_agent(), description="Orders, refunds and the shop's pages.")
    service = Service(settings, served or [demo], log=log, artifacts=artifacts, state_folder=folder)
    try:
        async with service:
            await service.database.run(_add_people)
            app = create_api(service)
            mount_console(app, service)
            served_here = House(service, app)
            async with served_here.listening(port):
                yield served_here
    finally:
        await log.close()
