"""Keys of programs, from a terminal."""

import json
from pathlib import Path
from typing import Any

import pytest

from interlock.cli.commands.server_database import run_with_database
from interlock.server.core.identity.api_keys import ApiKeys

from .conftest import Run


@pytest.fixture
def log(tmp_path: Path, home: Path) -> Path:
    return tmp_path / "runs.db"


def listed(cli: Run, log: Path) -> list[dict[str, Any]]:
    return json.loads(cli("keys", "list", "--json", "--log", log).stdout)


def is_good(log: Path, secret: str) -> bool:
    return run_with_database(log, lambda database: ApiKeys(database).authenticate(secret)) is not None


def test_a_key_is_shown_once_and_works(cli: Run, log: Path) -> None:
    made = cli("keys", "add", "bot", "--role", "agent", "--agents", "support", "--expires-days", 7, "--log", log)

    secret = made.stdout.strip()
    assert (made.exit_code, made.stdout) == (0, f"{secret}\n")
    assert "shown only once" in made.stderr
    assert is_good(log, secret)
    (key,) = listed(cli, log)
    assert (key["name"], key["roles"], key["agents"]) == ("bot", ["agent"], ["support"])
    assert key["expires_at"] > key["created_at"]
    hidden = secret.partition(f"{key['key_id']}_")[2]
    assert hidden
    assert hidden not in cli("keys", "list", "--log", log).stdout + json.dumps(key)


@pytest.mark.parametrize("by_name", [True, False])
def test_a_key_is_revoked_by_its_id_or_its_name(cli: Run, log: Path, by_name: bool) -> None:
    made = json.loads(cli("keys", "add", "ci", "--role", "operator", "--json", "--log", log).stdout)

    ended = cli("keys", "revoke", "ci" if by_name else made["key_id"], "--log", log)

    assert (ended.exit_code, ended.stdout) == (0, f"key:ci ({made['key_id']}) is revoked.\n")
    assert not is_good(log, made["key"])
    assert "revoked" in cli("keys", "list", "--log", log).stdout
    assert cli("keys", "add", "ci", "--role", "operator", "--log", log).exit_code == 0


def test_what_cannot_be_a_key_is_refused_in_words(cli: Run, log: Path) -> None:
    assert "No keys yet" in cli("keys", "list", "--log", log).stdout
    cases = [
        (("add", "bot", "--role", "agent"), 2, "must name the agents"),
        (("add", "bot", "--role", "agent", "--role", "admin", "--agents", "a"), 2, "goes with no other role"),
        (("add", "Bot X", "--role", "admin"), 2, "name: must be"),
        (("add", "bot"), 2, "Missing option '--role'"),
        (("revoke", "nothing"), 2, "no such key"),
    ]
    for words, code, said in cases:
        refused = cli("keys", *words, "--log", log)
        assert (refused.exit_code, refused.stdout) == (code, "")
        assert said in refused.stderr
    assert listed(cli, log) == []


def test_a_living_name_is_taken(cli: Run, log: Path) -> None:
    codes = [cli("keys", "add", "ci", "--role", "operator", "--log", log).exit_code for _ in range(2)]

    assert codes == [0, 1]
