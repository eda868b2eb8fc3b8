"""Stand-ins of a replay: model, people, clock and sandbox, as recorded."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Any, cast, get_args

import msgspec
from pydantic import BaseModel

from ..agent.context import ContextPlan, ContextPolicy, ContextState
from ..agent.session import AgentSession
from ..domain.call import Answer, Question
from ..domain.errors import InterlockError, ModelError
from ..domain.messages import ToolMessage
from ..domain.payload import ExecutionEnvironment
from ..domain.rendering import split_rendered
from ..domain.state.conversation import Dialogue
from ..domain.state.verification import VerificationState
from ..domain.tool import CallContext, JsonObject, SandboxScope, ToolContext, ToolDefinition
from ..interaction.interface import Fallback
from ..models.interface import FinishReason, ModelEvent, ModelRequest, StreamFinished, TextDelta, ToolCallDelta
from ..storage.artifacts import ArtifactStore
from .recording import Recording, ReplayAnswer, ReplayCall, ReplayContextStep, was_stopped_by_runtime

_REPLAY_SCOPE = SandboxScope(sandbox="replay")
#: Turns of the event loop without a new call, after which none is expected.
_QUIET_TURNS = 4


class ReplayExecutedError(InterlockError):
    """In a replay something would have been executed. Nothing was."""


class RecordedStopError(Exception):
    """The call had no result when it was recorded: it failed, timed out, or was stopped. Carries the recorded
    message.
    """


class VirtualClock:
    """A clock that jumps to the next end, when everything that can begin has begun."""

    def __init__(self, now: int = 0) -> None:
        #: In nanoseconds.
        self.at = 0
        self._now = now
        self._ends: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._quiet_turns = 0
        self._is_ticking = False

    def now(self) -> int:
        """Return the virtual wall-clock time in nanoseconds."""
        return self._now + self.at

    def elapsed(self) -> int:
        """Return the virtual nanoseconds since the start."""
        return self.at

    async def sleep(self, milliseconds: float) -> None:
        """Wait in virtual time: it advances when nothing else can run."""
        end = self.at + round(milliseconds * 1e6)
        ended = asyncio.get_running_loop().create_future()
        heappush(self._ends, (end, next(self._order), ended))
        self._quiet_turns = 0
        if not self._is_ticking:
            self._is_ticking = True
            asyncio.get_running_loop().call_soon(self._tick)
        await ended
        self.at = end

    def _tick(self) -> None:
        self._quiet_turns += 1
        if self._quiet_turns > _QUIET_TURNS:
            self._quiet_turns = 0
            self._wake_next()
        self._is_ticking = bool(self._ends)
        if self._is_ticking:
            asyncio.get_running_loop().call_soon(self._tick)

    def _wake_next(self) -> None:
        while self._ends:
            _, _, ended = heappop(self._ends)
            if not ended.done():
                ended.set_result(None)
                return


class RecordedSandbox:
    """Implementation of `Sandbox` that runs nothing."""

    unconfined_scope = _REPLAY_SCOPE

    def __init__(self, calls: dict[str, ReplayCall], time: VirtualClock) -> None:
        self._calls = calls
        self._time = time

    def executor_name(self, tool: ToolDefinition) -> str:
        """Return `replay`."""
        return "replay"

    def describe_scope(self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext) -> SandboxScope:
        """Return the scope of replays: nothing is executed."""
        return _REPLAY_SCOPE

    def describe_environment(
        self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext, paths: Iterable[str]
    ) -> ExecutionEnvironment:
        """Return the environment without reading files: they differ from those of then."""
        return ExecutionEnvironment(cwd=situation.workspace, sandbox="replay")

    async def start(self, tool: ToolDefinition, checked: BaseModel, context: ToolContext) -> Any:
        """Return the recorded result of a call. Raise if there is none."""
        call = self._calls.get(context.call_id)
        if call is None or not call.ran or call.observation is None:
            raise ReplayExecutedError(f"{tool.name} would run now, and there is no recorded result of it.")
        await self._time.sleep(call.duration_ms)
        if was_stopped_by_runtime(call.observation):
            raise RecordedStopError(call.observation.summary)
        kept = call.observation.artifacts
        context.kept.extend(kept[:-1] if call.output is not None else kept)
        return call

    def run_blocking(self, function: Callable[[], Any]) -> Awaitable[Any]:
        """Raise `ReplayExecutedError`: nothing may run in a replay."""
        raise ReplayExecutedError("A function of the developer would run now.")

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


class RecordedArtifacts:
    """Implementation of `ArtifactStore` in memory. Paths are those of the record."""

    def __init__(self, kept: ArtifactStore, recording: Recording) -> None:
        self.keep, self.keep_stream = kept.keep, kept.keep_stream
        self.read, self.size_bytes = kept.read, kept.size_bytes
        observed = [call.observation for call in recording.calls.values() if call.observation is not None]
        self._paths = {ref.id: ref.path for observation in observed for ref in observation.artifacts}

    def path(self, artifact_id: str) -> str:
        """Return the path of an artifact; empty if there is none."""
        return self._paths.get(artifact_id, "")


_REASONS = get_args(FinishReason)


class RecordingExhaustedError(Exception):
    """The model is asked more often than when the run was recorded."""


class RecordedModel:
    """Answers every request with the next recorded response."""

    name = "replay"

    def __init__(self, recording: Recording, time: VirtualClock) -> None:
        self._recording = recording
        self._answers = recording.answers
        self._time = time
        #: The run that it answers in; known once that is open.
        self.session: AgentSession | None = None
        self.answer_count = 0

    @property
    def last(self) -> ReplayAnswer | None:
        """The answer given last, or None."""
        return self._answers[self.answer_count - 1] if self.answer_count else None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        """Stream the next recorded answer."""
        if self.answer_count >= len(self._answers):
            raise RecordingExhaustedError
        answer = self._answers[self.answer_count]
        self.answer_count += 1
        self._restore_context(answer)
        self._time.at += round(answer.duration_ms * 1e6)
        if answer.failed:
            raise ModelError(answer.failed, retryable=answer.retryable, code=answer.code)
        if answer.text:
            yield TextDelta(answer.text)
        for call in answer.calls:
            yield ToolCallDelta(call)
        reason = answer.finish if answer.finish in _REASONS else "other"
        yield StreamFinished(reason=cast(FinishReason, reason), usage=answer.usage)

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _restore_context(self, answer: ReplayAnswer) -> None:
        """Restore the mode in which the calls were evaluated; where a person spoke after them, the run stops there."""
        session = self.session
        if session is not None:
            changes = {"mode": answer.mode, "interactive": answer.interactive}
            situation = msgspec.structs.replace(session.run.situation, **changes)
            session.run = msgspec.structs.replace(session.run, situation=situation)
            session.pause_requested = bool(answer.said)
            self._restore_fork_state(session.run.ledger.checks)

    def _restore_fork_state(self, checks: VerificationState) -> None:
        """Restore what is stale: what was checked before the run was forked is as stale now as then. Its events have
        other places.
        """
        calls, forked_at = self._recording.calls, self._recording.forked_at
        copied = {call_id for call_id, call in calls.items() if 0 <= call.observed_seq <= forked_at}
        before = (check.started_seq for check in checks.checks if check.call_id in copied)
        checks.forked_at = max(before, default=-1)


class RecordedContextPolicy(ContextPolicy, frozen=True, kw_only=True):
    """Leave out what was left out when the run was recorded: how large requests were depends on the agent."""

    steps: tuple[ReplayContextStep, ...]
    #: The number of answers given so far.
    count_answers: Callable[[], int]

    def is_active(self, dialogue: Dialogue) -> bool:
        """Return True if anything was left out."""
        return bool(self.steps)

    def plan(self, state: ContextState) -> ContextPlan | None:
        """Return what was left out before the next answer, as far as it still is to be done."""
        dialogue, answer = state.dialogue, self.count_answers()
        due = [step for step in self.steps if step.answer == answer]
        called = {call_id for step in due for call_id in step.trimmed}
        trim = tuple(
            place
            for place, message in enumerate(dialogue.messages)
            if place >= dialogue.compacted and place not in dialogue.trimmed
            if isinstance(message, ToolMessage) and message.call_id in called and split_rendered(message.text)
        )
        compact = max((step.compacted for step in due), default=0)
        if not trim and compact <= dialogue.compacted:
            return None
        most = sum(state.sizes)
        return ContextPlan(trim=trim, compact=compact, summary_tokens=most, transcript_tokens=most)

    def plan_summary(self, state: ContextState) -> ContextPlan | None:
        """Return the summary that a person asked for before the next answer."""
        return self.plan(state)


class RecordedInteraction:
    """Implementation of `InteractionProvider`: every question about a call gets the last recorded answer about it.

    A question that was not asked then is answered so that the run continues as it did: what ran is approved, what
    did not is rejected. That it is asked now is a separate difference.
    """

    approval_timeout_s = None
    approval_fallback: Fallback = "wait"
    interactive = True

    def __init__(self, calls: dict[str, ReplayCall]) -> None:
        self._calls = calls

    async def ask(self, question: Question) -> Answer | None:
        """Return the recorded answer to a question, or None."""
        call = self._calls.get(question.call_id)
        if call is None:
            return None
        if call.answer is not None:
            # Each call has its own answer in the record, and what a person wrote into the arguments is in its outcome.
            return msgspec.structs.replace(call.answer, scope="once", until=0, rule="", arguments=None)
        if call.observation is None or question.kind == "input":
            return None
        return Answer(approved=call.started, by="replay", reason="No person was asked when this was recorded.")
