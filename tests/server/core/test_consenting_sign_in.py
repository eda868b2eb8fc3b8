"""Signing in with an identity provider that others wrote, over HTTP, and with identities that are not right."""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from interlock import ConfigurationError
from interlock.domain.errors import ConsentError
from interlock.oauth.flow import Callback, FlowRefusal
from interlock.oauth.providers import OAuthProvider
from interlock.server.core.database.sqlite import SqliteDatabase
from interlock.server.core.identity.accounts import Account, Accounts
from interlock.server.core.identity.oidc import OidcSignIn, RoleRule, SignInSettings
from interlock.server.core.identity.principal import Role
from interlock.server.core.sealing import SealingKeys
from tests.node.oidc_server import SECRETS, OidcServer, oidc_server, visitor
from tests.oauth.memory import MemoryTokens
from tests.oauth.scene import Answer, Clock, Endpoint

__all__ = ("oidc_server",)

REDIRECT = "http://127.0.0.1:4444/session/callback"
RULES = (RoleRule(claim="groups", value="interlock-operators", role=Role.OPERATOR),)


@pytest.fixture
def people() -> Iterator[Accounts]:
    database = SqliteDatabase(":memory:")
    yield Accounts(database)
    database.close()


def sign_in(issuer: str, people: Accounts, clock: Callable[[], int] = time.time_ns, **more: Any) -> OidcSignIn:
    provider = OAuthProvider(
        name="company", client_id="console", client_secret_env="SECRET", issuer=issuer, always=("profile",)
    )
    settings: dict[str, Any] = {"provider": provider, "roles": RULES}
    return OidcSignIn(
        SignInSettings(**{**settings, **more}),
        store=MemoryTokens(),
        seal=SealingKeys([b"k" * 32]),
        accounts=people,
        redirect_url=REDIRECT,
        clock=clock,
        environment={"SECRET": SECRETS["console"]},
    )


async def come_back(door: OidcSignIn, name: str, browser: str = "browser") -> Account | FlowRefusal:
    url = await door.begin("browser")
    with visitor(name) as there:
        said = await asyncio.to_thread(there.go, url)
    return await door.finish(_callback(said), browser)


def _callback(said: Mapping[str, str]) -> Callback:
    return Callback(**{name: said.get(name, "") for name in ("state", "code", "error", "iss")})


async def test_who_comes_first_gets_an_account_and_keeps_it(oidc_server: OidcServer, people: Accounts) -> None:
    door = sign_in(oidc_server.issuer, people)

    first = await come_back(door, "ada")
    again = await come_back(door, "ada")

    assert isinstance(first, Account)
    assert (first.name, first.roles, first.issuer, first.subject) == ("ada", frozenset(), oidc_server.issuer, "ada")
    assert again == first


async def test_roles_are_what_the_provider_says_now(oidc_server: OidcServer, people: Accounts) -> None:
    door = sign_in(oidc_server.issuer, people)
    operator = await come_back(door, "operator-bob")
    assert isinstance(operator, Account)
    assert operator.roles == {Role.OPERATOR}

    stricter = sign_in(oidc_server.issuer, people, roles=(RoleRule(claim="groups", value="x", role=Role.ADMIN),))
    demoted = await come_back(stricter, "operator-bob")
    assert isinstance(demoted, Account)
    assert demoted.roles == frozenset()

    await people.set_roles("operator-bob", [Role.AUDITOR], None, by="user:root")
    silent = await come_back(sign_in(oidc_server.issuer, people, roles=()), "operator-bob")
    assert isinstance(silent, Account)
    assert silent.roles == {Role.AUDITOR}


async def test_nobody_gets_an_account_by_its_name(oidc_server: OidcServer, people: Accounts) -> None:
    await people.create("admin", "a long enough password", roles=[Role.ADMIN], by="user:root")

    came = await come_back(sign_in(oidc_server.issuer, people), "admin")

    assert isinstance(came, FlowRefusal)
    assert "There is no account for you here: its name" in came.reason


