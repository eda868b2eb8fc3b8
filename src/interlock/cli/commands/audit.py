"""`interlock audit`: export a run as a verifiable file, and verify it."""

import os
import sys
from collections.abc import Collection, Mapping, Sequence, Set
from importlib import import_module
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import msgspec
import typer

from ...audit.checkpoint import (
    CheckpointSequence,
    CheckpointStatement,
    UntrustedCheckpoint,
    read_statement,
    verify_sequence,
)
from ...audit.erase import matches_record
from ...audit.export import read_checkpoints
from ...audit.keys import PublicKey
from ...audit.proof import SignedVerification, verify_signed
from ...audit.schemas import ExportFormat, SchemaName
from ...audit.schemas import export_run as exported
from ...audit.signed_checkpoint import SignedCheckpoint, parse_checkpoint_lines
from ...audit.standalone_verifier import verify_signature
from ...audit.verify import ChainVerification, Checkpoint, verify
from ...domain.errors import ConfigurationError
from ...rendering.text import pluralize
from ...storage.removal import RemovedRun, describe_removed
from ..config.audit_keys import load_keys, load_signing, read_own_keys
from ..config.logs import (
    MAX_EXPORT_BYTES,
    RecordedRun,
    RunArgument,
    count_unnamed_runs,
    is_log_file,
    read_erased_runs,
    read_run,
    read_runs,
)
from ..config.user_paths import write_new_file
from ..display.output import echo, echo_json
from ..exit_codes import ExitCode, format_exit_codes
from ..options import JsonOption, LogOption, argument, create_app, option

#: A checkpoint, and its verification with these keys.
ReadCheckpoint: TypeAlias = tuple[SignedCheckpoint, CheckpointStatement | UntrustedCheckpoint]
_HASH_BYTES = 32
_VERIFIER_FILE = "standalone_verifier.py"
_EXITS = format_exit_codes(
    ok="done, and the log is unmodified",
    failed="the log was modified",
    usage="bad usage, an unreadable file, or a signature that proves nothing",
)

