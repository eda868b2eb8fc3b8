"""E-mail: a real mail server on loopback gets what is meant, once, and nothing of a title becomes a header."""

from pathlib import Path
from typing import Any

import pytest

from interlock import Agent
from interlock.domain.errors import ConfigurationError
from interlock.server.core.identity.principal import Role
from interlock.server.core.notices.channel_settings import EmailChannel, NoticeRoute
from tests.runs.support import calls
from tests.server.core.certificates import server_tls
from tests.server.core.people import HOUR, FakeClock
from tests.server.core.serving import ASK_CHANGE, World, asked, create, scripted, serving

from .channels import ENVIRON, PUBLIC_URL, add_account, deliveries, drain, mail, settings_for
from .post_office import receiving_mail

PASSWORD = {"MAIL": "correct-horse-battery"}


def changing(what: str) -> Agent:
    return scripted("one", calls(("c1", "change", {"what": what})), "Done.", tools=[World().change], policy=ASK_CHANGE)


async def test_mail_has_the_link_and_says_a_program_wrote_it(tmp_path: Path) -> None:
    async with receiving_mail() as office:
        settings = settings_for(mail(office.port, to=("team@example.com",)))
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON) as service:
            (row,) = await asked(service, await create(service, "one"))
            (got,) = await office.wait_for_mails()
            await deliveries(service, "sent")

    assert (got["To"], office.envelopes[0].mail_from) == ("team@example.com", "interlock@example.com")
    assert (got["Auto-Submitted"], got["Precedence"], got["X-Auto-Response-Suppress"]) == (
        "auto-generated",
        "bulk",
        "All",
    )
    plain = got.get_body(("plain",))
    assert plain is not None
    assert f"{PUBLIC_URL}/console/inbox/{row.action_id}?payload=sha256" in plain.get_content()


async def test_hostile_text_stays_text(tmp_path: Path) -> None:
    what = "x\r\nBcc: eve@example.com\r\n\r\n<img src=https://evil.example/a> www.evil.example \u202efdp"
    async with receiving_mail() as office:
        settings = settings_for(mail(office.port, to=("team@example.com",)))
        async with serving(tmp_path, changing(what), settings=settings, environ=ENVIRON) as service:
            await asked(service, await create(service, "one"))
            (got,) = await office.wait_for_mails()
            await deliveries(service, "sent")

    assert (got["Bcc"], office.envelopes[0].rcpt_tos) == (None, ["team@example.com"])
    html = got.get_body(("html",))
    assert html is not None
    assert "<img" not in html.get_content()
    for part in (str(got["Subject"]), html.get_content()):
        assert not any(bad in part for bad in ("\u202e", "https://evil", "www.evil"))


async def test_people_get_what_they_may_answer(tmp_path: Path) -> None:
    people = {name: f"{name}@example.com" for name in ("ada", "eve", "ida", "rob", "zoe")}
    async with receiving_mail() as office:
        settings = settings_for(mail(office.port, people=people))
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON) as service:
            await add_account(service, "ada", Role.OPERATOR)
            await add_account(service, "eve", Role.OPERATOR)
            await add_account(service, "ida", Role.OPERATOR, agents=frozenset({"another"}))
            await add_account(service, "rob", Role.AUDITOR)
            await service.accounts.disable("eve", by="test")
            await asked(service, await create(service, "one"))
            sent = await deliveries(service, "sent")

    assert [each.account for each in sent] == ["ada"]
    assert [each.rcpt_tos for each in office.envelopes] == [["ada@example.com"]]


async def test_route_by_role_reaches_that_role(tmp_path: Path) -> None:
    people = {"ada": "ada@example.com", "rob": "rob@example.com"}
    async with receiving_mail() as office:
        routes = (NoticeRoute(channel="mail", roles=frozenset({Role.AUDITOR})),)
        settings = settings_for(mail(office.port, people=people, to=("team@example.com",)), routes=routes)
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON) as service:
            await add_account(service, "ada", Role.OPERATOR)
            await add_account(service, "rob", Role.AUDITOR)
            await asked(service, await create(service, "one"))
            await deliveries(service, "sent")

    assert [each.rcpt_tos for each in office.envelopes] == [["rob@example.com"]]


