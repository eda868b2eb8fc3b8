"""REST schemas of the audit: proofs, checkpoints, keys, forwarders and the audit log."""

from typing import Any

import msgspec

from ....audit.keys import PublicKey
from ...core.audit.audit_log import AuditOutcome
from ...core.audit.service import RunFlaw
from ..responses import Merged, OptionalTime, ResponseModel, Time


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
    #: Signatures that could not be checked, and why.
    unverified: list[str]

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Merge the verification with the signed statement."""
        run_id, proof = row
        statement = proof.statement
        signed = (None, None, None) if statement is None else (statement.at, statement.key, statement.number)
        given = dict(zip(("signed_at", "signed_by", "checkpoint"), signed, strict=True))
        return Merged(given | {"run_id": run_id, "head": proof.audit.head_hash.hex()}, proof, proof.audit)


class AuditLogCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of verifying the audit log."""

    count: int
    head: str
    broken_seq: int | None
    problem: str

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Return null for a chain without a break."""
        return Merged({"broken_seq": row.broken_seq or None}, row)


class CheckpointCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of verifying the checkpoints."""

    ok: bool
    checkpoints: int
    runs: int
    problem: str
    contradictions: list[str]

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Return the flaw as a message."""
        return Merged({"problem": "" if row.flaw is None else row.flaw.message}, row)


class ServerCheckResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of verifying everything."""

    ok: bool
    #: False: it took too long, and only so many runs were looked at.
    finished: bool
    runs: int
    events: int
    flaws: list[RunFlaw]
    checkpoints: CheckpointCheckResponse
    audit_log: AuditLogCheckResponse


class CheckpointResponse(ResponseModel, frozen=True, kw_only=True):
    """A signed checkpoint. The signature is over exactly the bytes of the document."""

    checkpoint: dict[str, Any]
    document: str
    signature: str

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Decode the document. One that was replaced is shown undecoded."""
        try:
            checkpoint = msgspec.json.decode(row.document, type=dict[str, Any])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            checkpoint = {}  # it was replaced, which `/audit/verify` reports
        document = row.document.decode(errors="replace")
        return {"checkpoint": checkpoint, "document": document, "signature": row.signature.hex()}


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
    pending_count: int
    oldest_pending_at: OptionalTime
    last_success_at: OptionalTime
    last_error: str
    last_error_at: OptionalTime
    failures: int
    #: Events that the destination refused for good.
    dead_letter_count: int


class DeadLetterResponse(ResponseModel, frozen=True, kw_only=True):
    """An event that a destination rejected. It is still in the log."""

    #: Its place in the log of all runs.
    position: int
    run_id: str
    seq: int
    problem: str
    at: Time


class DeadLetterList(ResponseModel, frozen=True, kw_only=True):
    """Dead letters of a destination. `next_after` is the cursor of the next page."""

    dead_letters: list[DeadLetterResponse]
    next_after: int


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


class AuditLogEntryResponse(ResponseModel, frozen=True, kw_only=True):
    """An entry of the audit log."""

    seq: int
    at: Time
    by: str
    action: str
    target: str
    outcome: AuditOutcome
    detail: dict[str, str]


class AuditLogEntryList(ResponseModel, frozen=True, kw_only=True):
    """Entries of the audit log."""

    entries: list[AuditLogEntryResponse]
    #: What to ask for next, as `after`.
    next_after: int
