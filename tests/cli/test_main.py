"""`interlock` itself: help and version, and what they do not load."""

import os
import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from interlock import __version__
from interlock.cli.commands import doctor
from interlock.cli.exit_codes import MEANINGS, ExitCode
from interlock.cli.main import COMMAND_ENTRIES, app
from tests.each import each

from .conftest import Run

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


def completed(*words: str) -> "subprocess.CompletedProcess[str]":
    """What a shell gets for the last word, and on stderr what was loaded for it."""
    program = (
        "import sys\n"
        "from interlock.cli.main import main\n"
        "try:\n    main()\n"
        f"finally:\n    print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    asked = {"_INTERLOCK_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, env={**os.environ, **asked}
    )


def test_a_shell_completes_commands_without_loading_any() -> None:
    ended = completed("interlock", "po")

    assert (ended.stdout, ended.stderr) == ("policy\n", "[]\n")


def test_a_shell_completes_what_is_inside_a_command() -> None:
    assert completed("interlock", "audit", "ex").stdout == "export\n"


def test_the_script_for_a_shell_is_there() -> None:
    asked = {**os.environ, "_INTERLOCK_COMPLETE": "source_zsh"}
    ended = subprocess.run(
        [sys.executable, "-c", "from interlock.cli.main import main; main()"],
        capture_output=True,
        text=True,
        check=False,
        env=asked,
    )

    assert ended.returncode == 0
    assert "#compdef interlock" in ended.stdout


def test_help_says_what_there_is() -> None:
    result = CliRunner().invoke(app, ["--help"])

    assert re.search(r"  policy +Check, test and explain policies; try them on past runs\.", result.stdout)


def test_help_says_what_each_exit_code_means_and_cuts_no_line(cli: Run) -> None:
    shown = cli("--help").stdout

    assert "..." not in shown.partition("Commands:")[2]
    assert max(map(len, shown.splitlines())) <= 80
    flat = " ".join(shown.split())
    assert all(f"{code.value} {meaning}" in flat for code, meaning in MEANINGS.items())


def test_a_command_that_is_not_there_yet_is_not_offered(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(COMMAND_ENTRIES, "later", COMMAND_ENTRIES["doctor"]._replace(module="is_not_written"))

    assert "later" not in cli("--help").stdout
    assert cli("later").exit_code == ExitCode.USAGE


def test_an_interrupted_command_says_so_with_its_exit_code(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(doctor, "read_host_info", interrupt)

    assert cli("doctor").exit_code == ExitCode.INTERRUPTED


COMMANDS = (
    "audit export",
    "audit verify",
    "config path",
    "config schema",
    "config set",
    "config show",
    "config unset",
    "doctor",
    "replay",
    "tools",
    "tools show",
    "trust",
    "trust list",
    "trust revoke",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_json_and_exit_codes(cli: Run, command: str) -> None:
    result = cli(*command.split(), "--help")

    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert "Exit codes: 0" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_the_version_is_that_of_the_package() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"interlock {__version__}\n"


def test_an_unknown_command_is_bad_usage() -> None:
    result = CliRunner().invoke(app, ["polcy"])

    assert result.exit_code == 2
    assert "No such command 'polcy'. Did you mean 'policy'?" in result.stderr


def test_help_names_every_policy_command_and_the_exit_codes() -> None:
    result = CliRunner().invoke(app, ["policy", "--help"])

    names = ["check", "test", "explain", "backtest", "suggest", "import", "schema", "rules", "budgets", "revoke"]
    assert [line.split()[0] for line in result.stdout.partition("Commands:\n")[2].splitlines()[: len(names)]] == names
    assert "0 done; 1 denied, invalid, or a flip with --fail-on-flip; 2 bad" in result.stdout


@each("command", ["check", "test", "explain", "backtest", "suggest", "import", "schema", "rules", "budgets", "revoke"])
def test_every_command_has_help_json_and_its_exit_codes_in_it(command: str) -> None:
    result = CliRunner().invoke(app, ["policy", command, "--help"])

    assert result.exit_code == 0
    assert "--json" in result.stdout
    assert "Exit codes: 0 done" in result.stdout
