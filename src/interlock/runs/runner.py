"""`Runner`: starts, resumes and recovers runs of an agent with the built-in loop.

    agent = Agent(provider=OpenAIChat(), model="...", instructions="...", tools=LocalTools("project"))
    async with Runner(agent, log=SqliteLog("runs.db")) as runner:
        handle = await runner.start("Find out why the tests fail, and fix it.")
        async for event in handle.events(): ...
        result = await handle.result()

A run belongs to the process with its lease. `result` returns when the run is over or waits for a person; then the lease
is released, so any process may answer and resume it. Nothing is lost when this one dies.
"""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from os.path import abspath, realpath
from types import TracebackType
from typing import Any, TypeVar, Unpack, cast

import msgspec

from ..agent.agent import Agent, AgentTool, collect_team
from ..agent.session import AgentSession
from ..app import App, AppOptions
from ..domain.call import Answer
from ..domain.errors import (
    ConfigurationError,
    DecisionConflictError,
    LogCorruptError,
    RunClaimedError,
    RunEndedError,
)
from ..domain.event import RunFailed
from ..domain.ids import is_valid_name, new_run_id
from ..domain.state.ledger import Ledger
from ..domain.tool import CallContext, ToolContext
from ..history.fold import has_ended, load_run
from ..interaction.providers import HeadlessInteractionProvider
from ..pipeline.events import missing_terminal_event
from ..storage.event_log import EventLog, Lease, RunSummary
from .children import read_run_started, run_child
from .command_poller import CommandPoller
from .fork import is_unopened_fork
from .handle import RunHandle
from .inbox import PARENT_ENDED, Inbox
from .options import RunIdentity, RunnerOptions, check_options, read_max_depth, read_mode, select_app_options
from .readiness import ReadinessChecker
from .result import AgentResult
from .toolkit import build_toolkit

_T = TypeVar("_T")
#: The id of a child run is that of its parent and 13 letters more, and must still be a valid name.
_MAX_RUN_ID_CHARS = 128


