"""Notices of a running server: from a question to a channel, and what happens when it is answered."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.logs import keep_in_postgres
from tests.postgres.server import PostgresServer
from tests.server.core.receiver import answer, receiving
from tests.server.core.serving import ASK_CHANGE, World, approve, asked, create, serving

from .channels import ENVIRON, PUBLIC_URL, deliveries, hook, settings_for, verify_webhook

QUESTIONS = 12


@pytest.mark.usefixtures("database_backend")
async def test_a_question_leaves_as_a_signed_webhook(tmp_path: Path) -> None:
    agent = World().one(policy=ASK_CHANGE)
    async with (
        receiving() as receiver,
        serving(tmp_path, agent, settings=settings_for(hook(receiver.port)), environ=ENVIRON) as service,
    ):
        run_id = await create(service, "one")
        (row,) = await asked(service, run_id)
        await receiver.wait_for(lambda: len(receiver.requests) == 1)
        body = verify_webhook(receiver.requests[0])
        assert body["type"] == "question.asked"
        question = body["data"]["question"]
        assert (question["action_id"], question["payload_hash"]) == (row.action_id, row.payload_hash)
        assert question["url"].startswith(f"{PUBLIC_URL}/console/inbox/{row.action_id}?payload=sha256")

        await approve(service, row)
        await receiver.wait_for(lambda: len(receiver.requests) == 2)
        closed = verify_webhook(receiver.requests[1])
        assert (closed["type"], closed["data"]["answer"]["by"]) == ("question.closed", "user:bob")
        sent = await deliveries(service, "sent", count=2)
        assert [(each.kind, each.attempts) for each in sent] == [("asked", 1), ("answered", 1)]


@pytest.mark.usefixtures("database_backend")
async def test_an_answered_question_is_not_notified_late(tmp_path: Path) -> None:
    agent = World().one(policy=ASK_CHANGE)
    async with (
        receiving(answer(503)) as receiver,
        serving(tmp_path, agent, settings=settings_for(hook(receiver.port)), environ=ENVIRON) as service,
    ):
        (row,) = await asked(service, await create(service, "one"))
        await receiver.wait_for(lambda: len(receiver.requests) == 1)
        await approve(service, row)
        (withdrawn,) = await deliveries(service, "withdrawn")

        assert withdrawn.problem == "The question was closed."
        assert len(receiver.requests) == 1


async def test_two_leaders_send_each_notice_once(tmp_path: Path, postgres: PostgresServer) -> None:
    """A leader that lost its lock does not know it at once: for a moment, both send."""
    keep_in_postgres(tmp_path, postgres, postgres.server_url)
    async with receiving() as receiver:
        options: dict[str, Any] = {"settings": settings_for(hook(receiver.port)), "environ": ENVIRON}
        async with (
            serving(tmp_path, World().one(policy=ASK_CHANGE), state="first", **options) as first,
            serving(tmp_path, World().one(policy=ASK_CHANGE), state="second", **options) as second,
        ):
            await asyncio.gather(*(each.notices.start() for each in (first, second) if not each.leadership.is_leading))
            await asyncio.gather(*(create(first, "one") for _ in range(QUESTIONS)))
            sent = await deliveries(first, "sent", count=QUESTIONS)

    named = [verify_webhook(request)["data"]["question"]["action_id"] for request in receiver.requests]
    assert sorted(named) == sorted(each.action_id for each in sent)
    assert len(set(named)) == QUESTIONS
