"""`interlock runs undo`: what a run changed is put back, and what changed since stays."""

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.models.scripted import ScriptedTurn, to_script, tool_call
from interlock.sandbox.commands.probe import choose_sandbox

from .conftest import Run

pytestmark = pytest.mark.skipif(
    "overlay" not in choose_sandbox().confinement.capabilities, reason="this host has no overlays for commands"
)
CHANGES = "sed -i s/one/ONE/ a.txt; echo n > b.txt; mkdir d; echo x > d/x"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    return tmp_path / "script.json"


@pytest.fixture
def changed(cli: Run, project: Path, script: Path) -> Path:
    """The project after a run that changed it by two commands and an edit."""
    (project / "a.txt").write_text("one\ntwo\n")
    turns = [
        ScriptedTurn(calls=(tool_call("bash", command=CHANGES, call_id="first"),)),
        ScriptedTurn(calls=(tool_call("write_file", path="c/new.txt", content="hello\n", call_id="second"),)),
        ScriptedTurn(calls=(tool_call("bash", command="rm a.txt", call_id="third"),)),
        ScriptedTurn(text="Done."),
    ]
    script.write_bytes(to_script(turns))
    assert cli("run", "Change it.", "--script", script, "--mode", "trusted", "--headless").exit_code == 0
    return project


def files(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file() and ".interlock" not in path.parts)
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def undo(cli: Run, *words: str) -> dict[str, Any]:
    return json.loads(cli("runs", "undo", *words, "--json").stdout)


AFTER = {"b.txt": "n\n", "c/new.txt": "hello\n", "d/x": "x\n"}


@pytest.mark.requirement("P28")
def test_everything_a_run_changed_is_put_back(cli: Run, changed: Path) -> None:
    assert files(changed) == AFTER

    ended = cli("runs", "undo", "last", "--yes")

    assert ended.exit_code == 0
    assert "4 files can be put back." in ended.stdout
    assert files(changed) == {"a.txt": "one\ntwo\n"}
    assert not (changed / "d").exists()


@pytest.mark.requirement("P28")
def test_what_changed_since_is_named_and_left_alone(cli: Run, changed: Path) -> None:
    (changed / "b.txt").write_text("mine\n")

    ended = cli("runs", "undo", "last", "--yes")

    assert ended.exit_code == 4
    assert "! b.txt (it was changed since by another program)" in ended.stdout
    assert files(changed) == {"a.txt": "one\ntwo\n", "b.txt": "mine\n"}


def test_an_undo_can_be_undone_and_that_again(cli: Run, changed: Path) -> None:
    first = undo(cli, "last", "--yes")["undo_run_id"]
    assert undo(cli, first, "--yes")["done"]
    assert files(changed) == AFTER

    assert undo(cli, "last", "--yes")["done"]

    assert files(changed) == {"a.txt": "one\ntwo\n"}


def test_one_call_alone_is_undone(cli: Run, changed: Path) -> None:
    report = undo(cli, "last", "--call", "second", "--yes")

    assert [(change["kind"], change["path"]) for change in report["changes"]] == [("deleted", "c/new.txt")]
    assert files(changed) == {"b.txt": "n\n", "d/x": "x\n"}


def test_only_what_followed_an_event_is_undone(cli: Run, changed: Path) -> None:
    events = [json.loads(line) for line in cli("runs", "events", "last", "--json").stdout.splitlines()]
    seen = [event["seq"] for event in events if event["fact"]["type"] == "tool.observation"]

    report = undo(cli, "last", "--to", str(seen[1]), "--yes")

    assert report["calls"] == ["third"]
    assert files(changed) == {**AFTER, "a.txt": "ONE\ntwo\n"}


def test_without_a_terminal_it_is_only_shown(cli: Run, changed: Path) -> None:
    before = len(json.loads(cli("runs", "list", "--json").stdout))

    ended = cli("runs", "undo", "last")

    assert "Nothing was changed. Pass --yes to do it." in ended.stdout
    assert files(changed) == AFTER
    assert len(json.loads(cli("runs", "list", "--json").stdout)) == before


def test_a_run_that_changed_nothing_says_so(cli: Run, project: Path, script: Path) -> None:
    script.write_bytes(to_script([ScriptedTurn(text="Done.")]))
    cli("run", "Do nothing.", "--script", script, "--headless")

    ended = cli("runs", "undo", "last", "--yes")

    assert ended.exit_code == 2
    assert "Nothing to undo: no call of this run changed the workspace." in ended.stderr


def test_a_call_that_changed_nothing_is_refused(cli: Run, changed: Path) -> None:
    ended = cli("runs", "undo", "last", "--call", "fourth")

    assert ended.exit_code == 2
    assert "These did: first, second, third." in ended.stderr
