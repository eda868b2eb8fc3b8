"""The calls of one model turn while they are carried out side by side, each in a task of its own.

A call takes its place in line, waits for a person or for its turn where it must, and is carried out. Here is decided
what one call's outcome means for the others: usually nothing. When the fail-safe policy or the tool says that a
failure ends the run, what has not started is skipped and what runs is cancelled. When a question stays open, the calls
that conflict with the waiting one stay behind it. When the run around them is cancelled, all are, and none of that is
an outcome. Every call ends: by itself, or abandoned after a bounded time.
"""

import asyncio
from typing import Literal, TypeAlias

from ..domain.call import PermittedCall, ValidCall, Waiting
from ..domain.errors import (
    ToolError,
    ToolExecutionError,
    ToolTimeoutError,
    ToolValidationError,
    UnknownToolError,
)
from ..domain.fail_safe import FailurePolicy
from ..domain.failure import Failure
from ..domain.observation import Observation
from ..domain.phase import Phase
from ..scheduler.interface import Place
from .live import Run
from .run import carry_out, conclude, settle

Outcome: TypeAlias = Observation | Waiting
#: What ends the run early: a fail-safe policy, or a tool that raises.
Ending: TypeAlias = Literal["", "degrade", "fail", "raise"]

_DENIALS = frozenset({"policy_denied", "user_denied", "approval_expired", "guardrail_refused"})
_TOOL_FAILURES = frozenset({Phase.EXECUTE, Phase.NORMALIZE, Phase.OBSERVE})
#: Failures that follow from the end of the run and must not decide it again.
_CONSEQUENCES = frozenset({"skipped", "cancelled_before_start"})


