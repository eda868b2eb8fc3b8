"""REST schemas of the audit: proofs, checkpoints, keys, forwarders and the audit log."""

from typing import Any

import msgspec

from ....audit.keys import PublicKey
from ....audit.proof import SignedVerification
from ....audit.signed_checkpoint import SignedCheckpoint
from ...core.audit.audit_log import AuditLogEntry, AuditOutcome
from ...core.audit.service import RunFlaw, ServerCheck
from ...core.audit_sinks.forwarder import ForwarderStatus, RunForwardResult
from ..times import format_optional_time, format_time
from .runs import ResponseModel


class FlawResponse(ResponseModel, frozen=True, kw_only=True):
    """A problem in a run's events."""

    seq: int
    problem: str
    message: str


class ProofResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of verifying a run."""

    run_id: str
    #: Nothing is wrong. That is not to say that all of it is there: see `complete`.
    ok: bool
    #: All events that there are were signed.
    complete: bool
    count: int
    head: str
    flaw: FlawResponse | None
    #: What is wrong with a signature; empty: nothing.
    problem: str
    #: How many events were signed, when, by which key, and as which checkpoint. Later events are not covered.
    signed_count: int
    signed_at: str | None
    signed_by: str | None
    checkpoint: int | None
    doubts: list[str]

    @classmethod
    def from_domain(cls, run_id: str, proof: SignedVerification) -> "ProofResponse":
        audit, statement = proof.audit, proof.statement
        flaw = audit.flaw
        return cls(
            run_id=run_id,
            ok=proof.ok,
            complete=proof.complete,
            count=audit.count,
            head=audit.head_hash.hex(),
            flaw=None if flaw is None else FlawResponse(seq=flaw.seq, problem=flaw.problem, message=flaw.message),
            problem=proof.problem,
            signed_count=proof.signed_count,
            signed_at=None if statement is None else statement.at,
            signed_by=None if statement is None else statement.key,
            checkpoint=None if statement is None else statement.number,
            doubts=list(proof.doubts),
        )


class AuditLogCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of verifying the audit log."""

    count: int
    head: str
    broken_at: int | None
    problem: str


class CheckpointCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of verifying the checkpoints."""

    ok: bool
    checkpoints: int
    runs: int
    problem: str
    contradictions: list[str]


class ServerCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of verifying everything."""

    ok: bool
    #: False: it took too long, and only so many runs were looked at.
    finished: bool
    runs: int
    events: int
    flaws: list[RunFlaw]
    checkpoints: CheckpointCheckResponse
    journal: AuditLogCheckResponse

    @classmethod
    def from_domain(cls, check: ServerCheck) -> "ServerCheckResponse":
        signed, journal = check.checkpoints, check.journal
        return cls(
            ok=check.ok,
            finished=check.finished,
            runs=check.runs,
            events=check.events,
            flaws=list(check.flaws),
            checkpoints=CheckpointCheckResponse(
                ok=signed.ok,
                checkpoints=signed.checkpoints,
                runs=signed.runs,
                problem="" if signed.flaw is None else signed.flaw.message,
                contradictions=list(signed.contradictions),
            ),
            journal=AuditLogCheckResponse(
                count=journal.count, head=journal.head, broken_at=journal.broken_at or None, problem=journal.problem
            ),
        )


class CheckpointResponse(ResponseModel, frozen=True, kw_only=True):
    """A signed checkpoint. The signature is over exactly the bytes of the document."""

    checkpoint: dict[str, Any]
    document: str
    signature: str

    @classmethod
    def from_domain(cls, signed: SignedCheckpoint) -> "CheckpointResponse":
        return cls(
            checkpoint=_decode_document(signed.document),
            document=signed.document.decode(errors="replace"),
            signature=signed.signature.hex(),
        )


def _decode_document(document: bytes) -> dict[str, Any]:
    """Decode a document. Empty where it was replaced, which `/audit/verify` reports."""
    try:
        return msgspec.json.decode(document, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}


class CheckpointList(ResponseModel, frozen=True, kw_only=True):
    """Signed checkpoints."""

    checkpoints: list[CheckpointResponse]


class SigningKeyList(ResponseModel, frozen=True, kw_only=True):
    """Ed25519 public keys in hex, the oldest first; the one without an end is in use."""

    keys: list[PublicKey]


class ForwarderResponse(ResponseModel, frozen=True, kw_only=True):
    """The state of a forwarder."""

    name: str
    kind: str
    schema: str
    position: int
    waiting: int
    oldest_waiting_at: str | None
    last_success_at: str | None
    last_error: str
    last_error_at: str | None
    failures: int
    set_aside: int

    @classmethod
    def from_domain(cls, status: ForwarderStatus) -> "ForwarderResponse":
        return cls(
            name=status.name,
            kind=status.kind,
            schema=status.schema,
            position=status.position,
            waiting=status.waiting,
            oldest_waiting_at=format_optional_time(status.oldest_waiting_at),
            last_success_at=format_optional_time(status.last_success_at),
            last_error=status.last_error,
            last_error_at=format_optional_time(status.last_error_at),
            failures=status.failures,
            set_aside=status.set_aside,
        )


class ForwarderList(ResponseModel, frozen=True, kw_only=True):
    """Forwarders."""

    forwarders: list[ForwarderResponse]


class ForwardRunResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of forwarding a run."""

    run_id: str
    destination: str
    sent: int
    total: int
    #: Why not all were sent; empty: they were.
    problem: str

    @classmethod
    def from_domain(cls, result: RunForwardResult) -> "ForwardRunResponse":
        return cls(
            run_id=result.run_id,
            destination=result.destination,
            sent=result.sent,
            total=result.total,
            problem=result.problem,
        )


class AuditLogEntryResponse(ResponseModel, frozen=True, kw_only=True):
    """An entry of the audit log."""

    seq: int
    at: str
    by: str
    action: str
    target: str
    outcome: AuditOutcome
    detail: dict[str, str]

    @classmethod
    def from_domain(cls, entry: AuditLogEntry) -> "AuditLogEntryResponse":
        return cls(
            seq=entry.seq,
            at=format_time(entry.at),
            by=entry.by,
            action=entry.action,
            target=entry.target,
            outcome=entry.outcome,
            detail=dict(entry.detail),
        )


class AuditLogEntryList(ResponseModel, frozen=True, kw_only=True):
    """Entries of the audit log."""

    entries: list[AuditLogEntryResponse]
    #: What to ask for next, as `after`.
    next_after: int
