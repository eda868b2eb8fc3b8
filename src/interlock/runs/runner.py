"""`Runner`: the door for people who want the loop, too.

    agent = Agent(provider=OpenAIChat(), model="...", instructions="...", tools=LocalTools("project"))
    async with Runner(agent, log=SqliteLog("runs.db")) as runner:
        handle = await runner.start("Find out why the tests fail, and fix it.")
        async for event in handle.events(): ...
        result = await handle.result()

A run belongs to whoever has its claim. `result` returns when the run is over or waits for a person; then the claim is
given back, so any process may answer and go on. Nothing is lost when this one dies.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from os import PathLike
from os.path import abspath, realpath
from types import TracebackType
from typing import Any, TypedDict, TypeVar, Unpack, cast

from ..agent.agent import Agent, AgentTool
from ..agent.session import Session
from ..agent.team import team
from ..app import App, Options
from ..approvals.headless import HeadlessInteractionProvider
from ..approvals.interface import InteractionProvider
from ..artifacts.interface import Artifacts
from ..domain.call import Answer, Question
from ..domain.chain import decode_event
from ..domain.errors import ConfigurationError, RunClaimedError
from ..domain.event import RunCancelled, RunCompleted, RunDegraded, RunFailed
from ..domain.ids import is_name, new_run_id
from ..domain.ledger import Ledger
from ..domain.lifecycle import RUN_TRANSITIONS, ActionState
from ..domain.tool import Mode, Situation
from ..engine.notes import NoteWatch
from ..history.fold import load
from ..log.interface import Claim, EventLog
from ..pipeline.parts import Clock, Limits
from .children import ask_child
from .desk import Desk
from .handle import RunHandle
from .result import AgentResult
from .toolkit import toolkit

_T = TypeVar("_T")


class RunnerOptions(TypedDict, total=False):
    """What may be chosen beside the agent. Everything has a default; the meanings are those of `app.Options`."""

    #: Who is asked in this process. Default: nobody; the run waits, and whoever answers goes on with it.
    interaction: InteractionProvider
    log: EventLog
    artifacts: Artifacts
    secrets: Mapping[str, str]
    limits: Limits
    max_concurrency: int
    on_progress: Callable[[str, str], None]
    clock: Clock
    mode: Mode | str
    workspace: str | PathLike[str]
    #: Who the runs act for.
    requester: str
    #: A person goes on talking when an answer is final: the run ends when they say so.
    chat: bool
    #: How deep agents may ask agents, which ask others. Default: 5.
    max_depth: int


_ENDS = (RunCompleted, RunDegraded, RunFailed, RunCancelled)
_ABOUT = frozenset({"mode", "workspace", "requester", "chat", "max_depth"})
_DEFAULT_DEPTH, _MAX_DEPTH = 5, 9
#: The id of a run inside has that of the one around it and 13 letters more, and is still a name.
_MAX_RUN_ID_CHARS = 128


class Runner:
    def __init__(self, agent: Agent, **options: Unpack[RunnerOptions]) -> None:
        given = cast(dict[str, Any], options)
        unknown = sorted(set(given) - set(RunnerOptions.__annotations__))
        if unknown:
            known = ", ".join(RunnerOptions.__annotations__)
            raise ConfigurationError(f"There is no option {', '.join(unknown)}. The options are {known}.")
        self.agent = agent
        self.agents = team(agent)
        self._given = given
        #: By the agent inside, and its policy.
        self._children: dict[tuple[int, int], Runner] = {}
        parts = {name: value for name, value in given.items() if name not in _ABOUT}
        parts.setdefault("interaction", HeadlessInteractionProvider("wait", approval_timeout_s=None))
        parts |= {"tools": toolkit(self.agents, self._as_tool), "fail_safe": agent.fail_safe}
        if agent.policy is not None:
            parts["policy"] = agent.policy
        self.app = App(**cast(Options, parts))
        self.watch = NoteWatch(self.app.log)
        self.desk = Desk(self.app.log, self.app.artifacts, app=self.app, moved_here=self.watch)
        #: The runs that are moved on by this runner right now.
        self.live: dict[str, RunHandle] = {}
        self.chat = bool(given.get("chat", False))
        self.max_depth = _depth(given.get("max_depth", _DEFAULT_DEPTH))
        self._workspace = self._folder()
        self._asyncio: asyncio.Runner | None = None

    @property
    def log(self) -> EventLog:
        return self.app.log

    async def start(self, task: str, *, run_id: str = "", parent: tuple[str, str] = ("", "")) -> RunHandle:
        """A new run, already on its way. `parent`: the run and the call that it is inside of."""
        if run_id and not (is_name(run_id) and (parent[0] or len(run_id) <= _MAX_RUN_ID_CHARS)):
            raise ConfigurationError(
                f"{run_id[:40]!r} cannot be the id of a run: up to {_MAX_RUN_ID_CHARS} characters that can be printed."
                " Nothing was started."
            )
        situation = self._situation(run_id or new_run_id(), parent)
        handle = RunHandle(self, situation)
        await handle.begin(task)
        return handle

    async def open(self, run_id: str, *, answers: Mapping[str, Answer] | None = None, force: bool = False) -> RunHandle:
        """A run that is in the log, on its way again, with answers to its open questions, if any. `RunClaimedError`
        when a living process has it, unless `force`: that takes the runs inside its calls, too."""
        if not await self.log.read(run_id, limit=1):
            raise ConfigurationError(f"There is no run {run_id!r} in the log.")
        handle = RunHandle(self, self._situation(run_id))
        await handle.resume(answers=answers, force=force)
        return handle

    async def run(self, task: str) -> AgentResult:
        """Start, and wait until the run is over or waits for a person."""
        return await (await self.start(task)).result()

    def run_sync(self, task: str) -> AgentResult:
        """`run` for code without an event loop."""
        return self._sync(self.run(task))

    async def recover(self) -> list[RunHandle]:
        """Go on with every run of this agent that has not ended, waits for nobody, and that no living process has. So
        also with one that somebody paused: what is kept of a pause is that nobody moves the run on."""
        handles: list[RunHandle] = []
        for ends in await self.log.ends():
            if ends.last.seq and isinstance(decode_event(ends.last).fact, _ENDS):
                continue
            ledger = (await load(self.log, ends.first.run_id)).ledger
            if ledger.agent not in self.agents or ledger.parent_run_id or not await self.can_go_on(ledger):
                continue
            with suppress(RunClaimedError):
                handles.append(await self.open(ledger.run_id))
        return handles

    async def can_go_on(self, ledger: Ledger) -> bool:
        """Is there something to do that waits for no person?"""
        if not RUN_TRANSITIONS[ledger.state] or self._is_asking(ledger):
            return False
        waiting = [call.child_run_id for call in ledger.calls.values() if call.child_run_id and call.observed_seq < 0]
        return not any([await self.child_waits(child) for child in waiting])

    def agent_of(self, ledger: Ledger) -> Agent:
        """The agent whose turn it is. `ConfigurationError` when this runner does not have it."""
        agent = self.agents.get(ledger.speaker)
        if agent is None:
            known = ", ".join(self.agents)
            raise ConfigurationError(
                f"It is the turn of the agent {ledger.speaker!r} in {ledger.run_id}, and this runner has only {known}. "
                "Nothing was executed now."
            )
        return agent

    def _is_asking(self, ledger: Ledger) -> bool:
        now = self.app.parts.clock.now()
        pending = (action.question for action in ledger.actions.values() if action.state is ActionState.PENDING)
        return any(not question.expires_at or now < question.expires_at for question in pending)

    async def child_waits(self, run_id: str) -> bool:
        """Does the run inside a call wait for a person, or for another process that moves it on?"""
        ledger = (await load(self.log, run_id)).ledger
        if not RUN_TRANSITIONS[ledger.state]:
            return False
        return not await self.can_go_on(ledger) or bool(await self.holder(run_id))

    async def holder(self, run_id: str) -> str:
        """The living process that has the run, in words, where it is not moved on here."""
        return "" if run_id in self.watch else (await self.log.holders()).get(run_id, "")

    async def held_inside(self, ledger: Ledger) -> str:
        """Which run inside a call is moved on by another process, in words; empty where none is."""
        if not RUN_TRANSITIONS[ledger.state]:
            return ""
        for call in ledger.calls.values():
            inside = call.child_run_id if call.observed_seq < 0 else ""
            if inside and (holder := await self.holder(inside)):
                return (
                    f"It waits for {inside}, which is moved on by {holder}. It goes on when that is done, or when it "
                    "is taken over by force."
                )
        return ""

    async def questions(self, ledger: Ledger) -> list[Question]:
        """What people are asked in this run, and in the runs inside its calls."""
        if not RUN_TRANSITIONS[ledger.state]:
            return []
        found = [action.question for action in ledger.actions.values() if action.state is ActionState.PENDING]
        for call in ledger.calls.values():
            if call.child_run_id and call.observed_seq < 0:
                found += await self.questions((await load(self.log, call.child_run_id)).ledger)
        return found

    async def session(self, situation: Situation, claim: Claim) -> Session:
        run = await self.app.open(situation, claim)
        if run.ledger.started:
            self.agent_of(run.ledger)
        session = Session(run, self.app, self.agents, chat=self.chat)
        session.child_waits = self.child_waits
        return session

    async def close(self) -> None:
        """Release threads. What still runs is cancelled; runs stay as they are in the log, and can be gone on with.
        A log that was given is its owner's to close."""
        for handle in list(self.live.values()):
            await handle.stop()
        for child in self._children.values():
            await child.close()
        await self.app.close()

    def close_sync(self) -> None:
        self._sync(self.close())
        if self._asyncio is not None:
            self._asyncio.close()

    async def __aenter__(self) -> "Runner":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> "Runner":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_sync()

    def _as_tool(self, inside: AgentTool) -> Any:
        """How an agent is asked by another one: it gets a runner of its own, on the same log."""

        async def ask(task: str, context: Any) -> Any:
            around = self.live.get(context.run_id)
            return await ask_child(
                self._child_runner(inside), task, context, force=around is not None and around.forced
            )

        return ask

    def _child_runner(self, inside: AgentTool) -> "Runner":
        given = (inside.policy, inside.agent.policy, self.agent.policy)
        policy = next((policy for policy in given if policy is not None), None)
        known = self._children.get((id(inside.agent), id(policy)))
        if known is not None:
            return known
        shared = {name: value for name, value in self._given.items() if name not in ("chat", "log", "artifacts")}
        shared |= {"log": self.app.log, "artifacts": self.app.artifacts}
        child = Runner(_under(inside.agent, policy), **cast(RunnerOptions, shared))
        child.share(self.watch)
        self._children[id(inside.agent), id(policy)] = child
        return child

    def share(self, watch: NoteWatch) -> None:
        """Have notes brought by the same one as the runner around it."""
        self.watch = watch
        self.desk = Desk(self.app.log, self.app.artifacts, app=self.app, moved_here=watch)

    def _situation(self, run_id: str, parent: tuple[str, str] = ("", "")) -> Situation:
        return Situation(
            run_id=run_id,
            agent=next(iter(self.agents)),
            mode=_mode(self._given.get("mode", Mode.DEFAULT)),
            interactive=self.app.parts.interaction.interactive,
            workspace=self._workspace,
            requester=self.app.parts.redactor.redact(self._given.get("requester", "")),
            parent_run_id=parent[0],
            parent_call_id=parent[1],
        )

    def _folder(self) -> str:
        given = self._given.get("workspace", "")
        for box in self.app.toolboxes:
            if realpath(given or box.root) != box.root:
                raise ConfigurationError(f"The tools work in {box.root!r}, so that is the workspace.")
            return box.root
        return abspath(given) if given else ""

    def _sync(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._asyncio is None:
            self._asyncio = asyncio.Runner()
        return self._asyncio.run(work)


def _under(agent: Agent, policy: Any) -> Agent:
    """The agent with this policy: itself, where it is its own."""
    if policy is agent.policy:
        return agent
    fields = {name: getattr(agent, name) for name in agent.__struct_fields__}
    return Agent(**(fields | {"policy": policy}))


def _depth(given: Any) -> int:
    if type(given) is not int or not 0 <= given <= _MAX_DEPTH:
        raise ConfigurationError(f"max_depth is {given!r:.40}, and has to be a number from 0 to {_MAX_DEPTH}.")
    return given


def _mode(word: Mode | str) -> Mode:
    try:
        return Mode(word)
    except ValueError:
        raise ConfigurationError(f"There is no mode {word!r}. The modes are {', '.join(Mode)}.") from None
