"""Slack: messages, buttons of verified people, and refusals of everybody else."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from interlock import Agent
from interlock.domain.event import ApprovalGranted, ApprovalRejected
from interlock.server.core.identity.principal import Role
from interlock.server.core.index.rows import ActionRow
from interlock.server.core.notices.notice import break_links
from interlock.server.core.notices.slack_interactions import SlackRejection, SlackResult
from interlock.server.core.service import Service
from tests.runs.support import calls
from tests.server.core.serving import ADA, ASK_CHANGE, World, approve, asked, create, scripted, serving, status, told

from .channels import ENVIRON, add_account, deliveries, settings_for, slack, until_found
from .fake_slack import FakeSlack, buttons_of, faking_slack, press, send, sign, texts_of

PEOPLE = {"ada": "U01ADA", "bob": "U02BOB", "rob": "U03ROB"}


@asynccontextmanager
async def serving_slack(
    folder: Path, agent: Agent, **channel: Any
) -> AsyncGenerator[tuple[Service, FakeSlack, ActionRow]]:
    """A server with a question, which is in Slack. Ada may decide, Rob has no role that may."""
    async with faking_slack() as fake:
        settings = settings_for(slack(fake.port, people=PEOPLE, **channel))
        async with serving(folder, agent, settings=settings, environ=ENVIRON) as service:
            await add_account(service, "ada", Role.OPERATOR)
            await add_account(service, "rob", Role.AUDITOR)
            (row,) = await asked(service, await create(service, agent.name))
            await fake.wait_for_messages()
            yield service, fake, row


def changing(what: str, name: str = "one") -> Agent:
    return scripted(name, calls(("c1", "change", {"what": what})), "Done.", tools=[World().change], policy=ASK_CHANGE)


async def refusals(service: Service) -> list[tuple[str, str]]:
    return [(each.by, each.action) for each in await service.audit_log.read() if each.outcome == "refused"]


async def test_button_approves_and_the_message_says_who(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        (message,) = fake.messages.values()
        button = buttons_of(message)["Approve"]
        assert button["value"] == f"{row.action_id} {row.payload_hash}"

        assert await send(service, press(button)) == SlackResult(outcome="recorded")

        await status(service, row.run_id, "COMPLETED")
        (granted,) = [fact for fact in await told(service, row.run_id) if isinstance(fact, ApprovalGranted)]
        assert (granted.answer.by, granted.answer.channel) == ("user:ada", "slack")
        await deliveries(service, "sent", count=2)
        (updated,) = fake.messages.values()
        assert updated["text"].startswith("Approved by user:ada.")
        assert list(buttons_of(updated)) == ["Open in the console"]


async def test_button_rejects(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        button = buttons_of(next(iter(fake.messages.values())))["Reject"]

        assert await send(service, press(button)) == SlackResult(outcome="recorded")

        await status(service, row.run_id, "COMPLETED", "FAILED")
        (rejected,) = [fact for fact in await told(service, row.run_id) if isinstance(fact, ApprovalRejected)]
        assert (rejected.answer.by, rejected.answer.channel) == ("user:ada", "slack")


async def test_unverified_requests_are_refused_and_audited(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        body = press(buttons_of(next(iter(fake.messages.values())))["Approve"])
        now = service.now() // 10**9
        tried = {
            "forged": sign(body, now, "another-secret-of-an-app"),
            "of another body": sign(body + b"&", now),
            "unsigned": {},
            "of another time": {**sign(body, now), "x-slack-request-timestamp": str(now - 1)},
            "not a time": {**sign(body, now), "x-slack-request-timestamp": "٣"},
            "old": sign(body, now - 400),
            "ahead": sign(body, now + 400),
        }
        answers = {name: await send(service, body, headers) for name, headers in tried.items()}

        assert {name: getattr(each, "code", "") for name, each in answers.items()} == {
            "forged": "bad_signature",
            "of another body": "bad_signature",
            "unsigned": "bad_signature",
            "of another time": "bad_signature",
            "not a time": "bad_signature",
            "old": "too_old",
            "ahead": "too_old",
        }
        assert {each.status for each in answers.values() if isinstance(each, SlackRejection)} == {401}
        assert ("slack:slack", "questions.decide") in await refusals(service)
        assert (await asked(service, row.run_id))[0].action_id == row.action_id


@pytest.mark.usefixtures("database_backend")
async def test_replayed_request_is_refused(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        body = press(buttons_of(next(iter(fake.messages.values())))["Approve"], user="U03ROB")
        headers = sign(body, service.now() // 10**9)
        first = await send(service, body, headers)
        await service.accounts.set_roles("rob", [Role.OPERATOR], None, by="test")

        replayed = await send(service, body, headers)

        assert isinstance(first, SlackResult)
        assert isinstance(replayed, SlackRejection)
        assert (first.outcome, replayed.status, replayed.code) == ("refused", 409, "replayed")
        assert (await asked(service, row.run_id))[0].action_id == row.action_id


@pytest.mark.parametrize(
    ("user", "code", "by"),
    [
        ("U99EVE", "unmapped_sender", "slack:U99EVE"),
        ("U02BOB", "account_disabled", "slack:U02BOB"),
        ("U03ROB", "not_allowed", "user:rob"),
    ],
)
async def test_sender_without_a_right_is_refused(tmp_path: Path, user: str, code: str, by: str) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        button = buttons_of(next(iter(fake.messages.values())))["Approve"]

        refused = await send(service, press(button, user))

        assert isinstance(refused, SlackResult)
        assert (refused.outcome, refused.code) == ("refused", code)
        assert [(each["user"], each["text"]) for each in fake.whispers] == [(user, break_links(refused.message))]
        assert (by, "questions.decide") in await refusals(service)
        assert (await asked(service, row.run_id))[0].action_id == row.action_id


async def test_revoked_account_is_refused(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, _):
        await service.accounts.disable("ada", by="test")

        refused = await send(service, press(buttons_of(next(iter(fake.messages.values())))["Approve"]))

        assert isinstance(refused, SlackResult)
        assert refused.code == "account_disabled"


async def test_button_of_another_payload_decides_nothing(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        button = buttons_of(next(iter(fake.messages.values())))["Approve"]
        values = [f"{row.action_id} sha256:{'0' * 64}", row.action_id, f"act_none {row.payload_hash}", "a b c", ""]

        answers = [await send(service, press({**button, "value": value})) for value in values]
        elsewhere = await send(service, press(button, channel={"id": "C99ELSE"}))

        codes = [each.code for each in (*answers, elsewhere)]
        assert codes == [
            "payload_hash_mismatch",
            "foreign_message",
            "unknown_action",
            "foreign_message",
            "foreign_message",
            "foreign_message",
        ]
        assert (await asked(service, row.run_id))[0].action_id == row.action_id


async def test_second_answer_is_refused_with_the_first(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        await approve(service, row)

        late = await send(service, press(buttons_of(next(iter(fake.messages.values())))["Reject"]))

        assert isinstance(late, SlackResult)
        assert late.code == "already_decided"
        assert "by user:bob" in late.message
        assert await refusals(service) == [("user:ada", "questions.decide")]


@pytest.mark.parametrize("channel", [{"console_tools": frozenset({"change"})}, {"console_risks": frozenset({"write"})}])
async def test_risky_calls_need_the_console(tmp_path: Path, channel: dict[str, Any]) -> None:
    async with serving_slack(tmp_path, changing("x"), **channel) as (service, fake, row):
        buttons = buttons_of(next(iter(fake.messages.values())))
        forged = {"action_id": "interlock_approve", "value": f"{row.action_id} {row.payload_hash}"}

        refused = await send(service, press(forged))

        assert list(buttons) == ["Open in the console"]
        assert isinstance(refused, SlackResult)
        assert refused.code == "needs_console"


async def test_arguments_too_long_to_show_need_the_console(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x" * 3_000)) as (_, fake, _row):
        assert list(buttons_of(next(iter(fake.messages.values())))) == ["Open in the console"]


async def test_channel_without_signing_secret_has_no_buttons(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x"), buttons=False) as (service, fake, row):
        value = f"{row.action_id} {row.payload_hash}"

        refused = await send(service, press({"action_id": "interlock_approve", "value": value}))

        assert list(buttons_of(next(iter(fake.messages.values())))) == ["Open in the console"]
        assert isinstance(refused, SlackRejection)
        assert refused.code == "unknown_channel"


async def test_links_of_messages_are_acknowledged(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, _):
        button = buttons_of(next(iter(fake.messages.values())))["Open in the console"]

        assert await send(service, press(button, "U99EVE")) == SlackResult(outcome="ignored")


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"payload=",
        b"payload=%7B%7D",
        b"payload=%5B%5D",
        b"a=1",
        b"payload={}&payload={}",
        b"\xff",
        b"payload=" + b"[" * 9_000,
    ],
)
async def test_malformed_request_is_refused(tmp_path: Path, body: bytes) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, _, _row):
        refused = await send(service, body)

        assert isinstance(refused, SlackRejection)
        assert (refused.status, refused.code) == (422, "bad_payload")
        assert await refusals(service) == [("slack:slack", "questions.decide")]


HOSTILE = "<!channel> <@U01ADA> *b* <https://evil.example|ok> :tada: & \u202efdp\nx"


async def test_hostile_arguments_are_plain_text(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing(HOSTILE)) as (_, fake, _row):
        (message,) = fake.messages.values()
        texts = texts_of(message)

        assert not any("\u202e" in text or "https://evil" in text for text in texts_of(message["blocks"][:2]))
        assert (message["parse"], message["link_names"], message["unfurl_links"]) == ("none", False, False)
        assert "<" not in message["text"]
        kinds = {block["text"]["type"] for block in message["blocks"] if block["type"] == "section"}
        assert kinds == {"plain_text"}
        (shown,) = [text for text in texts if text.startswith("{")]
        assert shown.startswith('{"what":"<!channel> <@U01ADA> *b* <https://evil.example|ok> :tada: & \\u{202e}fdp')


async def test_errors_of_the_channel_are_retried(tmp_path: Path) -> None:
    async with faking_slack() as fake:
        fake.errors = ["ratelimited", "not_in_channel"]
        settings = settings_for(slack(fake.port))
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON) as service:
            await asked(service, await create(service, "one", ADA))
            (sent,) = await deliveries(service, "sent")

        assert sent.attempts == 3
        bodies = [request.body for request in fake.receiver.requests]
        assert bodies[0].partition(b"client_msg_id")[2][:50] == bodies[2].partition(b"client_msg_id")[2][:50]


async def test_deleted_message_is_not_updated(tmp_path: Path) -> None:
    async with serving_slack(tmp_path, changing("x")) as (service, fake, row):
        await deliveries(service, "sent")
        fake.messages.clear()
        await approve(service, row)

        async def withdrawn() -> bool:
            found = await service.notices.outbox.list_deliveries(state="withdrawn")
            return any("no message to update" in each.problem for each in found)

        assert await until_found(withdrawn)
