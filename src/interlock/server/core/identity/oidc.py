"""Sign-in to the console with OpenID Connect: code flow, PKCE, nonce, ID token.

The identity is the issuer and its subject, never a name or an address that users may choose there. The name is used
once, when the account is created, and refused where it is taken. Roles come from claims by configured rules, with each
sign-in.
"""

import os
import re
from collections.abc import Callable, Mapping
from time import time_ns
from typing import Any, cast

import msgspec
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from ....domain.errors import ConfigurationError, ConsentError
from ....oauth.flow import Callback, Flow, FlowManager, FlowRefusal, exchange_callback, hash_session, refuse_flow
from ....oauth.provider_client import ProviderClient
from ....oauth.providers import OAuthProvider, find_url_problem, load_client_secret
from ....oauth.tokens import FlowStore, Sealer
from .accounts import Account, Accounts
from .principal import IdentityProblem, Role

_SECOND = 1_000_000_000
_LEEWAY_SECONDS = 60
#: Shared by all users: they are not authenticated yet.
_MAX_FLOWS = 10_000
#: Keys that are signed with are looked up again when one is missing, but not for each who makes one up.
_KEYS_REFRESH_NS = 60 * _SECOND
_ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
_INVALID_NAME_CHARS = re.compile(r"[^a-z0-9._-]+")
#: What reading keys and claims of a provider may raise beside its own errors.
_INVALID_TOKEN_ERRORS = (JoseError, ValueError, TypeError, KeyError, AttributeError, RecursionError)


class RoleRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Grants a role to identities with this value in this claim, alone or in a list."""

    claim: str
    value: str
    role: Role


class SignInSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Configuration of sign-in with OpenID Connect."""

    #: With an issuer. `always` are the scopes that are asked for.
    provider: OAuthProvider
    #: The claim that a new account's name is made of.
    name_claim: str = "preferred_username"
    #: Without rules, roles are given here and not there.
    roles: tuple[RoleRule, ...] = ()

    def __post_init__(self) -> None:
        if not self.provider.issuer:
            raise ConfigurationError(f"Signing in with {self.provider.name!r} needs its issuer.")
        if any(rule.role is Role.AGENT for rule in self.roles):
            raise ConfigurationError("The role `agent` is for API keys, not for accounts.")


