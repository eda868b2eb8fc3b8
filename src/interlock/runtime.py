"""`ToolRuntime`: the door for people who have a loop of their own.

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

from .app import App, Options
from .audit.export import to_ndjson
from .audit.verify import Audit, verify
from .domain.call import Answer, Decided, Question, Waiting
from .domain.errors import AgentExecutionError, ConfigurationError
from .domain.event import CallObserved, Event
from .domain.ids import new_run_id
from .domain.observation import Observation, ToolExecutionRecord, execution_record
from .domain.state.lifecycle import RUN_STATUS, RunState
from .domain.tool import Mode, Situation
from .history.actions import Action, actions
from .history.run_handle_view import AgentRunEvent, run_handle_events
from .pipeline.batch import BatchOutcome
from .pipeline.context import RunContext
from .registry.memory import ToolRegistry
from .replay.trace import Replay
from .wire import Shape, messages, read_calls

_T = TypeVar("_T")


class BatchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What became of one model turn."""

    #: In model order, one per call that has an outcome. The same call twice has the same observation twice.
    observations: tuple[Observation, ...]
    #: Ready to send to the model, in the shape that the calls came in, one per call id.
    messages: list[dict[str, Any]]
    #: The calls that wait for a person, or behind one that does.
    waiting: tuple[Waiting, ...]
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
        """What people are asked right now."""
        return tuple(waits.question for waits in self.waiting if waits.question is not None)

    @property
    def tool_executions(self) -> list[ToolExecutionRecord]:
        return [execution_record(observation) for observation in self.observations]

    def in_shape(self, shape: Shape) -> list[dict[str, Any]]:
        """The messages for another provider: `openai`, `openai_responses` or `anthropic`."""
        return messages(self.observations, shape)


class RunOptions(Options, total=False):
    """What may be said about the run itself, beside the parts of `app.Options`."""

    #: Continues a run that is in the log.
    run_id: str
    agent: str
    mode: Mode | str
    task_phase: str
    #: The folder that the run works in; relative paths start there.
    workspace: str | PathLike[str]
    #: Who the run acts for.
    requester: str


_ABOUT = RunOptions.__annotations__.keys() - Options.__annotations__.keys()


