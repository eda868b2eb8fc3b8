"""Delivery: outages, rejections, digests, limits, quiet hours and escalation, with a clock that is moved by hand."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from interlock import Rule, RulePolicy
from interlock.domain.errors import ConfigurationError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.index.rows import RunRow
from interlock.server.core.index.run_index import RunIndex
from interlock.server.core.notices.channel_settings import NoticeRoute
from interlock.server.core.notices.quiet_hours import parse_quiet_hours
from interlock.server.core.service import Service
from tests.server.core.people import HOUR, MINUTE, SECOND, FakeClock
from tests.server.core.receiver import answer, receiving
from tests.server.core.serving import ASK_CHANGE, World, approve, asked, create, serving

from .channels import ENVIRON, add_account, deliveries, drain, hook, mail, settings_for, until_found, verify_webhook
from .post_office import receiving_mail

ADMIN = Principal(name="user:root", kind="person", roles=frozenset({Role.ADMIN}))
#: `FakeClock` begins on 2027-01-15 at 08:00 UTC.
QUIET = "07:00-20:00"


async def paused(service: Service) -> Service:
    """Stop the loops, so that a test steps by itself."""
    await drain(service)
    await service.notices.pause()
    return service


def one(**more: Any) -> Any:
    return World().one(policy=ASK_CHANGE, **more)


async def test_outage_of_a_day_loses_nothing_and_repeats_nothing(tmp_path: Path) -> None:
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            receiver.answers = [answer(503)] * 1_000
            rows = [(await asked(service, await create(service, "one")))[0] for _ in range(3)]
            for _ in range(24):
                await drain(service)
                clock.at += HOUR
            failed = len(receiver.requests)
            receiver.answers = []
            await approve(service, rows[1])
            await drain(service)

            found = await service.notices.outbox.list_deliveries()
            bodies = [verify_webhook(request) for request in receiver.requests[failed:]]

    by_question = {each.action_id: each.state for each in found if each.kind == "asked"}
    assert by_question == {rows[0].action_id: "sent", rows[1].action_id: "withdrawn", rows[2].action_id: "sent"}
    named = [body["data"]["question"]["action_id"] for body in bodies if body["type"] == "question.asked"]
    assert sorted(named) == sorted([rows[0].action_id, rows[2].action_id])


async def test_rejected_notice_is_a_dead_letter_until_retried(tmp_path: Path) -> None:
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            receiver.answers = [answer(400, b"bad " + ENVIRON["HOOK"].encode())] * 5
            await asked(service, await create(service, "one"))
            for _ in range(6):
                await drain(service)
                clock.at += HOUR
            (dead,) = await deliveries(service, "dead")
            again = await service.notices.retry(ADMIN, dead.number)
            await drain(service)
            (sent,) = await deliveries(service, "sent")

    assert (dead.attempts, again.state, sent.number) == (5, "waiting", dead.number)
    assert ENVIRON["HOOK"] not in dead.problem
    assert len({request.headers["webhook-id"] for request in receiver.requests}) == 1


async def test_digest_collects_what_is_open(tmp_path: Path) -> None:
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port, digest_seconds=600))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            rows = [(await asked(service, await create(service, "one")))[0] for _ in range(3)]
            await drain(service)
            early = len(receiver.requests)
            await approve(service, rows[0])
            clock.at += 11 * MINUTE
            await drain(service)

    (body,) = [verify_webhook(request) for request in receiver.requests]
    assert (early, body["type"], body["data"]["total"]) == (0, "question.digest", 2)


async def test_too_many_notices_become_one_message(tmp_path: Path) -> None:
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port, max_per_minute=2))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            for _ in range(5):
                await asked(service, await create(service, "one"))
            await drain(service)

    bodies = [verify_webhook(request) for request in receiver.requests]
    assert [body["type"] for body in bodies] == ["question.asked", "question.digest"]
    assert bodies[1]["data"]["total"] == 4


async def test_routes_match_agent_tool_and_risk(tmp_path: Path) -> None:
    routes = (
        NoticeRoute(channel="by-agent", agents=frozenset({"another"})),
        NoticeRoute(channel="by-tool", tools=frozenset({"change"})),
        NoticeRoute(channel="by-risk", risks=frozenset({"execute"})),
        NoticeRoute(channel="by-all", agents=frozenset({"one"}), risks=frozenset({"write", "network"})),
        NoticeRoute(channel="by-kind", kinds=("input",)),
    )
    async with receiving() as receiver:
        channels = [hook(receiver.port, name=route.channel) for route in routes]
        settings = settings_for(*channels, routes=routes)
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON) as service:
            await asked(service, await create(service, "one"))
            sent = await deliveries(service, "sent", count=2)

    assert sorted(each.channel for each in sent) == ["by-all", "by-tool"]


async def test_quiet_hours_hold_all_but_urgent_notices(tmp_path: Path) -> None:
    clock = FakeClock()
    routes = (NoticeRoute(channel="quiet"), NoticeRoute(channel="loud", quiet_hours="none"))
    async with receiving() as receiver:
        channels = [hook(receiver.port, name=name, quiet_hours=QUIET) for name in ("quiet", "loud")]
        settings = settings_for(*channels, routes=routes)
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            for _ in range(2):
                await asked(service, await create(service, "one"))
            await drain(service)
            early = await deliveries(service, "sent", count=2)
            clock.at += 13 * HOUR
            await drain(service)
            sent = await deliveries(service, "sent", count=4)

    assert {each.channel for each in early} == {"loud"}
    assert len(sent) == 4
    assert verify_webhook(receiver.requests[-1])["type"] == "question.digest"


async def test_urgent_risk_is_sent_in_quiet_hours(tmp_path: Path) -> None:
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port, quiet_hours=QUIET), urgent_risks=frozenset({"write"}))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            await asked(service, await create(service, "one"))
            await drain(service)

    assert len(receiver.requests) == 1


#: Answers are expected within an hour.
HURRY = RulePolicy([Rule(id="hurry", verdict="ask", tools="change", answer_within_seconds=3_600)], default="allow")


@pytest.mark.parametrize("is_answered", [True, False])
async def test_escalation_only_while_unanswered(tmp_path: Path, is_answered: bool) -> None:
    clock = FakeClock()
    routes = (NoticeRoute(channel="hook"), NoticeRoute(channel="hook", escalate_after="30m"))
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port), routes=routes)
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            (row,) = await asked(service, await create(service, "one"))
            await drain(service)
            early = {each.kind: each.state for each in await service.notices.outbox.list_deliveries()}
            if is_answered:
                await approve(service, row)
            clock.at += 31 * MINUTE
            await drain(service)
            found = {each.kind: each.state for each in await service.notices.outbox.list_deliveries()}

    assert early == {"asked": "sent", "escalated": "waiting"}
    expected = {"asked": "sent", "escalated": "withdrawn" if is_answered else "sent"}
    assert found == expected | ({"answered": "sent"} if is_answered else {})


@pytest.mark.parametrize(("after", "minutes"), [("50%", 30), ("20m", 20), ("90%", 54)])
async def test_escalation_reaches_another_role(tmp_path: Path, after: str, minutes: int) -> None:
    """First those who may answer get a notice, then auditors, who may only read."""
    clock, people = FakeClock(), {"ada": "ada@example.com", "rob": "rob@example.com"}
    late = NoticeRoute(channel="mail", roles=frozenset({Role.AUDITOR}), escalate_after=after)
    async with receiving_mail() as office:
        settings = settings_for(mail(office.port, people=people), routes=(NoticeRoute(channel="mail"), late))
        agent = World().one(policy=HURRY)
        async with serving(tmp_path, agent, settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            await add_account(service, "ada", Role.OPERATOR)
            await add_account(service, "rob", Role.AUDITOR)
            (row,) = await asked(service, await create(service, "one"))
            counts: list[int] = []
            for at in (0, minutes * MINUTE - SECOND, minutes * MINUTE):
                clock.at = row.asked_at + at
                await drain(service)
                counts.append(len(office.envelopes))

    assert counts == [1, 1, 2]
    assert [envelope.rcpt_tos for envelope in office.envelopes] == [["ada@example.com"], ["rob@example.com"]]
    assert str(office.mails[1]["Subject"]).startswith("Still unanswered: ")


async def test_many_escalations_come_as_one_message(tmp_path: Path) -> None:
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port), routes=(NoticeRoute(channel="hook", escalate_after="1h"),))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            for _ in range(4):
                await asked(service, await create(service, "one"))
            await drain(service)
            clock.at += 61 * MINUTE
            await drain(service)

    (body,) = [verify_webhook(request) for request in receiver.requests]
    assert (body["type"], body["data"]["total"]) == ("question.digest", 4)


@pytest.mark.parametrize("channel", [{"quiet_hours": QUIET}, {"digest_seconds": 7_200}])
async def test_nothing_waits_beyond_its_deadline(tmp_path: Path, channel: dict[str, Any]) -> None:
    """Quiet hours or a digest that ends after the deadline would be of no use."""
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port, **channel))
        agent = World().one(policy=HURRY)
        async with serving(tmp_path, agent, settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            await asked(service, await create(service, "one"))
            await drain(service)

    assert [verify_webhook(request)["type"] for request in receiver.requests] == ["question.asked"]


def test_share_needs_a_deadline() -> None:
    route = NoticeRoute(channel="hook", escalate_after="50%")

    assert (route.find_escalation_time(100, 200), route.find_escalation_time(100, 0)) == (150, None)


@pytest.mark.parametrize(
    ("at", "end"),
    [
        ("2027-01-15T21:30", "2027-01-16T06:00"),
        ("2027-01-15T03:00", "2027-01-15T06:00"),
        ("2027-01-15T12:00", "2027-01-15T12:00"),
        ("2027-03-28T00:30", "2027-03-28T05:00"),
    ],
)
def test_quiet_hours_end_in_local_time(at: str, end: str) -> None:
    """Berlin is one hour ahead of UTC, and two after the last change."""
    hours = parse_quiet_hours("22:00-07:00", "Europe/Berlin")
    nanoseconds = [int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()) * 10**9 for text in (at, end)]

    assert hours.find_end(nanoseconds[0]) == nanoseconds[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"routes": (NoticeRoute(channel="hook", quiet_hours="10-12"),)},
        {"routes": (NoticeRoute(channel="hook", quiet_hours="10:00-10:00"),)},
        {"routes": (NoticeRoute(channel="hook", escalate_after="8d"),)},
        {"routes": (NoticeRoute(channel="hook", escalate_after="soon"),)},
        {"routes": (NoticeRoute(channel="hook", escalate_after="100%"),)},
        {"routes": (NoticeRoute(channel="hook", escalate_after="0%"),)},
        {"routes": (NoticeRoute(channel="hok"),)},
        {"routes": (NoticeRoute(channel="hook", roles=frozenset({Role.ADMIN})),)},
        {"time_zone": "Mars/Olympus"},
        {"urgent_risks": frozenset({"huge"})},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        settings_for(hook(1), **wrong)


async def test_notice_leaves_before_anything_else_happens(tmp_path: Path) -> None:
    """The question wakes planner and sender: nothing waits for a timer."""
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=FakeClock()) as service:
            (row,) = await asked(service, await create(service, "one"))
            await receiver.wait_for(lambda: len(receiver.requests) == 1)
            sent = await until_found(lambda: service.notices.outbox.list_deliveries(state="sent"))

    assert [(each.action_id, each.attempts) for each in sent] == [(row.action_id, 1)]


async def test_question_is_not_lost_while_the_index_is_behind(tmp_path: Path) -> None:
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON) as service:
            await paused(service)
            index = LateIndex(service.index)
            service.notices._planner._index = cast(RunIndex, index)  # pyright: ignore[reportPrivateUsage]
            await asked(service, await create(service, "one"))
            await drain(service)

    assert len(receiver.requests) == 1


class LateIndex:
    """An index that has a run only when it was waited for."""

    def __init__(self, index: RunIndex) -> None:
        self._index = index
        self._is_ready = False

    async def catch_up(self) -> None:
        await self._index.catch_up()
        self._is_ready = True

    async def get_run(self, run_id: str) -> RunRow | None:
        return await self._index.get_run(run_id) if self._is_ready else None


async def test_other_servers_see_that_a_channel_fails(tmp_path: Path) -> None:
    """Only the leader tries; the others know from the database."""
    clock = FakeClock()
    async with receiving() as receiver:
        settings = settings_for(hook(receiver.port))
        async with serving(tmp_path, one(), settings=settings, environ=ENVIRON, now=clock) as service:
            await paused(service)
            receiver.answers = [answer(503, b"down")]
            await asked(service, await create(service, "one"))
            await drain(service)
            service.notices._dispatchers["hook"].loop.record_success()  # pyright: ignore[reportPrivateUsage]
            (failing,) = await service.notices.list_statuses()
            clock.at += HOUR
            await drain(service)
            (working,) = await service.notices.list_statuses()

    assert (failing.failures, failing.last_error, failing.waiting_count) == (1, "The receiver answered 503: down", 1)
    assert (working.failures, working.last_error, working.sent_count) == (0, "", 1)
