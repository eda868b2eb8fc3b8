"""`ToolRuntime`: execute tool calls of your own model loop."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypeVar, Unpack, cast

import msgspec

from .app import App, Tools
from .audit.export import to_ndjson
from .audit.verify import ChainVerification, verify
from .domain.call import Answer, AnswerFields, Question, WaitingCall
from .domain.decision import FailSafeConfig
from .domain.errors import AgentExecutionError
from .domain.event import CallObserved, Event
from .domain.ids import new_run_id
from .domain.observation import Observation, ToolExecutionRecord, to_execution_record
from .domain.state.lifecycle import RUN_STATUS, RunState
from .domain.tool import CallContext, JsonObject, PermissionMode
from .history.actions import Action, list_actions
from .history.run_handle_view import AgentRunEvent, to_run_handle_events
from .interaction.interface import InteractionProvider
from .oauth.interface import ConsentProvider
from .options import checked_options, parse_mode
from .pipeline.batch import BatchOutcome
from .pipeline.context import RunContext
from .pipeline.parts import Clock, Limits, RuleChange
from .pipeline.tasks import start_at_once
from .policy.interface import PolicyEngine
from .redaction.interface import Redactor
from .registry.memory import ToolRegistry
from .replay.trace import Replay
from .runs.batch_lease import BatchLease
from .runs.inbox import Inbox
from .sandbox.interface import Sandbox
from .scheduler import HandlerSlots, Scheduler
from .storage.artifacts import ArtifactStore
from .storage.event_log import EventLog
from .telemetry.interface import Telemetry
from .wire import ProviderFormat, WireFormat, read_calls, render_messages, render_tools

_T = TypeVar("_T")


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of one model turn: what `ToolRuntime.execute` and `resume` return."""

    #: In model order, one per call that has an outcome. The same call twice has the same observation twice.
    observations: tuple[Observation, ...]
    #: Ready to send to the model, in the shape that the calls came in, one per call id.
    messages: list[dict[str, Any]]
    #: The calls that wait for a person, or behind one that does.
    waiting: tuple[WaitingCall, ...]
    state: RunState
    #: Why the run ended early, if it did.
    message: str = ""

    @property
    def status(self) -> str:
        """Public status of the run."""
        return RUN_STATUS[self.state]

    @property
    def degraded(self) -> bool:
        """True if the run is degraded."""
        return self.state is RunState.DEGRADED

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions."""
        return tuple(waits.question for waits in self.waiting if waits.question is not None)

    @property
    def tool_executions(self) -> list[ToolExecutionRecord]:
        """Records of all calls of the batch."""
        return [to_execution_record(observation) for observation in self.observations]

    def messages_for(self, wire_format: WireFormat) -> list[dict[str, Any]]:
        """Return the messages for another provider: `openai`, `openai-responses` or `anthropic`."""
        return render_messages(self.observations, wire_format)


class ToolRuntime:
    """Execute the tool calls of your own model loop: checked, permitted, recorded.

        runtime = ToolRuntime(tools=[search, send_mail], policy=policy, log=SqliteLog("runs.db"))
        async with runtime:
            result = await runtime.execute(response.tool_calls)
            messages += result.messages

    One runtime is one run. `tools("openai")` are the schemas to send with a request, `execute` takes the calls of the
    answer, `decide` answers a question, and `resume` continues after an answer or a crash. For a loop that is built
    in, see `Agent` and `Runner`.
    """

    @checked_options
    def __init__(  # noqa: PLR0913 - every keyword is explicit
        self,
        *,
        tools: Tools = (),
        policy: PolicyEngine | None = None,
        interaction: InteractionProvider | None = None,
        log: EventLog | None = None,
        artifacts: ArtifactStore | None = None,
        consents: ConsentProvider | None = None,
        secrets: Mapping[str, str] | None = None,
        fail_safe: FailSafeConfig | None = None,
        limits: Limits | None = None,
        max_concurrency: int | HandlerSlots | None = None,
        missing_tool: Literal["observe", "raise"] = "observe",
        on_progress: Callable[[str, str], None] | None = None,
        record_rule: Callable[[RuleChange], Awaitable[None]] | None = None,
        clock: Clock | None = None,
        run_id: str = "",
        agent: str = "",
        mode: PermissionMode | str = PermissionMode.DEFAULT,
        task_phase: str = "",
        workspace: str | PathLike[str] | None = None,
        requester: str = "",
        sandbox: Sandbox | None = None,
        scheduler: Scheduler | None = None,
        redactor: Redactor | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """Set up a run. Every option has a default: a new run, in memory, with no person to ask.

        Args:
            tools: Functions, `ToolDefinition`s, toolboxes such as `LocalTools`, or a `ToolRegistry`.
            policy: Decides which calls may run. Default: no rules, so the declared risk of a tool decides.
            interaction: Who is asked. Default: no one, so questions are rejected.
            log: Where events are stored, such as `SqliteLog("runs.db")`. Default: in memory.
            artifacts: Where large outputs are stored, such as `FileArtifacts("artifacts")`. Default: in memory.
            consents: Access that users gave to tools. Default: none, so a tool that needs consent is refused.
            secrets: Values by name that must never be shown or stored.
            fail_safe: What happens after failures. Default: the model is informed and continues.
            limits: Limits of every call, and how long people may take to answer.
            max_concurrency: How many handlers may run at once. A `HandlerSlots` is shared with others. Default: 128.
            missing_tool: What a call to an unknown tool becomes: an observation, or an exception as well.
            on_progress: Called with call id and message when a running handler reports progress.
            record_rule: Called before a rule that a person keeps with an approval is added to the policy.
            clock: The time, for tests.
            run_id: Continue this run of the log. Default: a new run.
            agent: The name of the agent, for rules and records.
            mode: The permission mode: `read_only`, `default`, `accept_edits`, `contained` or `trusted`.
            task_phase: The phase of the task, for rules.
            workspace: The folder that the run works in; relative paths start there.
            requester: Who the run acts for.
            sandbox: Runs the handlers. Default: in this process, its threads and child processes.
            scheduler: Orders calls that use the same resources; replaces `max_concurrency`.
            redactor: Removes secrets from what is shown and stored; replaces `secrets`.
            telemetry: Records metrics and spans. Default: OpenTelemetry.

        Raises:
            ConfigurationError: An option is unknown, of the wrong type, or contradicts another.
        """
        self._app = App(
            tools=tools,
            policy=policy,
            interaction=interaction,
            log=log,
            artifacts=artifacts,
            consents=consents,
            secrets=secrets,
            fail_safe=fail_safe,
            limits=limits,
            max_concurrency=max_concurrency,
            missing_tool=missing_tool,
            on_progress=on_progress,
            record_rule=record_rule,
            clock=clock,
            sandbox=sandbox,
            scheduler=scheduler,
            redactor=redactor,
            telemetry=telemetry,
        )
        self._situation = CallContext(
            run_id=run_id or new_run_id(),
            agent=agent,
            mode=parse_mode(mode),
            task_phase=task_phase,
            interactive=self._app.parts.interaction.interactive,
            workspace=self._app.resolve_workspace(workspace),
            requester=self._app.parts.redactor.redact(requester),
        )
        self._run: RunContext | None = None
        self._lease = BatchLease(self._app)
        self._wire_format: WireFormat = "openai"
        #: The run that is being opened, and the task that opens it.
        self._opening: asyncio.Future[RunContext] | None = None
        self._opener: asyncio.Task[Any] | None = None
        self._busy = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._runner: asyncio.Runner | None = None

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._situation.run_id

    def tools(self, provider: ProviderFormat = "openai") -> list[JsonObject]:
        """Return the schemas of the tools that the model may see now, to send with a request.

        Args:
            provider: `openai` for chat completions and compatible servers, `openai-responses`, or `anthropic`.
        """
        return render_tools(self._app.registry, self._situation, provider)

    @property
    def registry(self) -> ToolRegistry:
        """The tools of the run. They may be added and removed at any time; `tools()` is what a model is shown."""
        return self._app.registry

    @property
    def situation(self) -> CallContext:
        """Context that calls are decided in."""
        return self._situation

    def switch_mode(self, *, mode: PermissionMode | str | None = None, task_phase: str | None = None) -> None:
        """Switch the permission mode or phase of the task, from the next batch on."""
        self._situation = msgspec.structs.replace(
            self._situation,
            mode=self._situation.mode if mode is None else parse_mode(mode),
            task_phase=self._situation.task_phase if task_phase is None else task_phase,
        )
        if self._run is not None:
            self._run = msgspec.structs.replace(self._run, situation=self._situation)

    async def execute(self, calls: Any) -> BatchResult:
        """Run all tool calls of one model response through the pipeline.

        `calls` are OpenAI or Anthropic tool calls, as dictionaries or SDK objects, or `ToolIntent`s; or a message or a
        whole response that has them: its text and reasoning are not calls. An item of another type is refused, and has
        no message. Whatever happens to a call is an observation.

        Raises only where that was asked for (`raise_on_error`, `missing_tool="raise"`, a fail-safe policy `fail`), when
        `calls` are nothing of the kind (`ConfigurationError`), when the log fails (`LogError`), or when this task is
        cancelled.
        """
        intents, wire_format, unanswerable = read_calls(calls)
        if self._busy:
            await self._wait_turn()
        self._busy = True
        try:
            run = self._run or await self._open_run()
            if run.ledger.state is not RunState.RUNNING or self._lease.is_active:
                run = await self._refresh(run)
            self._wire_format = wire_format
            outcome = await self._app.execute(run, intents)
            return self._build_result(outcome, run, wire_format, unanswerable)
        finally:
            if self._lease.is_active:
                await self._lease.end_batch()
            self._busy = False
            if self._queue:
                self._grant_next_turn()

    async def resume(self) -> BatchResult:
        """Resume the calls that have no outcome yet: after an answer, or after a crash."""
        if self._busy:
            await self._wait_turn()
        self._busy = True
        try:
            run = await self._refresh(self._run or await self._open_run())
            return self._build_result(await self._app.resume(run), run, self._wire_format)
        finally:
            if self._lease.is_active:
                await self._lease.end_batch()
            self._busy = False
            if self._queue:
                self._grant_next_turn()

    async def decide(self, action_id: str, **answer: Unpack[AnswerFields]) -> None:
        """Answer an open question, then `resume`.

        The first answer counts, whichever process it comes from: `DecisionConflictError` names it. With `payload_hash`
        the answer is to exactly that payload. `AnswerRefusedError` when this cannot be the answer.
        """
        given = cast(dict[str, Any], answer)
        payload_hash = given.pop("payload_hash", "")
        run, given_answer = self._run or await self._open_run(), Answer(**given)
        if not await self._app.decide(run, action_id, given_answer, payload_hash):  # others wrote to the run meanwhile
            inbox = Inbox(self._app.log, self._app.artifacts, app=self._app)
            try:
                await inbox.deliver(self.run_id, action_id, given_answer, payload_hash)
            finally:
                self._run = await self._load_run()

    async def actions(self) -> list[Action]:
        """Return all questions of this run, with their answers, oldest first."""
        return list_actions((self._run or await self._open_run()).ledger)

    async def complete(self, message: str = "") -> None:
        """Complete the run successfully."""
        await self._app.complete(self._run or await self._open_run(), message)

    async def cancel(self, message: str = "") -> None:
        """Cancel the run and its running calls."""
        await self._app.cancel(self._run or await self._open_run(), message)

    def cancel_call(self, call_id: str) -> None:
        """Cancel one call. Others continue; its observation says `cancelled`."""
        if self._run is not None:
            self._run.cancellation.cancel_call(call_id)

    async def questions(self) -> list[Question]:
        """Return the open questions, oldest first."""
        run = self._run or await self._open_run()
        return run.ledger.open_questions()

    async def state(self) -> RunState:
        """Return the state of the run."""
        return (self._run or await self._open_run()).ledger.state

    async def events(self, after_seq: int = -1) -> AsyncIterator[AgentRunEvent]:
        """Yield the run's events as they become durable, from `after_seq` on, until the run ends."""
        async for event in self.log_events(after_seq):
            for shown in to_run_handle_events(event):
                yield shown

    async def log_events(self, after_seq: int = -1) -> AsyncIterator[Event]:
        """Yield the same from the log, with every fact."""
        run = self._run or await self._open_run()
        while True:
            for event in await self._app.events(run, after_seq):
                yield event
                after_seq = event.seq
            if run.ledger.is_over and after_seq == run.ledger.next_seq - 1:
                return

    async def tool_executions(self) -> list[ToolExecutionRecord]:
        """Return a record for every call of the run, in the order they ended."""
        replay = await self.replay()
        facts = (step.event.fact for step in replay)
        return [to_execution_record(fact.observation) for fact in facts if isinstance(fact, CallObserved)]

    async def replay(self) -> Replay:
        """Return a replay of the run from the log. Nothing is executed."""
        return Replay(await self._app.entries(self._run or await self._open_run()))

    async def verify(self) -> ChainVerification:
        """Verify the log. The result names the first bad event."""
        return verify(await self._app.entries(self._run or await self._open_run()), self.run_id)

    async def export(self) -> bytes:
        """Return the whole run as NDJSON, one event per line, verifiable by itself."""
        return b"".join(to_ndjson(await self._app.entries(self._run or await self._open_run())))

    def metrics(self) -> list[Any]:
        """Return the latency histograms of this runtime. Empty where `telemetry=` keeps none to read."""
        readings = getattr(self._app.parts.telemetry, "readings", None)
        return [] if readings is None else readings()

    def execute_sync(self, calls: Any) -> BatchResult:
        """Call `execute` from code without an event loop."""
        return self._run_sync(self.execute(calls))

    def decide_sync(self, action_id: str, **answer: Unpack[AnswerFields]) -> None:
        """Answer a question, like `decide`."""
        self._run_sync(self.decide(action_id, **answer))

    def resume_sync(self) -> BatchResult:
        """Resume the run, like `resume`."""
        return self._run_sync(self.resume())

    def close_sync(self) -> None:
        """Close the runtime and its event loop."""
        self._run_sync(self.close())
        if self._runner is not None:
            self._runner.close()

    async def close(self) -> None:
        """Release threads. The run stays resumable; a given log is closed by its owner."""
        await self._lease.settle()
        await self._app.close()

    async def __aenter__(self) -> "ToolRuntime":
        await self._app.start_tools()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __enter__(self) -> "ToolRuntime":
        return self

    def __exit__(self, *_: object) -> None:
        self.close_sync()

    async def _wait_turn(self) -> None:
        """Wait for the batch before this one: only one runs at a time."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._grant_next_turn()
            raise

    def _grant_next_turn(self) -> None:
        self._busy = False
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                self._busy = True
                turn.set_result(None)
                return

    async def _open_run(self) -> RunContext:
        """Read the run from the log, once, however many ask for it at the same time."""
        if self._opening is None:
            loop = asyncio.get_running_loop()
            self._opening = loop.create_future()
            start_at_once([self._open], loop)
        opening = self._opening
        try:
            run = opening.result() if opening.done() else await asyncio.shield(opening)
        except Exception:
            self._opening = None
            raise
        if run.situation is not self._situation:  # it changed meanwhile
            run = msgspec.structs.replace(run, situation=self._situation)
        self._run = run
        return run

    async def _open(self, task: "asyncio.Task[None] | None") -> None:
        opening = cast("asyncio.Future[RunContext]", self._opening)
        self._opener = task or asyncio.current_task()
        try:
            run = await self._load_run()
        except BaseException as error:
            opening.set_exception(error)
        else:
            opening.set_result(run)
        finally:
            self._opener = None

    async def _load_run(self) -> RunContext:
        """Read the run from the log. One that was begun before is taken over from a process that is gone."""
        run = self._lease.watch(await self._app.open(self._situation))
        if run.ledger.started:
            await self._lease.acquire()
            await self._lease.end_batch()
        return run

    async def _refresh(self, run: RunContext) -> RunContext:
        """Return the run as the log has it, if other processes wrote to it between two batches."""
        await self._lease.settle()
        if run.recorder.lease is None and await self._app.log.read(self.run_id, run.ledger.next_seq - 1, 1):
            self._run = run = await self._load_run()
        return run

    def _build_result(
        self, outcome: BatchOutcome, run: RunContext, wire_format: WireFormat, unanswerable: Sequence[int] = ()
    ) -> BatchResult:
        observations: Any = outcome.outcomes
        if outcome.waiting:
            observations = [item for item in outcome.outcomes if type(item) is Observation]
        if outcome.error is not None:
            raise outcome.error
        if outcome.ending == "fail":
            raise AgentExecutionError(outcome.message, tuple(observations))
        answered = observations
        if unanswerable:
            answered = [
                item
                for index, item in enumerate(outcome.outcomes)
                if type(item) is Observation and index not in unanswerable
            ]
        return BatchResult(
            observations=tuple(observations),
            messages=render_messages(answered, wire_format),
            waiting=outcome.waiting,
            state=run.ledger.state,
            message=outcome.message,
        )

    def _run_sync(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)