app = create_app(_EXITS, is_group=True)


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What runs are verified against."""

    keys: Mapping[str, PublicKey] = {}
    #: What came with the events, and what was kept elsewhere.
    embedded: Sequence[ReadCheckpoint] = ()
    external: Sequence[ReadCheckpoint] = ()
    expected: Checkpoint | None = None
    #: Whether a key was named without an external copy. Then what is not signed is not proved.
    requires_signature: bool = False


def _read_external_checkpoints(path: Path, keys: Mapping[str, PublicKey]) -> list[ReadCheckpoint]:
    """Return the checkpoints of an external copy. Raise `ConfigurationError` when there is no key to check it with."""
    try:
        with path.open("rb") as file:
            found = parse_checkpoint_lines(file.read(MAX_EXPORT_BYTES).splitlines())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not found:
        raise ConfigurationError(f"{path} contains no checkpoint.")
    if not keys:
        raise ConfigurationError("No key to verify the checkpoints with. Pass the public key with --key.")
    return _read_statements(dict.fromkeys(found), keys)


def _find_checkpoint_flaws(evidence: Evidence) -> list[str]:
    """Return what is wrong with them as a sequence. It may begin anywhere, and has no gap."""
    if not evidence.external:
        return []
    _, first = evidence.external[0]
    is_trusted = isinstance(first, CheckpointStatement)
    begin = CheckpointSequence(first.number - 1, first.previous) if is_trusted else CheckpointSequence()
    so_far, _ = verify_sequence(begin, evidence.external, evidence.keys)
    return [so_far.flaw.message] if so_far.flaw else []


def _find_foreign_checkpoints(run_ids: Set[str], evidence: Evidence) -> list[str]:
    """Return checkpoints that came with the events and are about none of them: from another export."""
    return [
        f"checkpoint {statement.number} is for {', '.join(statement.runs)[:200]}, which the file does not contain"
        for _, statement in evidence.embedded
        if isinstance(statement, CheckpointStatement) and not run_ids & statement.runs.keys()
    ]


def _find_missing_runs(run_ids: Set[str], erased: Sequence[RemovedRun], evidence: Evidence) -> list[str]:
    """Return signed runs that are missing in a whole log, and records of erased runs that are not what was signed."""
    statements = [statement for _, statement in evidence.external if isinstance(statement, CheckpointStatement)]
    recorded = {each.run_id: each for each in erased}
    signed = {name: head.count for statement in statements for name, head in statement.runs.items()}
    return [
        f"{name}: modified: {pluralize(events, 'event')} signed, none found"
        for name, events in signed.items()
        if name not in run_ids and name not in recorded and events
    ] + [
        f"{name}: the record of the erased run is not what checkpoint {statement.number} signed"
        for statement in statements
        for name, head in statement.runs.items()
        if name in recorded and not matches_record(recorded[name], head)
    ]


def _is_unproven(proof: SignedVerification, evidence: Evidence) -> bool:
    """Return True if the chain is valid, but an expected signature does not cover it."""
    return proof.ok and not proof.complete and bool(evidence.embedded or evidence.requires_signature)


def _proof_to_json(run_id: str, proof: SignedVerification, *, end_checked: bool) -> dict[str, Any]:
    statement = proof.statement
    return {
        **_chain_to_json(run_id, proof.audit),
        "ok": proof.ok,
        "problem": proof.problem,
        "end_checked": end_checked or proof.complete,
        "signed_events": proof.signed_count if statement else None,
        "signed_by": statement.key if statement else None,
        "signed_at": statement.at if statement else None,
        "signed_checkpoint": statement.number if statement else None,
        "unverified": proof.unverified,
    }


def _echo_proof(run_id: str, proof: SignedVerification, evidence: Evidence) -> None:
    _echo_chain(run_id, proof.audit, proof.problem, error=False)
    statement, left = proof.statement, proof.audit.count - proof.signed_count
    if not proof.ok:
        return
    if statement is not None:
        by = f"at {statement.at} as checkpoint {statement.number} by key {statement.key}"
        rest = f"{pluralize(left, 'event')} after that not signed" if left else "events written later are not covered"
        echo(f"  signed {by}: {pluralize(proof.signed_count, 'event')}, up to event {proof.signed_count - 1}; {rest}")
    for doubt in proof.unverified:
        echo(f"  not proved: {doubt}: pass the key with --key")
    if statement is None and not proof.unverified and _is_unproven(proof, evidence):
        echo("  not proved: it is not signed")


def _echo_chain(run_id: str, audit: ChainVerification, problem: str = "", *, error: bool) -> None:
    name = run_id or "a run without a name"
    flaw = audit.flaw.message if audit.flaw else problem
    if flaw:
        echo(f"{name}: modified: {flaw}", error=error)
        echo(f"  intact before it: {pluralize(audit.count, 'event')}", error=error)
    else:
        echo(f"{name}: {pluralize(audit.count, 'event')}, in one unbroken chain", error=error)
        echo(f"  checkpoint {audit.count}:{audit.head_hash.hex()}", error=error)


def _chain_to_json(run_id: str, chain: ChainVerification) -> dict[str, Any]:
    """Return a verification for JSON output. `checkpoint` is empty where there is nothing to rely on."""
    checkpoint = f"{chain.count}:{chain.head_hash.hex()}" if chain.ok else ""
    return {"run_id": run_id, "ok": chain.ok, "events": chain.count, "checkpoint": checkpoint, "flaw": chain.flaw}


def _read_statements(found: Collection[SignedCheckpoint], keys: Mapping[str, PublicKey]) -> list[ReadCheckpoint]:
    """Read each checkpoint and check its signature, with `cryptography` if it is installed."""
    if not found:
        return []
    can_sign = find_spec("cryptography")
    check = import_module("interlock.server.core.audit.signing").is_signature if can_sign else verify_signature
    return [(signed, read_statement(signed, keys, check)) for signed in found]


@app.callback()
def audit() -> None:
    """Export runs, and verify that a log was not modified."""


@app.command(epilog=_EXITS)
def export(  # noqa: PLR0913, PLR0917 - one for each option
    run: RunArgument,
    form: Annotated[ExportFormat, typer.Option("--format", help="One JSON object per line, or one array.")] = "ndjson",
    schema: Annotated[SchemaName, typer.Option(help="Event schema. Only `interlock` can be verified.")] = "interlock",
    sign: Annotated[
        bool, typer.Option("--sign", help="Sign the number of events and the last hash with this user's key.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="New file to write. Default: standard output.")
    ] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a run to a file that anyone can verify.

    Events are written byte for byte as they are stored. The checkpoint on stderr proves later that nothing was cut off
    or replaced: keep it elsewhere, or sign it with --sign.
    """
    if output is None and (as_json or sys.stdout.isatty()):
        raise ConfigurationError(
            "An export may contain terminal control sequences. Write it to a file with -o, or use a pipe."
        )
    if sign and schema != "interlock":
        raise ConfigurationError(
            f"--sign requires --schema interlock: an export with schema {schema} cannot be verified."
        )
    found = read_run(log, run)
    checked = verify(found.entries, found.run_id, trace=found.trace)
    signed = _sign_export(found) if sign and checked.ok else None
    parts = exported(found.entries, schema, form, signed=signed)
    if output is None:
        sys.stdout.buffer.writelines(parts)
        sys.stdout.buffer.flush()
    else:
        write_new_file(output, parts)
    if as_json:
        echo_json({**_chain_to_json(found.run_id, checked), "signed": signed is not None, "path": str(output)})
    else:
        _echo_chain(found.run_id, checked, error=True)
        if signed is not None:
            echo("  signed; `interlock audit key` prints the key to verify it with", error=True)
    if not checked.ok:
        raise typer.Exit(ExitCode.FAILED)


