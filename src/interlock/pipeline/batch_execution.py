"""The calls of one model turn while they are executed concurrently, each in its own task, which starts at once.

A call is queued, waits for a person or for its turn where it must, and is executed. This module decides what the
outcome of one call means for the others: usually nothing. When the fail-safe policy or the tool says that a failure
ends the run, what has not started is skipped and what runs is cancelled. When a question stays open, conflicting calls
stay behind the waiting one. When the run is cancelled, all calls are, and none of that is an outcome. Every call ends:
by itself, or abandoned after a bounded time.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from functools import partial
from typing import Literal, TypeAlias, TypeVar, cast

import msgspec

from ..domain.budget import BUDGET_EXCEEDED, BUDGET_UNAVAILABLE
from ..domain.call import PermittedCall, Question, ValidCall, WaitingCall
from ..domain.decision import FailurePolicy
from ..domain.errors import (
    LogError,
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
    UnknownToolError,
)
from ..domain.observation import Observation
from ..domain.outcome import Failure, Phase
from ..scheduler import Ticket, folder_queue
from .approval.answer import apply_answer, wait_for_answer
from .approval.trial import try_call
from .call import record_failure, run_call
from .context import RunContext
from .events import void_question
from .schedule import SAFE, resource_claim
from .tasks import start_at_once

_T = TypeVar("_T")

#: A call that is only planned ends as permitted.
Outcome: TypeAlias = Observation | WaitingCall | PermittedCall
#: What ends the run early: a fail-safe policy, or a tool that raises.
Ending: TypeAlias = Literal["", "degrade", "fail", "raise"]

#: Codes of a person's answer, or of its absence.
_REJECTIONS = frozenset(
    {"user_denied", "approval_unavailable", "approval_expired", "consent_refused", "consent_expired"}
)
_DENIALS = _REJECTIONS | frozenset(
    {"policy_denied", "effect_repeated", BUDGET_EXCEEDED, BUDGET_UNAVAILABLE, "guardrail_refused"}
)
_TOOL_FAILURES = frozenset({Phase.EXECUTE, Phase.NORMALIZE, Phase.OBSERVE})
_MAX_WAITED_FOR = 8
#: Failures that are an exception of the developer's code.
_RAISED = frozenset({"tool_failed", "hook_failed", "post_hook_failed"})
#: After so many turns that waited for nothing, other tasks of the event loop have theirs.
_TURNS_AT_ONCE = 64
#: Failures that follow from the end of the run and must not decide it again.
_CONSEQUENCES = frozenset({"skipped", "cancelled_before_start"})


class BatchExecution(msgspec.Struct, eq=False):
    """The concurrent execution of the calls of one model turn. A struct: it is made for every turn, in C."""

    _run: RunContext
    _plan_only: bool = False
    outcomes: dict[str, Outcome] = {}
    waiting: dict[str, WaitingCall] = {}
    failure_count: int = 0
    #: What ends the run, and why: the first in time, then by `conclude` the first in model order.
    ending: Ending = ""
    reason: str = ""
    #: The code of the failure that ends it.
    code: str = ""
    errors: dict[str, ToolError] = {}
    _endings: dict[str, tuple[Ending, str, str]] = {}
    #: Calls that have not ended, with their tickets, and the tasks of those that have begun.
    _open: dict[str, Ticket] = {}
    _tasks: dict[str, asyncio.Task[None]] = {}
    _broken: dict[str, BaseException] = {}
    _cancelling: bool = False
    _all_done: asyncio.Future[None] | None = None
    #: Calls whose question stays open, and the calls behind them.
    _blocking: dict[str, Ticket] = {}
    #: Calls that wait for a person or their turn, those that were woken to check again, those that wait for a turn.
    _idle: dict[str, asyncio.Task[None]] = {}
    _woken: set[str] = set()
    _queued: set[str] = set()
    #: The calls that each call was queued behind.
    _behind: dict[str, tuple[str, ...]] = {}
    #: Calls that a person is asked about here.
    _asked: set[str] = set()

    async def run(self, planned: dict[str, PermittedCall | WaitingCall]) -> None:
        """Run these calls, in model order, until every one has ended or stays waiting. A bug or a failed log in one of
        them ends all.
        """
        run, opened = self._run, self._open
        loop = run.executions.driven_in or asyncio.get_running_loop()  # which is a system call before Python 3.12
        if run.executions.loop is not loop:
            run.executions.use_loop(loop)
        count, recorder, scheduler = len(planned), run.recorder, run.scheduler
        can_conflict = recorder.calls_under_way > 0
        recorder.calls_under_way += count
        try:
            for call_id, call in planned.items():
                tool = call.valid.tool
                claim = SAFE if tool.concurrency == "safe" and not tool.resumes else resource_claim(call.valid)
                opened[call_id] = place = scheduler.enqueue(call_id, claim)
                can_conflict = can_conflict or claim is not SAFE
                if can_conflict and recorder.calls_under_way > 1 and (blockers := place.blockers):
                    self._behind[call_id] = blockers[-_MAX_WAITED_FOR:]
                if self.ending:
                    run.cancellation.calls.setdefault(call_id, self.reason)
            start_at_once(
                [partial(self._run_to_end, call_id, call, opened[call_id]) for call_id, call in planned.items()], loop
            )
            if opened:
                self._all_done = loop.create_future()
                await self._all_done
            else:
                recorder.turns_at_once += 1
                if recorder.turns_at_once % _TURNS_AT_ONCE == 0:
                    await asyncio.sleep(0)
        except BaseException:  # this task was cancelled
            self._cancel()
            raise
        finally:
            recorder.calls_under_way -= count
            del run.cancellation.listeners[self.wake]
            for call_id in self._blocking:
                self._blocking[call_id].release()
        for call_id in self._broken:
            raise self._broken[call_id]

    def conclude(self, order: Iterable[str]) -> None:
        """Skip what waits in a run that ends, and name the first call in model order that ends it: which one failed
        first in time says nothing.
        """
        if self.ending:
            self._skip_waiting()
        for call_id in order:
            if call_id in self._endings:
                self.ending, self.reason, self.code = self._endings[call_id]
                return

    def forget_cancelled(self) -> None:
        """Forget what was cancelled in this batch, and what its handlers raised."""
        for call_id in self.outcomes:
            self._run.executions.errors.pop(call_id, None)
            self._run.cancellation.calls.pop(call_id, None)

    async def _run_to_end(
        self, call_id: str, planned: PermittedCall | WaitingCall, place: Ticket, task: "asyncio.Task[None] | None"
    ) -> None:
        self._tasks[call_id] = task or cast("asyncio.Task[None]", asyncio.current_task())
        try:
            if self._cancelling:
                raise asyncio.CancelledError
            match planned:
                case PermittedCall():
                    outcome = planned if self._plan_only else await self._run_permitted(planned, place)
                case WaitingCall():
                    outcome = await self._run_waiting(planned, place)
            if self._asked:  # a person may take long, and what has happened must not be lost meanwhile
                await self._run.recorder.commit()
        except BaseException as error:
            self._end_call(call_id, place, error)
            if isinstance(error, KeyboardInterrupt):
                raise
        else:
            self._end_call(call_id, place, outcome)

    def _end_call(self, call_id: str, place: Ticket, outcome: Outcome | BaseException) -> None:
        if call_id not in self._open:
            return  # it was abandoned; this is its late end
        del self._open[call_id]
        match outcome:
            case Observation():
                self.outcomes[call_id] = outcome
                if outcome.failure is not None:
                    self.apply_fail_safe(outcome, outcome.failure)
                place.release()
            case WaitingCall():
                self.outcomes[call_id] = self.waiting[call_id] = outcome
                self._block_behind(call_id, place)
            case PermittedCall():
                self.outcomes[call_id] = outcome
                place.release()
            case _:
                place.release()
                self._fail_batch(call_id, outcome)
        if not self._open and self._all_done is not None:
            try:  # noqa: SIM105 - without the calls that `suppress` makes
                self._all_done.set_result(None)
            except asyncio.InvalidStateError:
                pass  # the waiter was cancelled at this moment

    def _fail_batch(self, call_id: str, error: BaseException) -> None:
        if not self._cancelling:
            self._broken[call_id] = error
            self._cancel()

    def _cancel(self) -> None:
        """Cancel running calls when the run ends; their ends are recorded in the background.

        A call that has not begun checks for itself.
        """
        self._cancelling = True
        for call_id in self._open:
            self._run.executions.end(call_id, "run")
        tasks = [self._tasks[call_id] for call_id in self._open if call_id in self._tasks]
        for task in tasks:
            task.cancel()
        if tasks:
            self._run.executions.run_in_background(self._record_ends(tasks))

    async def _record_ends(self, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.wait(tasks, timeout=2 * self._run.parts.limits.drain_seconds)
        with suppress(LogError):
            await self._run.recorder.commit()

    async def _run_waiting(self, waiting: WaitingCall, place: Ticket) -> Outcome:
        if waiting.is_to_try and waiting.question is not None and not self._plan_only:
            return await self._try_first(waiting, waiting.question, place)
        valid, token = waiting.valid, self._run.cancellation
        settled = token.failure_of(valid.call_id)
        if settled is None:
            work = wait_for_answer(waiting, waiting.question, self._run) if waiting.question else _keep_waiting(waiting)
            self._asked.add(valid.call_id)
            try:
                settled = await self._wait(valid.call_id, work)
            finally:
                self._asked.discard(valid.call_id)
            if settled is None:
                settled = token.failure_of(valid.call_id) or await self._answered_elsewhere(waiting)
        match settled:
            case PermittedCall():
                return settled if self._plan_only else await self._run_permitted(settled, place)
            case Failure():
                void_question(valid.call_id, settled.message, self._run, fails=self.ending == "fail")
                return record_failure(valid.call_id, valid.tool.name, settled, self._run)
            case WaitingCall(is_to_try=True) if not self._plan_only:
                return await self._run_waiting(settled, place)
            case WaitingCall():
                return settled

    async def _try_first(self, waiting: WaitingCall, question: Question, place: Ticket) -> Outcome:
        """Try a call when it has its turn, then run it, or ask about its effect."""
        valid, run = waiting.valid, self._run
        stopped = await self._wait_for_turn(waiting, place)
        if stopped is not None:
            return stopped
        folder = "" if valid.tool.toolbox is None else valid.tool.toolbox.root
        ticket = folder_queue(folder).enqueue(valid.call_id, resource_claim(valid)) if folder else None
        tried: Observation | PermittedCall | WaitingCall | Failure | None = None
        try:
            if ticket is not None:
                tried = await self._wait_for_folder(valid, ticket)
            while tried is None:
                tried = await self._wait(valid.call_id, try_call(waiting, question, run))
                if tried is None:  # woken: it is cancelled, or it is tried again
                    tried = run.cancellation.failure_of(valid.call_id)
        finally:
            if ticket is not None:
                ticket.release()
        match tried:
            case PermittedCall():
                return await self._run_permitted(tried, place)
            case WaitingCall():
                return await self._run_waiting(tried, place)
            case Failure():
                return record_failure(valid.call_id, valid.tool.name, tried, run)
            case Observation():
                return tried

    async def _answered_elsewhere(self, waiting: WaitingCall) -> PermittedCall | WaitingCall | Failure:
        """Return the call after an answer from another process, while a person was asked here."""
        ledger = self._run.ledger
        action = ledger.actions.get(ledger.calls[waiting.valid.call_id].action_id)
        if action is None or action.answer is None:
            return waiting
        return await apply_answer(waiting, action.question, action.answer, action.answered_seq, self._run)

    async def _run_permitted(self, permitted: PermittedCall, place: Ticket) -> Outcome:
        valid, run = permitted.valid, self._run
        turn = place.acquire()
        if turn is not None or valid.call_id in self._behind:
            waited_for = self._behind.get(valid.call_id) or place.blockers[-_MAX_WAITED_FOR:] or ("cap",)
            permitted = msgspec.structs.replace(permitted, waited_for=waited_for)
            stopped = await self._wait_for_turn(permitted, place)
            if stopped is not None:
                return stopped

        abandoned = partial(self._end_call, valid.call_id, place)
        if valid.tool.toolbox is None:
            outcome = await run_call(permitted, run, self._tasks[valid.call_id], abandoned)
        else:
            outcome = await self._run_in_folder(permitted, abandoned)
        match outcome:
            case Observation():
                return outcome
            case PermittedCall():
                return await self._run_permitted(outcome, place)
            case WaitingCall():
                return await self._run_waiting(outcome, place)

    async def _run_in_folder(
        self, permitted: PermittedCall, abandoned: Callable[[Observation | BaseException], None]
    ) -> Observation | PermittedCall | WaitingCall:
        """Run a call that has its turn, when no call of another run in its folder conflicts with it."""
        valid = permitted.valid
        call_id = valid.call_id
        ticket = folder_queue(valid.tool.toolbox.root).enqueue(call_id, resource_claim(valid))

        def leave(outcome: Observation | BaseException) -> None:
            ticket.release()
            abandoned(outcome)

        try:
            if (turn := ticket.acquire()) is not None and not turn.done():
                permitted = msgspec.structs.replace(permitted, waited_for=(*permitted.waited_for, "folder"))
                stopped = await self._wait_for_folder(valid, ticket)
                if stopped is not None:
                    return stopped
            return await run_call(permitted, self._run, self._tasks[call_id], leave)
        finally:
            ticket.release()

    async def _wait_for_turn(self, planned: PermittedCall | WaitingCall, place: Ticket) -> Outcome | None:
        """Wait until the call has its turn. Return what becomes of it otherwise: cancelled, or behind a waiting one."""
        valid, run = planned.valid, self._run
        while (turn := place.acquire()) is not None and not turn.done():
            blocker = self._blocker_of(place)
            if blocker:
                return WaitingCall(valid, planned.decision, None, blocker)
            self._queued.add(valid.call_id)
            await self._wait(valid.call_id, turn)
            self._queued.discard(valid.call_id)
            stopped = run.cancellation.failure_of(valid.call_id)
            if stopped is not None:
                return record_failure(valid.call_id, valid.tool.name, stopped, run)
        return None

    async def _wait_for_folder(self, valid: ValidCall, ticket: Ticket) -> Observation | None:
        """Wait until no call of another run in the folder conflicts. Return the observation of one cancelled before."""
        while (turn := ticket.acquire()) is not None and not turn.done():
            await self._wait(valid.call_id, turn)
            stopped = self._run.cancellation.failure_of(valid.call_id)
            if stopped is not None:
                return record_failure(valid.call_id, valid.tool.name, stopped, self._run)
        return None

    async def _wait(self, call_id: str, work: Awaitable[_T]) -> _T | None:
        """Wait for a person or a turn. None when the call was woken to check whether it may continue."""
        self._idle[call_id] = task = self._tasks[call_id]
        try:
            return await work
        except asyncio.CancelledError:
            if self._cancelling or call_id not in self._woken:
                raise
            task.uncancel()
            return None
        finally:
            del self._idle[call_id]
            self._woken.discard(call_id)

    def wake(self, call_id: str) -> None:
        if call_id in self._idle and call_id not in self._woken:
            self._woken.add(call_id)
            self._idle[call_id].cancel()

    def _blocker_of(self, place: Ticket) -> str:
        return next((call_id for call_id in place.blockers if call_id in self._blocking), "")

    def _block_behind(self, call_id: str, held: Ticket) -> None:
        """Keep the call in the queue; calls behind it need not wait in this process."""
        self._blocking[call_id] = held
        for queued in list(self._queued):
            if call_id in self._open[queued].blockers:
                self.wake(queued)

    def _skip_waiting(self) -> None:
        """Skip waiting calls: the run ended, so their questions need no answer."""
        for call_id in list(self.waiting):
            valid = self.waiting.pop(call_id).valid
            stopped = self._run.cancellation.failure_of(call_id) or Failure.from_code("skipped", self.reason)
            void_question(call_id, stopped.message, self._run, fails=self.ending == "fail")
            self.outcomes[call_id] = record_failure(call_id, valid.tool.name, stopped, self._run)

    def apply_fail_safe(self, observation: Observation, failure: Failure) -> None:
        """End the run if the fail-safe policy says so for this failure."""
        self.failure_count += 1
        follows = failure.code in _CONSEQUENCES or (self.ending and failure.code == "cancelled")
        if follows or self._run.ledger.is_over:
            return
        error = self._error_to_raise(observation, failure)
        if error is not None:
            self.errors[observation.call_id] = error
            self._end(observation.call_id, "raise", f"{observation.tool} failed, and it raises.", failure.code)
            return
        policy = self._policy(failure)
        if policy != "continue":
            reason = f"The run ends because {observation.tool} did not succeed: {failure.message}"
            self._end(observation.call_id, policy, reason, failure.code)

    def _policy(self, failure: Failure) -> FailurePolicy:
        fail_safe = self._run.parts.fail_safe
        if failure.code in _REJECTIONS:
            return fail_safe.after_rejection
        if failure.code in _DENIALS:
            return fail_safe.approval_denial_policy
        if failure.phase in _TOOL_FAILURES:
            return fail_safe.tool_failure_policy
        return "continue"

    def _error_to_raise(self, observation: Observation, failure: Failure) -> ToolError | None:
        error = self._error(observation, failure)
        if error is not None:
            error.__cause__ = self._run.executions.errors.pop(observation.call_id, None)
        return error

    def _error(self, observation: Observation, failure: Failure) -> ToolError | None:
        if failure.phase is Phase.LOOKUP:
            return UnknownToolError(observation) if self._run.parts.missing_tool == "raise" else None
        tool = self._run.parts.registry.find(observation.tool)
        if tool is None or failure.code in _DENIALS:
            return None
        if failure.code == "timed_out":
            raises = tool.raise_on_error or tool.timeout_behavior == "raise_exception"
            return ToolTimeoutError(observation) if raises else None
        if not tool.raise_on_error and not (tool.propagate_errors and failure.code in _RAISED):
            return None
        misfit = failure.phase in (Phase.ACCEPT, Phase.VALIDATE)
        return ToolValidationError(observation) if misfit else ToolExecutionError(observation)

    def _end(self, call_id: str, ending: Ending, reason: str, code: str) -> None:
        self._endings[call_id] = ending, reason, code
        if not self.ending:
            self.ending, self.reason, self.code = ending, reason, code
        self._run.cancellation.skip(self.reason, list(self._open), end_running=ending != "degrade")


async def _keep_waiting(waiting: WaitingCall) -> WaitingCall:
    """Return the waiting call unchanged: there is nothing to ask, it waits behind another one."""
    return waiting
