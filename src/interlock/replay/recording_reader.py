"""Reads events to a `Recording`. Nothing is executed; artifacts are only read."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, cast

import msgspec

from ..domain import event as facts
from ..domain.decision import Decision, Verdict
from ..domain.errors import ArtifactError, LogCorruptError
from ..domain.event import LogEntry, decode_event
from ..domain.messages import ProposedCall
from ..domain.observation import Observation
from ..domain.rendering import render_for_model
from ..domain.state.ledger import Ledger
from ..domain.tool import PermissionMode, ToolSpec
from ..history.fold import fold_entries
from .recording import (
    RECORDING_FORMAT,
    Objection,
    Recording,
    ReplayAnswer,
    ReplayCall,
    ReplayRequest,
    RunEnd,
    digest_message,
    read_arguments,
    short_digest,
)

#: The layer of a decision made by an earlier approval, where the policy itself asked.
_STANDING_APPROVAL_LAYER = "standing approval"
#: The layer that asks whether a call may run again after a crash. What is said to that is not about the call itself.
_RECOVERY_LAYER = "recovery"
#: The layer that asks a user for consent; the policy is evaluated again after that.
_CONSENT_LAYER = "consent"

_END_NAMES: Mapping[type, RunEnd] = {
    facts.RunCompleted: "completed",
    facts.RunDegraded: "degraded",
    facts.RunFailed: "failed",
    facts.RunCancelled: "cancelled",
}
_decode_specs = msgspec.json.Decoder(tuple[ToolSpec, ...]).decode


class ArtifactReader(Protocol):
    """Reads artifacts."""

    def read(self, artifact_id: str) -> bytes:
        """Return the content. Raise `ArtifactError` when it is unknown or damaged."""
        ...


def read_recording(entries: Sequence[LogEntry], artifacts: ArtifactReader | None = None) -> Recording:
    """Read a whole run, from its first event on. Raise `LogCorruptError` for a damaged log. Without `artifacts`, long
    arguments, instructions and whole outputs are missing.
    """
    if not entries:
        raise LogCorruptError("there is no event to replay")
    ledger = fold_entries(entries[0].run_id, entries)
    builder = _RecordingBuilder(artifacts)
    for entry in entries:
        event = decode_event(entry)
        handler = _EVENT_HANDLERS.get(type(event.fact))
        if handler is not None:
            handler(builder, event.fact, event.seq)
    return builder.build(ledger)


class _RecordingBuilder:
    def __init__(self, artifacts: ArtifactReader | None) -> None:
        self.artifacts = artifacts
        self.started = facts.RunStarted(schema=1)
        self.opening: list[str] = []
        self.answers: list[ReplayAnswer] = []
        self.calls: dict[str, ReplayCall] = {}
        self.objections: list[Objection] = []
        self.menus: dict[str, dict[str, str]] = {}
        self.tools: tuple[ToolSpec, ...] = ()
        self.end: tuple[RunEnd, int] = ("open", -1)
        self.request = ReplayRequest(seq=-1)
        self.batch = facts.BatchStarted(call_count=0)
        #: How many calls of the last answer are still to come, and how many it has.
        self.awaited = self.announced = 0
        self.chat = False
        self.recovery: set[str] = set()

    def build(self, ledger: Ledger) -> Recording:
        self.drop_unrecorded_answer()
        verdict = ledger.checks.summarize()
        end, end_seq = self.end
        rests = end == "open" and ledger.dialogue.last == "model" and not ledger.dialogue.open
        return Recording(
            form=RECORDING_FORMAT,
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
            conversation=tuple(map(digest_message, ledger.dialogue.messages)),
            menus=self.menus,
            tools=self.tools,
            chat=self.chat or rests,
        )

    def drop_unrecorded_answer(self) -> None:
        """An answer of whose calls none was written down: where a run was forked in the middle of it."""
        if self.announced and self.awaited == self.announced:
            said = self.answers.pop().said
            if self.answers and said:
                last = self.answers[-1]
                self.answers[-1] = msgspec.structs.replace(last, said=last.said + said)
        self.awaited = self.announced = 0

    def read_artifact(self, artifact_id: str) -> bytes | None:
        try:
            return self.artifacts.read(artifact_id) if self.artifacts is not None and artifact_id else None
        except (ArtifactError, OSError):
            return None

    def update_call(self, call_id: str, **fields: Any) -> None:
        call = self.calls.get(call_id)
        if call is not None:
            self.calls[call_id] = msgspec.structs.replace(call, **fields)


def _on_run_started(builder: _RecordingBuilder, fact: facts.RunStarted, seq: int) -> None:
    builder.started = fact


def _on_user_message(builder: _RecordingBuilder, fact: facts.UserMessageReceived, seq: int) -> None:
    if not builder.answers:
        builder.opening.append(fact.text)
        return
    last = builder.answers[-1]
    builder.chat |= not last.calls and not last.failed
    builder.answers[-1] = msgspec.structs.replace(last, said=(*last.said, fact.text))


def _on_tools_offered(builder: _RecordingBuilder, fact: facts.ToolsOffered, seq: int) -> None:
    builder.menus[fact.digest] = fact.versions
    written = builder.read_artifact(fact.artifact_id)
    try:
        builder.tools = _decode_specs(written) if written else builder.tools
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return


def _on_model_requested(builder: _RecordingBuilder, fact: facts.ModelRequested, seq: int) -> None:
    builder.request = ReplayRequest(
        seq=seq,
        agent=fact.agent,
        menu_digest=fact.menu_digest,
        message_count=fact.message_count,
        tool_choice=fact.tool_choice,
        instructions=fact.instructions_artifact_id or builder.request.instructions,
    )


def _on_model_responded(builder: _RecordingBuilder, fact: facts.ModelResponded, seq: int) -> None:
    builder.drop_unrecorded_answer()
    builder.awaited = builder.announced = fact.call_count
    answer = ReplayAnswer(
        seq=seq,
        request=builder.request,
        text=fact.text,
        finish=fact.finish,
        usage=fact.usage,
        duration_ms=fact.duration_ms,
        mode=builder.batch.mode,
        interactive=builder.batch.interactive,
    )
    builder.answers.append(answer)


def _on_model_failed(builder: _RecordingBuilder, fact: facts.ModelFailed, seq: int) -> None:
    builder.drop_unrecorded_answer()
    failed = fact.message or "It gave no reason."
    builder.answers.append(ReplayAnswer(seq=seq, request=builder.request, failed=failed, retryable=fact.retryable))


def _on_batch_started(builder: _RecordingBuilder, fact: facts.BatchStarted, seq: int) -> None:
    builder.batch = fact
    if builder.awaited:
        last = builder.answers[-1]
        builder.answers[-1] = msgspec.structs.replace(
            last, mode=PermissionMode(fact.mode), interactive=fact.interactive
        )


def _on_call_proposed(builder: _RecordingBuilder, fact: facts.CallProposed, seq: int) -> None:
    known = builder.calls.get(fact.call_id)
    arguments, lost = read_arguments(fact, known, builder.read_artifact(fact.raw_artifact_id))
    if known is None:
        builder.calls[fact.call_id] = ReplayCall(
            seq=seq,
            call_id=fact.call_id,
            tool=fact.tool,
            agent=builder.request.agent,
            arguments=arguments,
            lost=lost,
            mode=PermissionMode(builder.batch.mode),
            interactive=builder.batch.interactive,
        )
    if builder.awaited > 0 and not (fact.duplicate and fact.raw_bytes):  # such a run is continued
        builder.awaited -= 1
        last = builder.answers[-1]
        call = ProposedCall(call_id=fact.call_id, tool=fact.tool, arguments=arguments)
        builder.answers[-1] = msgspec.structs.replace(last, calls=(*last.calls, call))


def _on_call_validated(builder: _RecordingBuilder, fact: facts.CallValidated, seq: int) -> None:
    builder.update_call(fact.call_id, valid=fact.ok, errors=fact.errors, validated_seq=seq)


def _on_policy_evaluated(builder: _RecordingBuilder, fact: facts.PolicyEvaluated, seq: int) -> None:
    if fact.decision.layer in (_RECOVERY_LAYER, _CONSENT_LAYER):
        return
    builder.update_call(fact.call_id, decision=_policy_part(fact.decision), judged_seq=seq)


def _policy_part(decision: Decision) -> Decision:
    """What says how it was decided. What a person was shown is not kept: it names places of one machine."""
    standing = decision.layer == _STANDING_APPROVAL_LAYER
    return Decision(
        verdict=Verdict.ASK if standing else decision.verdict,
        reason=decision.reason,
        rule_ids=decision.rule_ids,
        layer="" if standing else decision.layer,
        advice=decision.advice,
        target_arg=decision.target_arg,
    )


def _on_question_asked(builder: _RecordingBuilder, fact: Any, seq: int) -> None:
    if fact.question.layer == _RECOVERY_LAYER:
        builder.recovery.add(fact.question.action_id)


def _on_question_answered(builder: _RecordingBuilder, fact: Any, seq: int) -> None:
    if fact.action_id not in builder.recovery:
        builder.update_call(fact.call_id, answer=fact.answer)


def _on_invocation_started(builder: _RecordingBuilder, fact: facts.InvocationStarted, seq: int) -> None:
    builder.update_call(fact.call_id, started=True)


def _on_invocation_completed(builder: _RecordingBuilder, fact: facts.InvocationCompleted, seq: int) -> None:
    builder.update_call(fact.call_id, duration_ms=fact.duration_ms)


def _on_call_observed(builder: _RecordingBuilder, fact: facts.CallObserved, seq: int) -> None:
    observation = fact.observation
    builder.update_call(
        observation.call_id,
        observation=observation,
        observed_seq=seq,
        output=_read_full_output(builder, observation),
        told=short_digest(render_for_model(observation)),
    )


def _read_full_output(builder: _RecordingBuilder, observation: Observation) -> str | None:
    """Where it was the runtime that cut it, and not the tool."""
    kept, size = observation.artifacts[-1:], observation.size
    if not kept or size is None or kept[0].kind != "tool_output":
        return None
    content = builder.read_artifact(kept[0].id) if size.produced == size.kept == kept[0].size_bytes else None
    return content.decode(errors="replace") if content is not None else None


def _on_final_answer_rejected(builder: _RecordingBuilder, fact: facts.FinalAnswerRejected, seq: int) -> None:
    builder.objections.append(Objection(seq, "answer", fact.message))


def _on_claim_contradicted(builder: _RecordingBuilder, fact: facts.ClaimContradicted, seq: int) -> None:
    builder.objections.append(Objection(seq, "verification", fact.message))


def _on_run_ended(builder: _RecordingBuilder, fact: Any, seq: int) -> None:
    builder.end = (_END_NAMES[type(fact)], seq)


_EventHandler = Callable[[_RecordingBuilder, Any, int], None]

_EVENT_HANDLERS = cast(
    Mapping[type, _EventHandler],
    {
        facts.RunStarted: _on_run_started,
        facts.UserMessageReceived: _on_user_message,
        facts.ToolsOffered: _on_tools_offered,
        facts.ModelRequested: _on_model_requested,
        facts.ModelResponded: _on_model_responded,
        facts.ModelFailed: _on_model_failed,
        facts.BatchStarted: _on_batch_started,
        facts.CallProposed: _on_call_proposed,
        facts.CallValidated: _on_call_validated,
        facts.PolicyEvaluated: _on_policy_evaluated,
        facts.ApprovalRequested: _on_question_asked,
        facts.ApprovalGranted: _on_question_answered,
        facts.ApprovalRejected: _on_question_answered,
        facts.ApprovalExpired: _on_question_answered,
        facts.InputProvided: _on_question_answered,
        facts.InputRefused: _on_question_answered,
        facts.InputExpired: _on_question_answered,
        facts.InvocationStarted: _on_invocation_started,
        facts.InvocationCompleted: _on_invocation_completed,
        facts.CallObserved: _on_call_observed,
        facts.FinalAnswerRejected: _on_final_answer_rejected,
        facts.ClaimContradicted: _on_claim_contradicted,
        facts.RunCompleted: _on_run_ended,
        facts.RunDegraded: _on_run_ended,
        facts.RunFailed: _on_run_ended,
        facts.RunCancelled: _on_run_ended,
    },
)