@app.command("verify", epilog=_EXITS)
def verify_run(  # noqa: PLR0913, PLR0917 - one for each option
    what: Annotated[str, argument("RUN|FILE", "Run, or path of an export or a log.")],
    checkpoint: Annotated[
        str, option("Checkpoint printed by an earlier export or verification.", metavar="COUNT:HASH")
    ] = "",
    key: Annotated[
        list[str] | None,
        typer.Option(metavar="HEX", help="Public key of the signer. Repeatable. Default: this user's keys."),
    ] = None,
    checkpoints: Annotated[
        Path | None, typer.Option(metavar="FILE", help="File with signed checkpoints that were kept elsewhere.")
    ] = None,
    log: LogOption = None,
    as_json: JsonOption = False,
) -> None:
    """Verify that a run, or every run in a file, was not modified.

    Reports the first modified event and what was done to it.
    """
    expected = _parse_checkpoint(checkpoint) if checkpoint else None
    is_file = os.sep in what or what.endswith((".ndjson", ".json", ".db")) or os.path.isfile(what)
    runs = read_runs(what) if is_file else [read_run(log, what)]
    is_log = is_file and is_log_file(what)
    erased = read_erased_runs(what) if is_log else []
    if expected and len(runs) > 1:
        raise ConfigurationError(f"--checkpoint is for one run, and {what} contains {len(runs):,} runs.")
    keys = load_keys(key or ())
    embedded: Collection[SignedCheckpoint] = ()
    if is_file and not is_log:
        with open(what, "rb") as file:
            embedded = read_checkpoints(file)
    evidence = Evidence(
        keys=keys,
        embedded=_read_statements(embedded, keys),
        external=_read_external_checkpoints(checkpoints, keys) if checkpoints else (),
        expected=expected,
        requires_signature=bool(key) and checkpoints is None,
    )
    statements = [statement for _, statement in (*evidence.embedded, *evidence.external)]
    proofs = {
        run.run_id: verify_signed(run.entries, run.run_id, statements, trace=run.trace, expected=expected)
        for run in runs
    }
    problems = [
        *_find_file_problems(what, runs, count_unnamed_runs(what) if is_log else 0),
        *_find_foreign_checkpoints(proofs.keys(), evidence),
        *_find_checkpoint_flaws(evidence),
        *(_find_missing_runs(proofs.keys(), erased, evidence) if is_log else ()),
    ]
    _echo_proofs(proofs, erased, evidence, as_json=as_json)
    for each in problems:
        echo(f"interlock: {each}", error=True)
    if problems or not all(proof.ok for proof in proofs.values()):
        raise typer.Exit(ExitCode.FAILED)
    if any(_is_unproven(proof, evidence) for proof in proofs.values()):
        raise typer.Exit(ExitCode.USAGE)


