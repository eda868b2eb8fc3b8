"""One run as it is alive in this process: its parts, its recorder, what is under way and until when."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress

from ..domain.call import ToolIntent
from ..domain.chain import decode_event
from ..domain.errors import LogCorruptError
from ..domain.event import CallObserved
from ..domain.observation import Observation
from ..domain.outcome import Failure
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import RUN_TRANSITIONS
from ..domain.tool import Situation, ToolContext
from ..rendering.sentences import sentence
from ..storage.event_log import EventLog
from .artifacts import LedgerArtifacts
from .execute import Execution, Stop
from .parts import Parts
from .record import Recorder


def open_run(parts: Parts, log: EventLog, ledger: Ledger, head: bytes, situation: Situation) -> "RunContext":
    """A run as the log has it: its ledger, and the hash that its next event is chained to."""
    redact = parts.redactor.redact_declared if parts.redactor.declares else None
    return RunContext(parts, log, Recorder(log, ledger, head, parts.clock.now, redact), situation)


class RunContext:
    def __init__(self, parts: Parts, log: EventLog, recorder: Recorder, situation: Situation) -> None:
        self.parts = parts
        self.log = log
        self.recorder = recorder
        self.ledger = recorder.ledger
        self.situation = situation
        self.artifacts = LedgerArtifacts(parts.artifacts, parts.redactor, recorder.ledger)
        self.executions = Executions()
        #: The `seq` at which a snapshot is worth its cost.
        self.next_snapshot = 0
        #: Calls that are not to start any more, and why nothing is.
        self.cancelled: set[str] = set()
        self.stopping = ""
        #: Told that a waiting call should look again whether it may go on.
        self.wake: Callable[[str], None] = _ignore
        #: What handlers raised, for whoever is to raise it again.
        self.errors: dict[str, BaseException] = {}
        self.background: set[asyncio.Task[None]] = set()
        #: How long people were waited for in this process, in nanoseconds.
        self.waited_ns = 0
        #: Whoever moves the run on commits before it shows anything, so a batch need not.
        self.commits_later = False

    @property
    def ended(self) -> bool:
        return not RUN_TRANSITIONS[self.ledger.state]

    def cancel_call(self, call_id: str) -> None:
        self.cancelled.add(call_id)
        self.executions.end(call_id, "call")
        self.wake(call_id)

    def forget_calls(self) -> None:
        """The batch is over: what was kept for its calls is not needed any more."""
        self.errors.clear()
        self.cancelled.clear()

    def stopped(self, call_id: str) -> Failure | None:
        """Why this call may not start, or not go on before it started."""
        if self.stopping:
            return Failure.of("skipped", f"{sentence(self.stopping)} This call was skipped; nothing was executed.")
        if call_id in self.cancelled:
            return Failure.of("cancelled_before_start", "The call was cancelled. Nothing was executed.")
        return None

    def progress(self, call_id: str, message: str) -> None:
        """What a handler says while it runs. Whoever listens cannot fail the call."""
        with suppress(Exception):
            self.parts.on_progress(call_id, self.parts.redactor.redact(message))

    def in_background(self, work: Coroutine[None, None, None]) -> None:
        """Finish something after a cancellation, which must not be delayed by it."""
        task = asyncio.create_task(work)
        self.background.add(task)
        task.add_done_callback(self._noticed)

    def _noticed(self, task: "asyncio.Task[None]") -> None:
        self.background.discard(task)
        if not task.cancelled():
            task.exception()

    async def settled(self) -> None:
        """Wait for what is in the background, for a bounded time."""
        if self.background:
            await asyncio.wait(self.background, timeout=2 * self.parts.limits.drain_seconds)

    def context(self, intent: ToolIntent) -> ToolContext:
        context = ToolContext(self.situation, intent.call_id, intent.tool_name, self.progress, self.artifacts)
        context.state = self.ledger.tool_state
        return context

    async def recorded(self, observed_seq: int) -> Observation:
        """An observation that is in the log."""
        await self.recorder.commit()
        entries = await self.log.read(self.ledger.run_id, observed_seq - 1, 1)
        fact = decode_event(entries[0]).fact if entries else None
        if not isinstance(fact, CallObserved):
            raise LogCorruptError(f"event {observed_seq} of {self.ledger.run_id} is not an observation")
        return fact.observation


def _ignore(call_id: str) -> None:
    """No batch is under way."""


class Executions:
    """What runs now, by call id, and one timer for all of it, set to the next deadline.

    Most executions end long before their deadline, so the timer is not touched for each: it is set when there is none
    or when a deadline comes before it, and looks again when it fires.
    """

    def __init__(self) -> None:
        self._running: dict[str, Execution] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = float("inf")

    def add(self, execution: Execution) -> None:
        invocation = execution.invocation
        self._running[invocation.valid.call_id] = execution
        loop = asyncio.get_running_loop()
        execution.deadline = deadline = loop.time() + invocation.timeout_seconds
        if deadline < self._due or loop is not self._loop:
            self._set_timer(loop, deadline)

    def remove(self, execution: Execution) -> None:
        call_id = execution.invocation.valid.call_id
        if call_id in self._running:
            del self._running[call_id]

    def end(self, call_id: str, stop: Stop) -> None:
        execution = self._running.get(call_id)
        if execution is not None:
            self._end([execution], stop)

    def running(self) -> list[str]:
        """The calls that run now."""
        return list(self._running)

    def end_all(self, stop: Stop) -> None:
        self._end(list(self._running.values()), stop)

    def _end(self, executions: list[Execution], stop: Stop) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for execution in executions:
            execution.end(stop, now)
            if execution.deadline < self._due:
                self._set_timer(loop, execution.deadline)

    def _set_timer(self, loop: asyncio.AbstractEventLoop, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._loop, self._due = loop, when
        self._timer = loop.call_at(when, self._look, loop)

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer, self._due = None, float("inf")
        now = loop.time()
        for execution in list(self._running.values()):
            if execution.deadline <= now:
                execution.overdue(now)
        due = min((execution.deadline for execution in self._running.values()), default=float("inf"))
        if due < float("inf"):
            self._set_timer(loop, due)