class Siblings:
    def __init__(self, run: Run) -> None:
        self.outcomes: dict[str, Outcome] = {}
        self.waiting: dict[str, Waiting] = {}
        self.failure_count = 0
        self.ending: Ending = ""
        self.reason = ""
        self.errors: dict[str, ToolError] = {}
        self._run = run
        self._loop = asyncio.get_running_loop()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._broken: dict[str, BaseException] = {}
        self._cancelling = False
        self._all_done: asyncio.Future[None] | None = None
        #: Calls whose question stays open, and the calls behind them.
        self._held: dict[str, Place] = {}
        self._waits: dict[str, tuple[Place, asyncio.Future[None]]] = {}

    def start(self, call_id: str, planned: PermittedCall | Waiting, place: Place) -> None:
        self._tasks[call_id] = self._loop.create_task(self._carry_to_end(call_id, planned, place))

    async def done(self) -> None:
        """Wait until every call has ended or stays waiting. A bug or a failed log in one of them ends all."""
        try:
            if self._tasks:
                self._all_done = self._loop.create_future()
                await self._all_done
        except asyncio.CancelledError:
            self._cancel()
            raise
        finally:
            for call_id in self._held:
                self._held[call_id].leave()
        for call_id in self._broken:
            raise self._broken[call_id]

    async def _carry_to_end(self, call_id: str, planned: PermittedCall | Waiting, place: Place) -> None:
        try:
            match planned:
                case PermittedCall():
                    outcome = await self._carry_permitted(planned, place)
                case Waiting():
                    outcome = await self._carry_waiting(planned, place)
        except asyncio.CancelledError as cancelled:
            self._end_call(call_id, place, cancelled)
        except Exception as broken:
            self._end_call(call_id, place, broken)
        else:
            self._end_call(call_id, place, outcome)

    def _end_call(self, call_id: str, place: Place, outcome: Outcome | BaseException) -> None:
        if self._tasks.pop(call_id, None) is None:
            return  # it was abandoned; this is its late end
        match outcome:
            case Observation():
                self.outcomes[call_id] = outcome
                if outcome.failure is not None:
                    self.weigh(outcome, outcome.failure)
                place.leave()
            case Waiting():
                self.outcomes[call_id] = self.waiting[call_id] = outcome
                self._hold(call_id, place)
            case _:
                place.leave()
                self._break(call_id, outcome)
        if not self._tasks and self._all_done is not None and not self._all_done.done():
            self._all_done.set_result(None)

    def _break(self, call_id: str, error: BaseException) -> None:
        if not self._cancelling:
            self._broken[call_id] = error
            self._cancel()

    def _cancel(self) -> None:
        """The run ends around these calls: cancel what runs, at once; how it ends is noticed in the background."""
        self._cancelling = True
        self._run.executions.end_all("run")
        for task in list(self._tasks.values()):
            task.cancel()
        if self._tasks:
            self._run.in_background(self._noticed(list(self._tasks.values())))

    async def _noticed(self, tasks: list[asyncio.Task[None]]) -> None:
        await asyncio.wait(tasks, timeout=self._run.parts.limits.drain_seconds)
        await self._run.recorder.commit()

    async def _carry_waiting(self, waiting: Waiting, place: Place) -> Outcome:
        settled = self._stopped(waiting.valid) or await self._settle(waiting)
        match settled:
            case PermittedCall():
                return await self._carry_permitted(settled, place)
            case Failure():
                return conclude(waiting.valid.call_id, waiting.valid.tool.name, settled, self._run)
            case Waiting():
                return settled

    async def _carry_permitted(self, permitted: PermittedCall, place: Place) -> Outcome:
        valid = permitted.valid
        turn = place.turn()
        if turn is not None:
            blocker = await self._wait(valid.call_id, place, turn)
            if blocker:
                return Waiting(valid, permitted.decision, None, blocker)
        if self.ending or self._run.cancelled:
            stopped = self._stopped(valid)
            if stopped is not None:
                return conclude(valid.call_id, valid.tool.name, stopped, self._run)

        def abandoned(observation: Observation) -> None:
            self._end_call(valid.call_id, place, observation)

        return await carry_out(permitted, self._run, self._tasks[valid.call_id], abandoned)

    async def _settle(self, waiting: Waiting) -> PermittedCall | Waiting | Failure:
        return await settle(waiting, waiting.question, self._run) if waiting.question else waiting

    async def _wait(self, call_id: str, place: Place, turn: "asyncio.Future[None]") -> str:
        """Wait for the turn: empty when it came, else the id of the waiting call that is in front for now."""
        blocker = self._held_before(place)
        if not blocker:
            self._waits[call_id] = (place, turn)
            try:
                await turn
            except asyncio.CancelledError:
                blocker = self._held_before(place)
                if not blocker or self._cancelling:
                    raise
            finally:
                del self._waits[call_id]
        return blocker

    def _held_before(self, place: Place) -> str:
        return next((call_id for call_id in place.behind if call_id in self._held), "")

    def _hold(self, call_id: str, held: Place) -> None:
        """The call stays where it is, so whoever waits behind it need not wait in this process."""
        self._held[call_id] = held
        for place, turn in list(self._waits.values()):
            if call_id in place.behind:
                turn.cancel()

    def _stopped(self, valid: ValidCall) -> Failure | None:
        if self.ending:
            return Failure.of("skipped", f"{self.reason} This call was skipped; nothing was executed.")
        if valid.call_id in self._run.cancelled:
            return Failure.of("cancelled_before_start", "The call was cancelled. Nothing was executed.")
        return None

    def weigh(self, observation: Observation, failure: Failure) -> None:
        """Does this failure end the run?"""
        self.failure_count += 1
        if failure.code in _CONSEQUENCES:
            return
        error = self._raised(observation, failure)
        if error is not None:
            self.errors[observation.call_id] = error
            self._end("raise", f"{observation.tool} failed, and it raises.")
            return
        policy = self._policy(failure)
        if policy != "continue":
            self._end(policy, f"The run ends because {observation.tool} did not succeed: {failure.message}")

    def _policy(self, failure: Failure) -> FailurePolicy:
        fail_safe = self._run.parts.fail_safe
        if failure.code in _DENIALS:
            return fail_safe.approval_denial_policy
        if failure.phase in _TOOL_FAILURES:
            return fail_safe.tool_failure_policy
        return "continue"

    def _raised(self, observation: Observation, failure: Failure) -> ToolError | None:
        if failure.phase is Phase.LOOKUP:
            return UnknownToolError(observation) if self._run.parts.missing_tool == "raise" else None
        tool = self._run.parts.registry.find(observation.tool)
        if tool is None or failure.code in _DENIALS:
            return None
        if failure.code == "timed_out":
            raises = tool.raise_on_error or tool.timeout_behavior == "raise_exception"
            return ToolTimeoutError(observation) if raises else None
        if not tool.raise_on_error:
            return None
        misfit = failure.phase in (Phase.ACCEPT, Phase.VALIDATE)
        return ToolValidationError(observation) if misfit else ToolExecutionError(observation)

    def _end(self, ending: Ending, reason: str) -> None:
        if not self.ending:
            self.ending, self.reason = ending, reason
        if ending != "degrade":
            self._run.executions.end_all("call")
