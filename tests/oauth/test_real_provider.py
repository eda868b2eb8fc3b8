"""Against a provider that others wrote, over HTTP: consent, silent renewal, refusal, taking it back."""

import asyncio
import time
from collections.abc import AsyncGenerator, Iterator, Mapping

import msgspec
import pytest

from interlock.domain.errors import ConsentError
from interlock.domain.tool import Consent, ConsentBinding
from interlock.oauth.consents import ConsentRequest, ConsentResult, OAuthConsents
from interlock.oauth.flow import Callback, FlowRefusal
from interlock.oauth.providers import OAuthProvider
from interlock.server.core.sealing import SealingKeys
from tests.node.oidc_server import SECRETS, OidcServer, Visitor, visitor
from tests.oauth.memory import MemoryTokens

from .scene import READ, REDIRECT, Clock

HOUR = 3600
BINDING = ConsentBinding(user="user:ada", agent="helper", tool="read_mail", definition="sha256:1")
REQUEST = ConsentRequest(BINDING, READ, "act_1")


@pytest.fixture
def ada(oidc_server: OidcServer) -> Iterator[Visitor]:
    with visitor("ada") as browser:
        yield browser
    oidc_server.answer_with(0)


@pytest.fixture
def clock() -> Clock:
    clock = Clock()
    clock.now = time.time_ns()
    return clock


@pytest.fixture(params=["interlock", "public"])
async def consents(
    request: pytest.FixtureRequest, oidc_server: OidcServer, clock: Clock
) -> AsyncGenerator[OAuthConsents]:
    secret = SECRETS[request.param]
    provider = OAuthProvider(
        name="mail",
        client_id=request.param,
        client_secret_env="SECRET" if secret else "",
        issuer=oidc_server.issuer,
        always=("openid", "offline_access"),
        authorize_params={"prompt": "consent"},
    )
    consents = OAuthConsents([provider], MemoryTokens(), SealingKeys([b"k" * 32]), clock, {"SECRET": secret})
    yield consents
    await consents.close()


def callback_of(said: Mapping[str, str]) -> Callback:
    return Callback(**{name: said.get(name, "") for name in ("state", "code", "error", "iss")})


async def consent(
    consents: OAuthConsents, browser: Visitor, request: ConsentRequest = REQUEST
) -> ConsentResult | FlowRefusal:
    begun = await consents.begin(request, REDIRECT, "session")
    said = await asyncio.to_thread(browser.go, begun.url)
    return await consents.finish(callback_of(said), request.binding.user, "session")


async def test_a_token_that_a_user_consented_to_opens_what_they_consented_to(
    oidc_server: OidcServer, consents: OAuthConsents, ada: Visitor
) -> None:
    assert await consents.token(BINDING, READ) is None

    assert await consent(consents, ada) == ConsentResult(
        binding=BINDING,
        provider="mail",
        scopes=("mail.read", "offline_access", "openid"),
        action_id="act_1",
    )

    token = await consents.token(BINDING, READ)
    assert token
    status, said = oidc_server.mail(token)
    assert (status, said["user"]) == (200, "ada")


async def test_it_is_renewed_silently_with_refresh_tokens_that_change_each_time(
    oidc_server: OidcServer, consents: OAuthConsents, ada: Visitor, clock: Clock
) -> None:
    await consent(consents, ada)
    before = oidc_server.requests().get("refresh_token", 0)
    seen: set[str | None] = {await consents.token(BINDING, READ)}
    for _ in range(3):
        clock.forward(HOUR)
        tokens = await asyncio.gather(*(consents.token(BINDING, READ) for _ in range(5)))
        assert len(set(tokens)) == 1
        seen.update(tokens)

    assert len(seen) == 4
    assert oidc_server.requests()["refresh_token"] == before + 3
    assert {oidc_server.mail(token or "")[0] for token in seen} == {200}


async def test_who_cancels_at_the_provider_has_refused(
    oidc_server: OidcServer, consents: OAuthConsents, ada: Visitor
) -> None:
    begun = await consents.begin(REQUEST, REDIRECT, "session")
    said = await asyncio.to_thread(ada.go, begun.url, "Cancel")
    came = await consents.finish(callback_of(said), "user:ada", "session")

    assert came == FlowRefusal(
        code="denied", reason="You did not give access at mail.", action_id="act_1", user="user:ada"
    )


async def test_what_is_taken_back_here_is_worth_nothing_there(
    oidc_server: OidcServer, consents: OAuthConsents, ada: Visitor
) -> None:
    await consent(consents, ada)
    token = await consents.token(BINDING, READ)

    assert await consents.revoke("user:ada", "read_mail", "mail") is True
    assert oidc_server.mail(token or "")[0] == 401
    assert await consents.token(BINDING, READ) is None


async def test_what_is_taken_back_there_is_asked_for_again_here(
    oidc_server: OidcServer, consents: OAuthConsents, ada: Visitor, clock: Clock
) -> None:
    await consent(consents, ada)
    oidc_server.forget_grants()
    clock.forward(HOUR)

    assert await consents.token(BINDING, READ) is None
    assert isinstance(await consent(consents, ada), ConsentResult)
    assert await consents.token(BINDING, READ)


async def test_while_it_is_broken_calls_fail_and_nothing_is_lost(
    oidc_server: OidcServer, consents: OAuthConsents, ada: Visitor, clock: Clock
) -> None:
    await consent(consents, ada)
    clock.forward(HOUR)
    oidc_server.answer_with(503)
    with pytest.raises(ConsentError, match="mail answered with status 503"):
        await consents.token(BINDING, READ)

    oidc_server.answer_with(0)
    assert await consents.token(BINDING, READ)


async def test_a_tool_that_wants_more_is_asked_for_again(consents: OAuthConsents, ada: Visitor) -> None:
    await consent(consents, ada)
    both = Consent(provider="mail", scopes=("mail.read", "mail.send"))
    assert await consents.token(BINDING, both) is None

    assert isinstance(await consent(consents, ada, REQUEST._replace(consent=both)), ConsentResult)
    assert await consents.token(BINDING, both)
    assert await consents.token(BINDING, READ)


@pytest.mark.parametrize("iss", ["", "https://elsewhere.example"])
async def test_a_code_that_does_not_say_that_it_is_from_this_provider_is_not_used(
    oidc_server: OidcServer, consents: OAuthConsents, ada: Visitor, iss: str
) -> None:
    begun = await consents.begin(REQUEST, REDIRECT, "session")
    said = await asyncio.to_thread(ada.go, begun.url)
    before = oidc_server.requests()

    came = await consents.finish(callback_of({**said, "iss": iss}), "user:ada", "session")

    assert isinstance(came, FlowRefusal)
    assert came.code == "other_issuer"
    assert oidc_server.requests() == before


async def test_a_code_of_one_way_cannot_be_used_on_another(consents: OAuthConsents, ada: Visitor) -> None:
    stolen = await asyncio.to_thread(ada.go, (await consents.begin(REQUEST, REDIRECT, "session")).url)
    other = await consents.begin(
        REQUEST._replace(binding=msgspec.structs.replace(BINDING, user="user:eve")), REDIRECT, "hers"
    )

    came = await consents.finish(callback_of({**stolen, "state": other.state}), "user:eve", "hers")

    assert isinstance(came, FlowRefusal)
    assert came.reason == "mail did not take its own code: invalid_grant. Begin again."
    assert await consents.list_grants("user:eve") == ()