async def test_a_disabled_account_is_not_signed_in(oidc_server: OidcServer, people: Accounts) -> None:
    door = sign_in(oidc_server.issuer, people)
    await come_back(door, "carol")
    await people.disable("carol", by="user:root")

    came = await come_back(door, "carol")

    assert isinstance(came, FlowRefusal)
    assert came.reason == "The account is disabled."


async def test_another_browser_cannot_come_back(oidc_server: OidcServer, people: Accounts) -> None:
    came = await come_back(sign_in(oidc_server.issuer, people), "ada", browser="another")
    assert isinstance(came, FlowRefusal)
    assert came.code == "other_session"
    assert await people.list() == ()


async def test_names_are_made_fit(oidc_server: OidcServer, people: Accounts) -> None:
    came = await come_back(sign_in(oidc_server.issuer, people), "Dr. Grace Hopper <x>")
    assert isinstance(came, Account)
    assert came.name == "dr.-grace-hopper-x"


class Forger:
    """An identity provider that says what a test wants it to say."""

    def __init__(self, clock: Clock) -> None:
        self.key = ECKey.generate_key("P-256", {"kid": "one"}, private=True)
        self.published: list[Any] = [self.key]
        self.nonce = ""
        self.clock = clock
        self.issuer = ""
        self.sign: Callable[[dict[str, Any]], str] = self.signed
        self.changes: dict[str, Any] = {}

    def signed(self, claims: dict[str, Any]) -> str:
        return jwt.encode({"alg": "ES256", "kid": "one"}, claims, self.key)

    def answer(self, form: dict[str, str], path: str) -> Answer:
        if path.startswith("/.well-known"):
            return 200, {
                "issuer": self.issuer,
                "authorization_endpoint": f"{self.issuer}/auth",
                "token_endpoint": f"{self.issuer}/token",
                "jwks_uri": f"{self.issuer}/keys",
            }
        if path.startswith("/keys"):
            return 200, {"keys": [key.as_dict(private=False) for key in self.published]}
        now = self.clock.now // 1_000_000_000
        claims = {"iss": self.issuer, "sub": "1", "aud": "console", "exp": now + 60, "iat": now, "nonce": self.nonce}
        said = {name: value for name, value in (claims | self.changes).items() if value is not None}
        return 200, {"access_token": "a", "token_type": "Bearer", "id_token": self.sign(said)}


@asynccontextmanager
async def forging() -> AsyncGenerator[Forger]:
    forger = Forger(Clock())
    endpoint = Endpoint(lambda form: forger.answer(form, endpoint.headers[-1].split()[1]))
    endpoint.open.set()
    async with await asyncio.start_server(endpoint.serve, "127.0.0.1", 0) as server:
        forger.issuer = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield forger


async def vouched(forger: Forger, door: OidcSignIn) -> Account | FlowRefusal:
    url = await door.begin("browser")
    said = dict(part.split("=") for part in url.split("?")[1].split("&"))
    forger.nonce = said["nonce"]
    return await door.finish(Callback(state=said["state"], code="code"), "browser")


async def test_a_right_identity_is_taken_also_after_the_keys_changed(people: Accounts) -> None:
    async with forging() as forger:
        door = sign_in(forger.issuer, people, forger.clock)
        assert isinstance(await vouched(forger, door), Account)

        forger.key = ECKey.generate_key("P-256", {"kid": "one"}, private=True)
        forger.published = [forger.key]
        assert isinstance(await vouched(forger, door), FlowRefusal)  # keys were looked up a moment ago
        forger.clock.forward(60)
        assert isinstance(await vouched(forger, door), Account)


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere.example"},
        {"iss": None},
        {"aud": "another client"},
        {"aud": None},
        {"aud": ["console", "another client"]},
        {"azp": "another client"},
        {"sub": None},
        {"sub": ""},
        {"sub": "x" * 5000},
        {"exp": 1},
        {"exp": None},
        {"exp": "soon"},
        {"iat": None},
        {"iat": 2**40},
        {"nonce": None},
        {"nonce": "another"},
        {"nonce": ["another"]},
    ],
    ids=repr,
)
async def test_an_identity_with_a_wrong_claim_is_nobody(people: Accounts, changes: dict[str, Any]) -> None:
    async with forging() as forger:
        forger.changes = changes
        assert isinstance(await vouched(forger, sign_in(forger.issuer, people, forger.clock)), FlowRefusal)
        assert await people.list() == ()


