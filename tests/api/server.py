"""A running server for tests: real HTTP on a loopback port, keys and accounts for every role, and agents to play with.

An agent does what its task says: each line that begins with `> ` is a call, as the name of a tool and its arguments in
JSON. After the calls it says that it is done. There are two of them, `shop` and `other`, so that there is somebody
else's.
"""

import asyncio
import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx2
import uvicorn
from msgspec.structs import replace

from interlock import FileArtifacts, Rule, RulePolicy, SqliteLog, tool
from interlock.agent.agent import Agent
from interlock.domain.messages import UserMessage
from interlock.models.interface import ModelRequest
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.server.core.identity.api_keys import NewApiKey
from interlock.server.core.identity.principal import Role
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings
from interlock.server.rest.app import create_api
from interlock.server.rest.connections import BoundedHttpProtocol
from tests.patience import HANG_SECONDS

_T = TypeVar("_T")

PASSWORD = "correct horse battery"
#: By name: the role of a key, and the agents that it is for. `*_all` are for all of them.
KEYS: dict[str, tuple[Role, frozenset[str] | None]] = {
    "agent": (Role.AGENT, frozenset({"shop"})),
    "operator": (Role.OPERATOR, frozenset({"shop"})),
    "auditor": (Role.AUDITOR, frozenset({"shop"})),
    "admin": (Role.ADMIN, frozenset({"shop"})),
    "agent_other": (Role.AGENT, frozenset({"other"})),
    "operator_all": (Role.OPERATOR, None),
    "auditor_all": (Role.AUDITOR, None),
    "admin_all": (Role.ADMIN, None),
}
#: By name, what people are trusted with.
PEOPLE: dict[str, frozenset[Role]] = {
    "olga": frozenset({Role.OPERATOR}),
    "audrey": frozenset({Role.AUDITOR}),
    "alex": frozenset({Role.ADMIN}),
    "sam": frozenset(),
}


@tool
def lookup(order: str) -> str:
    """What is known about an order."""
    return f"{order}: paid 42.00 EUR, delivered"


@tool(risk="write")
def note(order: str, text: str) -> str:
    """Write a note to an order."""
    return f"noted {text!r} for {order}"


@tool(risk="network")
def refund(order: str, amount: float) -> str:
    """Give money back."""
    return f"refunded {amount} for {order}"


@tool
def rename(name: str) -> str:
    """A person gives the value."""
    return f"renamed to {name}"


@tool
def report(lines: int) -> str:
    """A long text, so long that it becomes an artifact."""
    return "\n".join(f"line {number} of the report" for number in range(lines))


@tool
def fail(why: str) -> str:
    """Does not work."""
    raise RuntimeError(why)


POLICY = RulePolicy(
    [
        Rule(id="notes-need-a-look", verdict="ask", tools="note", scope="run", reason="Customers read notes."),
        Rule(id="money-needs-a-person", verdict="ask", tools="refund", reason="Money leaves the house."),
        Rule(id="a-person-names-it", verdict="request_input", tools="rename", target_arg="name"),
    ],
    default="allow",
)
_MAX_TURNS = 4


def _turn(request: ModelRequest) -> ScriptedTurn:
    said = [message.text for message in request.messages if isinstance(message, UserMessage)]
    lines = [line[2:].split(" ", 1) for line in said[-1].split("\n") if line.startswith("> ") and "{" in line]
    if not lines or any(not isinstance(message, UserMessage) for message in request.messages):
        return ScriptedTurn(text="All done.")
    return ScriptedTurn(
        calls=tuple(tool_call(name, raw=arguments, call_id=f"c{at}") for at, (name, arguments) in enumerate(lines))
    )


def task(words: str, *calls: tuple[str, dict[str, Any]]) -> str:
    return "\n".join([words, *(f"> {name} {json.dumps(arguments)}" for name, arguments in calls)])


NOTE = task("Note it.", ("note", {"order": "7", "text": "late"}))
REFUND = task("Give it back.", ("refund", {"order": "7", "amount": 5.5}))
LOOKUP = task("Look it up.", ("lookup", {"order": "7"}))
RENAME = task("Rename it.", ("rename", {"name": "?"}))
REPORT = task("Report.", ("report", {"lines": 20_000}))


def demo_agent(name: str) -> Agent:
    return Agent(
        provider=ScriptedModel([_turn] * _MAX_TURNS, by_position=True),
        name=name,
        tools=(lookup, note, refund, rename, report, fail),
        policy=POLICY,
    )


