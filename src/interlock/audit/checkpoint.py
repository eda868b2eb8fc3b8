"""The content of a signed checkpoint: how far runs were, so that a log that was cut or rewritten contradicts it.

The document is RFC 8785 JSON. Checkpoints are numbered, and each names the hash of the one before it, so one that is
missing is seen.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeAlias

import msgspec
import rfc8785

from ..domain.json import is_too_deep
from .keys import PublicKey
from .signed_checkpoint import SignedCheckpoint
from .standalone_verifier import verify_signature

#: Checks a signature. Arguments: key, document, signature.
SignatureCheck: TypeAlias = Callable[[bytes, bytes, bytes], bool]


class ChainHead(msgspec.Struct, frozen=True):
    """The length of a chain, and its last hash, in hex."""

    count: int
    head: str


class CheckpointStatement(msgspec.Struct, frozen=True, kw_only=True):
    """The signed content of a checkpoint."""

    schema: Literal["interlock/checkpoint/v1"] = "interlock/checkpoint/v1"
    number: int
    at: str
    #: The id of the key that signs it.
    key: str
    #: SHA-256 of the document of the one before it; empty for the first.
    previous: str
    #: How far the events of all runs were read.
    position: int
    runs: dict[str, ChainHead]
    #: Head of the audit log; None where it is about one run alone.
    journal: ChainHead | None = None


class UntrustedCheckpoint(msgspec.Struct, frozen=True):
    """Why a signed checkpoint proves nothing."""

    problem: Literal["unknown_key", "forged", "unreadable"]
    message: str


_decode = msgspec.json.Decoder(CheckpointStatement).decode


def canonicalize_statement(statement: CheckpointStatement) -> bytes:
    """Return the canonical JSON (RFC 8785) that is signed."""
    return rfc8785.dumps(msgspec.to_builtins(statement))


def read_statement(
    signed: SignedCheckpoint, keys: Mapping[str, PublicKey], check: SignatureCheck = verify_signature
) -> CheckpointStatement | UntrustedCheckpoint:
    """Return the statement, if one of these keys signed it."""
    if is_too_deep(signed.document):
        return UntrustedCheckpoint("unreadable", "a checkpoint cannot be read: it is nested too deep (nested_too_deep)")
    try:
        statement = _decode(signed.document)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        return UntrustedCheckpoint("unreadable", f"a checkpoint cannot be read: {error}")
    key = keys.get(statement.key)
    if key is None:
        return UntrustedCheckpoint(
            "unknown_key", f"checkpoint {statement.number} is signed by key {statement.key}, which is unknown"
        )
    if not check(key.raw, signed.document, signed.signature):
        return UntrustedCheckpoint(
            "forged", f"the signature of checkpoint {statement.number} is not by key {statement.key}"
        )
    return statement


class CheckpointFlaw(msgspec.Struct, frozen=True):
    """A problem in a sequence of checkpoints."""

    number: int
    message: str


class CheckpointSequence(msgspec.Struct, frozen=True):
    """Checkpoints that follow each other, up to the first flaw."""

    #: Of the last one: its number, its digest, what it says, and how long the audit log was by then.
    number: int = 0
    digest: str = ""
    last: CheckpointStatement | None = None
    journal_count: int = 0
    flaw: CheckpointFlaw | None = None


def verify_sequence(
    so_far: CheckpointSequence,
    page: Iterable[tuple[SignedCheckpoint, CheckpointStatement | UntrustedCheckpoint]],
    keys: Iterable[str],
) -> tuple[CheckpointSequence, list[CheckpointStatement]]:
    """Verify a further page of the sequence, and return its statements. `keys` are in the order of their use."""
    found: list[CheckpointStatement] = []
    order = {key: place for place, key in enumerate(keys)}
    for signed, said in page:
        wrong = said.message if isinstance(said, UntrustedCheckpoint) else _find_misfit(so_far, said, order)
        if wrong or isinstance(said, UntrustedCheckpoint):
            flaw = CheckpointFlaw(so_far.number + 1, wrong)
            return msgspec.structs.replace(so_far, flaw=flaw), found
        journal_count = said.journal.count if said.journal else so_far.journal_count
        so_far = CheckpointSequence(said.number, signed.digest, said, journal_count)
        found.append(said)
    return so_far, found


def _find_misfit(so_far: CheckpointSequence, said: CheckpointStatement, order: Mapping[str, int]) -> str:
    number, last = so_far.number + 1, so_far.last or said
    wrong = (
        (said.number != number, f"checkpoint {number} is missing: {said.number} is in its place"),
        (said.previous != so_far.digest, f"checkpoint {number} does not follow the one before it: one was replaced"),
        (
            order[said.key] < order[last.key],
            f"checkpoint {number} is signed by key {said.key}, which was replaced before it",
        ),
        (
            said.position < last.position,
            f"checkpoint {number} is of another log than the one before it: events were deleted or replaced",
        ),
        (
            said.journal is not None and said.journal.count < so_far.journal_count,
            f"the journal was shorter at checkpoint {number} than before it",
        ),
    )
    return next((message for found, message in wrong if found), "")