async def test_failed_farewell_is_no_second_mail(tmp_path: Path) -> None:
    """The mail was accepted; what the server answers to QUIT does not matter."""
    async with receiving_mail() as office:
        office.farewell = "451 Busy"
        settings = settings_for(mail(office.port, to=("team@example.com",)))
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON) as service:
            await asked(service, await create(service, "one"))
            (sent,) = await deliveries(service, "sent")

    assert (sent.attempts, len(office.envelopes)) == (1, 1)


async def test_mail_refused_for_now_comes_again_with_the_same_id(tmp_path: Path) -> None:
    async with receiving_mail("451 Greylisted") as office:
        settings = settings_for(mail(office.port, to=("team@example.com",)))
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON) as service:
            await asked(service, await create(service, "one"))
            first, second = await office.wait_for_mails(2)
            (sent,) = await deliveries(service, "sent")

    assert (first["Message-ID"], sent.attempts) == (second["Message-ID"], 2)


@pytest.mark.parametrize("encryption", ["starttls", "tls"])
async def test_password_goes_over_tls(tmp_path: Path, encryption: str) -> None:
    context, ca_file = server_tls(tmp_path, "localhost")
    offered = {"tls": context} if encryption == "tls" else {"starttls": context}
    async with receiving_mail(**offered, auth_require_tls=encryption == "starttls") as office:
        channel = mail(
            office.port,
            host="localhost",
            encryption=encryption,
            ca_file=ca_file,
            user="bot",
            secret_env="MAIL",
            to=("team@example.com",),
        )
        environ = {**ENVIRON, **PASSWORD}
        async with serving(tmp_path, changing("x"), settings=settings_for(channel), environ=environ) as service:
            await asked(service, await create(service, "one"))
            await deliveries(service, "sent")

    assert office.sign_ins == [("bot", "correct-horse-battery")]


@pytest.mark.parametrize(
    "address", ["a@b.example\r\nBcc: eve@example.com", '"a b"@example.com', "a@b@c.example", "ada"]
)
def test_ambiguous_address_is_refused(address: str) -> None:
    with pytest.raises(ConfigurationError, match="not an address of mail"):
        settings_for(EmailChannel(name="mail", host="mail.example.com", sender=address))


@pytest.mark.parametrize("receivers", [{"to": ("Bot@example.com",)}, {"people": {"ada": "bot@example.com"}}])
def test_mail_to_its_own_sender_is_refused(receivers: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match="its own `sender`"):
        settings_for(EmailChannel(name="mail", host="mail.example.com", sender="bot@example.com", **receivers))


async def test_bounced_mail_causes_no_other(tmp_path: Path) -> None:
    """A server that refuses a mail for good gets it five times at most, and what it says is not sent to anyone."""
    clock = FakeClock()
    async with receiving_mail(*["550 No such user"] * 10) as office:
        settings = settings_for(mail(office.port, to=("gone@example.com",)))
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON, now=clock) as service:
            await service.notices.pause()
            await asked(service, await create(service, "one"))
            for _ in range(10):
                await drain(service)
                clock.at += HOUR
            (dead,) = await deliveries(service, "dead")

    assert (dead.attempts, len(office.envelopes)) == (5, 5)
    assert dead.problem == "The mail server answered 550: No such user"


async def test_account_disabled_meanwhile_gets_no_mail(tmp_path: Path) -> None:
    clock = FakeClock()
    async with receiving_mail("451 Later") as office:
        settings = settings_for(mail(office.port, people={"ada": "ada@example.com"}))
        async with serving(tmp_path, changing("x"), settings=settings, environ=ENVIRON, now=clock) as service:
            await service.notices.pause()
            await add_account(service, "ada", Role.OPERATOR)
            await asked(service, await create(service, "one"))
            await drain(service)
            await service.accounts.disable("ada", by="test")
            clock.at += HOUR
            await drain(service)
            (withdrawn,) = await deliveries(service, "withdrawn")

    assert (withdrawn.attempts, len(office.envelopes)) == (1, 1)
