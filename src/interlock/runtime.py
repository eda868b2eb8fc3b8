"""`ToolRuntime`: the runtime for your own agent loop.

    runtime = ToolRuntime(tools=[search, send_mail], policy=policy, log=SqliteLog("runs.db"))
    result = await runtime.execute(response.tool_calls)
    messages += result.messages

One runtime is one run. Everything a model asks for goes through `execute`; there is no other way to a handler.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Coroutine, Iterable
from os import PathLike
from os.path import abspath, realpath
from types import TracebackType
from typing import Any, TypeVar, Unpack, cast

import msgspec

from .app import App, AppOptions
from .audit.export import to_ndjson
from .audit.verify import ChainVerification, verify
from .domain.call import Answer, AnswerFields, Question, WaitingCall
from .domain.errors import AgentExecutionError, ConfigurationError
from .domain.event import CallObserved, Event
from .domain.ids import new_run_id
from .domain.observation import Observation, ToolExecutionRecord, to_execution_record
from .domain.state.lifecycle import RUN_STATUS, RunState
from .domain.tool import CallContext, JsonObject, PermissionMode
from .history.actions import Action, list_actions
from .history.run_handle_view import AgentRunEvent, to_run_handle_events
from .pipeline.batch import BatchOutcome
from .pipeline.context import RunContext
from .registry.memory import ToolRegistry
from .replay.trace import Replay
from .wire import ProviderFormat, WireFormat, read_calls, render_messages, render_tools

_T = TypeVar("_T")


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one model turn."""

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
        return RUN_STATUS[self.state]

    @property
    def degraded(self) -> bool:
        return self.state is RunState.DEGRADED

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions."""
        return tuple(waits.question for waits in self.waiting if waits.question is not None)

    @property
    def tool_executions(self) -> list[ToolExecutionRecord]:
        return [to_execution_record(observation) for observation in self.observations]

    def messages_for(self, wire_format: WireFormat) -> list[dict[str, Any]]:
        """Return the messages for another provider: `openai`, `openai-responses` or `anthropic`."""
        return render_messages(self.observations, wire_format)


class RuntimeOptions(AppOptions, total=False):
    """Options of the run, beside those of `AppOptions`."""

    #: Continues a run that is in the log.
    run_id: str
    agent: str
    mode: PermissionMode | str
    task_phase: str
    #: The workspace of the run; relative paths start there.
    workspace: str | PathLike[str]
    #: The user that the run acts for.
    requester: str


_RUN_OPTION_NAMES = RuntimeOptions.__annotations__.keys() - AppOptions.__annotations__.keys()


class ToolRuntime:
    """One run: executes tool calls, and answers for everything that happened to them."""

    def __init__(self, **options: Unpack[RuntimeOptions]) -> None:
        """Create a runtime. Every option has a default: a new run, in memory, without a person to ask."""
        given = cast(dict[str, Any], options)
        self._app = App(**cast(AppOptions, {name: given[name] for name in given if name not in _RUN_OPTION_NAMES}))
        about = {name: given[name] for name in _RUN_OPTION_NAMES if name in given}
        for box in self._app.toolboxes:
            if realpath(about.setdefault("workspace", box.root)) != box.root:
                raise ConfigurationError(f"The tools work in {box.root!r}, so that is the workspace.")
        about["requester"] = self._app.parts.redactor.redact(about.get("requester", ""))
        self._situation = _build_context(self._app.parts.interaction.interactive, **about)
        self._run: RunContext | None = None
        self._wire_format: WireFormat = "openai"
        self._opening: asyncio.Future[RunContext] | None = None
        self._busy = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._runner: asyncio.Runner | None = None

    @property
    def run_id(self) -> str:
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
        return self._situation

    def switch_mode(self, *, mode: PermissionMode | str | None = None, task_phase: str | None = None) -> None:
        """Switch the permission mode or phase of the task, from the next batch on."""
        self._situation = msgspec.structs.replace(
            self._situation,
            mode=self._situation.mode if mode is None else _parse_mode(mode),
            task_phase=self._situation.task_phase if task_phase is None else task_phase,
        )
        if self._run is not None:
            self._run = msgspec.structs.replace(self._run, situation=self._situation)

    async def execute(self, calls: Iterable[Any]) -> BatchResult:
        """Run all tool calls of one model response through the pipeline.

        Calls are OpenAI or Anthropic tool calls, as dictionaries or SDK objects, or `ToolIntent`s. Whatever happens to
        a call is an observation. Raises only where that was asked for (`raise_on_error`, `missing_tool="raise"`, a
        fail-safe policy `fail`), when the log fails (`LogError`), or when this task is cancelled.
        """
        intents, wire_format = read_calls(calls)
        if self._busy:
            await self._wait_turn()
        self._busy = True
        try:
            run = self._run or await self._open_run()
            self._wire_format = wire_format
            return self._build_result(await self._app.execute(run, intents), run, wire_format)
        finally:
            self._busy = False
            if self._queue:
                self._grant_next_turn()

    async def resume(self) -> BatchResult:
        """Resume the calls that have no outcome yet: after an answer, or after a crash."""
        if self._busy:
            await self._wait_turn()
        self._busy = True
        try:
            run = self._run or await self._open_run()
            return self._build_result(await self._app.resume(run), run, self._wire_format)
        finally:
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
        run = self._run or await self._open_run()
        while not await self._app.decide(run, action_id, Answer(**given), payload_hash):
            self._run = run = await self._app.open(self._situation)

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
        """Return the latency histograms of this runtime, without any SDK."""
        return self._app.telemetry.readings()

    def execute_sync(self, calls: Iterable[Any]) -> BatchResult:
        """Call `execute` from code without an event loop."""
        return self._run_sync(self.execute(calls))

    def decide_sync(self, action_id: str, **answer: Unpack[AnswerFields]) -> None:
        self._run_sync(self.decide(action_id, **answer))

    def resume_sync(self) -> BatchResult:
        return self._run_sync(self.resume())

    def close_sync(self) -> None:
        self._run_sync(self.close())
        if self._runner is not None:
            self._runner.close()

    async def close(self) -> None:
        """Release threads. The run stays resumable; a given log is closed by its owner."""
        await self._app.close()

    async def __aenter__(self) -> "ToolRuntime":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def __enter__(self) -> "ToolRuntime":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close_sync()

    async def _wait_turn(self) -> None:
        """One batch at a time: wait for the one before."""
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
            self._opening = asyncio.ensure_future(self._app.open(self._situation))
        try:
            opened = await asyncio.shield(self._opening)
        except Exception:
            self._opening = None
            raise
        self._run = run = msgspec.structs.replace(opened, situation=self._situation)  # it may have changed meanwhile
        return run

    def _build_result(self, outcome: BatchOutcome, run: RunContext, wire_format: WireFormat) -> BatchResult:
        observations = [item for item in outcome.outcomes if type(item) is Observation]
        if outcome.error is not None:
            raise outcome.error
        if outcome.ending == "fail":
            raise AgentExecutionError(outcome.message, tuple(observations))
        return BatchResult(
            observations=tuple(observations),
            messages=render_messages(observations, wire_format),
            waiting=outcome.waiting,
            state=run.ledger.state,
            message=outcome.message,
        )

    def _run_sync(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)


def _build_context(interactive: bool, **about: Any) -> CallContext:
    workspace = about.pop("workspace", "")
    return CallContext(
        run_id=about.pop("run_id", "") or new_run_id(),
        mode=_parse_mode(about.pop("mode", PermissionMode.DEFAULT)),
        interactive=interactive,
        workspace=abspath(workspace) if workspace else "",
        **about,
    )


def _parse_mode(word: PermissionMode | str) -> PermissionMode:
    try:
        return PermissionMode(word)
    except ValueError:
        raise ConfigurationError(f"There is no mode {word!r}. The modes are {', '.join(PermissionMode)}.") from None
