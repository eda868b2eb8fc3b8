"""Web Push: browsers on loopback get encrypted messages, and nothing else is ever called."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import example, given
from hypothesis import strategies as st

from interlock import Agent
from interlock.domain.errors import ConfigurationError
from interlock.server.core.audit_sinks.senders import SendDelay
from interlock.server.core.errors import ForbiddenError, NotFoundError
from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.notices.channel_settings import NoticeRoute, PushChannel
from interlock.server.core.notices.people import MAX_SUBSCRIPTIONS, NoticePeople, PushSubscription
from interlock.server.core.notices.preferences import InvalidBrowser, NewBrowser, build_test_message
from interlock.server.core.notices.push import VapidKey, decode_base64, encode_base64, encrypt, find_endpoint_problem
from interlock.server.core.notices.service import create_sender
from interlock.server.core.service import Service
from tests.runs.support import calls
from tests.server.core.people import opened
from tests.server.core.serving import ASK_CHANGE, BOT, World, approve, asked, create, scripted, serving

from .channels import ENVIRON, PUBLIC_URL, deliveries, push, settings_for
from .fake_push import FakeBrowser, FakePush, add_person, check_vapid, faking_push

CHANNEL = PushChannel(name="browsers", secret_env="VAPID", subject="mailto:ops@example.com")


def changing(what: str) -> Agent:
    return scripted("one", calls(("c1", "change", {"what": what})), "Done.", tools=[World().change], policy=ASK_CHANGE)


@asynccontextmanager
async def serving_push(
    folder: Path, what: str = "x", **chosen: Any
) -> AsyncGenerator[tuple[Service, FakePush, FakeBrowser, Principal]]:
    """A server, and a browser in which ada, an operator, switched push on."""
    async with faking_push() as fake:
        settings = settings_for(push(fake.receiver.port), **chosen)
        async with serving(folder, changing(what), settings=settings, environ=ENVIRON) as service:
            ada, browser = await add_person(service, "ada", Role.OPERATOR), FakeBrowser(fake, "ada")
            await browser.subscribe(service, ada)
            yield service, fake, browser, ada


def test_encryption_matches_the_example_of_the_standard() -> None:
    """RFC 8291, section 5."""
    browser = PushSubscription(
        subscription_id="1",
        account="ada",
        channel="browsers",
        endpoint="https://push.example.net/push/JzLQ3raZJfFBR0aqvOMsLrt54w4rJUsV",
        public_key="BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        auth="BTBZMqHH6r4Tts7J_aSIgg",
        created_at=1,
    )
    number = int.from_bytes(decode_base64("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw", 32))
    private = ec.derive_private_key(number, ec.SECP256R1())
    salt = decode_base64("DGv6ra1nlYgDCS1FRnbzlw", 16)

    sealed = encrypt(b"When I grow up, I want to be a watermelon", browser, private, salt)

    assert encode_base64(sealed) == (
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8wEqKK6PBru3"
        "jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN"
    )


async def test_browser_gets_the_question_and_its_answer(tmp_path: Path) -> None:
    async with serving_push(tmp_path) as (service, fake, browser, _):
        (row,) = await asked(service, await create(service, "one"))
        await fake.receiver.wait_for(lambda: len(browser.messages) == 1)
        (shown,) = browser.messages
        claims = check_vapid(fake.receiver.requests[0], f"http://127.0.0.1:{fake.receiver.port}")

        await approve(service, row)
        await fake.receiver.wait_for(lambda: len(browser.messages) == 2)
        answered = browser.messages[1]

    assert shown["url"].startswith(f"{PUBLIC_URL}/console/inbox/{row.action_id}?payload=sha256")
    assert (shown["silent"], "Risk: write" in shown["body"]) == (False, True)
    assert (answered["tag"], answered["silent"]) == (shown["tag"], True)
    assert answered["title"].startswith("Approved by user:bob.")
    assert claims["sub"] == "mailto:ops@example.com"
    assert 0 < claims["exp"] - service.now() // 10**9 <= 86_400


async def test_hostile_title_stays_text(tmp_path: Path) -> None:
    async with serving_push(tmp_path, '</script><b>\u202efdp\u0000"},{"url":"https://evil.example"') as (
        service,
        fake,
        browser,
        _,
    ):
        await asked(service, await create(service, "one"))
        await fake.receiver.wait_for(lambda: len(browser.messages) == 1)
        (shown,) = browser.messages

    assert shown["url"].startswith(f"{PUBLIC_URL}/console/inbox/")
    assert not any(bad in shown["title"] + shown["body"] for bad in ("\u202e", "\u0000"))


@pytest.mark.parametrize("status", [404, 410])
async def test_browser_that_is_gone_is_forgotten(tmp_path: Path, status: int) -> None:
    async with serving_push(tmp_path) as (service, fake, _, ada):
        fake.statuses = [status]
        await asked(service, await create(service, "one"))
        (withdrawn,) = await deliveries(service, "withdrawn")
        own = await service.notices.preferences.get(ada)

    assert (withdrawn.attempts, own.browsers) == (1, ())


async def test_push_service_that_is_down_is_tried_again(tmp_path: Path) -> None:
    async with serving_push(tmp_path) as (service, fake, browser, _):
        fake.statuses = [503, 429]
        await asked(service, await create(service, "one"))
        (sent,) = await deliveries(service, "sent")

    assert (sent.attempts, len({each["tag"] for each in browser.messages})) == (3, 1)


@pytest.mark.usefixtures("database_backend")
async def test_one_browser_belongs_to_one_person(tmp_path: Path) -> None:
    """What was planned for the person who used it before is not sent any more."""
    async with serving_push(tmp_path) as (service, fake, browser, ada):
        await service.notices.pause()
        await asked(service, await create(service, "one"))
        await service.notices._planner.plan_page()  # pyright: ignore[reportPrivateUsage] - without its loop
        eve = await add_person(service, "eve", Role.AUDITOR)
        await browser.subscribe(service, eve)
        await service.notices.start()
        (withdrawn,) = await deliveries(service, "withdrawn")

        assert [len((await service.notices.preferences.get(each)).browsers) for each in (ada, eve)] == [0, 1]

    assert (withdrawn.account, fake.receiver.requests) == ("ada", [])


@pytest.mark.parametrize("how", ["disabled", "without its role", "muted", "switched off"])
async def test_revoked_person_gets_nothing(tmp_path: Path, how: str) -> None:
    async with serving_push(tmp_path) as (service, fake, _, ada):
        await service.notices.pause()
        await asked(service, await create(service, "one", BOT))
        await service.notices._planner.plan_page()  # pyright: ignore[reportPrivateUsage] - without its loop
        (browser,) = (await service.notices.preferences.get(ada)).browsers
        match how:
            case "disabled":
                await service.accounts.disable("ada", by="test")
            case "without its role":
                await service.accounts.set_roles("ada", [], None, by="test")
            case "muted":
                await service.notices.preferences.mute(ada, "browsers", is_muted=True)
            case _:
                await service.notices.preferences.unsubscribe(ada, browser.id)
        await service.notices.start()
        await deliveries(service, "withdrawn")

    assert fake.receiver.requests == []


async def test_route_by_role_reaches_browsers_of_that_role(tmp_path: Path) -> None:
    routes = (NoticeRoute(channel="browsers", roles=frozenset({Role.ADMIN})),)
    async with serving_push(tmp_path, routes=routes) as (service, fake, _, _ada):
        root, browser = await add_person(service, "root", Role.ADMIN), FakeBrowser(fake, "root")
        await browser.subscribe(service, root)
        await asked(service, await create(service, "one"))
        sent = await deliveries(service, "sent")

    assert ([each.account for each in sent], len(browser.messages)) == (["root"], 1)


@pytest.mark.usefixtures("database_backend")
async def test_person_has_a_bounded_number_of_browsers(tmp_path: Path) -> None:
    async with serving_push(tmp_path) as (service, fake, first, ada):
        for number in range(MAX_SUBSCRIPTIONS):
            await FakeBrowser(fake, f"b{number}").subscribe(service, ada)
        kept = await service.notices.people.list_subscriptions(account="ada")

    assert (len(kept), first.endpoint in [each.endpoint for each in kept]) == (MAX_SUBSCRIPTIONS, False)


async def test_browsers_of_others_cannot_be_touched(tmp_path: Path) -> None:
    async with serving_push(tmp_path) as (service, fake, _, ada):
        preferences = service.notices.preferences
        (browser,) = (await preferences.get(ada)).browsers
        eve = await add_person(service, "eve", Role.ADMIN)
        for change in (preferences.unsubscribe, preferences.test):
            with pytest.raises(NotFoundError):
                await change(eve, browser.id)
        with pytest.raises(ForbiddenError):
            await preferences.get(BOT)

        assert await preferences.test(ada, browser.id) == ("browsers", "")
        assert await service.notices.test(eve, "browsers") == ("browsers", "You have switched push on in no browser.")

    assert len(fake.receiver.requests) == 1


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"endpoint": "http://127.0.0.1:1/push/x"}, "endpoint"),
        ({"endpoint": "https://evil.example/push"}, "endpoint"),
        ({"public_key": "AAAA"}, "keys"),
        ({"public_key": encode_base64(b"\x04" + b"\x01" * 64)}, "keys"),
        ({"auth": "short"}, "keys"),
        ({"auth": "é" * 16}, "keys"),
    ],
)
async def test_unusable_subscription_is_refused(tmp_path: Path, change: dict[str, str], field: str) -> None:
    async with serving_push(tmp_path) as (service, _, browser, ada):
        keys = browser.keys
        values = {"endpoint": browser.endpoint, "public_key": keys["p256dh"], "auth": keys["auth"], **change}
        refused = await service.notices.preferences.subscribe(ada, NewBrowser(channel="browsers", **values))

    assert isinstance(refused, InvalidBrowser)
    assert refused.field == field


ALLOWED = (
    "https://fcm.googleapis.com/fcm/send/abc",
    "https://updates.push.services.mozilla.com/wpush/v2/abc",
    "https://web.push.apple.com/abc",
    "https://wns2-par02p.notify.windows.com/w/?token=abc",
)


@pytest.mark.parametrize("endpoint", ALLOWED)
def test_push_services_of_browsers_are_allowed(endpoint: str) -> None:
    assert find_endpoint_problem(endpoint, CHANNEL) == ""


_HOSTS = st.sampled_from(
    ["fcm.googleapis.com", "web.push.apple.com", "evil.example", "127.0.0.1", "[::1]", "localhost"]
)
_JOINTS = st.text("@:/\\.#?%\t\r\n ;,&=*xX0123456789[]\u3002\uff0e\u200b", max_size=6)


@given(st.tuples(st.sampled_from(["https://", "http://", "//", "file://"]), _JOINTS, _HOSTS, _JOINTS, _HOSTS, _JOINTS))
@example(("https://", "", "fcm.googleapis.com", "@", "evil.example", ""))
@example(("https://", "", "fcm.googleapis.com", "\\@", "evil.example", ""))
@example(("https://", "", "fcm.googleapis.com", ".", "evil.example", ""))
@example(("https://", "", "evil.example", "#", "fcm.googleapis.com", ""))
@example(("https://", "", "fcm.googleapis.com", ":8080/", "", ""))
@example(("https://", "", "evil.example", "%2f.", "web.push.apple.com", ""))
@example(("https://", ".", "push.apple.com", "/", "", ""))
def test_no_other_host_is_ever_allowed(parts: tuple[str, ...]) -> None:
    """Whatever is allowed begins with an allowed host, written out, and a slash or its end."""
    endpoint = "".join(parts)
    if find_endpoint_problem(endpoint, CHANNEL) == "":
        host = endpoint.removeprefix("https://").partition("/")[0].partition("?")[0].partition("#")[0]
        assert endpoint.startswith("https://")
        assert host == "fcm.googleapis.com" or host.endswith(".push.apple.com")
        assert not set(host) & set("@:\\%[]")


async def test_allowed_name_with_a_private_address_is_not_called() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    async with faking_push() as fake:
        port = fake.receiver.port
        channel, keys = (
            push(port, hosts=(f"push.example.com:{port}",), allow_private=False),
            FakeBrowser(fake, "b").keys,
        )
        with opened() as database:
            people = NoticePeople(database)
            browser = await people.subscribe(
                "ada", "browsers", f"http://push.example.com:{port}/b", keys["p256dh"], keys["auth"]
            )
            sender = create_sender(channel, ENVIRON, people=people, resolve=resolve)
            outcome = await sender.send(build_test_message("browsers", browser.subscription_id, PUBLIC_URL, 1))
            await sender.close()

    assert isinstance(outcome, SendDelay)
    assert "may not be called" in outcome.problem
    assert fake.receiver.connections == 0


@pytest.mark.parametrize(
    "secret", ["!" * 43, encode_base64(b"\x00" * 32), encode_base64(b"\xff" * 32), "too-short-to-be-one"]
)
def test_key_that_is_none_is_refused(secret: str) -> None:
    with pytest.raises(ConfigurationError, match="VAPID"):
        VapidKey(secret, "The channel")


@pytest.mark.parametrize("wrong", [{"hosts": ("https://push.example.com",)}, {"hosts": ("*",)}, {"subject": "ops"}])
def test_push_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    values: dict[str, Any] = {"subject": "mailto:ops@example.com", **wrong}
    with pytest.raises(ConfigurationError):
        settings_for(PushChannel(name="browsers", secret_env="VAPID", **values))
