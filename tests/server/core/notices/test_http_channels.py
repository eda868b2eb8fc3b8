"""Signed webhook, Microsoft Teams and ntfy: what servers on loopback get, and what they can do wrong."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from interlock import Agent
from interlock.domain.errors import ConfigurationError
from interlock.server.core.notices.channel_settings import ChannelSettings, NtfyChannel, WebhookChannel
from interlock.server.core.service import Service
from tests.runs.support import calls
from tests.server.core.receiver import Receiver, answer, receiving
from tests.server.core.serving import ASK_CHANGE, World, approve, asked, create, scripted, serving

from .channels import ENVIRON, PUBLIC_URL, deliveries, hook, ntfy, settings_for, teams, until_found

TOKEN = "tk_0123456789abcdef"


def changing(what: str = "x") -> Agent:
    return scripted("one", calls(("c1", "change", {"what": what})), "Done.", tools=[World().change], policy=ASK_CHANGE)


def environ_for(receiver: Receiver) -> dict[str, str]:
    """The URL of a workflow of Teams is a secret."""
    return {**ENVIRON, "TEAMS": f"http://127.0.0.1:{receiver.port}/workflows/0123456789abcdef", "NTFY": TOKEN}


def body_of(receiver: Receiver, at: int = 0) -> dict[str, Any]:
    return msgspec.json.decode(receiver.requests[at].body)


async def ask(service: Service) -> Any:
    return (await asked(service, await create(service, "one")))[0]


async def test_teams_gets_a_card_with_one_link(tmp_path: Path) -> None:
    async with receiving() as receiver:
        settings, environ = settings_for(teams()), environ_for(receiver)
        async with serving(tmp_path, changing(), settings=settings, environ=environ) as service:
            row = await ask(service)
            await deliveries(service, "sent")
            await approve(service, row)

    assert receiver.requests[0].target == "/workflows/0123456789abcdef"
    (attachment,) = body_of(receiver)["attachments"]
    card = attachment["content"]
    assert (attachment["contentType"], card["type"]) == ("application/vnd.microsoft.card.adaptive", "AdaptiveCard")
    assert [each["type"] for each in card["actions"]] == ["Action.OpenUrl"]
    assert card["actions"][0]["url"].startswith(f"{PUBLIC_URL}/console/inbox/{row.action_id}?payload=sha256")
    facts = {fact["title"]: fact["value"] for block in card["body"] for fact in block.get("facts", ())}
    assert (facts["Tool"], facts["Risk"], "Deadline" in facts) == ("change", "write", True)


async def test_repeated_card_says_so_and_hides_its_url(tmp_path: Path) -> None:
    async with receiving() as receiver:
        environ = environ_for(receiver)
        receiver.answers = [answer(500, environ["TEAMS"].encode())]
        async with serving(tmp_path, changing(), settings=settings_for(teams()), environ=environ) as service:
            await ask(service)
            (sent,) = await deliveries(service, "sent")
            status = (await service.notices.list_statuses())[0]

    texts = [block.get("text", "") for block in body_of(receiver, 1)["attachments"][0]["content"]["body"]]
    assert any(text.startswith("Sent again") for text in texts)
    assert (sent.attempts, status.failures) == (2, 0)
    assert environ["TEAMS"] not in sent.problem


async def test_ntfy_gets_question_and_answer_in_one_sequence(tmp_path: Path) -> None:
    async with receiving() as receiver:
        channel = ntfy(receiver.port, token_env="NTFY")
        environ, settings = environ_for(receiver), settings_for(channel, urgent_risks=frozenset({"write"}))
        async with serving(tmp_path, changing(), settings=settings, environ=environ) as service:
            row = await ask(service)
            await deliveries(service, "sent")
            await approve(service, row)
            await deliveries(service, "sent", count=2)

    first, second = body_of(receiver), body_of(receiver, 1)
    assert {request.headers["authorization"] for request in receiver.requests} == {f"Bearer {TOKEN}"}
    assert (first["topic"], first["priority"], second["priority"]) == ("secret-topic", 4, 2)
    assert first["click"].startswith(f"{PUBLIC_URL}/console/inbox/{row.action_id}?payload=sha256")
    assert (first["sequence_id"], second["title"][:20]) == (second["sequence_id"], "Approved by user:bob")


async def test_long_notice_of_ntfy_stays_a_message(tmp_path: Path) -> None:
    """A longer message would become a file."""
    agents = [
        scripted(
            f"{'é' * 90}{at}",
            calls(("c1", "change", {"what": "ü" * 400})),
            "Done.",
            tools=[World().change],
            policy=ASK_CHANGE,
        )
        for at in range(21)
    ]
    async with receiving() as receiver:
        settings = settings_for(ntfy(receiver.port, max_per_minute=1))
        async with serving(tmp_path, *agents, settings=settings, environ=ENVIRON) as service:
            await service.notices.pause()
            for agent in agents:
                await asked(service, await create(service, agent.name))
            await service.notices.start()
            await deliveries(service, "sent", count=len(agents))

    bodies = [msgspec.json.decode(request.body) for request in receiver.requests]
    assert all(len(body["message"].encode()) <= 4_096 for body in bodies)


@pytest.mark.parametrize("kind", ["hook", "teams", "ntfy"])
@pytest.mark.parametrize("status", [301, 401, 404, 429, 500])
async def test_failed_request_is_repeated_until_taken(tmp_path: Path, kind: str, status: int) -> None:
    async with receiving() as receiver:
        channels: dict[str, ChannelSettings] = {
            "hook": hook(receiver.port),
            "teams": teams(),
            "ntfy": ntfy(receiver.port),
        }
        receiver.answers = [answer(status, location="http://127.0.0.1:1/elsewhere")]
        settings, environ = settings_for(channels[kind]), environ_for(receiver)
        async with serving(tmp_path, changing(), settings=settings, environ=environ) as service:
            await ask(service)
            (sent,) = await deliveries(service, "sent")

    assert (sent.attempts, len(receiver.requests)) == (2, 2)


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "webhook", "url": "http://pager.example.com"},
        {"kind": "webhook", "url": "https://ada:secret@pager.example.com"},
        {"kind": "webhook", "url": "file:///etc/passwd"},
        {"kind": "ntfy", "topic": "a/b"},
        {"kind": "ntfy", "topic": "x", "url": "ftp://ntfy.example.com"},
    ],
)
def test_url_that_cannot_be_called_is_refused(wrong: dict[str, Any]) -> None:
    kinds = {"webhook": WebhookChannel, "ntfy": NtfyChannel}
    values = {name: value for name, value in wrong.items() if name != "kind"}
    with pytest.raises(ConfigurationError):
        settings_for(kinds[wrong["kind"]](name="channel", **values))


async def test_webhook_is_not_sent_to_a_private_address(tmp_path: Path) -> None:
    async with receiving() as receiver:
        channel = msgspec.structs.replace(hook(receiver.port), allow_private=False)
        async with serving(tmp_path, changing(), settings=settings_for(channel), environ=ENVIRON) as service:
            await ask(service)

            async def has_failed() -> bool:
                return "hook" in service.notices.list_failures()

            await until_found(has_failed)

            assert len(await deliveries(service, "waiting")) == 1

    assert receiver.connections == 0
