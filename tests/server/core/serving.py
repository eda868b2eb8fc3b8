"""A server without its doors, for tests: agents that say what a script says, people, and what to wait for."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from time import time_ns
from typing import Any, TypeVar

from interlock import Rule, RulePolicy, SqliteLog, ToolDefinition, tool
from interlock.agent.agent import Agent
from interlock.domain.event import Fact
from interlock.engine.interface import Engine
from interlock.models.scripted import ScriptedModel, ScriptedTurn
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import ActionQuery, ActionRow, RunRow
from interlock.server.core.runs.approval_service import Approval, DecisionResult
from interlock.server.core.runs.run_service import NewRun
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.service import Service
from interlock.server.core.settings import ServerSettings, ServerTable
from interlock.storage.event_log import EventLog
from interlock.storage.file_artifacts import FileArtifacts
from tests.logs import find_postgres, open_database, open_log
from tests.patience import HANG_SECONDS
from tests.runs.support import calls, facts

_T = TypeVar("_T")

ADA = Principal(name="user:ada", kind="person", roles=frozenset({Role.OPERATOR}))
BOB = Principal(name="user:bob", kind="person", roles=frozenset({Role.OPERATOR}))
BOT = Principal(name="key:bot", kind="key", roles=frozenset({Role.AGENT}), agents=frozenset({"one", "boss"}))
OPEN = frozenset({"PENDING"})
#: Of servers that share a database.
KEYS = {
    "INTERLOCK_SIGNING_KEY": "c2lnbmluZ3NpZ25pbmdzaWduaW5nc2lnbmluZ3NpZ24=",
    "INTERLOCK_SEALING_KEY": "c2VhbGluZ3NlYWxpbmdzZWFsaW5nc2VhbGluZ3NlYWw=",
}
ASK_CHANGE = RulePolicy([Rule(id="ask-change", verdict="ask", tools="change")], default="allow")


class World:
    """What the agents change."""

    def __init__(self) -> None:
        self.changes: list[str] = []
        self.before_change: Callable[[], object] = lambda: None
        self.change: ToolDefinition = tool(risk="write", name="change")(self._change)

    def _change(self, what: str) -> str:
        """Change it."""
        self.before_change()
        self.changes.append(what)
        return f"changed {what}"

    def one(self, name: str = "one", **declared: Any) -> Agent:
        """Changes one thing, which a person is asked about."""
        return scripted(name, calls(("c1", "change", {"what": "x"})), "Done.", tools=[self.change], **declared)

    def two(self, name: str = "two", **declared: Any) -> Agent:
        """Changes two things in one turn."""
        asked = calls(("c1", "change", {"what": "x"}), ("c2", "change", {"what": "y"}))
        return scripted(name, asked, "Done.", tools=[self.change], **declared)

    def boss(self, name: str = "boss") -> Agent:
        """Asks a helper, which changes something."""
        helper = scripted("helper", calls(("in", "change", {"what": "h"})), "Helped.", tools=[self.change])
        asked = calls(("out", "ask_helper", {"task": "Help."}))
        return scripted(name, asked, "All done.", tools=[helper.as_tool()], policy=ASK_CHANGE)


def scripted(name: str, *turns: ScriptedTurn | str, tools: Sequence[Any] = (), **declared: Any) -> Agent:
    said = [ScriptedTurn(text=turn) if isinstance(turn, str) else turn for turn in turns]
    return Agent(name=name, provider=ScriptedModel(said, by_position=True), tools=tools, **declared)


def settings_of(**server: Any) -> ServerSettings:
    return ServerSettings(server=ServerTable(**server))


@asynccontextmanager
async def serving(  # what may be chosen
    folder: Path,
    *agents: Agent | ServedAgent,
    log: EventLog | None = None,
    settings: ServerSettings | None = None,
    now: Callable[[], int] = time_ns,
    state: str = "state",
    environ: Mapping[str, str] = KEYS,
    **options: Any,
) -> AsyncGenerator[Service]:
    """With a log of its own in the folder, unless one is given. Where the folder is one of `keep_in_postgres`, log and
    database are there.
    """
    served = [ServedAgent(agent=each) if isinstance(each, Agent) else each for each in agents]
    own = open_log(folder / "runs.db") if log is None else None
    if find_postgres(folder / "server.db") and hasattr(own or log, "queues"):
        options = {"database": open_database(folder / "server.db"), "engine": _engine_of(own or log), **options}
    (folder / state).mkdir(exist_ok=True)
    try:
        service = Service(
            settings or ServerSettings(),
            served,
            log=own or log or SqliteLog(":memory:"),
            artifacts=FileArtifacts(folder / "artifacts"),
            state_folder=folder / state,
            environ=environ,
            now=now,
            **options,
        )
        async with service:
            yield service
    finally:
        if own is not None:
            await own.close()


def _engine_of(log: EventLog | None) -> Engine:
    engine: Engine = import_module("interlock.engine.postgres").PostgresEngine(log)
    return engine


async def until(service: Service, look: Callable[[], Awaitable[_T | None]]) -> _T:
    """What `look` finds, as soon as it finds something. It looks again whenever something was written."""
    changed = asyncio.Event()
    end = service.hub.subscribe(lambda page: changed.set())
    try:
        async with asyncio.timeout(HANG_SECONDS):
            while True:
                changed.clear()
                found = await look()
                if found:
                    return found
                await changed.wait()
    finally:
        end()


async def create(service: Service, agent: str, who: Principal = ADA, **wish: Any) -> str:
    row, _ = await service.run_service.create(who, NewRun(agent=agent, task="Do it.", **wish))
    return row.run_id


async def status(service: Service, run_id: str, *wanted: str) -> RunRow:
    """The run, when it has one of these statuses."""

    async def look() -> RunRow | None:
        row = await service.index.get_run(run_id)
        return row if row is not None and row.status in wanted else None

    return await until(service, look)


async def asked(service: Service, run_id: str = "", count: int = 1, after: ActionRow | None = None) -> list[ActionRow]:
    """Open questions of the run and of those inside of it, when there are so many and nothing works on it any more. One
    that was answered before is listed for a moment longer.
    """

    async def look() -> list[ActionRow] | None:
        rows = (await service.index.list_actions(ActionQuery(statuses=OPEN))).rows
        mine = [row for row in rows if row.run_id.startswith(run_id)]
        if after is not None and after.action_id in [row.action_id for row in mine]:
            return None
        around = await service.index.get_run(run_id or mine[0].run_id) if mine else None
        waits = around is not None and around.status.startswith("PAUSED")
        return mine if len(mine) == count and waits else None

    rows = await until(service, look)
    for handle in service.runners.list_live_handles():
        if handle.run_id == (run_id or rows[0].run_id):
            await handle.result()
    return rows


async def approve(service: Service, row: ActionRow, who: Principal = BOB, **wish: Any) -> DecisionResult:
    return await service.approval_service.approve(who, row.action_id, Approval(payload_hash=row.payload_hash, **wish))


async def told(service: Service, run_id: str) -> list[Fact]:
    return await facts(service.log, run_id)


async def kinds(log: EventLog, run_id: str) -> list[str]:
    """The facts of a run by the names of their types."""
    return [type(fact).__name__ for fact in await facts(log, run_id)]


async def bytes_of(log: EventLog) -> list[tuple[str, int, bytes]]:
    """Everything that the log has."""
    return [(placed.entry.run_id, placed.entry.seq, placed.entry.body) for placed in await log.feed()]


async def breath() -> None:
    """Others come in here."""
    await asyncio.to_thread(lambda: None)
