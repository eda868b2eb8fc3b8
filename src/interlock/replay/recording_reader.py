"""Reads events to a `Recording`. Nothing is executed; artifacts are only read."""

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, TypeAlias

import msgspec

from ..domain import event as facts
from ..domain.decision import TRIAL_LAYER, Decision, Verdict
from ..domain.errors import ArtifactError, LogCorruptError
from ..domain.event import LogEntry, decode_event
from ..domain.messages import MessagePart, ProposedCall
from ..domain.observation import Observation
from ..domain.outcome import TOOL_OUTPUT
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
    ReplayContextStep,
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
_ModelFact: TypeAlias = facts.ModelResponded | facts.ModelFailed | facts.ContextTrimmed | facts.ContextCompacted
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
    reader = _RecordingReader(artifacts)
    for entry in entries:
        event = decode_event(entry)
        reader.feed(event.fact, event.seq)
    return reader.build(ledger)


class _RecordingReader:
    def __init__(self, artifacts: ArtifactReader | None) -> None:
        self._artifacts = artifacts
        self._started = facts.RunStarted(schema=1)
        self._opening: list[str] = []
        self._attachments: list[tuple[MessagePart, ...]] = []
        self._answers: list[ReplayAnswer] = []
        self._calls: dict[str, ReplayCall] = {}
        self._context: list[tuple[int, facts.ContextTrimmed | facts.ContextCompacted]] = []
        self._objections: list[Objection] = []
        self._menus: dict[str, dict[str, str]] = {}
        self._tools: tuple[ToolSpec, ...] = ()
        self._end: tuple[RunEnd, int] = ("open", -1)
        self._request = ReplayRequest(seq=-1)
        self._batch = facts.BatchStarted(call_count=0)
        #: How many calls of the last answer are still to come, and how many it has.
        self._awaited = self._announced = 0
        self._chat = False
        self._recovery: set[str] = set()

    def build(self, ledger: Ledger) -> Recording:
        self._drop_unrecorded_answer()
        verdict = ledger.checks.summarize()
        end, end_seq = self._end
        rests = end == "open" and ledger.dialogue.last == "model" and not ledger.dialogue.open
        return Recording(
            form=RECORDING_FORMAT,
            run_id=ledger.run_id,
            agent=self._started.agent,
            workspace=self._started.workspace,
            requester=self._started.requester,
            forked_at=self._started.forked_at,
            opening=tuple(self._opening),
            attachments=tuple(self._attachments) if any(self._attachments) else (),
            answers=tuple(self._answers),
            calls=self._calls,
            context=tuple(_context_step(answer, fact, ledger) for answer, fact in self._context),
            objections=tuple(self._objections),
            end=end,
            end_seq=end_seq,
            message=ledger.message,
            text=ledger.dialogue.final_text,
            verification=verdict.status,
            verification_message=verdict.message,
            conversation=tuple(map(digest_message, ledger.dialogue.messages)),
            menus=self._menus,
            tools=self._tools,
            chat=self._chat or rests,
        )

    def feed(self, fact: facts.Fact, seq: int) -> None:
        match fact:
            case facts.RunStarted():
                self._started = fact
            case facts.UserMessageReceived():
                self._feed_message(fact.text)
                self._attachments.append(fact.parts)
            case facts.ToolsOffered():
                self._menus[fact.digest] = fact.versions
                with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                    written = self._read_artifact(fact.artifact_id)
                    self._tools = _decode_specs(written) if written else self._tools
            case facts.ModelRequested():
                self._request = ReplayRequest(
                    seq=seq,
                    agent=fact.agent,
                    menu_digest=fact.menu_digest,
                    message_count=fact.message_count,
                    tool_choice=fact.tool_choice,
                    instructions=fact.instructions_artifact_id or self._request.instructions,
                )
            case facts.ModelResponded() | facts.ModelFailed() | facts.ContextTrimmed() | facts.ContextCompacted():
                self._feed_answer(fact, seq)
            case facts.BatchStarted():
                self._batch = fact
                if self._awaited:
                    self._update_answer(mode=PermissionMode(fact.mode), interactive=fact.interactive)
            case facts.FinalAnswerRejected() | facts.ClaimContradicted():
                kind = "answer" if isinstance(fact, facts.FinalAnswerRejected) else "verification"
                self._objections.append(Objection(seq, kind, fact.message))
            case _ if type(fact) in _END_NAMES:
                self._end = (_END_NAMES[type(fact)], seq)
            case _:
                self._feed_call(fact, seq)

    def _feed_message(self, text: str) -> None:
        if not self._answers:
            self._opening.append(text)
            return
        last = self._answers[-1]
        self._chat |= not last.calls and not last.failed
        self._update_answer(said=(*last.said, text))

    def _feed_answer(self, fact: _ModelFact, seq: int) -> None:
        """Add what came of a request: an answer, a failure or a summary. A summary and what is left out also change
        what the model sees.
        """
        if isinstance(fact, facts.ContextTrimmed | facts.ContextCompacted):
            self._context.append((len(self._answers), fact))
        if isinstance(fact, facts.ContextTrimmed):
            return
        self._drop_unrecorded_answer()
        if isinstance(fact, facts.ModelFailed):
            failed = fact.message or "It gave no reason."
            answer = ReplayAnswer(
                seq=seq, request=self._request, failed=failed, retryable=fact.retryable, code=fact.code
            )
            self._answers.append(answer)
            return
        is_summary = isinstance(fact, facts.ContextCompacted)
        self._awaited = self._announced = 0 if is_summary else fact.call_count
        self._answers.append(
            ReplayAnswer(
                seq=seq,
                request=self._request,
                text=fact.summary if is_summary else fact.text,
                finish="stop" if is_summary else fact.finish,
                usage=fact.usage,
                duration_ms=fact.duration_ms,
                mode=self._batch.mode,
                interactive=self._batch.interactive,
            )
        )

    def _drop_unrecorded_answer(self) -> None:
        """Drop an answer of whose calls none was written down: where a run was forked in the middle of it."""
        if self._announced and self._awaited == self._announced:
            said = self._answers.pop().said
            if self._answers and said:
                self._update_answer(said=self._answers[-1].said + said)
        self._awaited = self._announced = 0

    def _feed_call(self, fact: facts.Fact, seq: int) -> None:
        match fact:
            case facts.CallProposed():
                self._feed_proposed_call(fact, seq)
            case facts.CallValidated():
                self._update_call(fact.call_id, valid=fact.ok, errors=fact.errors, validated_seq=seq)
            case facts.PolicyEvaluated() if fact.decision.layer not in (_RECOVERY_LAYER, _CONSENT_LAYER, TRIAL_LAYER):
                self._update_call(fact.call_id, decision=_policy_part(fact.decision), judged_seq=seq)
            case facts.ApprovalRequested() if fact.question.layer == _RECOVERY_LAYER:
                self._recovery.add(fact.question.action_id)
            case (
                facts.ApprovalGranted()
                | facts.ApprovalRejected()
                | facts.ApprovalExpired()
                | facts.InputProvided()
                | facts.InputRefused()
                | facts.InputExpired()
            ):
                if fact.action_id not in self._recovery:
                    self._update_call(fact.call_id, answer=fact.answer)
            case facts.InvocationStarted():
                self._update_call(fact.call_id, started=True)
            case facts.InvocationCompleted():
                self._update_call(fact.call_id, duration_ms=fact.duration_ms)
            case facts.CallObserved(observation=observation):
                self._update_call(
                    observation.call_id,
                    observation=observation,
                    observed_seq=seq,
                    output=self._read_full_output(observation),
                    told=short_digest(render_for_model(observation)),
                )
            case _:
                pass

    def _feed_proposed_call(self, fact: facts.CallProposed, seq: int) -> None:
        known = self._calls.get(fact.call_id)
        arguments, lost = read_arguments(fact, known, self._read_artifact(fact.raw_artifact_id))
        if known is None:
            self._calls[fact.call_id] = ReplayCall(
                seq=seq,
                call_id=fact.call_id,
                tool=fact.tool,
                agent=self._request.agent,
                arguments=arguments,
                lost=lost,
                mode=PermissionMode(self._batch.mode),
                interactive=self._batch.interactive,
            )
        if self._awaited > 0 and not (fact.duplicate and fact.raw_bytes):  # such a run is continued
            self._awaited -= 1
            call = ProposedCall(call_id=fact.call_id, tool=fact.tool, arguments=arguments)
            self._update_answer(calls=(*self._answers[-1].calls, call))

    def _update_answer(self, **fields: Any) -> None:
        self._answers[-1] = msgspec.structs.replace(self._answers[-1], **fields)

    def _update_call(self, call_id: str, **fields: Any) -> None:
        if call_id in self._calls:
            self._calls[call_id] = msgspec.structs.replace(self._calls[call_id], **fields)

    def _read_artifact(self, artifact_id: str) -> bytes | None:
        try:
            return self._artifacts.read(artifact_id) if self._artifacts is not None and artifact_id else None
        except (ArtifactError, OSError):
            return None

    def _read_full_output(self, observation: Observation) -> str | None:
        """Return the whole output where it was the runtime that cut it, and not the tool."""
        kept, size = observation.artifacts[-1:], observation.size
        if not kept or size is None or kept[0].kind != TOOL_OUTPUT:
            return None
        content = self._read_artifact(kept[0].id) if size.produced == size.kept == kept[0].size_bytes else None
        return content.decode(errors="replace") if content is not None else None


def _context_step(
    answer: int, fact: facts.ContextTrimmed | facts.ContextCompacted, ledger: Ledger
) -> ReplayContextStep:
    if isinstance(fact, facts.ContextTrimmed):
        return ReplayContextStep(answer=answer, trimmed=tuple(fact.outputs))
    return ReplayContextStep(answer=answer, compacted=bisect_right(ledger.dialogue.seqs, fact.last_seq))


def _policy_part(decision: Decision) -> Decision:
    """Return what says how it was decided. What a person was shown is not kept: it names places of one machine."""
    is_standing = decision.layer == _STANDING_APPROVAL_LAYER
    return Decision(
        verdict=Verdict.ASK if is_standing else decision.verdict,
        reason=decision.reason,
        rule_ids=decision.rule_ids,
        layer="" if is_standing else decision.layer,
        advice=decision.advice,
        target_arg=decision.target_arg,
    )
