"""Tokens, and the interfaces of their storage, which sees sealed bytes only.

A seal is bound to its context, such as the user, the agent and the tool: bytes sealed in another context do not open,
so a row that replaces another one is worthless.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ..domain.tool import ConsentBinding


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of a provider. Never shown."""

    access_token: str
    refresh_token: str = ""
    #: In the provider's words.
    scopes: tuple[str, ...] = ()
    #: In nanoseconds since 1970; 0: the provider does not say.
    expires_at: int = 0
    id_token: str = ""

    def __repr__(self) -> str:
        return "Tokens(...)"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return []


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
