"""Who speaks in a replay: the model and the people, as they were recorded."""

from collections.abc import AsyncGenerator
from typing import cast, get_args

import msgspec

from ..agent.session import Session
from ..approvals.interface import Fallback
from ..domain.call import Answer, Question
from ..domain.errors import ModelError
from ..domain.state.verification import Checks
from ..history.recording import PastAnswer, PastCall, Recording
from ..models.interface import CallWritten, Finished, FinishReason, ModelEvent, ModelRequest, TextPiece
from .replay_world import VirtualTime

_REASONS = get_args(FinishReason)


class RecordOver(Exception):
    """The model is asked once more than it was when the run was recorded."""


class RecordedModel:
    """Answers every request with what the next one was answered then, whatever it is asked now."""

    name = "replay"

    def __init__(self, recording: Recording, time: VirtualTime) -> None:
        self._recording = recording
        self._answers = recording.answers
        self._time = time
        #: The run that it answers in; known once that is open.
        self.session: Session | None = None
        self.given = 0

    @property
    def last(self) -> PastAnswer | None:
        return self._answers[self.given - 1] if self.given else None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        if self.given >= len(self._answers):
            raise RecordOver
        answer = self._answers[self.given]
        self.given += 1
        self._prepare(answer)
        self._time.at += round(answer.duration_ms * 1e6)
        if answer.failed:
            raise ModelError(answer.failed, retryable=answer.retryable)
        if answer.text:
            yield TextPiece(answer.text)
        for call in answer.calls:
            yield CallWritten(call)
        reason = answer.finish if answer.finish in _REASONS else "other"
        yield Finished(reason=cast(FinishReason, reason), usage=answer.usage)

    async def close(self) -> None:
        """There is nothing to close."""

    def _prepare(self, answer: PastAnswer) -> None:
        """The calls are judged in the mode of that time; and where a person spoke after them, the run stops there."""
        session = self.session
        if session is not None:
            told = {"mode": answer.mode, "interactive": answer.interactive}
            session.run.situation = msgspec.structs.replace(session.run.situation, **told)
            session.pausing = bool(answer.said)
            self._tell_of_fork(session.run.ledger.checks)

    def _tell_of_fork(self, checks: Checks) -> None:
        """What was checked before the run was forked is as stale now as it was then. Its events have other places."""
        calls, forked_at = self._recording.calls, self._recording.forked_at
        retold = {call_id for call_id, call in calls.items() if 0 <= call.observed_seq <= forked_at}
        before = (check.started_seq for check in checks.checks if check.call_id in retold)
        checks.forked_at = max(before, default=-1)


class RecordedPeople:
    """Implements `InteractionProvider`: every question about a call gets the last answer about it.

    A question that was not asked then is answered so that the run can go on as it went on: yes to what ran, no to what
    did not. That it is asked now is a difference of its own.
    """

    approval_timeout_s = None
    approval_fallback: Fallback = "wait"
    interactive = True

    def __init__(self, calls: dict[str, PastCall]) -> None:
        self._calls = calls

    async def ask(self, question: Question) -> Answer | None:
        call = self._calls.get(question.call_id)
        if call is None:
            return None
        if call.answer is not None:
            return _once(call.answer)
        if call.observation is None or question.kind == "input":
            return None
        return Answer(approved=call.started, by="replay", reason="Nobody was asked when this was recorded.")


def _once(answer: Answer) -> Answer:
    """The same answer, without what it did beside: each call has an answer of its own in the record, and what a person
    wrote into the arguments is in the recorded outcome."""
    return msgspec.structs.replace(answer, scope="once", until=0, rule="", arguments=None)
