"""What goes wrong in the background is in the log of the server, and not again and again."""

import asyncio
import logging
from collections.abc import Generator
from pathlib import Path

import pytest

from interlock.domain.errors import ConfigurationError
from interlock.server.core.audit_sinks.destination import FileDestination
from interlock.server.core.health import HealthReporter
from interlock.server.core.runs.served_agent import ServedAgent
from interlock.server.core.settings import ServerSettings, ServerTable
from interlock.server.core.triggers.due_times import Schedule
from interlock.server.core.triggers.webhooks import Webhook
from tests.patience import HANG_SECONDS

from .serving import create, scripted, serving, status

PLAIN = ServedAgent(agent=scripted("plain", "Hello."))


def test_a_trouble_is_told_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    troubles = HealthReporter()

    for now in ({}, {"Forwarding to x": "refused"}, {"Forwarding to x": "timed out"}, {}, {}):
        troubles.report(now)

    assert caplog.messages == [
        "Forwarding to x does not work, and is tried again: refused",
        "Forwarding to x works again.",
    ]


class _Heard(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: asyncio.Queue[str] = asyncio.Queue()

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.put_nowait(record.getMessage())


@pytest.fixture
def heard() -> Generator[_Heard]:
    """What the server writes into its log, as it comes."""
    handler, logger = _Heard(), logging.getLogger("interlock.server")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


async def test_a_receiver_and_a_checkpoint_file_that_cannot_be_written_are_in_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: _Heard
) -> None:
    monkeypatch.setattr("interlock.server.core.service._HEALTH_SECONDS", 0.01)
    nowhere = str(tmp_path / "nowhere" / "file")
    server = ServerTable(checkpoint_file=nowhere, checkpoint_seconds=0.01)
    settings = ServerSettings(server=server, forward=(FileDestination(name="copy", path=nowhere),))
    async with serving(tmp_path, PLAIN, settings=settings) as service, asyncio.timeout(HANG_SECONDS):
        await status(service, await create(service, "plain"), "COMPLETED")
        told = sorted([await heard.messages.get(), await heard.messages.get()])

    assert [message.partition(" does not work")[0] for message in told] == ["Forwarding to copy", "The checkpoint file"]
    assert all(nowhere in message for message in told)


async def test_problem_is_reported_though_readiness_is_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, heard: _Heard
) -> None:
    monkeypatch.setattr("interlock.server.core.service._POLL_SECONDS", 0.01)
    async with serving(tmp_path, PLAIN) as service, asyncio.timeout(HANG_SECONDS):
        service.database.close()
        while not (await heard.messages.get()).startswith("The server's database does not work"):
            pass


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        (ServerSettings(schedules=(Schedule(name="x", agent="plian", task="Look.", every_seconds=60),)), "schedule"),
        (ServerSettings(webhooks=(Webhook(name="x", agent="plian", task="Look.", secret_env="S"),)), "webhook"),
    ],
)
async def test_a_trigger_for_an_agent_that_is_not_served_is_refused(
    tmp_path: Path, settings: ServerSettings, kind: str
) -> None:
    with pytest.raises(ConfigurationError) as refused:
        async with serving(tmp_path, PLAIN, settings=settings):
            pass

    words = f'The {kind} "x" cannot start: Unknown agent `plian`. Did you mean `plain`?'
    assert str(refused.value) == words


async def test_a_schedule_that_rests_may_be_for_an_agent_that_is_gone(tmp_path: Path) -> None:
    resting = Schedule(name="x", agent="gone", task="Look.", every_seconds=60, enabled=False)

    async with serving(tmp_path, PLAIN, settings=ServerSettings(schedules=(resting,))) as service:
        assert await service.find_readiness_problems() == []
