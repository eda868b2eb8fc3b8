"""`interlock artifacts`, and outputs in `interlock runs show`."""

import json
from hashlib import sha256
from pathlib import Path

import pytest

from interlock.cli.exit_codes import ExitCode

from .conftest import Run
from .scripts import calls, command, write_script

#: A colour, a line that is overwritten, what acts on a terminal, and many lines.
PRINT = r"printf '\033[32mgreen\033[0m\n10%%\r100%%\n\033[2Jcleared\n'; seq 1 30"


@pytest.fixture
def log(cli: Run, home: Path, project: Path, tmp_path: Path) -> Path:
    """A log with one run: an output of many lines, a binary one, and an edit."""
    (project / "a.txt").write_text("tea\n")
    script = write_script(
        tmp_path / "script.json",
        command(PRINT),
        command("head -c 5000 /dev/zero"),
        calls(("read_file", {"path": "a.txt"})),
        calls(("edit_file", {"path": "a.txt", "old_string": "tea", "new_string": "rum"})),
        "Done.\n\n    code",
    )
    log = tmp_path / "runs.db"
    ended = cli("run", "Print.", "--script", script, "--mode", "trusted", "--log", log)
    assert ended.exit_code == ExitCode.OK, ended.output
    return log


def test_artifacts_of_a_run_are_listed_and_shown(cli: Run, log: Path, tmp_path: Path) -> None:
    listed = json.loads(cli("artifacts", "list", "last", "--log", log, "--json").stdout)
    printed, zeros = (each for each in listed if each["kind"] == "command_output")
    assert (printed["tool"], zeros["size_bytes"]) == ("bash", 5_000)

    shown = cli("artifacts", "show", printed["id"][7:15], "--log", log)
    assert shown.stdout.splitlines()[:4] == ["green", "10%", "100%", r"\u{1b}[2Jcleared"]
    assert shown.stdout.endswith("\n29\n30\n")

    binary = cli("artifacts", "show", zeros["id"], "--log", log)
    digest = sha256(bytes(5_000)).hexdigest()
    assert binary.stdout == f"[binary output: 5,000 bytes, unknown type, sha256:{digest}]\n"

    file = tmp_path / "zeros.bin"
    assert cli("artifacts", "show", zeros["id"], "--output", file, "--log", log).exit_code == ExitCode.OK
    assert file.read_bytes() == bytes(5_000)
    again = cli("artifacts", "show", zeros["id"], "--output", file, "--log", log)
    assert (again.exit_code, "already exists" in again.output) == (ExitCode.USAGE, True)

    for name in ("abc", "ffff0000", "../..", "*"):
        missing = cli("artifacts", "show", name, "--log", log)
        assert (missing.exit_code, "There is no artifact" in missing.output) == (ExitCode.USAGE, True)


def test_a_damaged_artifact_is_not_shown(cli: Run, log: Path) -> None:
    listed = json.loads(cli("artifacts", "list", "last", "--log", log, "--json").stdout)
    name = listed[0]["id"].removeprefix("sha256:")
    (log.with_name("runs.db.artifacts") / name[:2] / name[2:4] / name).write_text("something else")

    shown = cli("artifacts", "show", name, "--log", log)

    assert (shown.exit_code, shown.stdout) == (ExitCode.USAGE, "")
    assert "is not what was kept" in shown.output


def test_a_run_is_shown_with_outputs_and_diffs(cli: Run, log: Path) -> None:
    shown = cli("runs", "show", "last", "--log", log).output

    assert "    | 29\n    | 30\n    ... 29 more lines: interlock artifacts show " in shown
    assert "-tea\n" in shown
    assert "+rum\n" in shown
    assert " spaces]" not in shown
    conversation = json.loads(cli("runs", "show", "last", "--log", log, "--json").stdout)["conversation"]
    assert any(entry["output"].endswith("29\n30") for entry in conversation)


def test_the_transcript_has_whole_messages_and_outputs(cli: Run, log: Path) -> None:
    shown = cli("runs", "show", "last", "--transcript", "--log", log).output

    assert "| Print.\n" in shown
    assert all(f"    | {number}\n" in shown for number in range(1, 31))
    assert "|     code\n" in shown
