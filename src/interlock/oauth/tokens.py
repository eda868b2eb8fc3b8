"""Tokens and consents of users, and the interfaces of their storage, which sees sealed bytes only.

A seal is bound to its context, such as the user, the agent and the tool: bytes sealed in another context do not open,
so a row that replaces another one is worthless.
"""

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ..domain.tool import ConsentBinding


class HiddenStruct(msgspec.Struct, frozen=True, kw_only=True):
    """A struct whose values are never shown."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}(...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


class Tokens(HiddenStruct, frozen=True, kw_only=True):
    """Tokens of a provider. Never shown."""

    access_token: str
    refresh_token: str = ""
    #: In the provider's words.
    scopes: tuple[str, ...] = ()
    #: In nanoseconds since 1970; 0: the provider does not say.
    expires_at: int = 0
    id_token: str = ""


class SealedGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A sealed consent, one per user, agent, tool and definition. The plain fields are for lists; nothing depends on
    them.
    """

    binding: ConsentBinding
    provider: str
    scopes: tuple[str, ...]
    #: When the user consented, and until when the access token is good; nanoseconds since 1970.
    since: int
    expires_at: int
    sealed: bytes


class SealedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """An open flow. Its state is stored as a hash."""

    state_hash: str
    #: Its owner, for the limit per user.
    owner: str
    expires_at: int
    sealed: bytes


#: Why there is no flow: unknown or expired, or already used.
FlowMiss: TypeAlias = Literal["unknown", "used"]


class Sealer(Protocol):
    """Encrypts values, bound to a context."""

    def seal(self, plain: bytes, bound: Sequence[str]) -> bytes: ...

    def unseal(self, sealed: bytes, bound: Sequence[str]) -> bytes | None:
        """Return what was sealed in the same context; None for anything else."""
        ...


class FlowStore(Protocol):
    """Stores open flows."""

    async def put_flow(self, flow: SealedFlow, now: int, at_most: int) -> None:
        """Store a flow. Expired ones are deleted, and the oldest of its owner beyond `at_most`."""
        ...

    async def take_flow(self, state_hash: str, now: int) -> SealedFlow | FlowMiss:
        """Take a flow, once: a second attempt is reported as such until it expires."""
        ...


class TokenStore(FlowStore, Protocol):
    """Stores consents and open flows."""

    async def load(self, binding: ConsentBinding) -> SealedGrant | None: ...

    async def save(self, grant: SealedGrant) -> None:
        """Save durably: the provider may have invalidated the earlier tokens."""
        ...

    async def forget(self, binding: ConsentBinding) -> bool:
        """Delete a consent. Return True if there was one."""
        ...

    async def list_grants(self, user: str) -> tuple[SealedGrant, ...]: ...

    def lock(self, binding: ConsentBinding) -> AbstractAsyncContextManager[None]:
        """Let one process at a time renew, replace or revoke the tokens of a binding. Raise `ConsentError` when
        another one does so for too long.
        """
        ...


class ConsentGrant(msgspec.Struct, frozen=True, kw_only=True):
    """A stored consent, as sealed. The listed fields beside it decide nothing."""

    provider: str
    since: int
    tokens: Tokens


class GrantSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A consent as shown to its user."""

    provider: str
    agent: str
    tool: str
    definition: str
    scopes: tuple[str, ...]
    #: Nanoseconds since 1970; `expires_at` is the access token's end, after which it is renewed. 0: not known.
    since: int
    expires_at: int


class GrantStore:
    """Stores consents."""

    def __init__(self, store: TokenStore, seal: Sealer) -> None:
        self._store = store
        self._seal = seal

    async def load(self, binding: ConsentBinding, provider: str) -> ConsentGrant | None:
        """Return the consent for this binding; None also where it was sealed with a lost key, or for another
        binding.
        """
        kept = await self._store.load(binding)
        opened = self._seal.unseal(kept.sealed, _seal_context(binding)) if kept else None
        grant = msgspec.json.decode(opened, type=ConsentGrant) if opened is not None else None
        return grant if grant and grant.provider == provider else None

    async def save(self, binding: ConsentBinding, grant: ConsentGrant) -> None:
        """Seal and save a grant without its id token."""
        kept = msgspec.structs.replace(grant, tokens=msgspec.structs.replace(grant.tokens, id_token=""))
        await self._store.save(
            SealedGrant(
                binding=binding,
                provider=grant.provider,
                scopes=grant.tokens.scopes,
                since=grant.since,
                expires_at=grant.tokens.expires_at,
                sealed=self._seal.seal(msgspec.json.encode(kept), _seal_context(binding)),
            )
        )

    async def forget(self, binding: ConsentBinding) -> bool:
        """Delete a grant. Return True if there was one."""
        return await self._store.forget(binding)

    def lock(self, binding: ConsentBinding) -> AbstractAsyncContextManager[None]:
        """Let one process at a time change the grant."""
        return self._store.lock(binding)

    async def list_grants(self, user: str) -> tuple[GrantSummary, ...]:
        """List the grants of a user without their tokens."""
        return tuple(
            GrantSummary(
                provider=kept.provider,
                agent=kept.binding.agent,
                tool=kept.binding.tool,
                definition=kept.binding.definition,
                scopes=kept.scopes,
                since=kept.since,
                expires_at=kept.expires_at,
            )
            for kept in await self._store.list_grants(user)
        )


def _seal_context(binding: ConsentBinding) -> tuple[str, ...]:
    return ("grant", binding.user, binding.agent, binding.tool, binding.definition)
