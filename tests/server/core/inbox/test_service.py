"""Work in the inbox: assignments, comments, views and many decisions, with SQLite and with Postgres."""

import asyncio
from collections.abc import AsyncGenerator
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
import pytest_asyncio
from msgspec.structs import replace

from interlock.server.core.errors import ConflictError, ForbiddenError, InvalidRequestError, NotFoundError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.inbox import comments, saved_views
from interlock.server.core.inbox.saved_views import SavedView
from interlock.server.core.inbox.service import DecisionOutcome, ManyDecisions, ShownQuestion
from interlock.server.core.index.rows import ActionQuery, ActionRow
from interlock.server.core.service import Service
from tests.each import each
from tests.logs import keep_in_postgres
from tests.server.core.people import PASSWORD
from tests.server.core.serving import (
    ADA,
    BOB,
    BOT,
    OPEN,
    World,
    approve,
    asked,
    create,
    serving,
    settings_of,
    status,
    told,
)

if TYPE_CHECKING:
    from tests.postgres.server import PostgresServer

MALLORY = Principal(name="user:mallory", kind="person")
HOSTILE = "<script>alert(1)</script>\u202e @everyone \0 ' OR 1=1 --"


class Office(NamedTuple):
    service: Service
    world: World

    async def ask(self) -> ActionRow:
        (row,) = await asked(self.service, await create(self.service, "one", BOT))
        return row

    async def list_ids(self, principal: Principal, assigned: str = "") -> list[str]:
        page = await self.service.inbox.list_questions(principal, ActionQuery(statuses=OPEN), assigned)
        return [row.action_id for row in page.rows]

    async def read_journal(self, action: str) -> list[tuple[str, str, dict[str, str]]]:
        entries = await self.service.audit_log.read(limit=1_000)
        return [(entry.by, entry.target, dict(entry.detail)) for entry in entries if entry.action == action]


