"""The verifier that knows nothing of Interlock finds whatever was done to a signed export, wherever it was done."""

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.audit import standalone_verifier
from interlock.audit.checkpoint import CheckpointStatement
from interlock.audit.standalone_verifier import INVALID, UNVERIFIED, VERIFIED, check, verify_signature
from tests.each import each

from .tampering import ENTRIES, FORMS, KEY, OTHER, PLACES, PRIVATE, PUBLIC, TAMPERED, lines, sign

SOURCE = Path(str(standalone_verifier.__file__))
COUNT = len(ENTRIES)


def signed_words(count: int) -> str:
    """What is said about so many signed events: when that was, and as which checkpoint."""
    rest = f"{COUNT - count} more follow, not signed" if count < COUNT else "events written later are not covered"
    said = json.loads(sign(ENTRIES).document)
    which = f"all {COUNT}" if count == COUNT else count
    return f"{which} events, signed at {said['at']} as checkpoint {said['number']} by key {KEY.key}; {rest}"


@pytest.mark.parametrize("form", FORMS)
def test_a_signed_export_is_proved(form: str) -> None:
    assert COUNT >= 60
    assert check(lines(form, ENTRIES), [KEY.public]) == (VERIFIED, f"OK: run_1: {signed_words(COUNT)}")


@pytest.mark.requirement("P11")
@each("form", FORMS)
@each("what", TAMPERED)
def test_whatever_was_done_to_an_export_is_found_at_every_place(what: str, form: str) -> None:
    for place in PLACES:
        code, said = check(lines(form, TAMPERED[what](place)), [KEY.public])

        assert code == INVALID, (place, said)
        assert said.startswith("NOT WHAT WAS WRITTEN: ")


@pytest.mark.requirement("P11")
@pytest.mark.parametrize("what", ["edit", "delete", "splice one", "truncate"])
def test_the_first_bad_event_is_named(what: str) -> None:
    for place in range(1, COUNT - 1):
        _, said = check(lines("ndjson", TAMPERED[what](place)), [KEY.public])

        assert re.search(rf"events? {place}\b", said), said


@pytest.mark.parametrize("form", FORMS)
def test_without_its_signature_an_export_is_not_proved(form: str) -> None:
    code, said = check(lines(form, ENTRIES, None), [KEY.public])

    assert (code, said) == (UNVERIFIED, f"NOT PROVED: run_1: {COUNT} events in one unbroken chain, not signed")


def test_a_signature_of_an_unknown_key_proves_nothing() -> None:
    code, said = check(lines("ndjson", ENTRIES), [])

    assert (code, KEY.key in said, "--key" in said) == (UNVERIFIED, True, True)


def test_a_signature_of_another_run_is_found() -> None:
    code, said = check(lines("ndjson", ENTRIES, sign(OTHER)), [KEY.public])

    assert (code, "is not about run_1" in said) == (INVALID, True)


@pytest.mark.requirement("P11")
def test_a_signature_of_an_older_state_says_how_far_it_goes() -> None:
    for count in range(1, COUNT):
        code, said = check(lines("ndjson", ENTRIES, sign(ENTRIES[:count])), [KEY.public])

        assert (code, said) == (
            UNVERIFIED,
            f"NOT PROVED: run_1: {signed_words(count)}",
        )


def test_a_signature_by_somebody_else_in_the_name_of_the_key_is_found() -> None:
    forged = sign(TAMPERED["re-stamp"](7), private=Ed25519PrivateKey.generate())

    code, said = check(lines("ndjson", TAMPERED["re-stamp"](7), forged), [KEY.public])

    assert (code, said) == (INVALID, f"NOT WHAT WAS WRITTEN: the signature of checkpoint 1 is not by key {KEY.key}")


def test_a_checkpoint_that_was_kept_elsewhere_proves_an_export_without_one() -> None:
    kept = [sign(OTHER).line, sign(ENTRIES[:9], number=2).line, sign(ENTRIES, number=3).line]

    assert check(lines("ndjson", ENTRIES, None), [KEY.public], kept)[0] == VERIFIED
    assert check(lines("ndjson", ENTRIES[:-1], None), [KEY.public], kept)[0] == INVALID
    assert check(lines("ndjson", ENTRIES[:9], None), [KEY.public], kept[:2])[0] == VERIFIED


def test_an_earlier_checkpoint_is_not_hidden_by_a_later_one() -> None:
    anew = TAMPERED["re-stamp"](5)

    assert check(lines("ndjson", anew, sign(anew)), [KEY.public])[0] == VERIFIED
    assert check(lines("ndjson", anew, sign(anew)), [KEY.public], [sign(ENTRIES[:9]).line])[0] == INVALID


HOSTILE = [
    b"",
    b"nonsense",
    b'{"hash":"00","event":{}}',
    b'{"hash":"%s","event":%s}' % (b"0" * 64, b"[" * 100_000),
    b'{"hash":"%s","event":{"run_id":"\\ud800","seq":0}}' % (b"0" * 64),
    b'{"hash":"%s","event":{"run_id":"\xff","seq":0}}' % (b"0" * 64),
    b'{"hash":"%s","event":{"run_id":"r","seq":%s}}' % (b"0" * 64, b"9" * 5_000),
    b'{"hash":"%s","event":[["run_id","r"],["seq",0]]}' % (b"0" * 64),
    b'{"checkpoint":5,"signature":"%s"}' % (b"0" * 128),
    b'{"checkpoint":{"runs":7,"key":[]},"signature":"%s"}' % (b"0" * 128),
]


@each("line", HOSTILE)
def test_no_line_makes_it_fall_over(line: bytes) -> None:
    assert check([line], [KEY.public])[0] == INVALID
    assert check([*lines("ndjson", ENTRIES, None), line], [KEY.public])[0] in {INVALID, UNVERIFIED}


