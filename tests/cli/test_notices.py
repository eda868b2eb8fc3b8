"""Notices of a server, from a terminal: try a channel, list deliveries, send a dead letter again."""

import asyncio
import json
from pathlib import Path

import pytest

from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.notices.outbox import NewDelivery, Outbox
from tests.server.core.notices.channels import ENVIRON
from tests.server.core.receiver import answer, receiving

from .conftest import Run

SETTINGS = """
[[notices.channels]]
kind = "webhook"
name = "hook"
url = "http://127.0.0.1:{port}/in"
secret_env = "HOOK"
allow_plain = true
allow_private = true

[[notices.channels]]
kind = "push"
name = "browsers"
secret_env = "VAPID"
subject = "mailto:ops@example.com"
"""


@pytest.fixture
def log(tmp_path: Path, home: Path) -> Path:
    """A log whose server has one dead letter."""
    path = tmp_path / "runs.db"
    asyncio.run(_add_dead_letter(path))
    return path


async def _add_dead_letter(log: Path) -> None:
    folder = log.with_name(f"{log.name}.server")
    folder.mkdir(mode=0o700)
    database = SqliteDatabase(folder / "server.db")
    outbox = Outbox(database)
    new = NewDelivery(channel="hook", account="", recipient="", kind="asked", run_id="run_1", action_id="act_1", seq=1)
    await database.run(lambda connection: outbox.add(connection, new))
    await outbox.finish(await outbox.list_deliveries(), "dead", problem="The receiver answered 400: \x1b[31mno.")
    database.close()


def test_dead_letter_is_listed_and_sent_again(cli: Run, log: Path) -> None:
    listed = cli("notices", "list", "--state", "dead", "--log", log)
    (row,) = json.loads(cli("notices", "list", "--json", "--log", log).stdout)
    first, second = (cli("notices", "retry", 1, "--log", log) for _ in range(2))

    assert "act_1" in listed.stdout
    assert "\x1b" not in listed.stdout
    assert (row["number"], row["state"], row["channel"]) == (1, "dead", "hook")
    assert (first.exit_code, first.stdout) == (0, "Notice 1 is sent again.\n")
    assert (second.exit_code, second.stderr) == (1, "interlock: notice 1 is no dead letter. Nothing was changed.\n")


@pytest.mark.parametrize(("status", "expected"), [(200, (0, "hook took the test")), (401, (1, "hook did not take"))])
def test_channel_is_tried(
    cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int, expected: tuple[int, str]
) -> None:
    for name, value in ENVIRON.items():
        monkeypatch.setenv(name, value)

    async def run() -> tuple[int, str]:
        async with receiving(answer(status)) as receiver:
            config = tmp_path / "serve.toml"
            config.write_text(SETTINGS.format(port=receiver.port))
            tried = await asyncio.to_thread(cli, "notices", "test", "hook", "--config", config)
            assert len(receiver.requests) == 1
            return tried.exit_code, tried.output

    code, printed = asyncio.run(run())
    assert code == expected[0]
    assert expected[1] in printed


def test_push_is_tried_in_the_console(cli: Run, tmp_path: Path, home: Path) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(SETTINGS.format(port=1))
    refused = cli("notices", "test", "browsers", "--config", config)
    unknown = cli("notices", "test", "hok", "--config", config)

    assert "Try it on the page Notices" in refused.stderr
    assert "Unknown notice channel 'hok'" in unknown.stderr
