"""Events to a `Recording`. Nothing is executed; artifacts are only read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from ..domain import event as facts
from ..domain.chain import Entry, decode_event
from ..domain.decision import Decision, Verdict
from ..domain.errors import ArtifactError, LogCorruptError
from ..domain.messages import ProposedCall
from ..domain.observation import Observation
from ..domain.rendering import render_for_model
from ..domain.state.ledger import Ledger
from ..domain.tool import Mode, ToolSpec
from ..history.fold import fold
from .recording import (
    FORM,
    End,
    Objection,
    PastAnswer,
    PastCall,
    PastRequest,
    Recording,
    message_line,
    past_arguments,
    short_digest,
)

#: The layer of a decision that an earlier yes made, where the policy itself asked.
_STANDING = "standing approval"
#: The layer that asks whether a call may run again after a crash. What is said to that is not about the call itself.
_RECOVERY = "recovery"
#: The layer that asks a user for consent; the policy is asked anew after that.
_CONSENT = "consent"

_ENDS: Mapping[type, End] = {
    facts.RunCompleted: "completed",
    facts.RunDegraded: "degraded",
    facts.RunFailed: "failed",
    facts.RunCancelled: "cancelled",
}
_decode_specs = msgspec.json.Decoder(tuple[ToolSpec, ...]).decode


class Kept(Protocol):
    """Where artifacts are read."""

    def read(self, artifact_id: str) -> bytes:
        """`ArtifactError` when it is unknown, or not what it was."""
        ...


def read_recording(entries: Sequence[Entry], artifacts: Kept | None = None) -> Recording:
    """A whole run, from its first event on. `LogCorruptError` for a log that is not what was written. Without
    `artifacts`, what is kept there is missing: long arguments, instructions, whole outputs."""
    if not entries:
        raise LogCorruptError("there is no event to replay")
    ledger = fold(entries[0].run_id, entries)
    reading = _Reading(artifacts)
    for entry in entries:
        event = decode_event(entry)
        take = _TAKES.get(type(event.fact))
        if take is not None:
            take(reading, event.fact, event.seq)
    return reading.recording(ledger)


class _Reading:
    def __init__(self, artifacts: Kept | None) -> None:
        self.artifacts = artifacts
        self.started = facts.RunStarted(schema=1)
        self.opening: list[str] = []
        self.answers: list[PastAnswer] = []
        self.calls: dict[str, PastCall] = {}
        self.objections: list[Objection] = []
        self.menus: dict[str, dict[str, str]] = {}
        self.tools: tuple[ToolSpec, ...] = ()
        self.end: tuple[End, int] = ("open", -1)
        self.request = PastRequest(seq=-1)
        self.batch = facts.BatchStarted(call_count=0)
        #: How many calls of the last answer are still to come, and how many it has.
        self.awaited = self.announced = 0
        self.chat = False
        self.recovery: set[str] = set()

    def recording(self, ledger: Ledger) -> Recording:
        self.drop_lost()
        verdict = ledger.checks.verdict()
        end, end_seq = self.end
        rests = end == "open" and ledger.dialogue.last == "model" and not ledger.dialogue.open
        return Recording(
            form=FORM,
            run_id=ledger.run_id,
            agent=self.started.agent,
            workspace=self.started.workspace,
            requester=self.started.requester,
            forked_at=self.started.forked_at,
            opening=tuple(self.opening),
            answers=tuple(self.answers),
            calls=self.calls,
            objections=tuple(self.objections),
            end=end,
            end_seq=end_seq,
            message=ledger.message,
            text=ledger.dialogue.final_text,
            verification=verdict.status,
            verification_message=verdict.message,
            conversation=tuple(map(message_line, ledger.dialogue.messages)),
            menus=self.menus,
            tools=self.tools,
            chat=self.chat or rests,
        )

    def drop_lost(self) -> None:
        """An answer of whose calls none was written down: where a run was forked in the middle of it."""
        if self.announced and self.awaited == self.announced:
            said = self.answers.pop().said
            if self.answers and said:
                last = self.answers[-1]
                self.answers[-1] = msgspec.structs.replace(last, said=last.said + said)
        self.awaited = self.announced = 0

    def kept(self, artifact_id: str) -> bytes | None:
        try:
            return self.artifacts.read(artifact_id) if self.artifacts is not None and artifact_id else None
        except (ArtifactError, OSError):
            return None

    def change(self, call_id: str, **fields: Any) -> None:
        call = self.calls.get(call_id)
        if call is not None:
            self.calls[call_id] = msgspec.structs.replace(call, **fields)


def _started(reading: _Reading, fact: facts.RunStarted, seq: int) -> None:
    reading.started = fact


def _said(reading: _Reading, fact: facts.UserSaid, seq: int) -> None:
    if not reading.answers:
        reading.opening.append(fact.text)
        return
    last = reading.answers[-1]
    reading.chat |= not last.calls and not last.failed
    reading.answers[-1] = msgspec.structs.replace(last, said=(*last.said, fact.text))


def _menu(reading: _Reading, fact: facts.MenuShown, seq: int) -> None:
    reading.menus[fact.digest] = fact.versions
    written = reading.kept(fact.artifact_id)
    try:
        reading.tools = _decode_specs(written) if written else reading.tools
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return


def _asked(reading: _Reading, fact: facts.ModelAsked, seq: int) -> None:
    reading.request = PastRequest(
        seq=seq,
        agent=fact.agent,
        menu_digest=fact.menu_digest,
        message_count=fact.message_count,
        tool_choice=fact.tool_choice,
        instructions=fact.instructions_artifact_id or reading.request.instructions,
    )


def _answered(reading: _Reading, fact: facts.ModelAnswered, seq: int) -> None:
    reading.drop_lost()
    reading.awaited = reading.announced = fact.call_count
    answer = PastAnswer(
        seq=seq,
        request=reading.request,
        text=fact.text,
        finish=fact.finish,
        usage=fact.usage,
        duration_ms=fact.duration_ms,
        mode=reading.batch.mode,
        interactive=reading.batch.interactive,
    )
    reading.answers.append(answer)


def _model_failed(reading: _Reading, fact: facts.ModelFailed, seq: int) -> None:
    reading.drop_lost()
    failed = fact.message or "It gave no reason."
    reading.answers.append(PastAnswer(seq=seq, request=reading.request, failed=failed, retryable=fact.retryable))


def _batch(reading: _Reading, fact: facts.BatchStarted, seq: int) -> None:
    reading.batch = fact
    if reading.awaited:
        last = reading.answers[-1]
        reading.answers[-1] = msgspec.structs.replace(last, mode=Mode(fact.mode), interactive=fact.interactive)


def _proposed(reading: _Reading, fact: facts.CallProposed, seq: int) -> None:
    known = reading.calls.get(fact.call_id)
    arguments, lost = past_arguments(fact, known, reading.kept(fact.raw_artifact_id))
    if known is None:
        reading.calls[fact.call_id] = PastCall(
            seq=seq,
            call_id=fact.call_id,
            tool=fact.tool,
            agent=reading.request.agent,
            arguments=arguments,
            lost=lost,
            mode=Mode(reading.batch.mode),
            interactive=reading.batch.interactive,
        )
    if reading.awaited > 0 and not (fact.duplicate and fact.raw_bytes):  # that is one which is gone on with
        reading.awaited -= 1
        last = reading.answers[-1]
        call = ProposedCall(call_id=fact.call_id, tool=fact.tool, arguments=arguments)
        reading.answers[-1] = msgspec.structs.replace(last, calls=(*last.calls, call))


def _validated(reading: _Reading, fact: facts.CallValidated, seq: int) -> None:
    reading.change(fact.call_id, valid=fact.ok, errors=fact.errors, validated_seq=seq)


def _judged(reading: _Reading, fact: facts.CallJudged, seq: int) -> None:
    if fact.decision.layer in (_RECOVERY, _CONSENT):
        return
    reading.change(fact.call_id, decision=_of_policy(fact.decision), judged_seq=seq)


def _of_policy(decision: Decision) -> Decision:
    """What says how it was decided. What a person was shown is not kept: it names places of one machine."""
    standing = decision.layer == _STANDING
    return Decision(
        verdict=Verdict.ASK if standing else decision.verdict,
        reason=decision.reason,
        rule_ids=decision.rule_ids,
        layer="" if standing else decision.layer,
        advice=decision.advice,
        target_arg=decision.target_arg,
    )


def _question(reading: _Reading, fact: Any, seq: int) -> None:
    if fact.question.layer == _RECOVERY:
        reading.recovery.add(fact.question.action_id)


def _person(reading: _Reading, fact: Any, seq: int) -> None:
    if fact.action_id not in reading.recovery:
        reading.change(fact.call_id, answer=fact.answer)


def _invoked(reading: _Reading, fact: facts.InvocationStarted, seq: int) -> None:
    reading.change(fact.call_id, started=True)


def _completed(reading: _Reading, fact: facts.InvocationCompleted, seq: int) -> None:
    reading.change(fact.call_id, duration_ms=fact.duration_ms)


def _observed(reading: _Reading, fact: facts.CallObserved, seq: int) -> None:
    observation = fact.observation
    reading.change(
        observation.call_id,
        observation=observation,
        observed_seq=seq,
        output=_whole_output(reading, observation),
        told=short_digest(render_for_model(observation)),
    )


def _whole_output(reading: _Reading, observation: Observation) -> str | None:
    """Where it was the runtime that cut it, and not the tool."""
    kept, size = observation.artifacts[-1:], observation.size
    if not kept or size is None or kept[0].kind != "tool_output":
        return None
    content = reading.kept(kept[0].id) if size.produced == size.kept == kept[0].size_bytes else None
    return content.decode(errors="replace") if content is not None else None


def _refused(reading: _Reading, fact: facts.AnswerRefused, seq: int) -> None:
    reading.objections.append(Objection(seq, "answer", fact.message))


def _contradicted(reading: _Reading, fact: facts.ClaimContradicted, seq: int) -> None:
    reading.objections.append(Objection(seq, "verification", fact.message))


def _ended(reading: _Reading, fact: Any, seq: int) -> None:
    reading.end = (_ENDS[type(fact)], seq)


_Take = Callable[[_Reading, Any, int], None]

_TAKES = cast(
    Mapping[type, _Take],
    {
        facts.RunStarted: _started,
        facts.UserSaid: _said,
        facts.MenuShown: _menu,
        facts.ModelAsked: _asked,
        facts.ModelAnswered: _answered,
        facts.ModelFailed: _model_failed,
        facts.BatchStarted: _batch,
        facts.CallProposed: _proposed,
        facts.CallValidated: _validated,
        facts.CallJudged: _judged,
        facts.ApprovalRequested: _question,
        facts.ApprovalGranted: _person,
        facts.ApprovalRejected: _person,
        facts.ApprovalExpired: _person,
        facts.InputProvided: _person,
        facts.InputRefused: _person,
        facts.InputExpired: _person,
        facts.InvocationStarted: _invoked,
        facts.InvocationCompleted: _completed,
        facts.CallObserved: _observed,
        facts.AnswerRefused: _refused,
        facts.ClaimContradicted: _contradicted,
        facts.RunCompleted: _ended,
        facts.RunDegraded: _ended,
        facts.RunFailed: _ended,
        facts.RunCancelled: _ended,
    },
)
