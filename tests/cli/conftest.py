"""The command as its users have it: arguments in, texts and an exit code out."""

import asyncio
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from typer.testing import CliRunner, Result

from interlock import LogEntry, SqliteLog, to_ndjson
from interlock.cli.config.user_paths import UserPaths, find_user_paths
from interlock.cli.main import app
from tests.policy.recorded_runs import Says, record, yes

Run: TypeAlias = Callable[..., Result]

POLICY = """\
version: 1
deny:
  - path: .env
  - bash(git push:*)
allow:
  - bash(npm test)
rules:
  - id: many
    decision: ask
    tools: send_mail
    when: size(arguments.to) > 2
    reason: Many people.
    matches:
      - {tool: send_mail, arguments: {to: [a, b, c]}}
    does_not_match:
      - {tool: send_mail, arguments: {to: [a]}}
"""


@pytest.fixture
def run() -> Run:
    return lambda *arguments: CliRunner().invoke(app, ["policy", *map(str, arguments)])


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    file = tmp_path / "policy.yaml"
    file.write_text(POLICY)
    return file


@pytest.fixture
def cli(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Run:
    """Any command. What it keeps for its user is kept for this test only."""
    if "home" not in request.fixturenames:
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
    return lambda *arguments, **options: CliRunner().invoke(app, [*map(str, arguments)], **options)


def newest(cli: Run, log: Path | None = None) -> str:
    """The id of the newest open question."""
    listed = cli("approvals", "list", "--json", *(("--log", log) if log else ()))
    return json.loads(listed.stdout)[-1]["action_id"]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user who has nothing yet, in a project that brings nothing yet."""
    for name in [name for name in os.environ if name.startswith(("INTERLOCK_", "XDG_")) or name.endswith("_API_KEY")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    home, project = tmp_path / "home", tmp_path / "project"
    home.mkdir()
    (project / ".git").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(project)
    return home


@pytest.fixture
def project(home: Path) -> Path:
    return Path.cwd()


@pytest.fixture
def places(home: Path) -> UserPaths:
    return find_user_paths({"HOME": str(home)})


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def recorded_log(path: Path, *commands: str, says: Says = yes, **options: Any) -> Path:
    """A log with one more run, in which these commands were proposed."""

    async def propose() -> None:
        async with SqliteLog(path) as log:
            await record([("bash", {"command": command}) for command in commands], says, log=log, **options)

    asyncio.run(propose())
    return path


def exported(log_file: Path, to: Path) -> Path:
    """All runs of a log as one export."""

    async def read() -> list[LogEntry]:
        async with SqliteLog(log_file) as log:
            return [entry for run_id in await log.run_ids() for entry in await log.read(run_id)]

    to.write_bytes(b"".join(to_ndjson(asyncio.run(read()))))
    return to
