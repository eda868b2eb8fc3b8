"""What `interlock audit verify` finds: each run against its chain, and against what was signed about it."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ...audit.checkpoint import (
    UntrustedCheckpoint,
    CheckpointSequence,
    CheckpointStatement,
    verify_sequence,
    read_statement,
)
from ...audit.export import read_checkpoints
from ...audit.keys import PublicKey
from ...audit.proof import SignedVerification, verify_signed
from ...audit.signed_line import SignedCheckpoint, parse_checkpoint_lines
from ...audit.standalone_verifier import verify_signature
from ...audit.verify import ChainVerification, Checkpoint
from ...domain.errors import ConfigurationError
from ..config.recordings import MAX_EXPORT_BYTES, RecordedRun
from ..display.output import pluralize, echo

_SQLITE_MAGIC = b"SQLite format 3\0"


class ReadCheckpoint(msgspec.Struct, frozen=True):
    """A checkpoint, and what it says to whoever has these keys."""

    signed: SignedCheckpoint
    statement: CheckpointStatement | UntrustedCheckpoint


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What runs are compared with."""

    keys: Mapping[str, PublicKey] = {}
    #: What came with the events, and what was kept elsewhere.
    embedded: Sequence[ReadCheckpoint] = ()
    external: Sequence[ReadCheckpoint] = ()
    expected: Checkpoint | None = None
    #: Was a key named, and nothing that was kept elsewhere? Then what is not signed is not proved.
    requires_signature: bool = False


def is_log_file(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_SQLITE_MAGIC)) == _SQLITE_MAGIC


def read_embedded_checkpoints(path: str, keys: Mapping[str, PublicKey]) -> list[ReadCheckpoint]:
    """Those in an export; a log has none."""
    if is_log_file(path):
        return []
    with open(path, "rb") as file:
        return _read_statements(read_checkpoints(file), keys)


def read_external_checkpoints(path: Path, keys: Mapping[str, PublicKey]) -> list[ReadCheckpoint]:
    """All of a file that checkpoints were copied to. `ConfigurationError` when there is nothing to check it with."""
    try:
        with path.open("rb") as file:
            found = parse_checkpoint_lines(file.read(MAX_EXPORT_BYTES).splitlines())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not found:
        raise ConfigurationError(f"There is no checkpoint in {path}.")
    if not keys:
        raise ConfigurationError("There is no key to check the checkpoints with: name it with --key.")
    return _read_statements(dict.fromkeys(found), keys)


def find_checkpoint_flaws(evidence: Evidence) -> list[str]:
    """What is wrong with them as a row. It may begin anywhere, and has no gap."""
    if not evidence.external:
        return []
    first = evidence.external[0].statement
    begin = (
        CheckpointSequence()
        if isinstance(first, UntrustedCheckpoint)
        else CheckpointSequence(first.number - 1, first.previous)
    )
    so_far, _ = verify_sequence(begin, [(each.signed, each.statement) for each in evidence.external], evidence.keys)
    return [so_far.flaw.message] if so_far.flaw else []


def prove_run(run: RecordedRun, evidence: Evidence) -> SignedVerification:
    statements = [each.statement for each in (*evidence.embedded, *evidence.external)]
    return verify_signed(run.entries, run.run_id, statements, trace=run.trace, expected=evidence.expected)


def find_foreign_checkpoints(runs: Sequence[RecordedRun], evidence: Evidence) -> list[str]:
    """Checkpoints that came with the events and are about none of them: they were taken from another export."""
    run_ids = {run.run_id for run in runs}
    return [
        f"checkpoint {each.statement.number} in it is about {', '.join(each.statement.runs)[:200]}, which is not in it"
        for each in evidence.embedded
        if isinstance(each.statement, CheckpointStatement) and not run_ids & each.statement.runs.keys()
    ]


def find_missing_runs(runs: Sequence[RecordedRun], evidence: Evidence) -> list[str]:
    """Runs that were signed, and of which a whole log has nothing."""
    run_ids = {run.run_id for run in runs}
    statements = [each.statement for each in evidence.external if isinstance(each.statement, CheckpointStatement)]
    signed = {name: head.count for statement in statements for name, head in statement.runs.items()}
    return [
        f"{name}: not what was written: {pluralize(events, 'event')} were signed, and none is there"
        for name, events in signed.items()
        if name not in run_ids and events
    ]


def is_unproven(proof: SignedVerification, evidence: Evidence) -> bool:
    """The chain is unbroken, and a signature that there should be does not cover it."""
    return proof.ok and not proof.complete and bool(evidence.embedded or evidence.requires_signature)


def proof_to_json(run_id: str, proof: SignedVerification, *, end_checked: bool) -> dict[str, Any]:
    audit, statement = proof.audit, proof.statement
    return {
        "run_id": run_id,
        "ok": proof.ok,
        "events": audit.count,
        "checkpoint": format_checkpoint(audit),
        "flaw": audit.flaw,
        "problem": proof.problem,
        "end_checked": end_checked or proof.complete,
        "signed_events": proof.signed_count if statement else None,
        "signed_by": statement.key if statement else None,
        "signed_at": statement.at if statement else None,
        "signed_checkpoint": statement.number if statement else None,
        "doubts": proof.doubts,
    }


def echo_proof(run_id: str, proof: SignedVerification, evidence: Evidence) -> None:
    echo_audit(run_id, proof.audit, proof.problem, error=False)
    statement, left = proof.statement, proof.audit.count - proof.signed_count
    if not proof.ok:
        return
    if statement is not None:
        by = f"at {statement.at} as checkpoint {statement.number} by key {statement.key}"
        rest = f"{pluralize(left, 'event')} after that not proved" if left else "what was written later is not in it"
        echo(f"  signed {by}: {pluralize(proof.signed_count, 'event')}, up to event {proof.signed_count - 1}; {rest}")
    for doubt in proof.doubts:
        echo(f"  not proved: {doubt}: name it with --key")
    if statement is None and not proof.doubts and is_unproven(proof, evidence):
        echo("  not proved: it is not signed")


def echo_audit(run_id: str, audit: ChainVerification, problem: str = "", *, error: bool) -> None:
    name = run_id or "a run without a name"
    flaw = audit.flaw.message if audit.flaw else problem
    if flaw:
        echo(f"{name}: not what was written: {flaw}", error=error)
        echo(f"  in order before it: {pluralize(audit.count, 'event')}", error=error)
    else:
        echo(f"{name}: {pluralize(audit.count, 'event')}, in one unbroken chain", error=error)
        echo(f"  checkpoint {format_checkpoint(audit)}", error=error)


def format_checkpoint(audit: ChainVerification) -> str:
    """What `--checkpoint` takes; empty where nothing should be built on it."""
    return f"{audit.count}:{audit.head_hash.hex()}" if audit.ok else ""


def _read_statements(found: Collection[SignedCheckpoint], keys: Mapping[str, PublicKey]) -> list[ReadCheckpoint]:
    """Each signature is looked at once, with the faster one of two ways if it is there."""
    if not found:
        return []
    can_sign = find_spec("cryptography")
    check = import_module("interlock.server.core.audit.signing").is_signature if can_sign else verify_signature
    return [ReadCheckpoint(signed, read_statement(signed, keys, check)) for signed in found]
