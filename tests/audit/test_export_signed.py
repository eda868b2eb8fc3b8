"""A signed export is read back with its signature, and whatever was done to it is found, wherever it was done."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from interlock.audit.checkpoint import (
    ChainHead,
    CheckpointSequence,
    CheckpointStatement,
    UntrustedCheckpoint,
    canonicalize_statement,
    read_statement,
    verify_sequence,
)
from interlock.audit.export import read_checkpoints, read_export
from interlock.audit.keys import PublicKey, derive_key_id, parse_public_key, read_keys
from interlock.audit.proof import SignedVerification, verify_signed
from interlock.audit.signed_checkpoint import SignedCheckpoint
from interlock.domain.errors import LogCorruptError
from interlock.domain.event import LogEntry
from tests.audit.tampering import (
    ENTRIES,
    FORMS,
    KEY,
    KEYS,
    OTHER,
    PLACES,
    PRIVATE,
    SIGNED,
    TAMPERED,
    lines,
    sign,
)
from tests.each import each

SAID = read_statement(SIGNED, KEYS)


def proof(entries: list[LogEntry], *said: CheckpointStatement | UntrustedCheckpoint) -> SignedVerification:
    return verify_signed(entries, "run_1", said)


@pytest.mark.parametrize("form", FORMS)
def test_a_signed_export_is_read_back_with_its_signature(form: str) -> None:
    written = lines(form, ENTRIES)

    assert (read_export(written), read_checkpoints(written)) == (ENTRIES, [SIGNED])
    assert read_checkpoints(lines(form, ENTRIES, None)) == []


def test_a_damaged_signature_is_refused_in_words() -> None:
    written = [*lines("ndjson", ENTRIES, None), SIGNED.line[:-3]]

    with pytest.raises(LogCorruptError, match="the checkpoint in the export is damaged"):
        read_checkpoints(written)


def test_what_was_signed_as_a_whole_is_complete() -> None:
    found = proof(ENTRIES, SAID)

    assert (found.ok, found.complete, found.signed_count) == (True, True, len(ENTRIES))
    assert not proof(ENTRIES).complete


@pytest.mark.requirement("P11")
@each("form", FORMS)
@each("what", TAMPERED)
def test_whatever_was_done_to_a_signed_run_is_found_at_every_place(what: str, form: str) -> None:
    for place in PLACES:
        found = proof(read_export(lines(form, TAMPERED[what](place))), SAID)

        assert not found.ok, place
        assert found.audit.flaw is not None


@pytest.mark.requirement("P11")
def test_a_signature_of_an_older_state_says_how_far_it_goes() -> None:
    for count in range(1, len(ENTRIES)):
        found = proof(ENTRIES, read_statement(sign(ENTRIES[:count]), KEYS))

        assert (found.ok, found.complete, found.signed_count) == (True, False, count)


def test_the_checkpoint_about_most_of_it_counts_and_none_is_hidden() -> None:
    older = read_statement(sign(ENTRIES[:9]), KEYS)
    anew = TAMPERED["re-stamp"](5)

    assert proof(ENTRIES, SAID, older).complete
    assert proof(ENTRIES, older, SAID).complete
    assert proof(anew, read_statement(sign(anew), KEYS)).complete
    assert not proof(anew, read_statement(sign(anew), KEYS), older).ok


def test_what_nobody_known_signed_is_a_doubt_and_what_was_forged_is_wrong() -> None:
    unknown = read_statement(SIGNED, {})
    forged = read_statement(sign(ENTRIES, private=Ed25519PrivateKey.generate()), KEYS)
    odd = read_statement(SignedCheckpoint(b'{"schema":"interlock/checkpoint/v2"}', bytes(64)), KEYS)

    assert [each.problem for each in (unknown, forged, odd) if isinstance(each, UntrustedCheckpoint)] == [
        "unknown_key",
        "forged",
        "unreadable",
    ]
    assert (proof(ENTRIES, unknown).ok, proof(ENTRIES, unknown).complete) == (True, False)
    assert KEY.key in proof(ENTRIES, unknown).unverified[0]
    assert (proof(ENTRIES, forged).ok, "is not by key" in proof(ENTRIES, forged).problem) == (False, True)


def test_what_is_said_about_other_runs_says_nothing() -> None:
    found = proof(ENTRIES, read_statement(sign(OTHER), KEYS))

    assert (found.ok, found.statement) == (True, None)


NEW = Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))
NEW_KEY = PublicKey(
    key=derive_key_id(NEW.public_key().public_bytes_raw()), public=NEW.public_key().public_bytes_raw().hex()
)
BOTH = {**KEYS, NEW_KEY.key: NEW_KEY}


def chained(*statements: dict[str, object]) -> list[SignedCheckpoint]:
    """Checkpoints that follow each other, each with something of its own."""
    found: list[SignedCheckpoint] = []
    for number, own in enumerate(statements, 1):
        usual = {
            "number": number,
            "at": "2026-11-16T09:00:00.000000Z",
            "key": KEY.key,
            "previous": found[-1].digest if found else "",
            "position": number,
            "runs": {"run_1": ChainHead(number, "00")},
        }
        said = CheckpointStatement(**{**usual, **own})  # pyright: ignore[reportArgumentType]
        private = NEW if said.key == NEW_KEY.key else PRIVATE
        found.append(SignedCheckpoint(canonicalize_statement(said), private.sign(canonicalize_statement(said))))
    return found


def flaw(checkpoints: list[SignedCheckpoint]) -> str:
    page = [(signed, read_statement(signed, BOTH)) for signed in checkpoints]
    so_far, _ = verify_sequence(CheckpointSequence(), page, BOTH)
    return so_far.flaw.message if so_far.flaw else ""


def test_checkpoints_that_follow_each_other_have_no_flaw_also_with_a_new_key() -> None:
    assert flaw(chained({}, {}, {"key": NEW_KEY.key}, {"key": NEW_KEY.key})) == ""


@pytest.mark.parametrize("place", range(4))
def test_a_missing_checkpoint_is_named(place: int) -> None:
    row = chained({}, {}, {}, {}, {})

    assert flaw(row[:place] + row[place + 1 :]) == (f"checkpoint {place + 1} is missing: {place + 2} is in its place")


def test_what_is_wrong_with_a_row_of_checkpoints_is_said() -> None:
    other = chained({}, {"at": "2027-01-01T00:00:00.000000Z"}, {})
    replaced = [chained({}, {}, {})[0], other[1], chained({}, {}, {})[2]]

    assert "checkpoint 3 does not follow" in flaw(replaced)
    assert "which was replaced before it" in flaw(chained({}, {"key": NEW_KEY.key}, {}))
    assert "is of another log" in flaw(chained({"position": 9}, {"position": 8}))
    assert "the journal was shorter at checkpoint 3" in flaw(
        chained({"journal": ChainHead(5, "")}, {}, {"journal": ChainHead(4, "")})
    )
    assert "is unknown" in flaw(chained({"key": "0" * 16}))


def test_keys_are_read_as_they_are_kept_and_as_people_have_them() -> None:
    written = b'{"key":"%s","public":"%s","since":"s","until":""}\n' % (KEY.key.encode(), KEY.public.encode())

    assert [key.public for key in read_keys(written)] == [KEY.public]
    assert parse_public_key(f" {KEY.public.upper()}\n") == KEY
    assert (parse_public_key("xyz"), parse_public_key("00")) == (None, None)
    for odd in (b"{}\n", b"nonsense\n", written.replace(KEY.key.encode(), b"0" * 16), written[:20]):
        with pytest.raises(ValueError, match="line 2 is no public key"):
            read_keys(written + odd)
