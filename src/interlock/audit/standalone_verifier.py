"""Check an exported run of Interlock without Interlock. Python 3.11 or newer is all it needs.

    python standalone_verifier.py EXPORT [--key PUBLIC_HEX]... [--checkpoint FILE]... [--json]

An export has a line for each event, `{"hash": H, "event": E}`. H is the SHA-256 of the hash before it and the bytes of
E; before the first is the hash of the run's id. The last line, or a line of a FILE, is a checkpoint: how many events a
run has and the hash of the last one, signed with a private key (Ed25519, RFC 8032). When and as which checkpoint is
printed: an older export verifies, too, and events written later are not covered.

Exit code 0: these are all the events that were signed, as they were written. 1: they are not; the first bad event is
named. 2: the chain is unbroken, but its end is not signed with a known key; or the export cannot be read.
"""

import argparse
import json
import re
import sys
from collections.abc import Iterable
from hashlib import sha256, sha512
from pathlib import Path
from typing import Any

VERIFIED, INVALID, UNVERIFIED = 0, 1, 2
EVENT = re.compile(rb'\{"hash":"([0-9a-f]{64})","event":(.+)\},?', re.DOTALL)
SIGNED = re.compile(rb'\{"checkpoint":(.+),"signature":"([0-9a-f]{128})"\},?', re.DOTALL)
SCHEMA = "interlock/checkpoint/v1"

# Edwards25519: the field, the order of the base point, the curve's constant; points are (x, y, z, t) with t = x*y/z.
P, ORDER, ENCODED = 2**255 - 19, 2**252 + 27742317777372353535851937790883648493, 32
D = -121665 * pow(121666, -1, P) % P
Point = tuple[int, int, int, int]
Signed = tuple[int, Any, Any, Any]  # of a run: how many events, when, as which checkpoint, by which key


class Bad(Exception):
    """The export is not what was written."""


def add(a: Point, b: Point) -> Point:
    m, n = (a[1] - a[0]) * (b[1] - b[0]) % P, (a[1] + a[0]) * (b[1] + b[0]) % P
    c, z = 2 * a[3] * b[3] * D % P, 2 * a[2] * b[2] % P
    return (n - m) * (z - c) % P, (z + c) * (n + m) % P, (z - c) * (z + c) % P, (n - m) * (n + m) % P


def multiply_point(factor: int, point: Point) -> Point:
    total: Point = (0, 1, 1, 0)
    while factor:
        total, point, factor = add(total, point) if factor & 1 else total, add(point, point), factor >> 1
    return total