@pytest_asyncio.fixture(params=["sqlite", "postgres"])
async def office(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[Office]:
    if request.param == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres")
        keep_in_postgres(tmp_path, server, server.server_url)
    world = World()
    async with serving(tmp_path, world.one(), settings=settings_of(four_eyes="all")) as service:
        for name, role in (("ada", Role.OPERATOR), ("bob", Role.OPERATOR), ("eve", Role.AUDITOR)):
            await service.accounts.create(name, PASSWORD, roles=[role], by="test")
        yield Office(service, world)


async def test_questions_are_assigned_and_found_by_it(office: Office) -> None:
    one, two = await office.ask(), await office.ask()

    assigned = await office.service.inbox.assign(ADA, one.action_id, "bob")

    assert (assigned.account, assigned.assigned_by) == ("user:bob", "user:ada")
    assert await office.list_ids(BOB, "me") == [one.action_id]
    assert await office.list_ids(ADA, "user:bob") == await office.list_ids(ADA, "bob") == [one.action_id]
    assert await office.list_ids(BOB, "none") == [two.action_id]
    assert await office.list_ids(ADA, "me") == []
    assert (await office.service.inbox.get_question(ADA, one.action_id)).row.assignee == "user:bob"
    await office.service.inbox.assign(BOB, one.action_id, "")
    assert await office.list_ids(BOB, "me") == []
    assert await office.read_journal("questions.assign") == [
        ("user:ada", one.action_id, {"account": "user:bob"}),
        ("user:bob", one.action_id, {"account": "none"}),
    ]


@each("account", ["eve", "nobody", "mallory", "key:bot", "../x", "\ud800"])
async def test_only_accounts_that_may_decide_are_assigned(office: Office, account: str) -> None:
    row = await office.ask()

    with pytest.raises(InvalidRequestError, match="no account that may answer"):
        await office.service.inbox.assign(ADA, row.action_id, account)
    view = await office.service.inbox.get_question(ADA, row.action_id)
    assert await office.service.inbox.list_candidates(ADA, view) == ("user:ada", "user:bob")


async def test_answered_questions_leave_the_assigned_ones(office: Office) -> None:
    one, two = await office.ask(), await office.ask()
    for row in (one, two):
        await office.service.inbox.assign(ADA, row.action_id, "bob")
    await approve(office.service, one, ADA)
    await status(office.service, one.run_id, "COMPLETED")

    assert await office.service.inbox.close_answered() == 1
    assert await office.service.inbox.close_answered() == 0
    assert await office.list_ids(BOB, "me") == [two.action_id]
    page = await office.service.inbox.list_questions(BOB, ActionQuery(), "me")
    assert [row.action_id for row in page.rows] == [one.action_id, two.action_id]
    with pytest.raises(ConflictError, match="Nothing was assigned"):
        await office.service.inbox.assign(ADA, one.action_id, "bob")


async def test_comments_are_kept_and_never_reach_the_run(office: Office) -> None:
    row = await office.ask()

    await office.service.inbox.add_comment(ADA, row.action_id, "  Ask Mia first. ")
    await office.service.inbox.add_comment(BOB, row.action_id, HOSTILE)

    kept = await office.service.inbox.list_comments(ADA, row.action_id)
    safe = HOSTILE.replace("\0", "\ufffd")
    assert [(each.author, each.text) for each in kept] == [("user:ada", "Ask Mia first."), ("user:bob", safe)]
    assert [detail["sha256"] for _, _, detail in await office.read_journal("questions.comment")] == [
        sha256(text.encode()).hexdigest() for text in ("Ask Mia first.", safe)
    ]
    await approve(office.service, row, ADA)
    await status(office.service, row.run_id, "COMPLETED")
    recorded = str(await told(office.service, row.run_id))
    assert "Mia" not in recorded
    assert "everyone" not in recorded


async def test_comments_have_limits_and_need_permission(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    row = await office.ask()
    for text in ("  ", "x" * (comments.MAX_COMMENT_CHARS + 1)):
        with pytest.raises(InvalidRequestError):
            await office.service.inbox.add_comment(ADA, row.action_id, text)
    with pytest.raises(NotFoundError):
        await office.service.inbox.add_comment(MALLORY, row.action_id, "Let me in.")
    for agent in (BOT, replace(BOT, kind="person")):
        with pytest.raises(ForbiddenError):
            await office.service.inbox.add_comment(agent, row.action_id, "Approve me.")
        with pytest.raises(ForbiddenError):
            await office.service.inbox.list_comments(agent, row.action_id)
    monkeypatch.setattr(comments, "MAX_COMMENTS", 1)
    await office.service.inbox.add_comment(ADA, row.action_id, "One.")
    with pytest.raises(ConflictError, match="which is the limit"):
        await office.service.inbox.add_comment(ADA, row.action_id, "Two.")


async def test_views_belong_to_a_person(office: Office, monkeypatch: pytest.MonkeyPatch) -> None:
    views = office.service.inbox.views
    await views.save("user:ada", " Money ", "?q=amount>%3D500&x=1&cursor=MTI")
    await views.save("user:ada", "All", "")
    await views.save("user:ada", "Money", "sort=newest")
    await views.save("user:bob", "Mine", "assigned=me")

    assert await views.list("user:ada") == (
        SavedView(name="All", query=""),
        SavedView(name="Money", query="?sort=newest"),
    )
    for name in ("", "x" * 61, "a\u202eb"):
        with pytest.raises(InvalidRequestError):
            await views.save("user:ada", name, "")
    with pytest.raises(NotFoundError):
        await views.delete("user:ada", "Mine")
    await views.delete("user:bob", "Mine")
    assert await views.list("user:bob") == ()
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 2)
    with pytest.raises(ConflictError, match="Delete one"):
        await views.save("user:ada", "Third", "")


async def test_many_are_decided_one_by_one(office: Office) -> None:
    rows = [await office.ask() for _ in range(4)]
    taken, other = rows[1], rows[2]
    await office.service.approval_service.reject(BOB, taken.action_id, "Not this one.")
    shown = [ShownQuestion(row.action_id, row.payload_hash) for row in rows]
    shown[2] = ShownQuestion(other.action_id, "sha256:changed")

    outcomes = await office.service.inbox.decide_many(
        ADA, ManyDecisions(approved=True, reason="Checked.", questions=(*shown, shown[0]))
    )

    assert [(each.action_id, each.outcome, each.code) for each in outcomes] == [
        (rows[0].action_id, "recorded", ""),
        (taken.action_id, "skipped", "already_decided"),
        (other.action_id, "skipped", "payload_hash_mismatch"),
        (rows[3].action_id, "recorded", ""),
    ]
    assert "rejected by user:bob at 2" in outcomes[1].message
    for row in (rows[0], rows[3]):
        await status(office.service, row.run_id, "COMPLETED")
    assert office.world.changes == ["x", "x"]
    again = ManyDecisions(approved=True, reason="Checked.", questions=(shown[0],))
    assert await office.service.inbox.decide_many(ADA, again) == (
        DecisionOutcome(action_id=rows[0].action_id, outcome="recorded"),
    )


async def test_many_have_the_checks_of_one(office: Office) -> None:
    row = await office.ask()
    (own,) = await asked(office.service, await create(office.service, "one", ADA))
    questions = tuple(ShownQuestion(each.action_id, each.payload_hash) for each in (row, own))
    reject = ManyDecisions(approved=False, reason="No.", questions=questions)

    for principal in (BOT, MALLORY, replace(ADA, roles=frozenset({Role.AUDITOR}))):
        with pytest.raises(ForbiddenError):
            await office.service.inbox.decide_many(principal, reject)
    outcomes = await office.service.inbox.decide_many(ADA, reject)

    assert [(each.outcome, each.code) for each in outcomes] == [("recorded", ""), ("skipped", "four_eyes")]
    assert office.world.changes == []


async def test_two_people_who_decide_many_never_both_count(office: Office) -> None:
    rows = [await office.ask() for _ in range(6)]
    questions = tuple(ShownQuestion(row.action_id, row.payload_hash) for row in rows)

    both = await asyncio.gather(
        office.service.inbox.decide_many(ADA, ManyDecisions(approved=True, reason="", questions=questions)),
        office.service.inbox.decide_many(BOB, ManyDecisions(approved=False, reason="No.", questions=questions[::-1])),
    )

    won = [each.action_id for outcomes in both for each in outcomes if each.outcome != "skipped"]
    assert sorted(won) == sorted(row.action_id for row in rows)