class OidcSignIn:
    """Signs people in with OpenID Connect."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        settings: SignInSettings,
        *,
        store: FlowStore,
        seal: Sealer,
        accounts: Accounts,
        redirect_url: str,
        clock: Callable[[], int] = time_ns,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            redirect_url: Where the provider sends people back to, as it is registered there.
        """
        if problem := find_url_problem(redirect_url):
            raise ConfigurationError(f"The address that people come back to {problem}")
        secret = load_client_secret(settings.provider, os.environ if environment is None else environment)
        self._settings = settings
        self._client = ProviderClient(settings.provider, secret, clock)
        self._flows = FlowManager(store, seal, clock)
        self._accounts = accounts
        self._redirect_url = redirect_url
        self._clock = clock
        self._keys: KeySet | None = None
        self._keys_refresh_after = 0

    async def begin(self, browser_token: str) -> str:
        """Return the authorization URL. `browser_token` is a random value in a cookie of the browser that has to come
        back. Raise `ConsentError` where the provider's metadata cannot be read.
        """
        await self._client.endpoints()
        provider = self._settings.provider
        flow = Flow(
            purpose="sign-in",
            provider=provider.name,
            scopes=tuple(dict.fromkeys(("openid", *provider.always))),
            redirect=self._redirect_url,
            session_hash=hash_session(browser_token),
        )
        state = await self._flows.begin(flow, "sign-in", _MAX_FLOWS)
        return await self._client.authorization_url(flow.scopes, state, flow.redirect_context)

    async def finish(self, callback: Callback, browser_token: str) -> Account | FlowRefusal:
        """Return the account for a callback. A new session begins with it."""
        flow = await self._flows.take("sign-in", callback, browser_token)
        if isinstance(flow, FlowRefusal):
            return flow
        tokens = await exchange_callback(flow, callback, self._client)
        if isinstance(tokens, FlowRefusal):
            return tokens
        try:
            claims = await self._verify_id_token(tokens.id_token, flow.nonce)
        except ConsentError as error:
            return refuse_flow(flow, "failed", f"{error} No session was started.")
        account = await self._link_account(claims)
        if isinstance(account, IdentityProblem):
            return refuse_flow(
                flow, "no_account", f"There is no account for you here: its {account.field} {account.problem}."
            )
        if account.disabled:
            return refuse_flow(flow, "denied", "The account is disabled.")
        return account

    async def authenticate(self, access_token: str, audience: str) -> Account | None:
        """Return the account of an access token that the provider issued for exactly this audience. None: it is not
        valid here, or its account cannot be used.
        """
        for refresh in (False, True):
            try:
                keys = await self._load_keys(refresh=refresh)
                claims = jwt.decode(access_token, keys, algorithms=_ALGORITHMS).claims
                jwt.JWTClaimsRegistry(
                    now=self._clock() // _SECOND,
                    leeway=_LEEWAY_SECONDS,
                    iss={"essential": True, "value": self._client.provider.issuer},
                    aud={"essential": True, "value": audience},
                    sub={"essential": True},
                    exp={"essential": True},
                ).validate(claims)
            except ConsentError:
                return None
            except _INVALID_TOKEN_ERRORS:
                continue
            account = await self._link_account(claims)
            return None if isinstance(account, IdentityProblem) or account.disabled else account
        return None

    async def _verify_id_token(self, id_token: str, nonce: str) -> dict[str, Any]:
        """Return the claims of a token that is signed by the provider, for us, valid now, and with our nonce."""
        for refresh in (False, True):
            keys = await self._load_keys(refresh=refresh)
            try:
                claims = jwt.decode(id_token, keys, algorithms=_ALGORITHMS).claims
                self._check_claims(claims, nonce)
            except _INVALID_TOKEN_ERRORS:
                if refresh:
                    raise ConsentError(f"{self._client.provider.name} sent no valid identity token.") from None
            else:
                return claims
        raise AssertionError

    async def _load_keys(self, *, refresh: bool) -> KeySet:
        """Load the keys of the provider, again if one is not among them."""
        if self._keys is None or (refresh and self._clock() >= self._keys_refresh_after):
            found = await self._client.keys()
            self._keys_refresh_after = self._clock() + _KEYS_REFRESH_NS
            try:
                self._keys = KeySet.import_key_set(found)
            except _INVALID_TOKEN_ERRORS:
                raise ConsentError(f"{self._client.provider.name} publishes no keys that can be read.") from None
        return self._keys

    def _check_claims(self, claims: dict[str, Any], nonce: str) -> None:
        client_id = self._client.provider.client_id
        jwt.JWTClaimsRegistry(
            now=self._clock() // _SECOND,
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": self._client.provider.issuer},
            aud={"essential": True, "value": client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": True, "value": nonce},
        ).validate(claims)
        several = isinstance(claims["aud"], list) and len(cast(list[object], claims["aud"])) > 1
        if claims.get("azp", None if several else client_id) != client_id:
            raise ValueError("issued for another client")

    async def _link_account(self, claims: dict[str, Any]) -> Account | IdentityProblem:
        claimed_name = claims.get(self._settings.name_claim, claims["sub"])
        name = _INVALID_NAME_CHARS.sub("-", str(claimed_name)[:256].lower()).strip("-._")[:64]
        roles = frozenset(rule.role for rule in self._settings.roles if _has_value(claims.get(rule.claim), rule.value))
        return await self._accounts.link_identity(
            str(claims["iss"]), str(claims["sub"]), name, roles=roles if self._settings.roles else None
        )


def _has_value(claim: object, value: str) -> bool:
    return claim == value or (isinstance(claim, list) and value in cast(list[object], claim))
