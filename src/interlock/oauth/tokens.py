"""Tokens, what is kept of them, and who keeps it. Whoever keeps it sees sealed bytes only.

A seal is bound to words, such as the user, the agent and the tool: bytes that were sealed with other words do not open,
so a row that was put in the place of another one is worth nothing.
"""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ..domain.tool import ConsentBinding


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider gave. Shown nowhere."""

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
    """One per user, agent, tool and definition. All but the sealed bytes is for lists; nothing is decided by it."""

    binding: ConsentBinding
    provider: str
    scopes: tuple[str, ...]
    #: When the user consented, and until when the access token is good; nanoseconds since 1970.
    since: int
    expires_at: int
    sealed: bytes


class SealedFlow(msgspec.Struct, frozen=True, kw_only=True):
    """A way to a provider and back that somebody has begun. Its state is kept as a hash."""

    state_hash: str
    #: Whose it is, so that nobody has too many of them.
    owner: str
    expires_at: int
    sealed: bytes


#: Why there is no flow: nobody began it (or it was too long ago), or somebody came back from it before.
FlowMiss: TypeAlias = Literal["unknown", "used"]


class Sealer(Protocol):
    def seal(self, plain: bytes, bound: Sequence[str]) -> bytes: ...

    def unseal(self, sealed: bytes, bound: Sequence[str]) -> bytes | None:
        """What was sealed with the same words; None for anything else."""
        ...


class FlowStore(Protocol):
    async def put_flow(self, flow: SealedFlow, now: int, at_most: int) -> None:
        """Keep it. What is over by now goes, and the oldest of its owner where there would be more than `at_most`."""
        ...

    async def take_flow(self, state_hash: str, now: int) -> SealedFlow | FlowMiss:
        """Once: whoever comes second is told so, until it is over."""
        ...


class TokenStore(FlowStore, Protocol):
    async def load(self, binding: ConsentBinding) -> SealedGrant | None: ...

    async def save(self, grant: SealedGrant) -> None:
        """Durable when it returns: the provider may have made the tokens before it worthless."""
        ...

    async def forget(self, binding: ConsentBinding) -> bool:
        """Was there anything to forget?"""
        ...

    async def list_grants(self, user: str) -> tuple[SealedGrant, ...]: ...
