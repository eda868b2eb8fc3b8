"""The way to a provider and back: once, in time, in the same browser, and what is sent along."""

import asyncio
from collections.abc import Callable, Iterator
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import ConfigurationError
from interlock.domain.errors import ConsentError
from interlock.oauth.consents import ConsentResult
from interlock.oauth.flow import Callback, FlowRefusal
from interlock.oauth.tokens import TokenStore
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.token_table import TokenTable
from tests.oauth.memory import MemoryTokens

from .scene import ADA, BINDING, READ, REDIRECT, Scene, at_provider, bound_to, gives


@pytest.fixture(params=["memory", "table"])
def store(request: pytest.FixtureRequest) -> Iterator[TokenStore]:
    database = SqliteDatabase(":memory:")
    stores: dict[str, Callable[[], TokenStore]] = {"memory": MemoryTokens, "table": lambda: TokenTable(database)}
    yield stores[request.param]()
    database.close()


async def refusal(scene: Scene, callback: Callback, user: str = "user:ada", session: str = "session") -> FlowRefusal:
    """Coming back like this leads to nothing, and nobody asked the provider anything."""
    asked = len(scene.endpoint.forms)
    came = await scene.consents.finish(callback, user, session)
    assert isinstance(came, FlowRefusal)
    assert len(scene.endpoint.forms) == asked
    assert await scene.consents.list_grants("user:ada") == ()
    return came


async def test_the_url_has_all_that_makes_the_way_safe() -> None:
    async with at_provider(always=("openid",), authorize_params={"prompt": "consent"}) as scene:
        begun = await scene.consents.begin(ADA, REDIRECT, "session")
        said = dict(parse_qsl(urlsplit(begun.url).query))

        assert begun.url.startswith(f"{scene.endpoint.url}/auth?")
        assert len(begun.state) == 43
        assert len(said.pop("code_challenge")) == len(said.pop("nonce")) == 43
        assert said == {
            "response_type": "code",
            "client_id": "interlock",
            "redirect_uri": REDIRECT,
            "scope": "openid mail.read",
            "state": begun.state,
            "prompt": "consent",
            "code_challenge_method": "S256",
        }


async def test_no_two_ways_share_anything_secret() -> None:
    async with at_provider(always=("openid",)) as scene:
        urls = [(await scene.consents.begin(ADA, REDIRECT, "session")).url for _ in range(10)]
        said = [dict(parse_qsl(urlsplit(url).query)) for url in urls]

        assert {len({one[name] for one in said}) for name in ("state", "nonce", "code_challenge")} == {10}


async def test_a_state_is_good_once(store: TokenStore) -> None:
    async with at_provider(store=store) as scene:
        begun = await scene.consents.begin(ADA, REDIRECT, "session")
        callback = Callback(state=begun.state, code="code")

        async with asyncio.TaskGroup() as group:
            came = [group.create_task(scene.consents.finish(callback, "user:ada", "session")) for _ in range(5)]
        outcomes = [task.result() for task in came]

        assert [type(outcome) for outcome in outcomes].count(ConsentResult) == 1
        assert {outcome.code for outcome in outcomes if isinstance(outcome, FlowRefusal)} == {"used_state"}
        assert len(scene.endpoint.forms) == 1


async def test_a_state_is_good_for_ten_minutes(store: TokenStore) -> None:
    async with at_provider(store=store) as scene:
        begun = await scene.consents.begin(ADA, REDIRECT, "session")
        scene.clock.forward(600)
        late = await refusal(scene, Callback(state=begun.state, code="code"))
        assert late.code == "unknown_state"

        begun = await scene.consents.begin(ADA, REDIRECT, "session")
        scene.clock.forward(599)
        in_time = await scene.consents.finish(Callback(state=begun.state, code="code"), "user:ada", "session")
        assert isinstance(in_time, ConsentResult)


@pytest.mark.parametrize(
    ("user", "session"), [("user:ada", "other"), ("user:ada", ""), ("user:bob", "session"), ("user:bob", "other")]
)
async def test_another_browser_or_person_cannot_finish_it_and_neither_can_anybody_after_them(
    store: TokenStore, user: str, session: str
) -> None:
    async with at_provider(store=store) as scene:
        begun = await scene.consents.begin(ADA, REDIRECT, "session")
        callback = Callback(state=begun.state, code="code")

        stranger = await refusal(scene, callback, user, session)
        assert (stranger.code, stranger.user, stranger.action_id) == ("other_session", "user:ada", "act_1")
        assert (await refusal(scene, callback)).code == "used_state"


@given(state=st.text(), code=st.text(), error=st.text(), iss=st.text())
async def test_whatever_a_browser_brings_is_refused_if_nobody_began_it(
    state: str, code: str, error: str, iss: str
) -> None:
    async with at_provider() as scene:
        came = await refusal(scene, Callback(state=state, code=code, error=error, iss=iss))
        assert came.code == "unknown_state"