def decode_point(raw: bytes) -> Point | None:
    y, odd = int.from_bytes(raw, "little") % 2**255, raw[-1] >> 7
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    x = x if (x * x - square) % P == 0 else x * pow(2, (P - 1) // 4, P) % P
    if y >= P or (x * x - square) % P or (x == 0 and odd):
        return None
    x = x if x % 2 == odd else P - x
    return x, y, 1, x * y % P


BASE = decode_point((4 * pow(5, -1, P) % P).to_bytes(ENCODED, "little"))


def verify_signature(public: bytes, message: bytes, signature: bytes) -> bool:
    if len(public) != ENCODED or len(signature) != 2 * ENCODED:
        return False
    a, r, s = decode_point(public), decode_point(signature[:ENCODED]), int.from_bytes(signature[ENCODED:], "little")
    if a is None or r is None or BASE is None or s >= ORDER:
        return False
    h = int.from_bytes(sha512(signature[:ENCODED] + public + message).digest(), "little") % ORDER
    left, right = multiply_point(s, BASE), add(r, multiply_point(h, a))
    return (left[0] * right[2] - right[0] * left[2]) % P == 0 == (left[1] * right[2] - right[1] * left[2]) % P


def read(written: bytes) -> dict[str, Any]:
    try:
        return dict(json.loads(written))
    except RecursionError:
        raise Bad("it is nested too deep to be read (nested_too_deep)") from None
    except (ValueError, TypeError):
        return {}


def check_chain(events: list[tuple[bytes, bytes]]) -> tuple[str, list[str]]:
    """Return the run, and the hash before each event and after the last one."""
    run = read(events[0][1]).get("run_id") if events else None
    if not isinstance(run, str):
        raise Bad("event 0 does not say whose it is" if events else "there is no event")
    heads = [sha256(b"interlock/log/v1\n" + run.encode(errors="replace")).hexdigest()]
    for place, (written, body) in enumerate(events):
        event = read(body)
        if not body:
            raise Bad(f"event {place} is not an exported event")
        if event.get("run_id") != run:
            raise Bad(f"event {place} is of another run, {event.get('run_id')!r}")
        if type(event.get("seq")) is not int or event["seq"] != place:
            raise Bad(f"event {place} is not in its place: the one there says it is event {event.get('seq')!r}")
        if sha256(bytes.fromhex(heads[place]) + body).hexdigest() != written.decode():
            raise Bad(f"event {place} breaks the chain: it, or the one before it and its hash, was edited")
        heads.append(written.decode())
    return run, heads


def signed_part(document: bytes, signature: bytes, keys: dict[str, bytes], run: str, heads: list[str]) -> Signed | None:
    """Return what it says about this run: a count of 0 where it is about others, None where its key is not known."""
    said = read(document)
    public = keys.get(str(said.get("key")))
    if public is None:
        return None
    if said.get("schema") != SCHEMA or not verify_signature(public, document, bytes.fromhex(signature.decode())):
        raise Bad(f"the signature of checkpoint {said.get('number')!r} is not by key {said.get('key')}")
    if run not in said["runs"]:
        return 0, None, None, None
    count, head = said["runs"][run]["count"], said["runs"][run]["head"]
    if count >= len(heads):
        raise Bad(f"events {len(heads) - 1} to {count - 1} are missing at the end: {count} were signed")
    if heads[count] != head:
        raise Bad(f"event {count - 1} or one before it is not the one that was signed: hashes were recomputed")
    return count, said.get("at"), said.get("number"), said["key"]


def check(export: Iterable[bytes], keys: Iterable[str] = (), checkpoints: Iterable[bytes] = ()) -> tuple[int, str]:
    """Return the exit code, and why."""
    return (found := verify_export(export, keys, checkpoints))["code"], found["message"]


def verify_export(export: Iterable[bytes], keys: Iterable[str], checkpoints: Iterable[bytes]) -> dict[str, Any]:
    known = {sha256(bytes.fromhex(key)).hexdigest()[:16]: bytes.fromhex(key) for key in keys}
    lines = [line for line in map(bytes.strip, export) if line not in {b"", b"[", b"]", b"[]"}]
    own = [(match[1], match[2]) for match in map(SIGNED.fullmatch, lines) if match]
    other = [(match[1], match[2]) for match in map(SIGNED.fullmatch, map(bytes.strip, checkpoints)) if match]
    events = [EVENT.fullmatch(line) for line in lines if not SIGNED.fullmatch(line)]
    try:
        run, heads = check_chain([(match[1], match[2]) if match else (b"", b"") for match in events])
        parts = [signed_part(*each, known, run, heads) for each in (*own, *other)]
        if any(part and not part[0] for part in parts[: len(own)]):
            raise Bad(f"the checkpoint at its end is not about {run}: it was taken from another export")
    except Bad as bad:
        return {"code": INVALID, "message": f"NOT WHAT WAS WRITTEN: {bad}"}
    best: Signed = max((part for part in parts if part), key=lambda part: part[0], default=(0, None, None, None))
    count, (signed, at, number, key) = len(heads) - 1, best
    why = f"signed by {read(own[0][0]).get('key')}, whose public key was not given (--key)" if own else "not signed"
    rest = f"{count - signed} more follow, not signed" if signed < count else "events written later are not covered"
    code, verdict, which = (VERIFIED, "OK", "all ") if signed == count else (UNVERIFIED, "NOT PROVED", "")
    by = f"{which}{signed} events, signed at {at} as checkpoint {number} by key {key}; {rest}"
    said = f"{run}: {by if signed else f'{count} events in one unbroken chain, {why}'}"
    fields = {"run_id": run, "events": count, "signed_events": signed, "signed_at": at, "signed_checkpoint": number}
    return {"code": code, "message": f"{verdict}: {said}", **fields, "signed_by": key}


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Check an exported run of Interlock.")
    parser.add_argument("export")
    parser.add_argument("--key", action="append", default=[], metavar="PUBLIC_HEX")
    parser.add_argument("--checkpoint", action="append", default=[], metavar="FILE")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    given = parser.parse_args(words)
    try:
        with open(given.export, "rb") as file:
            checkpoints = [line for path in given.checkpoint for line in Path(path).read_bytes().splitlines()]
            found = verify_export(file, given.key, checkpoints)
    except (OSError, ValueError) as error:
        found = dict[str, Any](code=UNVERIFIED, message=f"CANNOT BE READ: {error}")
    print(json.dumps(found) if given.json else found["message"].encode("unicode_escape").decode())
    return found["code"]


if __name__ == "__main__":
    sys.exit(main())
