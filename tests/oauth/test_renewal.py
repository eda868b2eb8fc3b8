"""Tokens that are good, renewed, refused: against a token endpoint that answers as the test says."""

import asyncio

import pytest

from interlock.domain.errors import ConsentError
from interlock.domain.tool import Consent
from interlock.oauth.consents import ConsentResult
from interlock.oauth.tokens import GrantSummary
from tests.each import each

from .scene import ADA, BINDING, READ, Answer, at_provider, bound_to, gives

HOUR = 3600


async def test_a_token_that_is_good_is_given_without_asking_anybody() -> None:
    async with at_provider() as scene:
        assert await scene.consents.token(BINDING, READ) is None
        assert isinstance(await scene.consent(), ConsentResult)

        assert await scene.consents.token(BINDING, READ) == "access-1"
        assert [form["grant_type"] for form in scene.endpoint.forms] == ["authorization_code"]


async def test_a_consent_is_of_one_user_to_one_tool_for_its_scopes() -> None:
    async with at_provider() as scene:
        await scene.consent()

        others = [{"user": "user:bob"}, {"agent": "other"}, {"tool": "send_mail"}, {"definition": "sha256:2"}]
        for other in others:
            assert await scene.consents.token(bound_to(**other), READ) is None
            assert await scene.consents.needs_consent(bound_to(**other), READ)
        more = Consent(provider="mail", scopes=("mail.read", "mail.send"))
        assert await scene.consents.token(BINDING, more) is None
        assert await scene.consents.needs_consent(BINDING, more)
        assert not await scene.consents.needs_consent(BINDING, READ)


async def test_a_provider_that_nobody_configured_is_an_error() -> None:
    async with at_provider() as scene:
        with pytest.raises(ConsentError, match="No OAuth provider 'calendar' is configured"):
            await scene.consents.token(BINDING, Consent(provider="calendar"))


async def test_a_token_is_renewed_a_minute_before_its_end() -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers(gives("access-2", refresh_token="refresh-2"))

        scene.clock.forward(HOUR - 61)
        assert await scene.consents.token(BINDING, READ) == "access-1"
        scene.clock.forward(1)
        assert await scene.consents.token(BINDING, READ) == "access-2"
        assert await scene.consents.token(BINDING, READ) == "access-2"
        assert [form.get("refresh_token") for form in scene.endpoint.forms] == [None, "refresh-1"]


async def test_the_refresh_token_is_the_newest_one_the_provider_gave() -> None:
    async with at_provider() as scene:
        await scene.consent()
        for number, given in enumerate(["refresh-2", None, "refresh-3"], start=2):
            scene.answers(gives(f"access-{number}", **({"refresh_token": given} if given else {})))
            scene.clock.forward(HOUR)
            assert await scene.consents.token(BINDING, READ) == f"access-{number}"

        sent = [form["refresh_token"] for form in scene.endpoint.forms[1:]]
        assert sent == ["refresh-1", "refresh-2", "refresh-2"]


async def test_whoever_asks_at_the_same_time_shares_one_renewal() -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers(gives("access-2", refresh_token="refresh-2"))
        scene.clock.forward(HOUR)
        scene.endpoint.open.clear()
        scene.endpoint.asked.clear()

        async with asyncio.TaskGroup() as asking:
            tasks = [asking.create_task(scene.consents.token(BINDING, READ)) for _ in range(20)]
            await scene.endpoint.asked.wait()
            scene.endpoint.open.set()

        assert {task.result() for task in tasks} == {"access-2"}
        assert len(scene.endpoint.forms) == 2


async def test_a_renewal_that_nobody_waits_for_any_more_is_kept() -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers(gives("access-2", refresh_token="refresh-2"))
        scene.clock.forward(HOUR)
        scene.endpoint.open.clear()
        scene.endpoint.asked.clear()

        asking = asyncio.create_task(scene.consents.token(BINDING, READ))
        await scene.endpoint.asked.wait()
        asking.cancel()
        scene.endpoint.open.set()
        await scene.consents.close()

        assert await scene.consents.token(BINDING, READ) == "access-2"
        assert len(scene.endpoint.forms) == 2


@pytest.mark.parametrize("error", ["invalid_grant", "interaction_required", "bad_refresh_token"])
async def test_a_no_to_a_renewal_means_that_the_user_is_asked_again(error: str) -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers((400, {"error": error, "error_description": "refresh-1 is not good"}))
        scene.clock.forward(HOUR)

        assert await scene.consents.token(BINDING, READ) is None
        assert await scene.consents.list_grants("user:ada") == ()
        assert await scene.consents.token(BINDING, READ) is None
        assert len(scene.endpoint.forms) == 2