class Runner:
    """Starts, resumes and recovers runs of an agent."""

    def __init__(self, agent: Agent, **options: Unpack[RunnerOptions]) -> None:
        given = cast(dict[str, Any], options)
        check_options(agent, given)
        self.agent = agent
        self.agents = collect_team(agent)
        self.chat = bool(given.get("chat", False))
        self.max_depth = read_max_depth(given)
        self._mode = read_mode(given)
        self._options = given
        #: By the child agent, and its policy.
        self._children: dict[tuple[int, int], Runner] = {}
        parts = select_app_options(given)
        parts.setdefault("interaction", HeadlessInteractionProvider("wait", approval_timeout_s=None))
        parts |= {"tools": build_toolkit(self.agents, self._child_asker), "fail_safe": agent.fail_safe}
        if agent.policy is not None:
            parts["policy"] = agent.policy
        self.app = App(**cast(AppOptions, parts))
        #: The runs that this runner drives right now.
        self.live_handles: dict[str, RunHandle] = {}
        self._workspace = self._resolve_workspace()
        self._asyncio: asyncio.Runner | None = None
        self._closed = False
        #: For the runner of a nested agent: its parent agents, outermost first.
        self.parent_agents: tuple[str, ...] = ()
        self.use_poller(CommandPoller(self.app.log))

    @property
    def log(self) -> EventLog:
        return self.app.log

    async def start(
        self, task: str, *, run_id: str = "", parent_call: ToolContext | None = None, **who: Unpack[RunIdentity]
    ) -> RunHandle:
        """Start a new run. `parent_call`: the call that it answers, for a child run. Other arguments say who it acts
        for and who created it, where that differs from the runner's options.
        """
        if run_id and not (is_valid_name(run_id) and (parent_call or len(run_id) <= _MAX_RUN_ID_CHARS)):
            raise ConfigurationError(
                f"{run_id[:40]!r} cannot be the id of a run: up to {_MAX_RUN_ID_CHARS} characters that can be printed."
                " Nothing was started."
            )
        if parent_call is not None:
            parent = parent_call.situation
            who = RunIdentity(requester=parent.requester, created_by=parent.created_by)
        self._check_names(who)
        handle = RunHandle(self, self._build_context(run_id or new_run_id(), parent_call, who))
        await handle.begin(task)
        return handle

    async def open(self, run_id: str, *, answers: Mapping[str, Answer] | None = None, force: bool = False) -> RunHandle:
        """Open a run that is in the log and resume it, with answers to its open questions, if any. Raise
        `RunClaimedError` when a living process owns it, unless `force`: that also takes its child runs.
        """
        begun = await read_run_started(self.log, run_id)
        if begun is None:
            raise ConfigurationError(f"There is no run {run_id!r} in the log.")
        who = RunIdentity(requester=begun.requester, created_by=begun.created_by) if begun.created_by else RunIdentity()
        handle = RunHandle(self, self._build_context(run_id, None, who))
        await handle.resume(answers=answers, force=force)
        return handle

    async def run(self, task: str) -> AgentResult:
        """Start a run, and wait until it is over or waits for a person."""
        return await (await self.start(task)).result()

    def run_sync(self, task: str) -> AgentResult:
        """Call `run` from code without an event loop."""
        return self._run_sync(lambda: self.run(task))

    async def recover(self) -> list[RunHandle]:
        """Resume every run of this agent that has not ended, waits for no person, and has no living owner.

        That includes paused runs: a pause is not recorded. Child runs of a run that is over are ended. Not resumed:
        forks that were never opened, conversations in which it is the user's turn, and runs with damaged events; `open`
        reports the damage.
        """
        handles: list[RunHandle] = []
        for summary in await self.log.list_runs():
            with suppress(RunClaimedError, LogCorruptError):
                handle = await self._recover_run(summary)
                handles += [handle] if handle is not None else []
        return handles

    async def _recover_run(self, summary: RunSummary) -> RunHandle | None:
        if has_ended(summary):
            return None
        ledger = (await load_run(self.log, summary.first.run_id)).ledger
        if ledger.parent_run_id:
            await self._cancel_if_orphaned(ledger)
        elif ledger.agent in self.agents and await self.readiness.can_resume(ledger):
            return None if await is_unopened_fork(self.log, ledger.run_id) else await self.open(ledger.run_id)
        return None

    async def _cancel_if_orphaned(self, child: Ledger) -> None:
        """End a child run whose parent ended, in case the process died before it did so."""
        parent = (await load_run(self.log, child.parent_run_id)).ledger
        if parent.is_over:
            with suppress(RunEndedError, DecisionConflictError):
                await self.inbox.cancel(child.run_id, PARENT_ENDED)

    def find_active_agent(self, ledger: Ledger) -> Agent:
        """Return the agent whose turn it is. Raise `ConfigurationError` when this runner does not have it."""
        agent = self.agents.get(ledger.active_agent)
        if agent is None:
            known = ", ".join(self.agents)
            raise ConfigurationError(
                f"It is the turn of the agent {ledger.active_agent!r} in {ledger.run_id}, "
                f"and this runner has only {known}. "
                "Nothing was executed now."
            )
        return agent

    async def open_session(self, situation: CallContext, lease: Lease) -> AgentSession:
        run = await self.app.open(situation, lease)
        if run.ledger.started:
            self.find_active_agent(run.ledger)
        if reason := missing_terminal_event(run):
            run.recorder.add(RunFailed(message=self.app.parts.redactor.redact(reason)))
            await run.recorder.commit()
        session = AgentSession(run, self.app, self.agents, chat=self.chat)
        session.is_child_waiting = partial(self.readiness.is_waiting_for, run.ledger)
        return session

    async def close(self) -> None:
        """Release threads. Live runs are stopped and stay resumable in the log. The log is closed by its owner."""
        self._mark_closed()
        try:
            await asyncio.gather(*(handle.stop() for handle in self.live_handles.values()))
            for child in self._children.values():
                await child.close()
        finally:
            await self.app.close()

    @property
    def is_closed(self) -> bool:
        """True when the runner is closed or closing. Then runs are left in the log."""
        return self._closed

    def _mark_closed(self) -> None:
        self._closed = True
        for child in self._children.values():
            child._mark_closed()

    def list_live_handles(self) -> list[RunHandle]:
        """Return the handles of the live runs and their child runs."""
        return [
            *self.live_handles.values(),
            *(handle for child in self._children.values() for handle in child.list_live_handles()),
        ]

    def close_sync(self) -> None:
        try:
            self._run_sync(self.close)
        finally:
            if self._asyncio is not None:
                self._asyncio.close()
                self._asyncio = None

    def check_open(self) -> None:
        if self._closed:
            raise ConfigurationError("This Runner is closed, so nothing was started. Use it inside its `with` block.")

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

    def _child_asker(self, inside: AgentTool) -> Any:
        """Return the function by which one agent runs another: with its own runner on the same log."""

        async def ask(task: str, context: Any) -> Any:
            around = self.live_handles.get(context.run_id)
            return await run_child(
                self._child_runner(inside), task, context, force=around is not None and around.is_forced
            )

        return ask

    def _child_runner(self, inside: AgentTool) -> "Runner":
        given = (inside.policy, inside.agent.policy, self.agent.policy)
        policy = next((policy for policy in given if policy is not None), None)
        known = self._children.get((id(inside.agent), id(policy)))
        if known is not None:
            return known
        shared = {name: value for name, value in self._options.items() if name not in ("chat", "log", "artifacts")}
        shared |= {"log": self.app.log, "artifacts": self.app.artifacts}
        child = Runner(_with_policy(inside.agent, policy), **cast(RunnerOptions, shared))
        child.use_poller(self.poller)
        child.parent_agents = (*self.parent_agents, self.agent.name)
        self._children[id(inside.agent), id(policy)] = child
        return child

    def use_poller(self, poller: CommandPoller) -> None:
        """Use this poller for commands: a child runner shares that of its parent."""
        self.poller = poller
        self.inbox = Inbox(self.app.log, self.app.artifacts, app=self.app, active_runs=poller)
        self.readiness = ReadinessChecker(self.app.log, poller, self.app.parts.clock.now, chat=self.chat)

    def _check_names(self, who: RunIdentity) -> None:
        """Check the identities. Permissions follow from them, so names that the log would redact are rejected."""
        redact = self.app.parts.redactor.redact
        names = (who.get("requester", ""), who.get("created_by", ""))
        if who.get("created_by") and any(redact(name) != name for name in names):
            raise ConfigurationError(
                "The name of who made the run, or of whom it acts for, looks like a secret, and a secret is not written"
                " down. Nothing was started. Use an account or a key of another name."
            )

    def _build_context(self, run_id: str, parent_call: ToolContext | None, who: RunIdentity) -> CallContext:
        redact = self.app.parts.redactor.redact
        return CallContext(
            run_id=run_id,
            agent=next(iter(self.agents)),
            mode=self._mode,
            interactive=self.app.parts.interaction.interactive,
            workspace=self._workspace,
            requester=redact(who.get("requester", self._options.get("requester", ""))),
            created_by=redact(who.get("created_by", "")),
            parent_run_id="" if parent_call is None else parent_call.run_id,
            parent_call_id="" if parent_call is None else parent_call.call_id,
            parent_agents=self.parent_agents,
        )

    def _resolve_workspace(self) -> str:
        given = self._options.get("workspace", "")
        for box in self.app.toolboxes:
            if realpath(given or box.root) != box.root:
                raise ConfigurationError(f"The tools work in {box.root!r}, so that is the workspace.")
            return box.root
        return abspath(given) if given else ""

    def _run_sync(self, work: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        if _is_in_event_loop():
            raise ConfigurationError(
                "An event loop runs here, so use `async with Runner(...)` and `await runner.run(task)`."
            )
        if self._asyncio is None:
            self._asyncio = asyncio.Runner()
        if self._asyncio.get_loop().is_running():
            raise ConfigurationError("This Runner is at work in another thread. Make one for each, on the same log.")
        return self._asyncio.run(work())


def _is_in_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _with_policy(agent: Agent, policy: Any) -> Agent:
    """Return the agent with this policy: itself, where it already has it."""
    return agent if policy is agent.policy else msgspec.structs.replace(agent, policy=policy)
