"""`interlock replay`: a recorded run, event by event, on a screen of 80 columns."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.log_rows import edit_events
from tests.patience import HANG_SECONDS
from tests.pipeline.approval.person import Person, at_terminal

from .conftest import Run, recorded_log

EVIL = "make '\x1b[2J\x1b]0;x\x07\u202e " + "x" * 300 + "'"


@pytest.fixture
def log(home: Path) -> Path:
    return recorded_log(home / "runs.db", "npm test", EVIL, run_id="run_one")


def replayed(person: Person, *arguments: object, **environment: str) -> "subprocess.Popen[bytes]":
    program = "from interlock.cli.main import main; main()"
    usual = {name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "FORCE_COLOR", "COLUMNS"}}
    return subprocess.Popen(
        [sys.executable, "-c", program, "replay", "last", *map(str, arguments)],
        stdin=person.keys,
        stdout=person.output,
        stderr=person.output,
        env={**usual, "TERM": "xterm-256color", **environment},
    )


@pytest.mark.requirement("R138", "R269")
def test_every_event_is_one_line_of_the_table(cli: Run, log: Path) -> None:
    lines = cli("replay", "last", "--log", log).stdout.splitlines()

    assert lines[0].startswith("run_one: 20 events in ")
    assert lines[1].split() == ["EVENT", "SECONDS", "WHAT"]
    assert [int(line.split()[0]) for line in lines[2:]] == list(range(20))
    assert lines[5].split()[2:] == ["tool.intent", "call_0", "bash", '{"command":', '"npm', 'test"}']


def test_the_state_is_shown_as_of_an_event(cli: Run, log: Path) -> None:
    shown = cli("replay", "last", "--at", 6, "--log", log).stdout.splitlines()
    found = json.loads(cli("replay", "last", "--at", 6, "--log", log, "--json").stdout)

    assert shown[0].startswith("event 6 of 20, after ")
    assert shown[0].endswith(" s: approval.requested")
    assert "  call_0: bash, waiting" in shown
    assert found["state"]["calls"] == {"call_0": {"tool": "bash", "state": "waiting", "ok": False}}
    assert found["event"]["seq"] == 6


@pytest.mark.parametrize("at", [-1, 20, 10**30])
def test_an_event_that_is_not_there_is_refused(cli: Run, log: Path, at: int) -> None:
    result = cli("replay", "last", f"--at={at}", "--log", log)

    assert (result.exit_code, f"run_one has no event {at}. Its events are 0 to 19." in result.stderr) == (2, True)


def test_a_log_that_is_not_what_was_written_is_not_replayed(cli: Run, log: Path) -> None:
    edit_events(log, "UPDATE events SET body = replace(body, 'npm', 'npx') WHERE seq = 3")

    result = cli("replay", "last", "--log", log)

    assert (result.exit_code, result.stdout) == (1, "")
    assert "`interlock audit verify run_one` says more" in result.stderr


def test_nothing_in_a_run_acts_on_who_looks_at_it(cli: Run, log: Path) -> None:
    for arguments in ((), ("--at", 12), ("--json",), ("--at", 12, "--json")):
        shown = cli("replay", "last", "--log", log, *arguments).stdout
        assert all(character == "\n" or character.isprintable() for character in shown)


def test_stepping_needs_a_terminal(cli: Run, log: Path) -> None:
    result = cli("replay", "last", "--step", "--log", log)

    assert (result.exit_code, "requires a terminal" in result.stderr) == (2, True)


def test_on_a_terminal_of_80_columns_every_event_has_its_line(log: Path) -> None:
    with at_terminal(columns=80, rows=40) as person:
        with replayed(person, "--log", log) as running:
            assert running.wait(HANG_SECONDS) == 0
        person.waits_for("tool.observation", "19 ")
        person.waits_for("   19 ")
        person.waits_for("call_1 ok")
        lines = [line.rstrip() for line in person.screen.display]

    rows = [line for line in lines if line[:5].strip().isdecimal()]
    assert [int(line[:5]) for line in rows] == list(range(20))
    assert any(line.endswith("…") and len(line) == 80 for line in rows)
    assert "\x1b[1m" in person.text


def test_without_colours_there_are_none(log: Path) -> None:
    with at_terminal() as person:
        with replayed(person, "--log", log, NO_COLOR="1", TERM="dumb") as running:
            assert running.wait(HANG_SECONDS) == 0
        person.waits_for("call_1 ok")

    assert "\x1b[" not in person.text


def test_a_person_steps_on_back_and_to_a_number(log: Path) -> None:
    with at_terminal() as person, replayed(person, "--step", "--log", log) as running:
        for seen, typed in (("event 0 ", "\n"), ("event 1 ", "b\n"), ("event 0 ", "12\n"), ("event 12 ", "q\n")):
            person.waits_for(seen)
            person.waits_for("[q] quit: ")
            person.types(typed)
        assert running.wait(HANG_SECONDS) == 0
