"""`interlock audit`, signed: an export proves that it is all of a run, to anybody who has the public key."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.audit import standalone_verifier
from interlock.audit.schemas import SCHEMAS
from tests.audit.tampering import ENTRIES, FORMS, KEY, OTHER, PLACES, TAMPERED, lines, sign

from .conftest import Run, recorded_log

SOURCE = Path(str(standalone_verifier.__file__))


@pytest.fixture
def log(home: Path) -> Path:
    return recorded_log(home / "runs.db", "make", run_id="run_one")


@pytest.fixture
def key(cli: Run, log: Path, tmp_path: Path) -> str:
    """The public key, after something was signed."""
    assert cli("audit", "export", "last", "--sign", "-o", tmp_path / "first.ndjson", "--log", log).exit_code == 0
    return cli("audit", "key").stdout.strip()


def cut(file: Path) -> Path:
    """Without its last event; the signature is left."""
    *events, _, signature = file.read_bytes().splitlines(keepends=True)
    shorter = file.with_name(f"cut.{file.name}")
    shorter.write_bytes(b"".join([*events, signature]))
    return shorter


@pytest.mark.parametrize("form", ["ndjson", "json"])
def test_a_signed_export_is_proved_here_and_by_the_standalone_verifier(
    cli: Run, log: Path, tmp_path: Path, form: str
) -> None:
    file = tmp_path / f"run.{form}"
    made = cli("audit", "export", "last", "--sign", "--format", form, "-o", file, "--log", log)
    public = cli("audit", "key").stdout.strip()

    checked = cli("audit", "verify", file, "--key", public)
    alone = subprocess.run(
        [sys.executable, "-I", "-S", SOURCE, file, "--key", public], capture_output=True, text=True, check=False
    )

    assert (made.exit_code, checked.exit_code, alone.returncode) == (0, 0, 0)
    assert re.search(r"signed at 20\d\d-\S+ as checkpoint 1 by key \w+: \d+ events, up to event \d+; ", checked.stdout)
    (found,) = json.loads(cli("audit", "verify", file, "--key", public, "--json").stdout)
    assert (found["signed_checkpoint"], found["signed_events"]) == (1, found["events"])
    assert found["signed_at"] in checked.stdout
    assert found["signed_at"] in alone.stdout
    assert "not proved" not in checked.stdout
    assert alone.stdout.startswith("OK: run_one: all ")


def test_the_keys_of_this_user_are_known_and_those_of_others_are_asked_for(
    cli: Run, key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "first.ndjson"
    here = cli("audit", "verify", file, "--json")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "elsewhere"))
    elsewhere = cli("audit", "verify", file)

    found = json.loads(here.stdout)[0]
    assert (here.exit_code, found["end_checked"], found["signed_events"]) == (0, True, found["events"])
    assert elsewhere.exit_code == 2
    assert "is unknown: pass the key with --key" in elsewhere.stdout
    assert cli("audit", "verify", file, "--key", key).exit_code == 0


def test_a_cut_tail_of_a_signed_export_is_found(cli: Run, key: str, tmp_path: Path) -> None:
    result = cli("audit", "verify", cut(tmp_path / "first.ndjson"))

    assert result.exit_code == 1
    assert "are missing at the end" in result.stdout


def test_without_its_signature_an_export_is_not_proved(cli: Run, key: str, tmp_path: Path) -> None:
    file = tmp_path / "bare.ndjson"
    file.write_bytes(b"".join((tmp_path / "first.ndjson").read_bytes().splitlines(keepends=True)[:-1]))

    wanted, whatever = cli("audit", "verify", file, "--key", key), cli("audit", "verify", file)

    assert (wanted.exit_code, "not proved: it is not signed" in wanted.stdout) == (2, True)
    assert (whatever.exit_code, "detected only with an earlier checkpoint" in whatever.stdout) == (0, True)


@pytest.mark.requirement("P11")
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("what", TAMPERED)
def test_whatever_was_done_to_a_signed_export_is_found(
    cli: Run, home: Path, tmp_path: Path, what: str, form: str
) -> None:
    for place in (PLACES[0], PLACES[len(PLACES) // 2], PLACES[-1]):
        file = tmp_path / f"{place}.{form}"
        file.write_bytes(b"".join(lines(form, TAMPERED[what](place))))

        assert cli("audit", "verify", file, "--key", KEY.public).exit_code == 1, place


def test_a_signature_of_another_run_or_of_an_older_state_is_said(cli: Run, home: Path, tmp_path: Path) -> None:
    other, older = tmp_path / "other.ndjson", tmp_path / "older.ndjson"
    other.write_bytes(b"".join(lines("ndjson", ENTRIES, sign(OTHER))))
    older.write_bytes(b"".join(lines("ndjson", ENTRIES, sign(ENTRIES[:60]))))

    foreign, behind = (cli("audit", "verify", file, "--key", KEY.public) for file in (other, older))

    assert (foreign.exit_code, "is for run_2, which the file does not contain" in foreign.stderr) == (1, True)
    assert (behind.exit_code, "60 events, up to event 59; 8 events after" in behind.stdout) == (2, True)
    assert "8 events after that not signed" in behind.stdout


def test_a_damaged_signature_is_said(cli: Run, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "damaged.ndjson"
    file.write_bytes(b"".join(lines("ndjson", ENTRIES))[:-9])

    result = cli("audit", "verify", file, "--key", KEY.public)

    assert (result.exit_code, "the checkpoint in the export is damaged" in result.stderr) == (2, True)


def test_checkpoints_that_were_kept_show_what_a_log_lost(cli: Run, home: Path, log: Path, tmp_path: Path) -> None:
    kept, whole = tmp_path / "kept.ndjson", tmp_path / "whole.ndjson"
    whole.write_bytes(b"".join(lines("ndjson", ENTRIES, None)))
    kept.write_bytes(sign(ENTRIES).line + b"\n")
    shorter = tmp_path / "shorter.ndjson"
    shorter.write_bytes(b"".join(lines("ndjson", ENTRIES[:-4], None)))
    options = ("--key", KEY.public, "--checkpoints", kept)

    good, bad, lost = (cli("audit", "verify", file, *options) for file in (whole, shorter, log))

    assert (good.exit_code, bad.exit_code, lost.exit_code) == (0, 1, 1)
    assert "events 64 to 67 are missing at the end" in bad.stdout
    assert "run_1: modified: 68 events signed, none found" in lost.stderr


def test_a_gap_in_the_checkpoints_is_said(cli: Run, home: Path, tmp_path: Path) -> None:
    kept, whole = tmp_path / "kept.ndjson", tmp_path / "whole.ndjson"
    whole.write_bytes(b"".join(lines("ndjson", ENTRIES, None)))
    kept.write_bytes(b"\n".join([sign(ENTRIES[:9]).line, sign(ENTRIES, number=3).line]))

    result = cli("audit", "verify", whole, "--key", KEY.public, "--checkpoints", kept)

    assert (result.exit_code, "checkpoint 2 is missing: 3 is in its place" in result.stderr) == (1, True)


@pytest.mark.parametrize("content", [b"", b"nonsense\n"])
def test_a_file_without_checkpoints_is_bad_usage(cli: Run, home: Path, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "kept").write_bytes(content)
    (tmp_path / "run.ndjson").write_bytes(b"".join(lines("ndjson", ENTRIES)))
    words = ("audit", "verify", tmp_path / "run.ndjson", "--key", KEY.public, "--checkpoints")

    assert cli(*words, tmp_path / "kept").exit_code == 2
    assert cli(*words, tmp_path / "none").exit_code == 2


def test_what_is_no_key_is_bad_usage(cli: Run, log: Path) -> None:
    for text in ("x", "00", KEY.public[:-1]):
        assert cli("audit", "verify", "last", "--log", log, "--key", text).exit_code == 2


def test_a_run_that_lost_events_after_it_was_signed_is_not_signed_again(
    cli: Run, key: str, log: Path, tmp_path: Path
) -> None:
    shorter = tmp_path / "shorter.db"
    shorter.write_bytes(recorded_log(tmp_path / "other.db", "make", "make", run_id="run_one").read_bytes())

    result = cli("audit", "export", "last", "--sign", "-o", tmp_path / "again.ndjson", "--log", shorter)

    assert (result.exit_code, "does not match what was signed before" in result.stderr) == (2, True)
    assert not (tmp_path / "again.ndjson").exists()


def test_a_new_key_signs_and_the_old_one_is_kept(cli: Run, key: str, log: Path, tmp_path: Path) -> None:
    rotated = cli("audit", "key", "--rotate")
    again = tmp_path / "again.ndjson"
    cli("audit", "export", "last", "--sign", "-o", again, "--log", log)
    kept = json.loads(cli("audit", "key", "--json").stdout)

    assert [each["public"] for each in kept] == [key, rotated.stdout.strip()]
    assert (bool(kept[0]["until"]), kept[1]["until"]) == (True, "")
    assert [cli("audit", "verify", file).exit_code for file in (tmp_path / "first.ndjson", again)] == [0, 0]


def test_there_is_no_key_before_something_was_signed_and_none_is_made_by_looking(cli: Run, home: Path) -> None:
    result = cli("audit", "key")

    assert (result.exit_code, "so there is no key" in result.stderr) == (2, True)
    assert os.listdir(home) == []


@pytest.mark.parametrize("schema", [name for name in SCHEMAS if name != "interlock"])
def test_other_schemas_are_exported_and_not_signed(cli: Run, log: Path, tmp_path: Path, schema: str) -> None:
    file = tmp_path / "run.out"
    made = cli("audit", "export", "last", "--schema", schema, "-o", file, "--log", log)
    refused = cli("audit", "export", "last", "--schema", schema, "--sign", "-o", tmp_path / "no", "--log", log)
    stored = cli("audit", "verify", "last", "--log", log, "--json")

    assert made.exit_code == 0
    assert len(file.read_bytes().splitlines()) == json.loads(stored.stdout)[0]["events"]
    assert (refused.exit_code, "--sign requires --schema interlock" in refused.stderr) == (2, True)
    assert not (tmp_path / "no").exists()


def test_the_verifier_is_printed_as_it_is(cli: Run) -> None:
    assert cli("audit", "verifier").stdout == SOURCE.read_text()


def test_without_its_package_signing_says_what_to_install(
    cli: Run, log: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [
        name
        for name in sys.modules
        if name.startswith(("interlock.server.core.audit.signing", "interlock.cli.config.audit_signing"))
    ]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "cryptography.exceptions", None)

    result = cli("audit", "export", "last", "--sign", "-o", tmp_path / "run.ndjson", "--log", log)

    assert result.exit_code == 2
    assert "'cryptography', which is not installed: pip install 'interlock[server]'" in result.stderr.replace("\n", " ")
