"""Is a run what was written, and did somebody sign that this is all of it?

The chain is looked at first: what it shows needs no key. Then what was signed about the run is compared with it, each
checkpoint by itself, so that one which was signed later cannot hide what an earlier one says.
"""

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from ...domain.chain import Entry, genesis
from ..standalone_verifier import is_signed
from ..verify import Audit, Checkpoint, Trace, verify
from .checkpoint import Check, Doubt, Head, Statement, read_statement
from .keys import PublicKey
from .signed_line import SignedCheckpoint


class Proof(msgspec.Struct, frozen=True, kw_only=True):
    audit: Audit
    #: What is wrong with a signature; empty: nothing.
    problem: str = ""
    #: The newest checkpoint about the run that a known key signed and that its events agree with.
    statement: Statement | None = None
    signed_count: int = 0
    #: Why a signature that is there says nothing.
    doubts: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Nothing is wrong. That is not to say that all of it is there."""
        return self.audit.ok and not self.problem

    @property
    def complete(self) -> bool:
        """All events that there are were signed."""
        return self.ok and self.statement is not None and self.signed_count == self.audit.count


def prove(  # noqa: PLR0913 - what is checked, and what with
    entries: Sequence[Entry],
    run_id: str,
    signed: Iterable[SignedCheckpoint],
    keys: Mapping[str, PublicKey],
    *,
    own: bool = False,
    trace: Trace | None = None,
    expected: Checkpoint | None = None,
    check: Check = is_signed,
) -> Proof:
    """`own`: the checkpoints came with the events, so each has to be about them. Never raises."""
    audit = verify(entries, run_id, expected, trace)
    if not audit.ok:
        return Proof(audit=audit)
    newest, doubts = None, list[str]()
    for each in signed:
        said = read_statement(each, keys, check)
        head = None if isinstance(said, Doubt) else said.runs.get(run_id)
        if isinstance(said, Doubt):
            if said.problem == "forged":
                return Proof(audit=audit, problem=said.message)
            doubts.append(said.message)
        elif head is not None:
            if not _agrees(entries, run_id, head):
                return Proof(audit=verify(entries, run_id, _mark(head)))
            newest = max(newest or (head.count, said), (head.count, said), key=lambda found: found[0])
        elif own:
            return Proof(audit=audit, problem=f"checkpoint {said.number}, which came with it, is not about {run_id}")
    return Proof(
        audit=audit,
        statement=newest[1] if newest else None,
        signed_count=newest[0] if newest else 0,
        doubts=tuple(dict.fromkeys(doubts)),
    )


def _agrees(entries: Sequence[Entry], run_id: str, head: Head) -> bool:
    if not 0 <= head.count <= len(entries):
        return False
    there = entries[head.count - 1].hash if head.count else genesis(run_id)
    return there.hex() == head.head


def _mark(head: Head) -> Checkpoint:
    try:
        return Checkpoint(max(head.count, 0), bytes.fromhex(head.head))
    except ValueError:
        return Checkpoint(max(head.count, 0), b"")
