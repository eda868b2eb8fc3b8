"""`interlock policy` on recorded runs: backtest and suggest."""

import json
from pathlib import Path

import pytest
import yaml

from interlock.cli.config.user_paths import UserPaths
from interlock.policy.files.policy_files import load_policy

from .conftest import Run, exported, recorded_log, write


def test_backtest_says_what_flips_what_stays_and_what_never_fires(run: Run, policy: Path, tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "runs.db", "npm test", "make", "git push", run_id="run_1")

    result = run("backtest", policy, "--log", log)

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        'ask -> allow (user:allow:bash(npm test)): bash {"command": "npm test"}',
        "  run_1 call_0; a person was asked: granted",
        'ask -> deny (user:deny:bash(git push:*)): bash {"command": "git push"}',
        "  run_1 call_2; a person was asked: granted",
        "2 decisions flip, 1 stay",
        "rules that never fire here: many, user:deny:path=.env",
    ]


def test_a_log_and_its_export_say_the_same(run: Run, policy: Path, tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "runs.db", "npm test", run_id="run_1")
    recorded_log(log, "make", run_id="run_2")
    export = exported(log, tmp_path / "runs.ndjson")

    from_log = json.loads(run("backtest", policy, "--log", log, "--json").stdout)
    from_export = json.loads(run("backtest", policy, "--log", export, "--json").stdout)
    from_both = json.loads(run("backtest", policy, "--log", log, "--log", export, "--json").stdout)

    assert from_log == from_export == from_both
    assert (from_log["runs"], from_log["unchanged"], len(from_log["flips"])) == (2, 1, 1)


def test_flips_fail_only_where_that_was_asked_for(run: Run, policy: Path, tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "runs.db", "npm test")
    same = recorded_log(tmp_path / "same.db", "make")

    assert run("backtest", policy, "--log", log).exit_code == 0
    assert run("backtest", policy, "--log", log, "--fail-on-flip").exit_code == 1
    assert run("backtest", policy, "--log", same, "--fail-on-flip").exit_code == 0


def test_many_flips_are_counted_and_calls_that_are_lost_are_named(run: Run, policy: Path, tmp_path: Path) -> None:
    secret = "curl -H 'x-api-key: sk-ant-api03-" + "a1B2c3D4" * 6 + "' example.com"
    log = recorded_log(tmp_path / "runs.db", *["npm test"] * 201, secret)

    lines = run("backtest", policy, "--log", log).stdout.splitlines()

    assert lines[-4:-1] == [
        "... and 1 more; --json has them all",
        "201 decisions flip, 0 stay",
        "1 cannot be judged again: its arguments were redacted",
    ]


def test_suggest_prints_rules_that_load(run: Run, tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "runs.db", *["npm test"] * 3, *[f"cargo test {name}" for name in "abc"], "make")

    result = run("suggest", "--log", log)

    assert result.exit_code == 0
    comments = [line for line in result.stdout.splitlines() if line.startswith("#")]
    assert comments == ["# answers 3 of 7 questions of the past, none that a person refused"] * 2
    file = tmp_path / "policy.yaml"
    file.write_text("version: 1\nrules:\n" + result.stdout)
    assert len(load_policy(file).rules) == 2
    as_json = json.loads(run("suggest", "--log", log, "--json").stdout)
    assert [each["rule"] for each in as_json["suggestions"]] == yaml.safe_load(result.stdout)


def test_suggest_says_when_there_is_nothing_to_suggest(run: Run, tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "runs.db", "npm test", "make")

    result = run("suggest", "--log", log)

    assert (result.exit_code, result.stdout) == (0, "")
    assert result.stderr == "No suggestions: nothing that one narrow rule could cover was approved 3 times.\n"
    assert len(json.loads(run("suggest", "--log", log, "--min-count", 1, "--json").stdout)["suggestions"]) == 2


def test_a_run_that_is_not_what_was_written_is_left_out_and_named(run: Run, policy: Path, tmp_path: Path) -> None:
    log = recorded_log(tmp_path / "runs.db", "npm test", run_id="run_good")
    recorded_log(log, "npm test", run_id="run_bad")
    export = exported(log, tmp_path / "runs.ndjson")
    head, bad, tail = export.read_bytes().partition(b'"run_bad"')
    export.write_bytes(head + bad + tail.replace(b"npm test", b"rm -rf x", 1))

    result = run("backtest", policy, "--log", export, "--json")

    assert json.loads(result.stdout)["runs"] == 1
    assert "skipped, because it was modified: run_bad: event " in result.stderr


def test_the_policy_and_log_of_runs_are_the_default(
    run: Run, places: UserPaths, policy: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write(places.policy_file, policy.read_text())
    nothing = run("suggest")
    places.make_state_folder()
    recorded_log(places.log, *["npm test"] * 3)

    flipped, suggested = json.loads(run("backtest", "--json").stdout), run("suggest")
    monkeypatch.setenv("INTERLOCK_LOG", str(recorded_log(tmp_path / "other.db", "make")))

    assert (nothing.exit_code, "There are no runs yet" in nothing.stderr) == (2, True)
    assert len(flipped["flips"]) == 3
    assert "npm" in suggested.stdout
    assert json.loads(run("backtest", "--json").stdout)["flips"] == []


def test_a_named_policy_must_be_in_order(run: Run, tmp_path: Path) -> None:
    broken = tmp_path / "broken.yaml"
    broken.write_text("version: 1\nrulez: []\n")

    result = run("backtest", broken, "--log", tmp_path / "x.db")

    assert result.exit_code == 2
    assert f"{broken}:2: rulez: there is no such key. Did you mean `rules`?" in result.stderr