async def test_an_identity_that_is_not_signed_by_the_provider_is_nobody(people: Accounts) -> None:
    async with forging() as forger:
        other, right = ECKey.generate_key("P-256", {"kid": "one"}, private=True), forger.signed
        public = msgspec.json.encode(forger.key.as_dict(private=False))
        forgeries: list[Callable[[dict[str, Any]], str]] = [
            lambda claims: jwt.encode({"alg": "ES256", "kid": "one"}, claims, other),
            lambda claims: jwt.encode({"alg": "HS256", "kid": "one"}, claims, OctKey.import_key(public)),
            lambda claims: jwt.encode({"alg": "none"}, claims, OctKey.import_key(public), algorithms=["none"]),
            lambda claims: right(claims).rsplit(".", 1)[0] + ".",
            lambda _: "",
            lambda _: "a.b.c",
        ]
        for forged in forgeries:
            forger.sign = forged
            assert isinstance(await vouched(forger, sign_in(forger.issuer, people, forger.clock)), FlowRefusal)
        assert await people.list() == ()


async def test_a_provider_without_readable_keys_vouches_for_nobody(people: Accounts) -> None:
    async with forging() as forger:
        forger.published = []
        assert isinstance(await vouched(forger, sign_in(forger.issuer, people, forger.clock)), FlowRefusal)


async def test_a_provider_that_is_another_issuer_is_not_gone_to(people: Accounts) -> None:
    async with forging() as forger:
        door = sign_in(forger.issuer, people, forger.clock)
        forger.issuer = "https://elsewhere.example"
        with pytest.raises(ConsentError, match="describes itself as another issuer"):
            await door.begin("browser")


def test_settings_that_cannot_work_are_refused(people: Accounts) -> None:
    with pytest.raises(ConfigurationError, match="is for API keys"):
        sign_in("https://company.example", people, roles=(RoleRule(claim="a", value="b", role=Role.AGENT),))
    endpoints = OAuthProvider(
        name="x", client_id="y", authorization_endpoint="https://a.example", token_endpoint="https://b.example"
    )
    with pytest.raises(ConfigurationError, match="needs its issuer"):
        SignInSettings(provider=endpoints)


async def test_access_token_for_this_audience_is_accepted(people: Accounts) -> None:
    async with forging() as forger:
        door = sign_in(forger.issuer, people, forger.clock)
        now = forger.clock.now // 1_000_000_000
        claims = {"iss": forger.issuer, "sub": "1", "aud": ["https://here/mcp"], "exp": now + 60}
        account = await door.authenticate(forger.signed(claims), "https://here/mcp")

    assert account is not None
    assert account.subject == "1"


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "console"},
        {"aud": None},
        {"aud": "https://here/mcp/"},
        {"iss": "https://elsewhere.example"},
        {"exp": 1},
        {"exp": None},
        {"sub": None},
    ],
)
async def test_other_access_tokens_are_not(people: Accounts, changes: dict[str, Any]) -> None:
    async with forging() as forger:
        door = sign_in(forger.issuer, people, forger.clock)
        now = forger.clock.now // 1_000_000_000
        claims = {"iss": forger.issuer, "sub": "1", "aud": "https://here/mcp", "exp": now + 60} | changes
        said = {name: value for name, value in claims.items() if value is not None}

        assert await door.authenticate(forger.signed(said), "https://here/mcp") is None
        assert await door.authenticate("a.b.c", "https://here/mcp") is None
        assert await people.list() == ()
