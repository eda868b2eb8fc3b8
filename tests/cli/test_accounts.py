"""Accounts of the server, from a terminal."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock.cli.commands import accounts
from interlock.server.core.audit.audit_log import AuditLog
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.identity.accounts import Accounts

from .conftest import Run

PASSWORD = "correct horse battery"


@pytest.fixture
def log(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "runs.db"


def listed(cli: Run, log: Path) -> list[dict[str, object]]:
    return json.loads(cli("accounts", "list", "--json", "--log", log).stdout)


def test_an_account_is_made_with_a_password_from_standard_input_and_listed(cli: Run, log: Path) -> None:
    words = ("accounts", "add", "ada", "--role", "operator", "--role", "auditor", "--agents", "support, billing")
    made = cli(*words, "--log", log, input=f"{PASSWORD}\n")

    assert (made.exit_code, made.stderr) == (0, "")
    assert made.stdout == "ada may sign in: roles auditor, operator, for agents: billing, support\n"
    (account,) = listed(cli, log)
    assert account.pop("created_at")
    assert account == {
        "name": "ada",
        "roles": ["auditor", "operator"],
        "agents": ["billing", "support"],
        "disabled": False,
        "issuer": None,
    }
    assert "ada" in cli("accounts", "list", "--log", log).stdout


def test_what_cannot_be_an_account_is_refused_in_words(cli: Run, log: Path) -> None:
    cases = [
        (("ada", "--role", "admin"), "short\n", 2, "password: must have at least 12 characters"),
        (("Ada!", "--role", "admin"), f"{PASSWORD}\n", 2, "name: must be"),
        (("ada", "--role", "agent"), f"{PASSWORD}\n", 2, "roles: `agent` is for keys"),
        (("ada", "--role", "king"), f"{PASSWORD}\n", 2, "Invalid value for '--role'"),
        (("ada",), "", 2, "No password on standard input"),
    ]
    for words, given, code, said in cases:
        refused = cli("accounts", "add", *words, "--log", log, input=given)
        assert (refused.exit_code, refused.stdout) == (code, "")
        assert said in refused.stderr
    assert listed(cli, log) == []


def test_a_name_is_taken_once_and_the_last_admin_stays(cli: Run, log: Path) -> None:
    for code in (0, 1):
        added = cli("accounts", "add", "ada", "--role", "admin", "--log", log, input=f"{PASSWORD}\n")
        assert added.exit_code == code
    for words in (("disable", "ada"), ("roles", "ada", "--role", "operator")):
        refused = cli("accounts", *words, "--log", log)
        assert refused.exit_code == 1
        assert "without an admin" in refused.stderr
        assert "Nothing was changed" in refused.stderr


def test_roles_change_and_agents_stay_unless_they_are_named(cli: Run, log: Path) -> None:
    cli("accounts", "add", "ada", "--role", "operator", "--agents", "support", "--log", log, input=f"{PASSWORD}\n")

    assert cli("accounts", "roles", "ada", "--role", "auditor", "--log", log).exit_code == 0
    assert [(each["roles"], each["agents"]) for each in listed(cli, log)] == [(["auditor"], ["support"])]
    assert cli("accounts", "roles", "ada", "--role", "auditor", "--agents", "*", "--log", log).exit_code == 0
    assert [(each["roles"], each["agents"]) for each in listed(cli, log)] == [(["auditor"], None)]


def test_an_account_is_disabled_and_enabled_and_what_is_not_there_is_unknown(cli: Run, log: Path) -> None:
    cli("accounts", "add", "ada", "--log", log, input=f"{PASSWORD}\n")

    assert cli("accounts", "disable", "ada", "--log", log).exit_code == 0
    assert listed(cli, log)[0]["disabled"] is True
    assert cli("accounts", "enable", "ada", "--log", log).exit_code == 0
    assert listed(cli, log)[0]["disabled"] is False
    for words in (("disable", "bob"), ("roles", "bob"), ("enable", "bob")):
        assert cli("accounts", *words, "--log", log).exit_code == 2
    assert cli("accounts", "password", "bob", "--log", log, input=f"{PASSWORD}\n").exit_code == 2


async def _right(log: Path, password: str) -> tuple[bool, list[str]]:
    database = SqliteDatabase(log.with_name(f"{log.name}.server") / "server.db")
    try:
        found = await Accounts(database).authenticate("ada", password)
        return found is not None, [entry.by for entry in await AuditLog(database).read()]
    finally:
        database.close()


async def test_a_new_password_counts_and_the_journal_says_who_did_it(
    cli: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.cli.commands.server_database.login_name", lambda: "root")

    def commands() -> None:
        cli("accounts", "add", "ada", "--log", log, input=f"{PASSWORD}\n")
        changed = cli("accounts", "password", "ada", "--log", log, input="another long password\n")
        assert changed.exit_code == 0

    await asyncio.to_thread(commands)

    assert (await _right(log, PASSWORD))[0] is False
    assert await _right(log, "another long password") == (True, ["command:root"] * 2)


def test_at_a_terminal_the_password_is_asked_for_twice_and_never_shown(
    cli: Run, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = iter([PASSWORD, "something else", PASSWORD, PASSWORD])

    def answer(prompt: str) -> str:
        return next(said)

    monkeypatch.setattr(accounts.getpass, "getpass", answer)
    monkeypatch.setattr(accounts, "is_terminal", lambda: True)

    refused = cli("accounts", "add", "ada", "--log", log)
    made = cli("accounts", "add", "ada", "--log", log)

    assert (refused.exit_code, made.exit_code) == (2, 0)
    assert "passwords do not match" in refused.stderr
    assert PASSWORD not in made.output
