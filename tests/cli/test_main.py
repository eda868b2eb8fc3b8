"""`interlock` itself: help and version, and what they do not load."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from interlock import __version__
from interlock.cli.main import app

#: What takes time to load, or what only one command needs.
HEAVY = ("pydantic", "rich", "sqlite3", "tree_sitter", "yaml", "re2", "cel", "interlock.policy", "interlock.runtime")


@pytest.mark.parametrize("argument", ["--help", "--version"])
def test_help_and_version_load_no_command(argument: str) -> None:
    program = (
        "import sys\n"
        "from interlock.cli.main import main\n"
        "try:\n    main()\n"
        f"finally:\n    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )

    ended = subprocess.run([sys.executable, "-c", program, argument], capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (0, "[]\n")


def test_help_says_what_there_is() -> None:
    result = CliRunner().invoke(app, ["--help"])

    assert "policy  Check, test and explain policies" in result.stdout


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"interlock {__version__}\n"


def test_an_unknown_command_is_bad_usage() -> None:
    result = CliRunner().invoke(app, ["polcy"])

    assert result.exit_code == 2
    assert "No such command 'polcy'" in result.stderr


def test_help_names_every_policy_command_and_the_exit_codes() -> None:
    result = CliRunner().invoke(app, ["policy", "--help"])

    names = ["check", "test", "explain", "backtest", "suggest", "import", "schema", "rules", "revoke"]
    assert [line.split()[0] for line in result.stdout.partition("Commands:\n")[2].splitlines()[: len(names)]] == names
    assert "0 fine; 1 refused, wrong, or flips with --fail-on-flip; 2 bad" in result.stdout


@pytest.mark.parametrize(
    "command", ["check", "test", "explain", "backtest", "suggest", "import", "schema", "rules", "revoke"]
)
def test_every_command_has_help_json_and_its_exit_codes_in_it(command: str) -> None:
    result = CliRunner().invoke(app, ["policy", command, "--help"])

    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert "Exit codes: 0 fine" in result.stdout
