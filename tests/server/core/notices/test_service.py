"""Notices of a running server: from a question to a channel, and what happens when it is answered."""

from pathlib import Path

import pytest

from tests.server.core.receiver import answer, receiving
from tests.server.core.serving import ASK_CHANGE, World, approve, asked, create, serving

from .channels import ENVIRON, PUBLIC_URL, deliveries, hook, settings_for, verify_webhook

pytestmark = pytest.mark.usefixtures("database_backend")


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