class ToolRuntime:
    def __init__(self, **options: Unpack[RunOptions]) -> None:
        """Every option has a default: a new run, in memory, with nobody to ask."""
        given = cast(dict[str, Any], options)
        self._app = App(**cast(Options, {name: given[name] for name in given if name not in _ABOUT}))
        about = {name: given[name] for name in _ABOUT if name in given}
        for box in self._app.toolboxes:
            if realpath(about.setdefault("workspace", box.root)) != box.root:
                raise ConfigurationError(f"The tools work in {box.root!r}, so that is the workspace.")
        about["requester"] = self._app.parts.redactor.redact(about.get("requester", ""))
        self._situation = _situation(self._app.parts.interaction.interactive, **about)
        self._run: RunContext | None = None
        self._shape: Shape = "openai"
        self._opening: asyncio.Future[RunContext] | None = None
        self._busy = False
        self._queue: deque[asyncio.Future[None]] = deque()
        self._runner: asyncio.Runner | None = None

    @property
    def run_id(self) -> str:
        return self._situation.run_id

    @property
    def registry(self) -> ToolRegistry:
        """The tools: `registry.to_openai_function_tools()` and `registry.to_anthropic_tools()` are what a model is
        shown; tools may come and go while the run lives."""
        return self._app.registry

    @property
    def situation(self) -> Situation:
        return self._situation

    def enter(self, *, mode: Mode | str | None = None, task_phase: str | None = None) -> None:
        """Go on in another permission mode or phase of the task, from the next batch on."""
        self._situation = msgspec.structs.replace(
            self._situation,
            mode=self._situation.mode if mode is None else _mode(mode),
            task_phase=self._situation.task_phase if task_phase is None else task_phase,
        )
        if self._run is not None:
            self._run = msgspec.structs.replace(self._run, situation=self._situation)

    async def execute(self, calls: Iterable[Any]) -> BatchResult:
        """Take all tool calls of one model response through the pipeline.

        Calls are OpenAI or Anthropic tool calls, as dictionaries or SDK objects, or `ToolIntent`s. Whatever happens to
        a call is an observation. Raises only where that was asked for (`raise_on_error`, `missing_tool="raise"`, a
        fail-safe policy `fail`), when the log fails (`LogError`), or when this task is cancelled.
        """
        intents, shape = read_calls(calls)
        if self._busy:
            await self._turn()
        self._busy = True
        try:
            run = self._run or await self._open()
            self._shape = shape
            return self._result(await self._app.execute(run, intents), run, shape)
        finally:
            self._busy = False
            if self._queue:
                self._next()

    async def resume(self) -> BatchResult:
        """Go on with the calls that have no outcome yet: after an answer, or after a crash."""
        if self._busy:
            await self._turn()
        self._busy = True
        try:
            run = self._run or await self._open()
            return self._result(await self._app.resume(run), run, self._shape)
        finally:
            self._busy = False
            if self._queue:
                self._next()

    async def decide(self, action_id: str, **answer: Unpack[Decided]) -> None:
        """Answer an open question, then `resume`.

        The first answer stands, whichever process it comes from: `DecisionConflictError` names it. With `payload_hash`
        the answer is to exactly that payload. `AnswerRefusedError` when this cannot be the answer.
        """
        given = cast(dict[str, Any], answer)
        payload_hash = given.pop("payload_hash", "")
        run = self._run or await self._open()
        while not await self._app.decide(run, action_id, Answer(**given), payload_hash):
            self._run = run = await self._app.open(self._situation)

    async def actions(self) -> list[Action]:
        """Everything that people were asked in this run, with what became of it, oldest first."""
        return actions((self._run or await self._open()).ledger)

    async def complete(self, message: str = "") -> None:
        """The run is over, successfully."""
        await self._app.complete(self._run or await self._open(), message)

    async def cancel(self, message: str = "") -> None:
        """End the run: what runs is cancelled."""
        await self._app.cancel(self._run or await self._open(), message)

    def cancel_call(self, call_id: str) -> None:
        """Cancel one call. Its siblings go on; its observation says `cancelled`."""
        if self._run is not None:
            self._run.cancellation.cancel_call(call_id)

    async def questions(self) -> list[Question]:
        """What people are asked and have not answered yet, oldest first."""
        run = self._run or await self._open()
        return run.ledger.open_questions()

    async def state(self) -> RunState:
        return (self._run or await self._open()).ledger.state

    async def events(self, after_seq: int = -1) -> AsyncIterator[AgentRunEvent]:
        """The run's events as they become durable, from `after_seq` on, until the run ends."""
        async for event in self.log_events(after_seq):
            for shown in run_handle_events(event):
                yield shown

    async def log_events(self, after_seq: int = -1) -> AsyncIterator[Event]:
        """The same from the log, with every fact."""
        run = self._run or await self._open()
        while True:
            for event in await self._app.events(run, after_seq):
                yield event
                after_seq = event.seq
            if run.ledger.is_over and after_seq == run.ledger.next_seq - 1:
                return

    async def tool_executions(self) -> list[ToolExecutionRecord]:
        """A record for every call of the run, in the order they ended."""
        replay = await self.replay()
        facts = (step.event.fact for step in replay)
        return [execution_record(fact.observation) for fact in facts if isinstance(fact, CallObserved)]

    async def replay(self) -> Replay:
        """Step through the run as the log has it. Nothing is executed: it has nothing to execute with."""
        return Replay(await self._app.entries(self._run or await self._open()))

    async def verify(self) -> Audit:
        """Is the log what was written? Names the first event that is not."""
        return verify(await self._app.entries(self._run or await self._open()), self.run_id)

    async def export(self) -> bytes:
        """The whole run as NDJSON, one event per line, verifiable by itself."""
        return b"".join(to_ndjson(await self._app.entries(self._run or await self._open())))

    def metrics(self) -> list[Any]:
        """Latency histograms of this runtime, readable without any SDK."""
        return self._app.telemetry.readings()

    def execute_sync(self, calls: Iterable[Any]) -> BatchResult:
        """`execute` for code without an event loop."""
        return self._sync(self.execute(calls))

    def decide_sync(self, action_id: str, **answer: Unpack[Decided]) -> None:
        self._sync(self.decide(action_id, **answer))

    def resume_sync(self) -> BatchResult:
        return self._sync(self.resume())

    def close_sync(self) -> None:
        self._sync(self.close())
        if self._runner is not None:
            self._runner.close()

    async def close(self) -> None:
        """Release threads. The run stays as it is in the log; a log that was given is its owner's to close."""
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

    async def _turn(self) -> None:
        """One batch at a time: wait for the one before."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._next()
            raise

    def _next(self) -> None:
        self._busy = False
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                self._busy = True
                turn.set_result(None)
                return

    async def _open(self) -> RunContext:
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

    def _result(self, outcome: BatchOutcome, run: RunContext, shape: Shape) -> BatchResult:
        observations = [item for item in outcome.outcomes if type(item) is Observation]
        if outcome.error is not None:
            raise outcome.error
        if outcome.ending == "fail":
            raise AgentExecutionError(outcome.message, tuple(observations))
        return BatchResult(
            observations=tuple(observations),
            messages=messages(observations, shape),
            waiting=outcome.waiting,
            state=run.ledger.state,
            message=outcome.message,
        )

    def _sync(self, work: Coroutine[Any, Any, _T]) -> _T:
        if self._runner is None:
            self._runner = asyncio.Runner()
        return self._runner.run(work)


def _situation(interactive: bool, **about: Any) -> Situation:
    workspace = about.pop("workspace", "")
    return Situation(
        run_id=about.pop("run_id", "") or new_run_id(),
        mode=_mode(about.pop("mode", Mode.DEFAULT)),
        interactive=interactive,
        workspace=abspath(workspace) if workspace else "",
        **about,
    )


def _mode(word: Mode | str) -> Mode:
    try:
        return Mode(word)
    except ValueError:
        raise ConfigurationError(f"There is no mode {word!r}. The modes are {', '.join(Mode)}.") from None
