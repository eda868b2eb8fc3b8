"""`Runner`: run an agent, and keep its runs in a log."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from os import PathLike
from os.path import realpath
from typing import Any, TypeVar

import msgspec

from ..agent.agent import Agent, AgentTool, collect_team
from ..agent.session import AgentSession
from ..app import App
from ..domain.attachments import UserContent
from ..domain.call import Answer
from ..domain.errors import (
    ConfigurationError,
    DecisionConflictError,
    LogUnreadableError,
    RunClaimedError,
    RunEndedError,
    WorkspaceMismatchError,
)
from ..domain.event import RunStarted
from ..domain.ids import is_valid_name, new_run_id
from ..domain.state.ledger import Ledger
from ..domain.tool import CallContext, PermissionMode, ToolContext
from ..history.fold import has_ended, load_run
from ..interaction.interface import InteractionProvider
from ..interaction.providers import Callback, CallbackInteractionProvider, HeadlessInteractionProvider
from ..oauth.interface import ConsentProvider
from ..options import (
    DEFAULT_DEPTH,
    check_agent,
    check_alternatives,
    check_max_depth,
    checked_options,
    parse_mode,
)
from ..pipeline.context import RunContext
from ..pipeline.events import missing_terminal_event
from ..pipeline.parts import Clock, Limits, OutputListener, RuleChange
from ..redaction.interface import Redactor
from ..sandbox.interface import Sandbox
from ..scheduler import HandlerSlots, Scheduler
from ..storage.artifacts import ArtifactStore
from ..storage.event_log import EventLog, Lease, RunSummary
from ..telemetry.interface import Telemetry
from .children import read_run_started, run_child
from .command_poller import CommandPoller
from .fork import is_unopened_fork
from .handle import RunHandle
from .inbox import PARENT_ENDED, Inbox
from .readiness import ReadinessChecker
from .result import AgentResult
from .toolkit import build_toolkit

_T = TypeVar("_T")
#: The id of a child run is that of its parent and 13 letters more, and must still be a valid name.
_MAX_RUN_ID_CHARS = 128
_MAX_QUEUE_CHARS = 128


class Runner:
    """Run an agent: start runs, follow them, and continue them after a pause or a crash.

        agent = Agent(provider=OpenAIChat("gpt-5"), tools=LocalTools("project"))
        async with Runner(agent, log=SqliteLog("runs.db")) as runner:
            result = await runner.run("Find out why the tests fail, and fix it.")

    `start` returns a `RunHandle` to follow, pause and cancel the run; `open` continues a run of the log, and
    `recover` all that were interrupted. `result` returns when a run is over or waits for a person: then any process
    may answer (`Inbox`) and continue it. For code without an event loop: `with Runner(...)` and `run_sync`.
    """

    @checked_options
    def __init__(  # noqa: PLR0913 - every keyword is explicit
        self,
        agent: Agent,
        *,
        approve: Callback | None = None,
        interaction: InteractionProvider | None = None,
        log: EventLog | None = None,
        artifacts: ArtifactStore | None = None,
        consents: ConsentProvider | None = None,
        secrets: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        max_concurrency: int | HandlerSlots | None = None,
        on_progress: Callable[[str, str], None] | None = None,
        on_output: OutputListener | None = None,
        record_rule: Callable[[RuleChange], Awaitable[None]] | None = None,
        clock: Clock | None = None,
        mode: PermissionMode | str = PermissionMode.DEFAULT,
        workspace: str | PathLike[str] | None = None,
        requester: str = "",
        chat: bool = False,
        max_depth: int = DEFAULT_DEPTH,
        sandbox: Sandbox | None = None,
        scheduler: Scheduler | None = None,
        redactor: Redactor | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Set up the parts for an agent. Every option has a default.

        Args:
            agent: The agent to run.
            approve: Answers questions: a function of the `Question`, sync or async, that returns True, False, an
                `Answer`, or None to leave the question open. Short for
                `interaction=CallbackInteractionProvider(approve)`.
            interaction: Who is asked in this process. Default: no one; the run waits until a person answers.
            log: Where events are stored, such as `SqliteLog("runs.db")`. Default: in memory.
            artifacts: Where large outputs are stored, such as `FileArtifacts("artifacts")`. Default: in memory.
            consents: Access that users gave to tools. Default: none, so a tool that needs consent is refused.
            secrets: Values by name that must never be shown or stored.
            limits: Limits of every call, and how long people may take to answer.
            max_concurrency: How many handlers may run at once, in all runs of this runner together. Runners that get
                the same `HandlerSlots` share its limit. Default: 128.
            on_progress: Called with call id and message when a running handler reports progress.
            on_output: Called with a `RunOutput` for what runs and their child runs say while they run: the stream of
                the model, with whatever secrets are in it, and the progress of tools, maybe from another thread.
            record_rule: Called before a rule that a person keeps with an approval is added to the policy.
            clock: The time, for tests.
            mode: The permission mode: `read_only`, `default`, `accept_edits`, `contained` or `trusted`.
            workspace: The folder that the run works in; relative paths start there.
            requester: Who the run acts for.
            chat: A final answer does not end the run: it waits for the next message.
            max_depth: How deep agents may call agents that call others.
            sandbox: Runs the handlers. Default: in this process, its threads and child processes.
            scheduler: Orders calls that use the same resources, of all runs; replaces `max_concurrency`. Default: every
                run orders its own. Agents that are called by this one get their own, so that a call never waits for
                itself.
            redactor: Removes secrets from what is shown and stored; replaces `secrets`.
            telemetry: Records metrics and spans. Default: OpenTelemetry.

        Raises:
            ConfigurationError: An option is unknown, of the wrong type, or contradicts another.
        """
        check_agent(agent)
        check_alternatives("interaction", interaction, "approve", approve)
        check_max_depth(max_depth)
        if approve is not None:
            interaction = CallbackInteractionProvider(approve)
        elif interaction is None:
            interaction = HeadlessInteractionProvider("wait", approval_timeout_s=None)
        self.agent = agent
        self.agents = collect_team(agent)
        self.chat = bool(chat)
        self.max_depth = max_depth
        self._mode = parse_mode(mode)
        self._requester = requester
        #: By the agent inside, and its policy.
        self._children: dict[tuple[int, int], Runner] = {}
        parts: dict[str, Any] = {
            "interaction": interaction,
            "consents": consents,
            "secrets": secrets,
            "limits": limits,
            "max_concurrency": max_concurrency,
            "on_progress": on_progress,
            "on_output": on_output,
            "record_rule": record_rule,
            "clock": clock,
            "sandbox": sandbox,
            "redactor": redactor,
            "telemetry": telemetry,
        }
        self.app = App(
            tools=build_toolkit(self.agents, self._child_asker),
            policy=agent.policy,
            fail_safe=agent.fail_safe,
            log=log,
            artifacts=artifacts,
            scheduler=scheduler,
            **parts,
        )
        #: The event log of the app.
        self.log: EventLog = self.app.log
        self._child_options: dict[str, Any] = parts | {
            "mode": self._mode,
            "workspace": workspace,
            "requester": requester,
            "max_depth": max_depth,
            "log": self.app.log,
            "artifacts": self.app.artifacts,
        }
        #: Runs that the last `recover` could not read: damaged (`LogCorruptError`), or written by a newer version
        #: (`LogVersionError`).
        self.unreadable: dict[str, LogUnreadableError] = {}
        #: The runs that this runner drives right now.
        self.live_handles: dict[str, RunHandle] = {}
        self._workspace = self.app.resolve_workspace(workspace)
        self._asyncio: asyncio.Runner | None = None
        self._closed = False
        #: For the runner of a nested agent: its parent agents, outermost first.
        self.parent_agents: tuple[str, ...] = ()
        self.use_poller(CommandPoller(self.app.log))

    async def start(  # noqa: PLR0913 - every keyword is explicit
        self,
        task: UserContent,
        *,
        run_id: str = "",
        parent_call: ToolContext | None = None,
        requester: str | None = None,
        created_by: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> RunHandle:
        """Start a new run and return its handle.

        Args:
            task: What to do: the first message of the conversation. A text, or a list of texts and attachments.
            run_id: The id of the run. Default: a new one.
            parent_call: The call that the run answers. It decides who the run acts for.
            requester: Who the run acts for. Default: that of the runner.
            created_by: Who created the run, if not the requester.
            settings: Recorded with the start of the run, for a program that resumes it, such as the name of the model.
        """
        self._check_run_id(run_id, is_child=parent_call is not None)
        if parent_call is not None:
            parent = parent_call.situation
            requester, created_by = parent.requester, parent.created_by
        self._check_names(requester or "", created_by)
        handle = RunHandle(self, self._build_context(run_id or new_run_id(), parent_call, requester, created_by))
        await handle.begin(task, settings or {})
        return handle

    async def submit(  # noqa: PLR0913 - every keyword is explicit
        self,
        task: UserContent,
        *,
        queue: str = "default",
        run_id: str = "",
        requester: str | None = None,
        created_by: str = "",
        settings: Mapping[str, str] | None = None,
    ) -> str:
        """Record a new run for the workers that serve `queue`, and return its id. Nothing is executed here.

        The run is recorded and queued in one transaction. With a log in a file, the process that serves it takes the
        run. For the rest see `start`.
        """
        self._check_run_id(run_id, is_child=False)
        if not is_valid_name(queue) or len(queue) > _MAX_QUEUE_CHARS:
            raise ConfigurationError(f"{queue[:40]!r} cannot be the name of a queue. Nothing was recorded.")
        self._check_names(requester or "", created_by)
        handle = RunHandle(self, self._build_context(run_id or new_run_id(), None, requester, created_by))
        await handle.submit(task, settings or {}, queue)
        return handle.run_id

    async def open(self, run_id: str, *, answers: Mapping[str, Answer] | None = None, force: bool = False) -> RunHandle:
        """Open a run that is in the log and resume it, with answers to its open questions, if any. Raise
        `RunClaimedError` when a living process owns it, unless `force`: that also takes its child runs. Raise
        `WorkspaceMismatchError` when the run works in another folder than this runner.
        """
        begun = await read_run_started(self.log, run_id)
        if begun is None:
            raise ConfigurationError(f"There is no run {run_id!r} in the log.")
        return await self.open_started(run_id, begun, answers=answers, force=force)

    async def open_started(
        self, run_id: str, begun: RunStarted, *, answers: Mapping[str, Answer] | None = None, force: bool = False
    ) -> RunHandle:
        """Do what `open` does for a run whose first event is known."""
        if not self._has_workspace(begun):
            raise WorkspaceMismatchError(
                f"Run {run_id} works in {begun.workspace!r}, and this runner in {self._workspace or 'no folder'!r}. "
                f"Nothing was started. Use a Runner with workspace={begun.workspace!r}.",
                begun.workspace,
            )
        requester = begun.requester if begun.created_by else None
        handle = RunHandle(self, self._build_context(run_id, None, requester, begun.created_by))
        await handle.resume(answers=answers, force=force)
        return handle

    async def add_message(self, run_id: str, text: UserContent, *, by: str, key: str = "") -> int:
        """Record the next message of a conversation, and return its `seq`. Nothing is executed here: the process that
        serves the log continues the run. The same `key` again is the same message. Raise `RunClaimedError` or
        `RunPausedError` when it is not the user's turn, and `RunEndedError` when the run is over.
        """
        begun = await read_run_started(self.log, run_id)
        if begun is None:
            raise ConfigurationError(f"There is no run {run_id!r} in the log.")
        requester = begun.requester if begun.created_by else None
        handle = RunHandle(self, self._build_context(run_id, None, requester, begun.created_by))
        return await handle.add_message(text, by=by, key=key)

    async def run(self, task: UserContent) -> AgentResult:
        """Start a run, and wait until it is over or waits for a person."""
        return await (await self.start(task)).result()

    def run_sync(self, task: UserContent) -> AgentResult:
        """Call `run` from code without an event loop."""
        return self._run_sync(lambda: self.run(task))

    async def recover(self) -> list[RunHandle]:
        """Resume every run of this agent that has not ended, waits for no person, and has no living owner.

        That includes paused runs: a pause is not recorded. Child runs of a run that is over are ended. Not resumed:
        forks that were never opened, conversations in which it is the user's turn, runs that work in another folder,
        and runs that cannot be read: `unreadable` says which, and why.
        """
        handles: list[RunHandle] = []
        self.unreadable = {}
        for summary in await self.log.list_runs():
            try:
                handle = await self._recover_run(summary)
            except RunClaimedError:
                continue
            except LogUnreadableError as error:
                self.unreadable[summary.first.run_id] = error
                continue
            handles += [handle] if handle is not None else []
        return handles

    async def _recover_run(self, summary: RunSummary) -> RunHandle | None:
        if has_ended(summary):
            return None
        ledger = (await load_run(self.log, summary.first.run_id)).ledger
        if ledger.parent_run_id:
            await self._cancel_if_orphaned(ledger)
        elif ledger.agent in self.agents and await self.readiness.can_resume(ledger):
            begun = await read_run_started(self.log, ledger.run_id)
            if begun is not None and self._has_workspace(begun) and not await is_unopened_fork(self.log, ledger.run_id):
                return await self.open(ledger.run_id)
        return None

    def _has_workspace(self, begun: RunStarted) -> bool:
        """Return True if the run works in the folder of this runner, or in none."""
        return not begun.workspace or realpath(begun.workspace) == realpath(self._workspace or "/")

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
        """Open a run for its loop. Fail a run whose terminal event is missing."""
        run = await self.app.open(situation, lease)
        if run.ledger.started:
            self.find_active_agent(run.ledger)
        if ending := missing_terminal_event(run):
            run.recorder.add(ending)
            await run.recorder.commit()
        return self.build_session(run)

    def build_session(self, run: RunContext) -> AgentSession:
        """Return the loop of an open run."""
        session = AgentSession(run, self.app, self.agents, chat=self.chat)
        session.is_child_waiting = partial(self.readiness.is_waiting_for, run.ledger)
        return session

    def metrics(self) -> list[Any]:
        """Return the latency histograms of this runner, in milliseconds. Empty where `telemetry=` has none to read."""
        readings = getattr(self.app.parts.telemetry, "readings", None)
        return [] if readings is None else readings()

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
        """Close the runner and its event loop."""
        try:
            self._run_sync(self.close)
        finally:
            if self._asyncio is not None:
                self._asyncio.close()
                self._asyncio = None

    def check_open(self) -> None:
        """Raise `ConfigurationError` if the runner is closed."""
        if self._closed:
            raise ConfigurationError("This Runner is closed, so nothing was started. Use it inside its `with` block.")

    async def __aenter__(self) -> "Runner":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> "Runner":
        return self

    def __exit__(self, *_: object) -> None:
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
        child = Runner(_with_policy(inside.agent, policy), **self._child_options)
        child.use_poller(self.poller)
        child.parent_agents = (*self.parent_agents, self.agent.name)
        self._children[id(inside.agent), id(policy)] = child
        return child

    def use_poller(self, poller: CommandPoller) -> None:
        """Use this poller for commands: a child runner shares that of its parent."""
        self.poller = poller
        self.inbox = Inbox(self.app.log, self.app.artifacts, app=self.app, active_runs=poller)
        self.readiness = ReadinessChecker(self.app.log, poller, self.app.parts.clock.now, chat=self.chat)

    def _check_run_id(self, run_id: str, *, is_child: bool) -> None:
        if run_id and not (is_valid_name(run_id) and (is_child or len(run_id) <= _MAX_RUN_ID_CHARS)):
            raise ConfigurationError(
                f"{run_id[:40]!r} cannot be the id of a run: up to {_MAX_RUN_ID_CHARS} characters that can be printed."
                " Nothing was started."
            )

    def _check_names(self, requester: str, created_by: str) -> None:
        """Refuse names that look like secrets: who may decide follows from them, and the log would not have them."""
        redact = self.app.parts.redactor.redact
        if created_by and any(redact(name) != name for name in (requester, created_by)):
            raise ConfigurationError(
                "The name of who made the run, or of whom it acts for, looks like a secret, and a secret is not written"
                " down. Nothing was started. Use an account or a key of another name."
            )

    def _build_context(
        self, run_id: str, parent_call: ToolContext | None, requester: str | None, created_by: str
    ) -> CallContext:
        redact, acts_for = self.app.parts.redactor.redact, self._requester if requester is None else requester
        return CallContext(
            run_id=run_id,
            agent=next(iter(self.agents)),
            mode=self._mode,
            interactive=self.app.parts.interaction.interactive,
            workspace=self._workspace,
            requester=redact(acts_for) if acts_for else "",
            created_by=redact(created_by) if created_by else "",
            parent_run_id="" if parent_call is None else parent_call.run_id,
            parent_call_id="" if parent_call is None else parent_call.call_id,
            parent_agents=self.parent_agents,
        )

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