_WRONG: list[tuple[Answer, str]] = [
    ((503, {"error": "temporarily_unavailable"}), "answered with status 503"),
    ((500, b"<html>"), "answered with status 500"),
    ((429, b"slow down"), "answered with status 429"),
    ((302, b""), "answered with status 302"),
    ((401, {"error": "invalid_client"}), "did not renew a token: invalid_client"),
    ((400, {"error": "Your token is abc"}), "did not renew a token: an error without a code"),
    ((400, {"error": {"nested": 1}}), "did not renew a token: an error without a code"),
    ((200, b""), "makes no sense"),
    ((200, b"[1, 2]"), "makes no sense"),
    ((200, b"[" * 100_000), "makes no sense"),
    ((200, b'{"access_token": "' + b"x" * 300_000 + b'"}'), "makes no sense"),
    ((200, {}), "no usable access_token"),
    ((200, {"access_token": 7}), "no usable access_token"),
    ((200, {"access_token": "line\nbreak"}), "no usable access_token"),
    ((200, {"access_token": "a", "refresh_token": ["b"]}), "no usable refresh_token"),
    ((200, {"access_token": "a", "token_type": "mac"}), "kind of token that cannot be used"),
    ((200, {"access_token": "a", "expires_in": ["soon"]}), "makes no sense"),
]


@each(("answer", "words"), _WRONG)
async def test_anything_else_fails_the_call_and_asks_nobody(answer: Answer, words: str) -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers(answer)
        scene.clock.forward(HOUR)

        with pytest.raises(ConsentError, match=words) as raised:
            await scene.consents.token(BINDING, READ)

        assert "refresh-1" not in str(raised.value)
        assert "abc" not in str(raised.value)
        assert not await scene.consents.needs_consent(BINDING, READ)
        scene.answers(gives("access-2"))
        assert await scene.consents.token(BINDING, READ) == "access-2"


async def test_a_provider_that_is_not_there_fails_the_call_and_asks_nobody() -> None:
    async with at_provider() as scene:
        await scene.consent()
    scene.clock.forward(HOUR)

    with pytest.raises(ConsentError, match="mail could not be reached"):
        await scene.consents.token(BINDING, READ)


@pytest.mark.parametrize(
    ("seconds", "still_good"), [(30, False), ("3600", True), (None, True), (-1, True), (1e300, True)]
)
async def test_how_long_a_token_is_good_is_what_the_provider_says(seconds: object, still_good: bool) -> None:
    async with at_provider(answer=gives(expires_in=seconds)) as scene:
        await scene.consent()

        assert (await scene.consents.token(BINDING, READ) == "access-1") is still_good
        assert await scene.consents.needs_consent(BINDING, READ) is not still_good


async def test_scopes_that_a_renewal_narrowed_are_asked_for_again() -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers(gives("access-2", scope="mail.headers"))
        scene.clock.forward(HOUR)

        assert await scene.consents.token(BINDING, READ) is None
        assert await scene.consents.needs_consent(BINDING, READ)


async def test_what_was_given_is_listed_without_tokens() -> None:
    async with at_provider() as scene:
        await scene.consent()

        (given,) = await scene.consents.list_grants("user:ada")
        assert given == GrantSummary(
            provider="mail",
            agent="helper",
            tool="read_mail",
            definition="sha256:1",
            scopes=("mail.read",),
            since=scene.clock.now,
            expires_at=scene.clock.now + HOUR * 1_000_000_000,
        )


async def test_what_is_taken_back_is_gone_here_whatever_the_provider_says() -> None:
    async with at_provider() as scene:
        for answer, confirmed in [((200, b""), True), ((503, b""), False)]:
            scene.answers(gives(refresh_token="refresh-1"))
            await scene.consent()
            scene.answers(answer)
            assert await scene.consents.revoke("user:ada", "read_mail", "calendar") is None
            assert await scene.consents.revoke("user:ada", "read_mail", "mail") is confirmed
            assert await scene.consents.token(BINDING, READ) is None
            assert scene.endpoint.forms[-1]["token"] == "refresh-1"
        assert await scene.consents.revoke("user:ada", "read_mail", "mail") is None


async def test_what_is_taken_back_during_a_renewal_stays_taken_back() -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers(gives("access-2", refresh_token="refresh-2"))
        scene.clock.forward(HOUR)
        scene.endpoint.open.clear()
        scene.endpoint.asked.clear()

        async with asyncio.TaskGroup() as group:
            group.create_task(scene.consents.token(BINDING, READ))
            await scene.endpoint.asked.wait()
            group.create_task(scene.consents.revoke("user:ada", "read_mail", "mail"))
            scene.endpoint.open.set()

        assert await scene.consents.token(BINDING, READ) is None
        assert scene.endpoint.forms[-1]["token"] == "refresh-2"


async def test_a_client_with_a_secret_sends_it_as_the_standard_says() -> None:
    async with at_provider(client_secret_env="SECRET") as scene:
        await scene.consent()
    # interlock:s3cret+%2B%26%25
    assert "authorization: Basic aW50ZXJsb2NrOnMzY3JldCslMkIlMjYlMjU=".lower() in scene.endpoint.headers[0].lower()

    async with at_provider(client_secret_env="SECRET", client_auth="post", token_params={"audience": "api"}) as scene:
        await scene.consent()
    assert scene.endpoint.forms[0]["client_secret"] == "s3cret +&%"
    assert scene.endpoint.forms[0]["audience"] == "api"


async def test_a_client_without_one_says_who_it_is() -> None:
    async with at_provider() as scene:
        await scene.consent(ADA)
    form = scene.endpoint.forms[0]
    assert (form["client_id"], form["code"], form["redirect_uri"]) == (
        "interlock",
        "code",
        "http://127.0.0.1:4444/consents/callback",
    )
