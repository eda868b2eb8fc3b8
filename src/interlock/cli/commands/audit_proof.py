"""What `interlock audit verify` finds: each run against its chain, and against what was signed about it."""

from collections.abc import Collection, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ...audit.checkpoint import Doubt, Followed, Statement, follow, read_statement
from ...audit.export import read_signatures
from ...audit.keys import PublicKey
from ...audit.proof import Proof, prove
from ...audit.signed_line import SignedCheckpoint, read_lines
from ...audit.standalone_verifier import is_signed
from ...audit.verify import Audit, Checkpoint
from ...domain.errors import ConfigurationError
from ..config.recordings import MAX_EXPORT_BYTES, RecordedRun
from ..display.output import count, say

_SQLITE = b"SQLite format 3\0"


class Read(msgspec.Struct, frozen=True):
    """A checkpoint, and what it says to whoever has these keys."""

    signed: SignedCheckpoint
    said: Statement | Doubt


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What runs are compared with."""

    keys: Mapping[str, PublicKey] = {}
    #: What came with the events, and what was kept elsewhere.
    own: Sequence[Read] = ()
    kept: Sequence[Read] = ()
    expected: Checkpoint | None = None
    #: Was a key named, and nothing that was kept elsewhere? Then what is not signed is not proved.
    wanted: bool = False


def is_log(path: str) -> bool:
    with open(path, "rb") as file:
        return file.read(len(_SQLITE)) == _SQLITE


def own_signatures(path: str, keys: Mapping[str, PublicKey]) -> list[Read]:
    """Those in an export; a log has none."""
    if is_log(path):
        return []
    with open(path, "rb") as file:
        return _read(read_signatures(file), keys)


def kept_signatures(path: Path, keys: Mapping[str, PublicKey]) -> list[Read]:
    """All of a file that checkpoints were copied to. `ConfigurationError` when there is nothing to check it with."""
    try:
        with path.open("rb") as file:
            found = read_lines(file.read(MAX_EXPORT_BYTES).splitlines())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from None
    if not found:
        raise ConfigurationError(f"There is no checkpoint in {path}.")
    if not keys:
        raise ConfigurationError("There is no key to check the checkpoints with: name it with --key.")
    return _read(dict.fromkeys(found), keys)


def flaws_of_kept(evidence: Evidence) -> list[str]:
    """What is wrong with them as a row. It may begin anywhere, and has no gap."""
    if not evidence.kept:
        return []
    first = evidence.kept[0].said
    begin = Followed() if isinstance(first, Doubt) else Followed(first.number - 1, first.previous)
    so_far, _ = follow(begin, [(each.signed, each.said) for each in evidence.kept], evidence.keys)
    return [so_far.flaw.message] if so_far.flaw else []


def proof_of(run: RecordedRun, evidence: Evidence) -> Proof:
    said = [each.said for each in (*evidence.own, *evidence.kept)]
    return prove(run.entries, run.run_id, said, trace=run.trace, expected=evidence.expected)


def strangers(runs: Sequence[RecordedRun], evidence: Evidence) -> list[str]:
    """Checkpoints that came with the events and are about none of them: they were taken from another export."""
    there = {run.run_id for run in runs}
    return [
        f"checkpoint {each.said.number} in it is about {', '.join(each.said.runs)[:200]}, which is not in it"
        for each in evidence.own
        if isinstance(each.said, Statement) and not there & each.said.runs.keys()
    ]


def lost_runs(runs: Sequence[RecordedRun], evidence: Evidence) -> list[str]:
    """Runs that were signed, and of which a whole log has nothing."""
    there = {run.run_id for run in runs}
    known = [each.said for each in evidence.kept if isinstance(each.said, Statement)]
    signed = {name: head.count for said in known for name, head in said.runs.items()}
    return [
        f"{name}: not what was written: {count(events, 'event')} were signed, and none is there"
        for name, events in signed.items()
        if name not in there and events
    ]


def is_unproved(proof: Proof, evidence: Evidence) -> bool:
    """The chain is unbroken, and a signature that there should be does not cover it."""
    return proof.ok and not proof.complete and bool(evidence.own or evidence.wanted)


def result(run_id: str, proof: Proof, *, end_checked: bool) -> dict[str, Any]:
    audit, said = proof.audit, proof.statement
    return {
        "run_id": run_id,
        "ok": proof.ok,
        "events": audit.count,
        "checkpoint": mark(audit),
        "flaw": audit.flaw,
        "problem": proof.problem,
        "end_checked": end_checked or proof.complete,
        "signed_events": proof.signed_count if said else None,
        "signed_by": said.key if said else None,
        "signed_at": said.at if said else None,
        "signed_checkpoint": said.number if said else None,
        "doubts": proof.doubts,
    }


def say_proof(run_id: str, proof: Proof, evidence: Evidence) -> None:
    say_audit(run_id, proof.audit, proof.problem, error=False)
    said, left = proof.statement, proof.audit.count - proof.signed_count
    if not proof.ok:
        return
    if said is not None:
        by = f"at {said.at} as checkpoint {said.number} by key {said.key}"
        rest = f"{count(left, 'event')} after that not proved" if left else "what was written later is not in it"
        say(f"  signed {by}: {count(proof.signed_count, 'event')}, up to event {proof.signed_count - 1}; {rest}")
    for doubt in proof.doubts:
        say(f"  not proved: {doubt}: name it with --key")
    if said is None and not proof.doubts and is_unproved(proof, evidence):
        say("  not proved: it is not signed")


def say_audit(run_id: str, audit: Audit, problem: str = "", *, error: bool) -> None:
    name = run_id or "a run without a name"
    wrong = audit.flaw.message if audit.flaw else problem
    if wrong:
        say(f"{name}: not what was written: {wrong}", error=error)
        say(f"  in order before it: {count(audit.count, 'event')}", error=error)
    else:
        say(f"{name}: {count(audit.count, 'event')}, in one unbroken chain", error=error)
        say(f"  checkpoint {mark(audit)}", error=error)


def mark(audit: Audit) -> str:
    """What `--checkpoint` takes; empty where nothing should be built on it."""
    return f"{audit.count}:{audit.head_hash.hex()}" if audit.ok else ""


def _read(found: Collection[SignedCheckpoint], keys: Mapping[str, PublicKey]) -> list[Read]:
    """Each signature is looked at once, with the faster one of two ways if it is there."""
    if not found:
        return []
    can_sign = find_spec("cryptography")
    check = import_module("interlock.server.core.audit.signing").is_signature if can_sign else is_signed
    return [Read(signed, read_statement(signed, keys, check)) for signed in found]
