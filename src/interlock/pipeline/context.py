"""One run that is open in this process: its parts, its recorder, its executions, and its cancel token."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from contextlib import suppress
from time import monotonic
from weakref import ref

import msgspec

from ..domain.call import ToolIntent
from ..domain.errors import LogCorruptError
from ..domain.event import CallObserved, decode_event
from ..domain.observation import Observation
from ..domain.outcome import Failure
from ..domain.state.ledger import Ledger
from ..domain.tool import CallContext, ToolContext
from ..models.interface import ModelEvent
from ..rendering.text import end_sentence
from ..scheduler import Scheduler
from ..storage.event_log import EventLog
from .artifacts import LedgerArtifacts
from .execute import Execution, Stop
from .parts import Parts, RunOutput, ToolProgress
from .record import Recorder

#: An execution that lasts longer may be noticed from outside: other processes may answer or cancel meanwhile.
_LASTING_SECONDS = 2.0


def open_run(parts: Parts, log: EventLog, ledger: Ledger, head: bytes, situation: CallContext) -> "RunContext":
    """Open a run as the log has it: its ledger, and the hash that its next event is chained to."""
    redact = parts.redactor.redact_declared if parts.redactor.declares else None
    executions = Executions(lost=frozenset(ledger.checks.running))
    return RunContext(
        parts=parts,
        log=log,
        recorder=Recorder(log, ledger, head, parts.clock.now, redact),
        ledger=ledger,
        situation=situation,
        artifacts=LedgerArtifacts(parts.artifacts, parts.redactor, ledger),
        scheduler=parts.new_scheduler(),
        executions=executions,
        cancellation=CancelToken(executions),
    )


class RunContext(msgspec.Struct, frozen=True, kw_only=True):
    """One run that is open in this process. What changes lives in the object that owns it: the ledger and the recorder,
    the executions, the cancel token."""

    parts: Parts
    log: EventLog
    recorder: Recorder
    ledger: Ledger
    situation: CallContext
    artifacts: LedgerArtifacts
    #: The queue of its calls.
    scheduler: Scheduler
    executions: "Executions"
    cancellation: "CancelToken"
    #: Acquires the lease of the run, where it is not held for longer than a batch.
    hold: Callable[[], Awaitable[None]] | None = None

    def progress(self, call_id: str, message: str) -> None:
        """Report what a handler says while it runs. A listener that fails does not fail the call."""
        parts = self.parts
        with suppress(Exception):
            message = parts.redactor.redact(message)
            self.publish(ToolProgress(call_id, message))
            parts.on_progress(call_id, message)

    def publish(self, said: ModelEvent | ToolProgress) -> None:
        """Pass on what the run says while it runs. A listener that fails does not fail the run."""
        parts = self.parts
        if parts.on_output is not None:
            with suppress(Exception):
                parts.on_output(RunOutput(self.situation.run_id, self.ledger.next_seq - 1, said, parts.redactor))

    def context(self, intent: ToolIntent) -> ToolContext:
        """Return the context of a call, before it has an invocation."""
        context = ToolContext(self.situation, intent.call_id, intent.tool_name, self.progress, self.artifacts)
        context.state = self.ledger.tool_state
        return context

    async def settle(self) -> None:
        """Wait for work in the background, for a bounded time."""
        await self.executions.settle(2 * self.parts.limits.drain_seconds)

    async def read_observation(self, observed_seq: int) -> Observation:
        """Return an observation that is in the log."""
        await self.recorder.commit()
        entries = await self.log.read(self.ledger.run_id, observed_seq - 1, 1)
        fact = decode_event(entries[0]).fact if entries else None
        if not isinstance(fact, CallObserved):
            raise LogCorruptError(f"event {observed_seq} of {self.ledger.run_id} is not an observation")
        return fact.observation


class CancelToken:
    """The calls of a run that may not start or continue, and why. Waiting calls are woken to check it."""

    def __init__(self, executions: "Executions") -> None:
        #: Why no call of the run may start any more; empty while calls may.
        self.reason = ""
        #: Calls that may not start: the reason why they are skipped, or nothing for one that was cancelled.
        self.calls: dict[str, str] = {}
        #: Called with the id of a call that should check this token: one for each batch.
        self.listeners: dict[Callable[[str], None], None] = {}
        self._executions = executions

    def wake(self, call_id: str) -> None:
        """Let a waiting call check again whether it may continue."""
        for listener in tuple(self.listeners):
            listener(call_id)

    def cancel_call(self, call_id: str) -> None:
        """Cancel one call: one that runs ends, one that waits does not start."""
        self.calls[call_id] = ""
        self._executions.end(call_id, "call")
        self.wake(call_id)

    def skip(self, reason: str, calls: Iterable[str], *, end_running: bool) -> None:
        """Let none of these calls start, wake those that wait, and end those that run unless they may finish."""
        for call_id in calls:
            self.calls.setdefault(call_id, reason)
            if end_running:
                self._executions.finish_soon(call_id)
            self.wake(call_id)

    def stop(self, reason: str, waiting: Iterable[str]) -> None:
        """Let no further call of the run start, wake the waiting ones, and end those that run."""
        self.reason = self.reason or reason
        self._executions.end_all("call")
        for call_id in waiting:
            self.wake(call_id)

    def failure_of(self, call_id: str) -> Failure | None:
        """Return why this call may not start, or not continue before its start; None when it may."""
        if not self.reason and call_id not in self.calls:
            return None
        if reason := self.reason or self.calls[call_id]:
            return Failure.from_code("skipped", f"{end_sentence(reason)} This call was skipped; nothing was executed.")
        return Failure.from_code("cancelled_before_start", "The call was cancelled. Nothing was executed.")


class Executions:
    """The running executions by call id, the exceptions of their handlers, and one timer for the next deadline.

    Most executions end long before their deadline, so the timer is not touched for each: it is set when there is none
    or when a deadline comes before it, and checks again when it fires.
    """

    def __init__(self, lost: frozenset[str] = frozenset()) -> None:
        #: Calls that an earlier process started, and that had no recorded end when this one opened the run.
        self.lost = lost
        #: Those that run now, by call id.
        self.running: dict[str, Execution] = {}
        #: The event loop that they run in.
        self.loop: asyncio.AbstractEventLoop | None = None
        #: The one that an agent drives the run in now; None: what executes calls has to find out.
        self.driven_in: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")
        #: What handlers raised, by call id, until the batch is over.
        self.errors: dict[str, BaseException] = {}
        #: Work that continues after a cancellation, which must not be delayed by it.
        self.background: set[asyncio.Task[None]] = set()
        #: Has this object while there is such work.
        self.busy: set[Executions] | None = None
        #: Called when an execution lasts longer than a moment.
        self.on_lasting: Callable[[], None] | None = None
        #: Digests of the policy before and after a rule was saved with an answer.
        self.kept_rules: set[tuple[str, str]] = set()
        #: What the sources of tools said when their facts were last recorded.
        self.recorded_sources: tuple[int, ...] = ()
        #: Time spent waiting for people in this process, in nanoseconds.
        self.waited_ns = 0

    def run_in_background(self, work: Coroutine[None, None, None]) -> None:
        """Finish something after a cancellation."""
        task = asyncio.create_task(work)
        self.background.add(task)
        if self.busy is not None:
            self.busy.add(self)
        task.add_done_callback(self._forget)

    async def settle(self, seconds: float) -> None:
        """Wait for work in the background, for a bounded time."""
        if self.background:
            await asyncio.wait(self.background, timeout=seconds)

    def _forget(self, task: "asyncio.Task[None]") -> None:
        self.background.discard(task)
        if self.busy is not None and not self.background:
            self.busy.discard(self)
        if not task.cancelled():
            task.exception()

    def add(self, execution: Execution) -> None:
        """Register a running call and schedule its deadline."""
        invocation = execution.invocation
        self.running[invocation.valid.call_id] = execution
        now = monotonic()
        execution.began_at = now
        execution.deadline = due = now + invocation.timeout_seconds
        if self.on_lasting is not None and now + _LASTING_SECONDS < due:
            due = now + _LASTING_SECONDS
        if due < self._due:
            self._set_timer(due, now)

    def use_loop(self, loop: asyncio.AbstractEventLoop) -> None:
        """Run in this event loop from now on. A timer of another one says nothing here."""
        if self._timer is not None:
            self._timer.cancel()
        self.loop, self._timer, self._due = loop, None, float("inf")

    def end(self, call_id: str, stop: Stop) -> None:
        """Stop a running call."""
        execution = self.running.get(call_id)
        if execution is not None:
            self._end([execution], stop)

    def finish_soon(self, call_id: str) -> None:
        """Let a running call end by itself for a bounded time where it cannot be stopped; else end it."""
        execution = self.running.get(call_id)
        if execution is not None:
            now = monotonic()
            execution.finish_soon(now)
            if execution.deadline < self._due:
                self._set_timer(execution.deadline, now)

    def end_all(self, stop: Stop) -> None:
        """Stop every running call."""
        self._end(list(self.running.values()), stop)

    def _end(self, executions: list[Execution], stop: Stop) -> None:
        now = monotonic()
        for execution in executions:
            execution.end(stop, now)
            if execution.deadline < self._due:
                self._set_timer(execution.deadline, now)

    def _set_timer(self, when: float, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        loop = self.loop or asyncio.get_running_loop()
        self.loop, self._due = loop, when
        self._timer = loop.call_later(when - now, _look_at_deadlines, ref(self))

    def look(self) -> None:
        """End what is overdue, and set the timer for the next deadline."""
        self._timer, self._due = None, float("inf")
        now = monotonic()
        if self.on_lasting is not None and any(one.began_at <= now - _LASTING_SECONDS for one in self.running.values()):
            self.on_lasting()
        for execution in list(self.running.values()):
            if execution.deadline <= now:
                execution.overdue(now)
        due = min((execution.deadline for execution in self.running.values()), default=float("inf"))
        if due < float("inf"):
            self._set_timer(due, now)


def _look_at_deadlines(find: Callable[[], Executions | None]) -> None:
    """Look, unless the run is gone: a timer does not keep it in memory until its last call would be overdue."""
    if (executions := find()) is not None:
        executions.look()