@given(code=st.text(), error=st.text())
async def test_whatever_comes_with_a_right_state_raises_nothing(code: str, error: str) -> None:
    async with at_provider() as scene:
        begun = await scene.consents.begin(ADA, REDIRECT, "session")
        came = await scene.consents.finish(Callback(state=begun.state, code=code, error=error), "user:ada", "session")
        assert isinstance(came, ConsentResult) or (came.reason.isascii() and came.reason.isprintable())


@pytest.mark.parametrize(
    ("callback", "code", "words"),
    [
        (Callback(error="access_denied"), "denied", "You did not give access at mail"),
        (Callback(error="server_error", code="code"), "failed", "mail answered with server_error"),
        (Callback(error="<script>alert(1)</script>"), "failed", "mail answered with an error without a code"),
        (Callback(), "failed", "without a code"),
        (Callback(code="a\nb"), "failed", "without a code"),
        (Callback(code="x" * 5000), "failed", "without a code"),
    ],
)
async def test_an_answer_without_a_code_says_why_in_our_words(callback: Callback, code: str, words: str) -> None:
    async with at_provider() as scene:
        begun = await scene.consents.begin(ADA, REDIRECT, "session")
        came = await refusal(scene, Callback(state=begun.state, code=callback.code, error=callback.error))
        assert came.code == code
        assert words in came.reason


async def test_a_code_that_the_provider_does_not_take_leads_to_nothing() -> None:
    async with at_provider(answer=(400, {"error": "invalid_grant", "error_description": "code was stolen"})) as scene:
        came = await scene.consent()
        assert isinstance(came, FlowRefusal)
        assert came.code == "failed"
        assert came.reason == "mail did not take its own code: invalid_grant. Begin again."


async def test_a_provider_that_fails_meanwhile_is_said_to_be_unavailable() -> None:
    async with at_provider(answer=(502, b"")) as scene:
        came = await scene.consent()
        assert isinstance(came, FlowRefusal)
        assert came.code == "unavailable"


async def test_less_than_what_was_asked_for_is_not_kept_and_does_not_replace_more() -> None:
    async with at_provider() as scene:
        await scene.consent()
        scene.answers(gives("less", scope="openid"))
        came = await scene.consent()

        assert isinstance(came, FlowRefusal)
        assert came.code == "insufficient"
        assert "read_mail needs access to mail.read" in came.reason
        assert await scene.consents.token(BINDING, READ) == "access-1"


@pytest.mark.parametrize("id_token", ["x", "a.b.c", "e30.e30.", "a." + "W1tb" * 20_000 + ".c"])
async def test_an_identity_for_another_question_is_refused(id_token: str) -> None:
    async with at_provider(answer=gives(id_token=id_token[:60_000])) as scene:
        came = await scene.consent()
        assert isinstance(came, FlowRefusal)
        assert came.code == "failed"


async def test_one_person_is_on_a_few_ways_at_most(store: TokenStore) -> None:
    async with at_provider(store=store) as scene:
        oldest = await scene.consents.begin(ADA, REDIRECT, "session")
        others = [
            await scene.consents.begin(ADA._replace(binding=bound_to(user="user:bob")), REDIRECT, "session")
            for _ in range(3)
        ]
        begun = [await scene.consents.begin(ADA, REDIRECT, "session") for _ in range(20)]

        assert (await refusal(scene, Callback(state=oldest.state, code="code"))).code == "unknown_state"
        assert isinstance(
            await scene.consents.finish(Callback(state=others[0].state, code="code"), "user:bob", "session"),
            ConsentResult,
        )
        assert isinstance(
            await scene.consents.finish(Callback(state=begun[0].state, code="code"), "user:ada", "session"),
            ConsentResult,
        )


async def test_nobody_sets_out_without_a_browser_or_to_come_back_elsewhere() -> None:
    async with at_provider() as scene:
        with pytest.raises(ConfigurationError, match="has to belong to a browser session"):
            await scene.consents.begin(ADA, REDIRECT, "")
        with pytest.raises(ConfigurationError, match="must be an https URL"):
            await scene.consents.begin(ADA, "http://elsewhere.example/callback", "session")


async def test_where_to_go_is_not_known_while_the_issuer_does_not_say() -> None:
    async with at_provider(answer=(404, b"")) as scene:
        broken = scene.endpoint.url
        async with at_provider(issuer=broken, authorization_endpoint="", token_endpoint="") as other:
            with pytest.raises(ConsentError, match="does not say where its endpoints are"):
                await other.consents.begin(ADA, REDIRECT, "session")


def test_what_travels_is_not_shown() -> None:
    assert repr(Callback(state="s3cret", code="c0de")) == "Callback(...)"
