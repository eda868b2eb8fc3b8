"""Every command once as a process of its own, the way it is installed."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from interlock.policy.files.policy_files import PolicyFiles
from tests.patience import HANG_SECONDS

from .conftest import recorded_log

SETTINGS = Path(__file__).parents[1] / "policy" / "imports" / "settings.json"


def interlock(*arguments: object) -> "subprocess.CompletedProcess[str]":
    program = "from interlock.cli.main import main; main()"
    words = [sys.executable, "-c", program, "policy", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, check=False, timeout=HANG_SECONDS)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return recorded_log(tmp_path / "runs.db", *["npm test"] * 3, "make")


def test_check(policy: Path) -> None:
    ended = interlock("check", policy)

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, f"{policy}: valid, 4 rules\n", "")


def test_test(policy: Path) -> None:
    ended = interlock("test", policy)

    assert (ended.returncode, ended.stdout.splitlines()[0]) == (0, "2 examples, none of them wrong")


def test_explain(policy: Path) -> None:
    ended = interlock("explain", "bash", "git push origin main", "--policy", policy)

    assert (ended.returncode, ended.stdout.splitlines()[0]) == (1, "bash: deny (user rule)")


def test_backtest(policy: Path, log: Path) -> None:
    ended = interlock("backtest", policy, "--log", log, "--fail-on-flip")

    assert ended.returncode == 1
    assert "3 decisions flip, 1 stay\n" in ended.stdout


def test_suggest(log: Path) -> None:
    ended = interlock("suggest", "--log", log)

    assert ended.returncode == 0
    assert ended.stdout.startswith(
        "# answers 3 of 4 questions of the past, none that a person refused\n- id: suggested-"
    )


def test_import() -> None:
    ended = interlock("import", "claude", SETTINGS)

    assert ended.returncode == 0
    assert ended.stdout.startswith("version: 1\n")


def test_schema() -> None:
    ended = interlock("schema")

    assert json.loads(ended.stdout)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_rules(policy: Path) -> None:
    ended = interlock("rules", "--user", policy)

    assert (ended.returncode, len(ended.stdout.splitlines())) == (0, 4)


def test_revoke(policy: Path) -> None:
    rule_id = PolicyFiles(user=policy).keep('{"decision": "allow", "tools": "bash", "command": "make all"}')

    ended = interlock("revoke", rule_id, "--user", policy)

    assert (ended.returncode, ended.stdout) == (0, f"{policy}: removed {rule_id}\n")


def test_a_reader_that_goes_away_is_no_error_to_talk_about(policy: Path) -> None:
    program = "from interlock.cli.main import main; main()"
    with subprocess.Popen(
        [sys.executable, "-c", program, "policy", "schema"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ended:
        assert ended.stdout is not None
        assert ended.stderr is not None
        ended.stdout.close()
        assert b"Traceback" not in ended.stderr.read()


def test_without_its_extra_the_command_says_what_to_install(tmp_path: Path) -> None:
    (tmp_path / "typer.py").write_text("raise ImportError('no module named typer')")
    run = subprocess.run(
        [sys.executable, "-c", "from interlock.cli.main import main; main()"],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (run.returncode, run.stderr) == (
        1,
        "The `interlock` command needs more than the library: pip install 'interlock[cli]'\n",
    )