@app.command(epilog=_EXITS)
def key(
    rotate: Annotated[bool, typer.Option("--rotate", help="Create a new key and sign with it from now on.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Print the public key to verify this user's signatures with.

    Signatures of older keys stay valid; --json prints all keys.
    """
    if rotate:
        signing, path = load_signing()
        signing.rotate_key(path)
    keys = read_own_keys()
    if not keys:
        raise ConfigurationError(
            "Nothing was signed here yet, so there is no key. `interlock audit export RUN --sign` makes one, or "
            "`interlock audit key --rotate`."
        )
    if as_json:
        echo_json(keys)
    else:
        print(keys[-1].public)


@app.command(epilog=_EXITS)
def verifier() -> None:
    """Print a program that verifies an export without Interlock.

    It is one Python file, short enough to read: `interlock audit verifier > verify.py`.
    """
    sys.stdout.write(files("interlock.audit").joinpath(_VERIFIER_FILE).read_text(encoding="utf-8"))


def _sign_export(found: RecordedRun) -> SignedCheckpoint:
    signing, path = load_signing()
    signed: SignedCheckpoint | None = signing.sign_run(path, found.run_id, found.entries)
    if signed is None:
        raise ConfigurationError(
            f"{found.run_id} does not match what was signed before, so it was not signed, and nothing was written. "
            "`interlock audit verify` with the kept checkpoints shows the difference."
        )
    return signed


def _find_file_problems(what: str, runs: list[RecordedRun], unnamed: int) -> list[str]:
    if unnamed:
        return [f"{what} was modified: {pluralize(unnamed, 'run')} with events, but no name"]
    return [] if runs else [f"{what} contains no events"]


def _echo_proofs(
    proofs: Mapping[str, SignedVerification], erased: Sequence[RemovedRun], evidence: Evidence, *, as_json: bool
) -> None:
    end_checked = evidence.expected is not None
    if as_json:
        verified = [_proof_to_json(run_id, proof, end_checked=end_checked) for run_id, proof in proofs.items()]
        # neither intact nor modified
        echo_json([*verified, *({"run_id": each.run_id, "ok": None, "erased": each} for each in erased)])
        return
    for each in erased:
        echo(describe_removed(each))
    for run_id, proof in proofs.items():
        _echo_proof(run_id, proof, evidence)
    if not end_checked and any(proof.ok and proof.statement is None for proof in proofs.values()):
        echo("  Events cut off at the end are detected only with an earlier checkpoint: --checkpoint COUNT:HASH.")


def _parse_checkpoint(text: str) -> Checkpoint:
    event_count, _, head_hash = text.partition(":")
    try:
        found = Checkpoint(int(event_count), bytes.fromhex(head_hash))
    except ValueError:
        found = Checkpoint(-1, b"")
    if found.count < 0 or len(found.head_hash) != _HASH_BYTES:
        raise typer.BadParameter(
            "a checkpoint is a number of events and a hash, as in 12:5eed...", param_hint="--checkpoint"
        )
    return found
