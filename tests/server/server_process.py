"""A running server for tests: real HTTP on a loopback port, keys and accounts for every role, and agents to play with.

An agent does what its task says: each line that begins with `> ` is a call, as the name of a tool and its arguments in
JSON; `Running.begin` also takes calls that are not in the words of the task. After the calls the agent says that it is
done. There are two agents, `shop` and `other`, so that there is somebody else's.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import cache
from pathlib import Path
from time import time_ns
from typing import Any, TypeAlias, TypeVar

import httpx2
import uvicorn
from msgspec.structs import replace

from interlock import FileArtifacts, Rule, RulePolicy, SqliteLog, tool
from interlock.agent.agent import Agent
from interlock.domain.messages import UserMessage
from interlock.models.interface import ModelRequest
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.policy import BudgetRule, EgressRule
from interlock.server.console.app import mount_console
from interlock.server.core.database.interface import Connection
from interlock.server.core.identity import account_rows
from interlock.server.core.identity.account_rows import Account
from interlock.server.core.identity.api_keys import NewApiKey
from interlock.server.core.identity.passwords import hash_password
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionQuery, ActionRow, RunRow
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings
from interlock.server.rest.app import create_api
from interlock.server.rest.connections import BoundedHttpProtocol
from tests.patience import HANG_SECONDS

_T = TypeVar("_T")
Call: TypeAlias = tuple[str, dict[str, Any]]

PASSWORD = "correct horse battery"
#: By name: the role of a key, and the agents that it is for. `*_all` are for all of them.
KEYS: dict[str, tuple[Role, frozenset[str] | None]] = {
    "agent": (Role.AGENT, frozenset({"shop"})),
    "operator": (Role.OPERATOR, frozenset({"shop"})),
    "auditor": (Role.AUDITOR, frozenset({"shop"})),
    "admin": (Role.ADMIN, frozenset({"shop"})),
    "agent_other": (Role.AGENT, frozenset({"other"})),
    "agent_post": (Role.AGENT, frozenset({"post"})),
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
MAX_TURNS = 4
#: By the words of a task, the calls of its run.
_PLANS: dict[str, tuple[Call, ...]] = {}


@tool
def lookup(order: str) -> str:
    """What is known about an order."""
    return f"{order}: paid 42.00 EUR, delivered"


@tool(risk="write")
def note(order: str, text: str) -> str:
    """Write a note to an order."""
    return f"noted {text!r} for {order}"


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
        Rule(id="pages-need-a-look", verdict="ask", tools="publish", scope="run"),
        Rule(id="edits-need-a-look", verdict="ask", tools="edit_page"),
        Rule(id="keep-asks", verdict="ask", tools="keep"),
        Rule(id="a-person-names-it", verdict="request_input", tools="rename", target_arg="name"),
    ],
    default="allow",
    egress=[EgressRule(id="packages", verdict="allow", hosts="pypi.org", layer="project rule")],
    budgets=[BudgetRule(id="reports-a-day", tools=("report",), per=("agent", "requester"), limit=5)],
)


def _turn(request: ModelRequest) -> ScriptedTurn:
    said = [message.text for message in request.messages if isinstance(message, UserMessage)][-1]
    lines = [line[2:].split(" ", 1) for line in said.split("\n") if line.startswith("> ") and "{" in line]
    lines += [[name, json.dumps(arguments)] for name, arguments in _PLANS.get(said, ())]
    if not lines or any(not isinstance(message, UserMessage) for message in request.messages):
        return ScriptedTurn(text="All done.")
    return ScriptedTurn(
        calls=tuple(tool_call(name, raw=arguments, call_id=f"c{at}") for at, (name, arguments) in enumerate(lines))
    )


def task(words: str, *calls: Call) -> str:
    return "\n".join([words, *(f"> {name} {json.dumps(arguments)}" for name, arguments in calls)])


NOTE = task("Note it.", ("note", {"order": "7", "text": "late"}))
REFUND = task("Give it back.", ("refund", {"order": "7", "amount": 5.5}))
LOOKUP = task("Look it up.", ("lookup", {"order": "7"}))
RENAME = task("Rename it.", ("rename", {"name": "?"}))
REPORT = task("Report.", ("report", {"lines": 20_000}))


def demo_agent(name: str = "shop", **declared: Any) -> Agent:
    given: dict[str, Any] = {
        "provider": ScriptedModel([_turn] * MAX_TURNS, by_position=True),
        "tools": (lookup, note, refund, publish, edit_page, keep, rename, report, fail),
        "policy": POLICY,
    }
    return Agent(name=name, **(given | declared))


class _Quiet(uvicorn.Server):
    def install_signal_handlers(self) -> None: ...


class Running:
    """A server that runs."""

    def __init__(self, service: Service, app: Any, on_behalf_of: str = "") -> None:
        self.service = service
        #: Where it listens, or did.
        self.base = ""
        #: The person that its runs act for.
        self.on_behalf_of = on_behalf_of
        self.app = app
        self._stack = AsyncExitStack()
        self._keys: dict[str, str] = {}
        self._server: _Quiet | None = None
        self._gone = asyncio.Event()

    @asynccontextmanager
    async def listening(self, port: int = 0) -> AsyncGenerator[None]:
        config = uvicorn.Config(
            self.app, "127.0.0.1", port, log_level="error", lifespan="off", ws="none", http=BoundedHttpProtocol
        )
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
            await self._stack.aclose()
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
        # Without TLS there is nothing to verify, and reading certificates takes long.
        opened = httpx2.AsyncClient(
            base_url=self.base, headers=headers, timeout=HANG_SECONDS, trust_env=False, verify=False
        )
        return await self._stack.enter_async_context(opened)

    async def person(self, name: str) -> httpx2.AsyncClient:
        """Somebody of `PEOPLE` who signed in, with the token that changes need."""
        await self.service.database.run(lambda connection: _add_account(connection, name))
        client = await self.client()
        answer = await client.post("/v1/session", json={"name": name, "password": PASSWORD})
        assert answer.status_code == 201, answer.text
        client.headers["X-CSRF-Token"] = answer.json()["csrf_token"]
        return client

    async def begin(self, words: str, *calls: Call, agent: str = "shop", by: str = "", **wish: Any) -> str:
        """The id of a run of these calls, besides those in its words. Made by a key of the agent, unless told."""
        _PLANS[words] = calls
        by = by or {"shop": "agent", "other": "agent_other", "post": "agent_post"}.get(agent, "operator_all")
        role, agents = KEYS[by]
        who = Principal(name=f"key:{by.replace('_', '-')}", kind="key", roles=frozenset({role}), agents=agents)
        wish.setdefault("on_behalf_of", self.on_behalf_of)
        new = NewRun(agent=agent, task=words, **wish)
        return (await self.service.run_service.create(who, new))[0].run_id

    async def status(self, run_id: str, *wanted: str) -> str:
        """Its status, as soon as it is one of these."""

        async def look() -> str:
            row = await self.service.index.get_run(run_id)
            return row.status if row is not None and row.status in wanted else ""

        return await self.until(look)

    async def ended(self, run_id: str, state: str = "completed") -> RunRow:
        async def look() -> RunRow | None:
            row = await self.service.index.get_run(run_id)
            return row if row is not None and row.state == state else None

        return await self.until(look)

    async def asked(self, run_id: str) -> dict[str, Any]:
        """The first question of a run that waits, as the API shows it."""
        await self.status(run_id, "PAUSED_APPROVAL", "PAUSED_CONSENT")
        client = await self.client("operator_all")
        found = (await client.get(f"/v1/runs/{run_id}/approvals")).json()["approvals"]
        return next(action for action in found if action["status"] == "PENDING")

    async def questions(self, run_id: str, count: int = 1, after: str = "") -> tuple[ActionRow, ...]:
        """The open questions of a run, once there are so many; and not the one answered before, which is listed for a
        moment longer.
        """
        query = ActionQuery(run_id=run_id, statuses=frozenset(("PENDING",)))

        async def look() -> tuple[ActionRow, ...]:
            rows = (await self.service.index.list_actions(query)).rows
            return rows if len(rows) >= count and after not in [row.action_id for row in rows] else ()

        return await self.until(look)

    async def until(self, look: Callable[[], Awaitable[_T | None]]) -> _T:
        """What `look` finds, as soon as it finds something. It looks again whenever something was written."""
        changed = asyncio.Event()
        end = self.service.hub.subscribe(lambda page: changed.set())
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


def _add_account(connection: Connection, name: str) -> None:
    if account_rows.find_by_name(connection, name) is None:
        new = Account(name=name, roles=PEOPLE[name], created_at=time_ns(), has_password=True)
        account_rows.insert_account(connection, new, _hashed(), "test")


@asynccontextmanager
async def running_server(
    folder: Path,
    agents: Sequence[ServedAgent | Agent] = (),
    settings: ServerSettings | None = None,
    *,
    port: int = 0,
    console: bool = False,
    on_behalf_of: str = "",
    options: dict[str, Any] | None = None,
    **table: Any,
) -> AsyncGenerator[Running]:
    """On a free loopback port, or on that one. `table` is for `[server]`, `options` for the service."""
    chosen = settings or ServerSettings()
    fast = {"port": port, "requests_per_second": 1_000_000, "request_burst": 1_000_000}
    chosen = replace(chosen, server=replace(chosen.server, **(fast | table)))
    served = [ServedAgent(agent=each) if isinstance(each, Agent) else each for each in agents]
    served = served or [ServedAgent(agent=demo_agent(name), description=f"The {name}.") for name in ("shop", "other")]
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    log, artifacts = SqliteLog(folder / "runs.db"), FileArtifacts(folder / "artifacts")
    try:
        service = Service(chosen, served, log=log, artifacts=artifacts, state_folder=folder, **(options or {}))
        async with service:
            app = create_api(service)
            if console:
                mount_console(app, service)
            running = Running(service, app, on_behalf_of)
            async with running.listening(port):
                yield running
    finally:
        await log.close()


@asynccontextmanager
async def console_server(
    folder: Path, port: int = 0, agents: Sequence[ServedAgent | Agent] = (), **options: Any
) -> AsyncGenerator[Running]:
    """With the console, everybody of `PEOPLE`, and one agent, whose runs act for sam."""
    shop = ServedAgent(agent=demo_agent(), description="Orders, refunds and the shop's pages.")
    async with running_server(
        folder, agents or [shop], port=port, console=True, on_behalf_of="sam", **options
    ) as running:
        for name in PEOPLE:
            await running.service.database.run(lambda connection, name=name: _add_account(connection, name))
        yield running