class Running:
    """A server that runs."""

    def __init__(self, service: Service, base: str, stack: AsyncExitStack) -> None:
        self.service = service
        self.base = base
        self._stack = stack
        self._keys: dict[str, str] = {}

    async def key(self, name: str) -> str:
        """The secret of one of `KEYS`, which is made when it is first asked for."""
        if name not in self._keys:
            role, agents = KEYS[name]
            made = await self.service.api_keys.create(name.replace("_", "-"), roles=[role], agents=agents, by="test")
            assert isinstance(made, NewApiKey)
            self._keys[name] = made.secret
        return self._keys[name]

    async def client(self, name: str = "") -> httpx2.AsyncClient:
        """Whoever has that key; without one, nobody."""
        headers = {"Authorization": f"Bearer {await self.key(name)}"} if name else {}
        opened = httpx2.AsyncClient(base_url=self.base, headers=headers, timeout=HANG_SECONDS, trust_env=False)
        return await self._stack.enter_async_context(opened)

    async def person(self, name: str) -> httpx2.AsyncClient:
        """Somebody of `PEOPLE` who signed in, with the token that changes need."""
        await self.service.accounts.create(name, PASSWORD, roles=PEOPLE[name], by="test")
        client = await self.client()
        answer = await client.post("/session", json={"name": name, "password": PASSWORD})
        assert answer.status_code == 201, answer.text
        client.headers["X-CSRF-Token"] = answer.json()["csrf"]
        return client

    async def begin(self, text: str, agent: str = "shop", by: str = "agent", **wish: str) -> str:
        """The id of a run."""
        client = await self.client(by)
        answer = await client.post("/runs", json={"agent": agent, "task": text, **wish})
        assert answer.status_code == 201, answer.text
        return answer.json()["run_id"]

    async def status(self, run_id: str, *wanted: str) -> str:
        """Its status, as soon as it is one of these."""

        async def look() -> str:
            row = await self.service.index.get_run(run_id)
            return row.status if row is not None and row.status in wanted else ""

        return await self.until(look)

    async def asked(self, run_id: str) -> dict[str, Any]:
        """The first question of a run that waits, as the API shows it."""
        await self.status(run_id, "PAUSED_APPROVAL", "PAUSED_CONSENT")
        client = await self.client("operator_all")
        found = (await client.get(f"/runs/{run_id}/actions")).json()["actions"]
        return next(action for action in found if action["status"] == "PENDING")

    async def until(self, look: Callable[[], Awaitable[_T]]) -> _T:
        """What `look` finds, as soon as it finds something. It looks again whenever something was written."""
        changed = asyncio.Event()
        end = self.service.hub.subscribe(lambda page: changed.set())
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while True:
                    changed.clear()
                    if found := await look():
                        return found
                    await changed.wait()
        finally:
            end()


class _Quiet(uvicorn.Server):
    def install_signal_handlers(self) -> None: ...


@asynccontextmanager
async def running_server(
    folder: Path,
    agents: Sequence[ServedAgent] = (),
    settings: ServerSettings | None = None,
    mount: Callable[[Any, Service], None] | None = None,
    **table: Any,
) -> AsyncGenerator[Running]:
    """On a free loopback port. `table` is for `[server]`; `mount` adds to the application, as the console does."""
    chosen = settings or ServerSettings()
    fast = {"port": 0, "requests_per_second": 1_000_000, "request_burst": 1_000_000}
    chosen = replace(chosen, server=replace(chosen.server, **(fast | table)))
    served = agents or [ServedAgent(agent=demo_agent(name), description=f"The {name}.") for name in ("shop", "other")]
    state = folder / "state"
    os.makedirs(state, exist_ok=True)
    log = SqliteLog(folder / "runs.db")
    try:
        artifacts = FileArtifacts(folder / "artifacts")
        service = Service(chosen, served, log=log, artifacts=artifacts, state_folder=state)
        async with service, AsyncExitStack() as stack:
            app = create_api(service)
            if mount is not None:
                mount(app, service)
            async with _listening(app) as base:
                yield Running(service, base, stack)
                await stack.aclose()
    finally:
        await log.close()


@asynccontextmanager
async def _listening(app: Any) -> AsyncGenerator[str]:
    config = uvicorn.Config(
        app, host="127.0.0.1", port=0, log_level="error", lifespan="off", ws="none", http=BoundedHttpProtocol
    )
    server = _Quiet(config)
    listening = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.wait({listening}, timeout=0.01)
            if listening.done():
                await listening
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        await listening
