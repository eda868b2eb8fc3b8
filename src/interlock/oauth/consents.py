"""Consents given at OAuth providers, and their tokens.

A token that is valid for another minute is returned. Another one is refreshed, silently and once: concurrent callers
wait for the same exchange, and it continues when they stop waiting, because the provider may have invalidated the old
refresh token by then. Refreshing, saving and deleting for one binding happen one after the other, also
where several processes use the same store.

A denied refresh means that the user has to be asked again. Any other failure says nothing about the user's intent, so
they are not asked: `ConsentError`.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from time import time_ns
from typing import NamedTuple
from weakref import WeakValueDictionary

import msgspec

from ..domain.errors import ConfigurationError, ConsentError
from ..domain.tool import Consent, ConsentBinding
from .flow import Callback, Flow, FlowManager, FlowRefusal, exchange_callback, hash_session, refuse_flow
from .provider_client import ProviderClient
from .providers import OAuthProvider, find_url_problem, load_client_secret
from .tokens import ConsentGrant, GrantStore, GrantSummary, Sealer, Tokens, TokenStore

_LEEWAY_NS = 60 * 1_000_000_000
#: Maximum number of open flows per user.
_MAX_FLOWS = 20
#: How providers say that the user has to come again.
_REAUTHORIZE_ERRORS = frozenset(
    (
        *("access_denied", "bad_refresh_token", "consent_required", "interaction_required", "invalid_grant"),
        *("invalid_token", "login_required"),
    )
)


class ConsentRequest(NamedTuple):
    """What a user is asked for, and the question that this answers."""

    binding: ConsentBinding
    consent: Consent
    action_id: str = ""


class AuthorizationStart(NamedTuple):
    """The authorization URL, and the state of the flow."""

    url: str
    state: str


class ConsentResult(msgspec.Struct, frozen=True, kw_only=True):
    """A consent that was given."""

    binding: ConsentBinding
    provider: str
    scopes: tuple[str, ...]
    action_id: str


class OAuthConsents:
    """Manages consents and their tokens."""

    can_ask = True

    def __init__(
        self,
        providers: Iterable[OAuthProvider],
        store: TokenStore,
        seal: Sealer,
        clock: Callable[[], int] = time_ns,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        """
        Args:
            clock: Nanoseconds since 1970.
            environment: Where client secrets are, for providers that name a variable.
        """
        said = os.environ if environment is None else environment
        self._clients: dict[str, ProviderClient] = {}
        for provider in providers:
            if provider.name in self._clients:
                raise ConfigurationError(f"There are two OAuth providers with the name {provider.name!r}.")
            self._clients[provider.name] = ProviderClient(provider, load_client_secret(provider, said), clock)
        self._grants = GrantStore(store, seal)
        self._flows = FlowManager(store, seal, clock)
        self._clock = clock
        self._locks: WeakValueDictionary[ConsentBinding, asyncio.Lock] = WeakValueDictionary()
        self._refresh_tasks: dict[ConsentBinding, asyncio.Task[Tokens | None]] = {}

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        """Return a valid access token for a consent, refreshed if it expired, or None."""
        client = self._client(consent.provider)
        tokens = await self._sufficient_tokens(binding, consent)
        if tokens is None or self._is_fresh(tokens):
            return tokens and tokens.access_token
        renewed = await self._refresh_once(binding, client)
        return renewed.access_token if renewed and _covers_scopes(client, renewed, consent) else None

    async def needs_consent(self, binding: ConsentBinding, consent: Consent) -> bool:
        """Return True if the user has to be asked, as far as is known here. The provider is not asked."""
        tokens = await self._sufficient_tokens(binding, consent)
        return tokens is None or not (tokens.refresh_token or self._is_fresh(tokens))

    async def list_grants(self, user: str) -> tuple[GrantSummary, ...]:
        """List what a user has granted."""
        return await self._grants.list_grants(user)

    async def begin(self, request: ConsentRequest, redirect: str, session: str) -> AuthorizationStart:
        """Begin the flow. `redirect` is exactly what is registered at the provider; `session` is the id of the browser
        session that has to come back. Raise `ConsentError` where the provider's metadata cannot be read.
        """
        if problem := find_url_problem(redirect):
            raise ConfigurationError(f"The address that users come back to {problem}")
        client, binding = self._client(request.consent.provider), request.binding
        await client.endpoints()
        flow = Flow(
            purpose="consent",
            provider=request.consent.provider,
            scopes=client.provider.requested_scopes(request.consent),
            redirect=redirect,
            session_hash=hash_session(session),
            user=binding.user,
            agent=binding.agent,
            tool=binding.tool,
            definition=binding.definition,
            declared=request.consent.scopes,
            action_id=request.action_id,
        )
        state = await self._flows.begin(flow, f"consent of {binding.user}", _MAX_FLOWS)
        return AuthorizationStart(await client.authorization_url(flow.scopes, state, flow.redirect_context), state)

    async def finish(self, callback: Callback, user: str, session: str) -> ConsentResult | FlowRefusal:
        """Finish the flow with a callback. A state can be used only once."""
        flow = await self._flows.take("consent", callback, session)
        if isinstance(flow, FlowRefusal):
            return flow
        if flow.user != user:
            return refuse_flow(flow, "other_session", "Another user started this consent. Nothing was changed.")
        client = self._clients.get(flow.provider)
        if client is None:
            return refuse_flow(flow, "failed", f"{flow.provider} is not configured any more.")
        tokens = await exchange_callback(flow, callback, client)
        if isinstance(tokens, FlowRefusal):
            return tokens
        consent = Consent(provider=flow.provider, scopes=flow.declared)
        if missing := client.provider.required_scopes(consent) - set(tokens.scopes):
            names = ", ".join(sorted(missing))
            return refuse_flow(
                flow, "insufficient", f"{flow.tool} needs access to {names}, too. Begin again, and give it."
            )
        async with self._lock(flow.binding):
            grant = ConsentGrant(provider=flow.provider, since=self._clock(), tokens=tokens)
            await self._grants.save(flow.binding, grant)
        return ConsentResult(
            binding=flow.binding, provider=flow.provider, scopes=tokens.scopes, action_id=flow.action_id
        )

    async def revoke(self, user: str, tool: str, provider: str, agent: str | None = None) -> bool | None:
        """Delete the tokens here, and revoke them at the provider: those of every definition of the tool, of one agent
        or (None) of all. None: there are none. False: the provider did not confirm all, so they end when they expire.
        """
        outcomes = [
            await self._revoke(
                ConsentBinding(user=user, agent=given.agent, tool=tool, definition=given.definition), provider
            )
            for given in await self.list_grants(user)
            if (given.tool, given.provider) == (tool, provider) and agent in (None, given.agent)
        ]
        forgotten = [outcome for outcome in outcomes if outcome is not None]
        return all(forgotten) if forgotten else None

    async def _revoke(self, binding: ConsentBinding, provider: str) -> bool | None:
        async with self._lock(binding):
            grant, client = await self._grants.load(binding, provider), self._clients.get(provider)
            if not await self._grants.forget(binding):
                return None
            if grant is None or client is None:
                return False
            with suppress(ConsentError):
                return await client.revoke(grant.tokens)
        return False

    async def close(self) -> None:
        """Wait for pending refreshes and store their tokens."""
        await asyncio.gather(*self._refresh_tasks.values(), return_exceptions=True)

    def _client(self, provider: str) -> ProviderClient:
        if provider not in self._clients:
            raise ConsentError(f"No OAuth provider {provider[:64]!r} is configured.")
        return self._clients[provider]

    async def _sufficient_tokens(self, binding: ConsentBinding, consent: Consent) -> Tokens | None:
        """Return the granted tokens if their scopes are enough for the tool. They may have expired."""
        client, grant = self._client(consent.provider), await self._grants.load(binding, consent.provider)
        return grant.tokens if grant and _covers_scopes(client, grant.tokens, consent) else None

    def _is_fresh(self, tokens: Tokens) -> bool:
        return not tokens.expires_at or self._clock() < tokens.expires_at - _LEEWAY_NS

    async def _refresh_once(self, binding: ConsentBinding, client: ProviderClient) -> Tokens | None:
        renewing = self._refresh_tasks.get(binding)
        if renewing is None:
            renewing = self._refresh_tasks[binding] = asyncio.create_task(self._refresh(binding, client))
            renewing.add_done_callback(lambda done: self._drop_refresh_task(binding, done))
        return await asyncio.shield(renewing)

    def _drop_refresh_task(self, binding: ConsentBinding, done: "asyncio.Task[Tokens | None]") -> None:
        del self._refresh_tasks[binding]
        if not done.cancelled():
            done.exception()  # there may be no waiter any more

    async def _refresh(self, binding: ConsentBinding, client: ProviderClient) -> Tokens | None:
        name = client.provider.name
        async with self._lock(binding):
            grant = await self._grants.load(binding, name)
            if grant is None or self._is_fresh(grant.tokens):
                return grant and grant.tokens
            if not grant.tokens.refresh_token:
                return None
            renewed = await client.refresh(grant.tokens)
            if isinstance(renewed, Tokens):
                await self._grants.save(binding, msgspec.structs.replace(grant, tokens=renewed))
                return renewed
            if renewed.error not in _REAUTHORIZE_ERRORS:
                raise ConsentError(f"{name} did not renew a token: {renewed.error}.")
            await self._grants.forget(binding)
            return None

    @asynccontextmanager
    async def _lock(self, binding: ConsentBinding) -> AsyncGenerator[None]:
        """Wait for others of this process first, and then for other processes: two renewals of one token would end it
        at providers that accept a refresh token once.
        """
        async with self._locks.setdefault(binding, asyncio.Lock()), self._grants.lock(binding):
            yield


def _covers_scopes(client: ProviderClient, tokens: Tokens, consent: Consent) -> bool:
    return client.provider.required_scopes(consent) <= set(tokens.scopes)
