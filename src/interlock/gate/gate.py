"""`Gate`: other people's agents, our decisions, approvals and log.

A framework keeps its loop and its tools. Where it would execute a tool, an adapter calls `Gate.call` instead, with a
function that executes the tool. The call passes the pipeline like any other: validated, judged, asked about, recorded,
and executed at most once. A call that has to wait for a person comes back with its question, and the framework pauses
in its own way. The same call again, in whichever process, continues where the log says that it stopped.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextvars import ContextVar
from os import PathLike
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Literal, TypeAlias
from weakref import WeakKeyDictionary

import msgspec

from ..app import App
from ..domain.call import Answer, PermittedCall, Question, ToolIntent, WaitingCall
from ..domain.errors import ConfigurationError, RunSuspendedError
from ..domain.event import decode_event
from ..domain.ids import child_run_id
from ..domain.observation import Observation, extract_output
from ..domain.rendering import render_for_model
from ..domain.state.ledger import ANSWER_TRIGGERS
from ..domain.suggestions import find_near_name
from ..domain.tool import (
    CallContext,
    JsonObject,
    PermissionMode,
    Reconcile,
    ToolCatalog,
    ToolContext,
    ToolDefinition,
)
from ..history.fold import load_run
from ..interaction.interface import Fallback
from ..options import checked_options, parse_mode
from ..pipeline.parts import Limits
from ..policy.interface import PolicyEngine
from ..registry.decorator import ToolOptions
from ..registry.interface import Toolbox
from ..registry.json_schema import tool_from_schema
from ..registry.memory import ToolRegistry
from ..rendering.values import as_text
from ..runs.children import list_open_children
from ..runs.command_poller import CommandPoller
from ..runs.inbox import Inbox
from ..sandbox.interface import Sandbox
from ..storage.artifacts import ArtifactStore
from ..storage.event_log import EventLog
from ..storage.file_artifacts import FileArtifacts
from ..storage.sqlite.log import SqliteLog
from .functions import guard_function
from .live_run import LiveRun
from .named_run import NamedRun, clean_run_id, find_named_run
from .portal import Portal

#: A tool of a framework may take long, and has the framework's own limits.
_TIMEOUT_SECONDS = 24 * 3600.0
_POLL_SECONDS = 5.0
_FEED_EVENTS = 500
#: With more, those that are released are forgotten.
_MAX_LIVE_RUNS = 256

#: Waits for the answer to a question, and returns where it stays open. Ended when an answer from elsewhere is recorded.
HoldFunction: TypeAlias = Callable[[Question], Awaitable[None]]
#: `pause`: the call comes back with its question. `inline`: it stays where it is until a person answers. A function: it
#: comes back when that has returned, or runs when a person has answered before.
Waits: TypeAlias = Literal["pause", "inline"] | HoldFunction


class Settled(msgspec.Struct, frozen=True):
    """What became of a call: an observation, or a question to a person that it waits for."""

    observation: Observation | None = None
    question: Question | None = None
    #: What the tool returned, where it ran now.
    value: Any = None
    #: Whether it ran now. A call that ran before is answered from the log.
    ran: bool = False
    #: What it ran with: a person may have edited the arguments.
    arguments: JsonObject | None = None

    @property
    def ok(self) -> bool:
        """True when the tool succeeded."""
        return self.observation is not None and self.observation.ok

    @property
    def text(self) -> str:
        """What the model reads about it."""
        return "" if self.observation is None else render_for_model(self.observation)

    @property
    def result(self) -> Any:
        """What the tool returned, as it was recorded: secrets are redacted. Else the text for the model: it failed, was
        cut, or a person edited it.
        """
        observation = self.observation
        if observation is None or not observation.ok or observation.summary or observation.size:
            return self.text
        shown = "" if observation.content is None else observation.content.text
        if self.ran and as_text(self.value)[0] == shown:
            return self.value
        return extract_output(observation)


def describe_question(question: Question) -> JsonObject:
    """Return what a framework shows of a question when it pauses."""
    return {
        "action_id": question.action_id,
        "run_id": question.run_id,
        "title": question.headline,
        "prompt": question.prompt,
        "tool": question.tool_name,
        "arguments": question.arguments,
        "payload_hash": question.payload_hash,
    }


class Judged(msgspec.Struct, frozen=True):
    """What was decided about a call that was not executed."""

    verdict: Literal["allow", "ask", "deny"]
    question: Question | None = None
    #: With `deny`: what the model reads. A call that ended before is denied, too, with its outcome.
    observation: Observation | None = None


class AnsweredQuestion(msgspec.Struct, frozen=True):
    """A question of a run that was answered: the run can continue."""

    run_id: str
    action_id: str
    call_id: str
    #: The position in the log: `gate.answered(after=position)` continues behind it.
    position: int


class _Pending(msgspec.Struct):
    """A call on its way through the gate."""

    gate: "Gate"
    run_id: str
    #: The call that this one is made in.
    outer: "_Pending | None"
    call_id: str
    execute: Callable[[JsonObject], Awaitable[Any]] | None = None
    waits: Waits = "pause"
    suspends: tuple[type[BaseException], ...] = ()
    passes: tuple[type[BaseException], ...] = ()
    #: Who the run acts for, and whether it is kept open while a question waits.
    requester: str | None = None
    is_session: bool = False
    ran: bool = False
    value: Any = None
    arguments: JsonObject | None = None
    raised: BaseException | None = None


#: The call of a gate that the current code runs in.
_CURRENT: ContextVar[_Pending | None] = ContextVar("interlock_gate_call", default=None)


class _Answers:
    """Answers come from other processes, as commands."""

    interactive = True
    approval_timeout_s: float | None = None
    approval_fallback: Fallback = "wait"

    async def ask(self, question: Question) -> Answer | None:
        """Leave the question open, or wait until an answer from another process wakes the call."""
        pending = _CURRENT.get()
        if pending is not None and callable(pending.waits):
            await pending.waits(question)
        elif pending is not None and pending.waits == "inline":
            await asyncio.Event().wait()
        return None


class Gate:
    """Govern the tools of an agent that another framework runs.

        gate = Gate("state", policy=load_policy("policy.yaml"), risk={"search": "read"})

    Then give it to the adapter of your framework, such as `interlock.adapters.langchain`. People answer with
    `interlock approvals list --log state/runs.db`, over REST or in the console.
    """

    @checked_options
    def __init__(  # noqa: PLR0913 - every keyword is explicit
        self,
        state: str | PathLike[str] | None = None,
        *,
        policy: PolicyEngine | None = None,
        risk: Mapping[str, str | Iterable[str]] | None = None,
        idempotent: Iterable[str] = (),
        reconcile: Mapping[str, Reconcile] | None = None,
        effects: Mapping[str, str] | None = None,
        mode: PermissionMode | str = PermissionMode.DEFAULT,
        requester: str = "",
        workspace: str | PathLike[str] | None = None,
        secrets: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        log: EventLog | None = None,
        artifacts: ArtifactStore | None = None,
        sandbox: Sandbox | None = None,
        max_concurrency: int | None = None,
    ) -> None:
        """Open the log, and set up the pipeline.

        Args:
            state: The folder of the log and the artifacts; it is made if missing. Default: in memory, for tests.
            policy: Decides about calls. Default: tools that only read are allowed, everything else is asked.
            risk: What tools do, by name: `read`, `write`, `execute`, `network`, `delegate`. A tool without an entry
                counts as `write`, so it is asked.
            idempotent: Names of tools that may safely run again after a crash.
            reconcile: By tool name, a function that finds out after a crash whether a call happened.
            effects: By tool name, what identifies the effect of a call, such as `"refund:{order}"`: it happens once.
            mode: The permission mode, as for `ToolRuntime`.
            requester: Who the agent acts for.
            workspace: The folder that relative paths in arguments start in.
            secrets: Values that never reach the log or the model.
            limits: Limits of every call.
            log: Another log than the one in `state`.
            artifacts: Another store than the one in `state`.
            sandbox: Where handlers run. Default: in this process.
            max_concurrency: How many calls run at once.
        """
        if state is not None:
            folder = Path(state)
            folder.mkdir(parents=True, exist_ok=True)
            self._owned_log = SqliteLog(folder / "runs.db") if log is None else None
            log = self._owned_log or log
            artifacts = FileArtifacts(folder / "runs.db.artifacts") if artifacts is None else artifacts
        else:
            self._owned_log = None
        self._app = App(
            tools=ToolRegistry(),
            policy=policy,
            interaction=_Answers(),
            log=log,
            artifacts=artifacts,
            secrets=secrets,
            limits=limits,
            sandbox=sandbox,
            max_concurrency=max_concurrency,
        )
        self._risk = dict(risk or {})
        self._idempotent = frozenset(idempotent)
        self._reconcile = dict(reconcile or {})
        self._effects = dict(effects or {})
        self._mode = parse_mode(mode)
        self._requester = self._app.parts.redactor.redact(requester)
        self._workspace = workspace
        #: The toolboxes that the workspace was looked up for, and what was found.
        self._resolved: tuple[Sequence[Toolbox], str] | None = None
        self._live: dict[str, LiveRun] = {}
        self._pollers: WeakKeyDictionary[asyncio.AbstractEventLoop, CommandPoller] = WeakKeyDictionary()
        #: Those whose `with` has begun and not ended.
        self.named_runs: list[NamedRun] = []
        self._declared: dict[str, tuple[str, Any]] = {}
        self._portal: Portal | None = None
        self._lock = Lock()

    @property
    def log(self) -> EventLog:
        """The log of all its runs."""
        return self._app.log

    @property
    def artifacts(self) -> ArtifactStore:
        """The artifacts of all its runs."""
        return self._app.artifacts

    @property
    def workspace(self) -> str:
        """The folder of its runs; empty when there is none."""
        boxes = self._app.toolboxes
        if self._resolved is None or self._resolved[0] is not boxes:  # looking it up reads every part of its path
            self._resolved = boxes, self._app.resolve_workspace(self._workspace)
        return self._resolved[1]

    def catalog(self, *, requester: str | None = None, agent: str = "") -> ToolCatalog:
        """Return the tools that an agent is offered. For the options see `call`."""
        return self._app.registry.catalog(self._situation("", agent, requester))

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        return self._app.parts.redactor.redact(text)

    def is_read_only(self, name: str) -> bool:
        """Return True if there is such a tool, and it only reads."""
        found = self._app.registry.find(name)
        return found is not None and found.read_only

    @property
    def inbox(self) -> Inbox:
        """The open questions of all its runs, and a way to answer them."""
        return Inbox(self._app.log, self._app.artifacts, app=self._app)

    def declare(
        self, name: str, description: str, schema: Mapping[str, Any] | None = None, *, source: str = ""
    ) -> ToolDefinition:
        """Declare a tool of the framework. The same again changes nothing; a changed one replaces it.

        Raises:
            ConfigurationError: An option of the gate names a tool that is not there, and this one is near. Or one of
                Interlock's own tools has the name.
        """
        known = self._app.registry.find(name)
        # A framework hands over the same objects for every call.
        if known is not None and self._declared.get(name) == (description, schema):
            return known
        if known is not None and name not in self._declared:
            raise ConfigurationError(f"{name!r} is the name of one of Interlock's own tools. Rename the other one.")
        options: ToolOptions = {
            "risk": self._risk.get(name, "write"),
            "idempotent": name in self._idempotent,
            "timeout_seconds": _TIMEOUT_SECONDS,
            "origin": "extension",
            "source": source,
            "concurrency": "safe",  # the framework orders its calls
        }
        if name in self._reconcile:
            options["reconcile"] = self._reconcile[name]
        if name in self._effects:
            options["effect"] = self._effects[name]
        definition = tool_from_schema(name, description, schema or {}, self._run_pending, **options)
        with self._lock:
            known = self._app.registry.find(name)
            if known is not None:
                if self._declared.get(name) == (description, schema):  # another thread did the same meanwhile
                    return known
                self._app.registry.unregister(name)
            self._app.registry.register(definition)
            self._declared[name] = (description, schema)
        self._check_names(name)
        return definition

    def tools(self, *tools: Any) -> list[ToolDefinition]:
        """Add Interlock's own tools, such as `LocalTools(".")`, and return them: adapters give them to a framework."""
        return self._app.add_tools(tools)

    def _check_names(self, declared: str) -> None:
        """Raise for an option that names no tool where this one was meant: it would silently not apply."""
        for option in (self._risk, self._idempotent, self._reconcile, self._effects):
            for name in option:
                if name not in self._app.registry.names() and find_near_name(name, (declared,)):
                    self._app.registry.unregister(declared)
                    raise ConfigurationError(f"There is no tool {name!r}. Did you mean {declared!r}?")

    async def call(  # noqa: PLR0913 - what a framework knows of a call
        self,
        run_id: str,
        intent: ToolIntent,
        execute: Callable[[JsonObject], Awaitable[Any]] | None = None,
        *,
        waits: Waits = "pause",
        suspends: tuple[type[BaseException], ...] = (),
        passes: tuple[type[BaseException], ...] = (),
        agent: str = "",
        framework: str = "",
        requester: str | None = None,
        is_session: bool = False,
    ) -> Settled:
        """Take a call through the pipeline.

        Args:
            run_id: The framework's stable name for the conversation. Empty: the run that `gate.run` names. Inside
                another call it is a run inside that call, whatever is given.
            intent: The call. Its id is unique in the run: the same id is the same call.
            execute: Executes the tool with the arguments that were permitted. None for Interlock's own tools.
            waits: What happens when a person has to answer: `pause` returns the question, `inline` waits. A function
                waits as long as it runs; an answer from elsewhere ends it, and the call runs.
            suspends: Exceptions with which the framework pauses inside the tool. They are raised here again, and the
                call is not over: the same call runs the tool again, without being asked about again.
            passes: Exceptions with which a tool talks to its framework. They are recorded as a failure, and raised
                here again.
            agent: The name of the agent, for rules and records.
            framework: The name of the framework, for people who look at the run.
            requester: Who a new run acts for. Default: the requester of the gate.
            is_session: The run is a client's session: it is kept for its next calls while a question waits.

        Raises:
            ConfigurationError: There is no run id.
            RunClaimedError: Another process has the run.
            RunEndedError: The run is over, such as one that was cancelled.
        """
        pending = _Pending(
            self, *self._place(run_id), intent.call_id, execute, waits, suspends, passes, requester, is_session
        )
        return await self._call(pending, intent, agent, framework)

    def call_sync(  # noqa: PLR0913 - what a framework knows of a call
        self,
        run_id: str,
        intent: ToolIntent,
        execute: Callable[[JsonObject], Any] | None = None,
        *,
        waits: Waits = "pause",
        suspends: tuple[type[BaseException], ...] = (),
        passes: tuple[type[BaseException], ...] = (),
        agent: str = "",
        framework: str = "",
    ) -> Settled:
        """Call `call` from code without an event loop. `execute` runs in this thread."""
        pending = _Pending(self, *self._place(run_id), intent.call_id, None, waits, suspends, passes)

        def run_here(arguments: JsonObject) -> Any:
            token = _CURRENT.set(pending)
            try:
                return None if execute is None else execute(arguments)
            finally:
                _CURRENT.reset(token)

        def work(call_back: Callable[[JsonObject], Awaitable[Any]]) -> Coroutine[Any, Any, Settled]:
            pending.execute = None if execute is None else call_back
            return self._call(pending, intent, agent, framework)

        return self._open_portal().run_with_callback(work, run_here)

    async def judge(  # noqa: PLR0913 - what a framework knows of a call
        self,
        run_id: str,
        intent: ToolIntent,
        *,
        waits: Waits = "pause",
        agent: str = "",
        framework: str = "",
        requester: str | None = None,
        is_session: bool = False,
    ) -> Judged:
        """Decide about a call and record that, and ask where a person has to be asked. Nothing is executed: `call` with
        the same call does that. For the options see `call`.
        """
        place = self._place(run_id)
        pending = _Pending(self, *place, intent.call_id, waits=waits, requester=requester, is_session=is_session)
        outcome = await self._settle(pending, intent, agent, framework, plan_only=True)
        match outcome:
            case PermittedCall():
                return Judged("allow")
            case WaitingCall(question=question):
                return Judged("ask", question)
            case Observation():
                return Judged("deny", None, outcome)

    def run(self, run_id: str) -> NamedRun:
        """Name the run that calls inside `with` or `async with` belong to; afterwards any process may continue it."""
        return NamedRun(self, run_id)

    async def complete(self, run_id: str, message: str = "") -> None:
        """Record that a run is complete. It takes no more calls.

        Raises:
            ConfigurationError: There is no such run.
            RunPausedError: It waits for an answer.
        """
        run_id = clean_run_id(run_id)
        await self.inbox.load_ledger(run_id)
        live = self._find_live(run_id, "", "")
        try:
            await self._app.complete(await live.open(), message)
        finally:
            await self.release(run_id)

    async def warn(
        self, run_id: str, message: str, *, agent: str = "", framework: str = "", requester: str | None = None
    ) -> None:
        """Record something that people should know in the run of a client's session. It is begun if it was not.

        Args:
            run_id: The run of the session.
            message: What happened. Secrets are redacted.
            agent: The name of the client.
            framework: How its calls come here.
            requester: Who the client acts for.

        Raises:
            RunClaimedError: Another process has the run.
            RunEndedError: The run is over.
        """
        pending = _Pending(self, *self._place(run_id), "", requester=requester, is_session=True)
        await self._find_live(pending.run_id, agent, framework, pending).warn(self.redact(message))

    async def flush(self, run_id: str) -> None:
        """Wait until what was recorded of a run is durable. A call is under way in this event loop."""
        await self._live[clean_run_id(run_id)].flush()

    async def release(self, run_id: str) -> None:
        """Let other processes continue a run, and wait until what it did is durable."""
        live = self._live.get(clean_run_id(run_id))
        if live is None or live.loop.is_closed():
            return
        if live.loop is asyncio.get_running_loop():
            await live.release()
        elif live.loop.is_running():
            await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(live.release(), live.loop))

    def release_sync(self, run_id: str) -> None:
        """Call `release` from code without an event loop. In an event loop it does not wait."""
        live = self._live.get(clean_run_id(run_id))
        if live is None or live.loop.is_closed():
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            if live.loop.is_running():
                self._open_portal().run(self.release(run_id))
            else:  # such as the one of a framework's `run_sync`
                live.loop.run_until_complete(live.release())
        else:
            live.loop.call_soon_threadsafe(live.release_later)

    async def questions(self, run_id: str) -> list[Question]:
        """Return the open questions of a run and of the runs inside its calls."""
        ledger = (await load_run(self._app.log, clean_run_id(run_id))).ledger
        inner = [question for child in list_open_children(ledger) for question in await self.questions(child)]
        return [*ledger.open_questions(), *inner]

    async def answered(self, after: int | None = None) -> AsyncIterator[AnsweredQuestion]:
        """Yield the questions that people answer, as they do, from whichever process: their runs can continue.

        Args:
            after: A position of the log to begin behind; 0 is the beginning. Default: now.
        """
        log = self._app.log
        if after is None:
            after = await log.feed_position()
        while True:
            seen = log.version()
            entries = await log.feed(after, _FEED_EVENTS)
            for item in entries:
                after = item.position
                fact = decode_event(item.entry).fact
                if type(fact) in ANSWER_TRIGGERS:
                    answer: Any = fact
                    yield AnsweredQuestion(item.entry.run_id, answer.action_id, answer.call_id, after)
            if not entries:
                await log.wait_for_change(seen, _POLL_SECONDS)

    def guard(self, function: Callable[..., Any], *, name: str = "", description: str = "") -> Callable[..., Any]:
        """Return the function behind the gate, for frameworks that only take functions. See `guard_function`."""
        return guard_function(self, function, name=name, description=description)

    async def close(self) -> None:
        """Release all runs of this event loop, and close the log that the gate opened."""
        for run_id in list(self._live):
            await self.release(run_id)
        await self._app.close()
        if self._owned_log is not None:
            await self._owned_log.close()

    def close_sync(self) -> None:
        """Close it from code without an event loop."""
        for run_id in list(self._live):
            self.release_sync(run_id)
        self._open_portal().run(self.close())
        if self._portal is not None:
            self._portal.stop()
            self._portal = None

    async def __aenter__(self) -> "Gate":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> "Gate":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_sync()

    def _place(self, run_id: str) -> tuple[str, _Pending | None]:
        """Return the run that a call belongs to, and the call that it is made in."""
        outer = _CURRENT.get()
        if outer is not None and outer.gate is self:
            return child_run_id(outer.run_id, outer.call_id), outer
        return clean_run_id(run_id or self.current_run().run_id), None

    def current_run(self) -> NamedRun:
        """Return the run that `gate.run` names. Raise `ConfigurationError` when it names none."""
        found = find_named_run(self.named_runs)
        if found is None:
            raise ConfigurationError(
                "The call has no run id, so it could not be continued after a pause or a crash. Nothing was executed. "
                'Call it inside `with gate.run("ticket-42"):`, or give the framework\'s conversation an id.'
            )
        return found

    async def _call(self, pending: _Pending, intent: ToolIntent, agent: str, framework: str) -> Settled:
        outcome = await self._settle(pending, intent, agent, framework)
        if pending.raised is not None:
            raise pending.raised
        match outcome:
            case Observation():
                return Settled(outcome, None, pending.value, pending.ran, pending.arguments)
            case WaitingCall(question=question):
                return Settled(None, question)
            case PermittedCall():
                raise AssertionError("a call that is executed has an outcome")

    async def _settle(
        self, pending: _Pending, intent: ToolIntent, agent: str, framework: str, *, plan_only: bool = False
    ) -> Observation | WaitingCall | PermittedCall:
        if type(agent) is not str or type(framework) is not str:
            raise ConfigurationError("The names of the agent and of the framework are texts. Nothing was executed.")
        token = _CURRENT.set(pending)
        try:
            live = self._find_live(pending.run_id, agent, framework, pending)
            return await live.call(intent, agent, plan_only=plan_only)
        finally:
            _CURRENT.reset(token)

    def _find_live(self, run_id: str, agent: str, framework: str, pending: _Pending | None = None) -> LiveRun:
        live = self._live.get(run_id)
        loop = asyncio.get_running_loop()
        if live is not None and live.loop is loop:
            return live
        if live is not None and not live.loop.is_closed() and not live.is_released:
            raise ConfigurationError(f"{run_id} is used by another event loop of this process. Use one for each run.")
        situation = self._situation(run_id, agent, None if pending is None else pending.requester)
        outer = None if pending is None else pending.outer
        if outer is not None:
            situation = msgspec.structs.replace(situation, parent_run_id=outer.run_id, parent_call_id=outer.call_id)
        poller = self._pollers.get(loop)
        if poller is None:
            poller = self._pollers[loop] = CommandPoller(self._app.log)
        settings = {"framework": framework} if framework else {}
        if pending is not None and pending.is_session:
            settings["session"] = "true"
        take_over = live is not None and live.loop.is_closed()
        if len(self._live) >= _MAX_LIVE_RUNS:
            self._live = {name: other for name, other in self._live.items() if not other.is_released}
        self._live[run_id] = live = LiveRun(
            self._app,
            poller,
            situation,
            settings,
            take_over=take_over,
            stays=pending is not None and pending.is_session,
        )
        return live

    def _situation(self, run_id: str, agent: str, requester: str | None) -> CallContext:
        return CallContext(
            run_id=run_id,
            agent=agent,
            mode=self._mode,
            interactive=True,
            workspace=self.workspace,
            requester=self._requester if requester is None else self._app.parts.redactor.redact(requester),
        )

    async def _run_pending(self, arguments: JsonObject, context: ToolContext) -> Any:
        """Execute the tool of a framework, for exactly the call that waits for it."""
        pending = _CURRENT.get()
        if pending is None or pending.execute is None or pending.call_id != context.call_id:
            raise ConfigurationError("The framework gave no function for this call.")
        try:
            pending.value = value = await pending.execute(arguments)
        except pending.suspends as error:
            pending.raised = error
            raise RunSuspendedError(child_run_id(context.run_id, context.call_id)) from error
        except pending.passes as error:
            pending.raised = error
            raise
        pending.ran, pending.arguments = True, arguments
        return value

    def _open_portal(self) -> Portal:
        with self._lock:
            if self._portal is None:
                self._portal = Portal()
            return self._portal
