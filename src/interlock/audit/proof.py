"""Verification of a run against its chain and its signatures.

The chain is looked at first: what it shows needs no key. Then everything that was ever signed about the run is compared
with it, so that a checkpoint which was signed later cannot hide what an earlier one says.
"""

from collections.abc import Iterable, Sequence

import msgspec

from ..domain.event import LogEntry, genesis_hash
from .checkpoint import ChainHead, CheckpointStatement, UntrustedCheckpoint
from .verify import ChainVerification, Checkpoint, ProgressTrace, verify


class SignedVerification(msgspec.Struct, frozen=True, kw_only=True):
    """The result of verifying a run and its signatures."""

    audit: ChainVerification
    #: What is wrong with a signature; empty: nothing.
    problem: str = ""
    #: The checkpoint that a known key signed about most of the run, and about how many events that is.
    statement: CheckpointStatement | None = None
    signed_count: int = 0
    #: Why present signatures prove nothing.
    unverified: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """True when nothing is wrong. That does not mean that everything is present."""
        return self.audit.ok and not self.problem

    @property
    def complete(self) -> bool:
        """True when all events are signed."""
        return self.ok and self.statement is not None and self.signed_count == self.audit.count


def verify_signed(
    entries: Sequence[LogEntry],
    run_id: str,
    statements: Iterable[CheckpointStatement | UntrustedCheckpoint],
    *,
    trace: ProgressTrace | None = None,
    expected: Checkpoint | None = None,
) -> SignedVerification:
    """Verify a run. `statements` are from `read_statement`, about any runs. Never raises."""
    audit = verify(entries, run_id, expected, trace)
    if not audit.ok:
        return SignedVerification(audit=audit)
    best, unverified = SignedVerification(audit=audit), dict[str, None]()
    for each in statements:
        if isinstance(each, UntrustedCheckpoint):
            if each.problem == "forged":
                return SignedVerification(audit=audit, problem=each.message)
            unverified[each.message] = None
            continue
        head = each.runs.get(run_id)
        if head is None:
            continue
        if not _matches_head(entries, run_id, head):
            return SignedVerification(audit=verify(entries, run_id, _to_checkpoint(head)))
        if best.statement is None or head.count > best.signed_count:
            best = SignedVerification(audit=audit, statement=each, signed_count=head.count)
    return msgspec.structs.replace(best, unverified=tuple(unverified))


def _matches_head(entries: Sequence[LogEntry], run_id: str, head: ChainHead) -> bool:
    if not 0 <= head.count <= len(entries):
        return False
    there = entries[head.count - 1].hash if head.count else genesis_hash(run_id)
    return there.hex() == head.head


def _to_checkpoint(head: ChainHead) -> Checkpoint:
    try:
        return Checkpoint(max(head.count, 0), bytes.fromhex(head.head))
    except ValueError:
        return Checkpoint(max(head.count, 0), b"")