@given(st.data())
def test_every_flipped_bit_of_a_signed_export_is_found(data: st.DataObject) -> None:
    written = b"".join(lines("ndjson", ENTRIES))
    place = data.draw(st.integers(0, len(written) - 2))  # the last one is a line feed
    flipped = written[place] ^ (1 << data.draw(st.integers(0, 7)))

    code, _ = check((written[:place] + bytes([flipped]) + written[place + 1 :]).splitlines(), [KEY.public])

    assert code != VERIFIED


# From RFC 8032, section 7.1: secret key, message.
RFC8032 = {
    "TEST 1": ("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60", ""),
    "TEST 2": ("4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb", "72"),
    "TEST 3": ("c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7", "af82"),
}
RFC8032_SIGNATURES = {
    "TEST 1": "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
    "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    "TEST 2": "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
    "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    "TEST 3": "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
    "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
}


@pytest.mark.parametrize("name", RFC8032)
def test_signatures_of_the_standard_are_accepted(name: str) -> None:
    secret, message = map(bytes.fromhex, RFC8032[name])
    public = Ed25519PrivateKey.from_private_bytes(secret).public_key().public_bytes_raw()

    assert verify_signature(public, message, bytes.fromhex(RFC8032_SIGNATURES[name]))
    assert not verify_signature(public, message + b"!", bytes.fromhex(RFC8032_SIGNATURES[name]))


@settings(deadline=None, max_examples=30)
@given(st.binary(min_size=32, max_size=32), st.binary(max_size=200), st.integers(0, 511))
def test_it_agrees_with_the_library_about_signatures(secret: bytes, message: bytes, bit: int) -> None:
    private = Ed25519PrivateKey.from_private_bytes(secret)
    public, signature = private.public_key().public_bytes_raw(), bytearray(private.sign(message))

    assert verify_signature(public, message, bytes(signature))
    signature[bit // 8] ^= 1 << bit % 8
    assert not verify_signature(public, message, bytes(signature))


def test_a_signature_that_was_made_another_one_by_adding_the_order_is_refused() -> None:
    signature = PRIVATE.sign(b"once")
    again = int.from_bytes(signature[32:], "little") + standalone_verifier.ORDER

    assert not verify_signature(PUBLIC, b"once", signature[:32] + again.to_bytes(32, "little"))
    assert not verify_signature(PUBLIC, b"once", signature[:31])
    assert not verify_signature(b"", b"once", signature)


def run(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-I", "-S", SOURCE, *map(str, words)], capture_output=True, text=True, check=False
    )


def test_it_runs_alone_and_says_by_its_exit_code_what_it_found(tmp_path: Path) -> None:
    good, bad, kept = tmp_path / "good.ndjson", tmp_path / "bad.json", tmp_path / "kept.ndjson"
    good.write_bytes(b"".join(lines("ndjson", ENTRIES)))
    bad.write_bytes(b"".join(lines("json", TAMPERED["truncate"](30))))
    kept.write_bytes(sign(ENTRIES).line + b"\n")

    proved, found, unproved, gone = run(good, "--key", KEY.public), run(bad, "--key", KEY.public), run(good), run("no")

    assert (proved.returncode, proved.stdout, proved.stderr) == (
        0,
        f"OK: run_1: {signed_words(COUNT)}\n",
        "",
    )
    assert (found.returncode, "events 30 to 67 are missing at the end" in found.stdout) == (1, True)
    assert (unproved.returncode, gone.returncode) == (2, 2)
    assert run(bad, "--key", KEY.public, "--checkpoint", kept).returncode == 1


def test_json_has_signing_time_and_number(tmp_path: Path) -> None:
    older = tmp_path / "older.ndjson"
    older.write_bytes(b"".join(lines("ndjson", ENTRIES[:60], sign(ENTRIES[:60]))))
    said = json.loads(sign(ENTRIES[:60]).document)

    found = json.loads(run(older, "--key", KEY.public, "--json").stdout)

    assert (found["code"], found["events"], found["signed_events"]) == (VERIFIED, 60, 60)
    assert (found["signed_at"], found["signed_checkpoint"]) == (said["at"], said["number"])
    assert found["signed_by"] == KEY.key


@pytest.mark.parametrize("deep", [b'{"hash":"%s","event":%s}', b'{"checkpoint":%s,"signature":"%s"}'])
def test_a_nested_line_is_refused_in_words(deep: bytes) -> None:
    nested = b'{"a":' * 100_000 + b"1" + b"}" * 100_000
    line = deep % ((b"0" * 64, nested) if deep.startswith(b'{"hash') else (nested, b"0" * 128))

    code, said = check([*lines("ndjson", ENTRIES), line], [KEY.public])

    assert (code, "nested_too_deep" in said) == (INVALID, True)


def test_it_is_short_and_imports_nothing_but_the_standard_library() -> None:
    tree = ast.parse(SOURCE.read_text())
    imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names} | {
        str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }

    assert {name.partition(".")[0] for name in imported} <= set(sys.stdlib_module_names)
    assert sum(bool(line.strip()) for line in SOURCE.read_text().splitlines()) < 140


def test_it_knows_the_schema_that_is_signed() -> None:
    assert (
        CheckpointStatement(number=1, at="", key="", previous="", position=0, runs={}).schema
        == standalone_verifier.SCHEMA
    )


def test_no_text_of_an_export_reaches_the_terminal_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "hostile.ndjson"
    file.write_bytes(b'{"hash":"%s","event":{"run_id":"r\\u001b[2J\\n","seq":7}}\n' % (b"0" * 64))

    said = run(file).stdout

    assert "\x1b" not in said
    assert said.count("\n") == 1
