"""What users gave to tools, sealed where it is kept."""

import msgspec

from ..domain.tool import ConsentBinding
from .tokens import KeptGrant, Seal, Tokens, TokenStore


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """As it is sealed: what a list says beside it decides nothing."""

    provider: str
    since: int
    tokens: Tokens


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has consented to, as they may see it."""

    provider: str
    agent: str
    tool: str
    definition: str
    scopes: tuple[str, ...]
    #: Nanoseconds since 1970; `expires_at` is the access token's end, after which it is renewed. 0: not known.
    since: int
    expires_at: int


class Grants:
    def __init__(self, store: TokenStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal

    async def load(self, binding: ConsentBinding, provider: str) -> Grant | None:
        """Return what was given for this binding. None, too, where it was sealed with a key that is gone, or for
        another user, agent, tool or definition: that is no consent."""
        kept = await self._store.load(binding)
        opened = self._seal.unseal(kept.sealed, _bound(binding)) if kept else None
        grant = msgspec.json.decode(opened, type=Grant) if opened is not None else None
        return grant if grant and grant.provider == provider else None

    async def save(self, binding: ConsentBinding, grant: Grant) -> None:
        kept = msgspec.structs.replace(grant, tokens=msgspec.structs.replace(grant.tokens, id_token=""))
        await self._store.save(
            KeptGrant(
                binding=binding,
                provider=grant.provider,
                scopes=grant.tokens.scopes,
                since=grant.since,
                expires_at=grant.tokens.expires_at,
                sealed=self._seal.seal(msgspec.json.encode(kept), _bound(binding)),
            )
        )

    async def forget(self, binding: ConsentBinding) -> bool:
        return await self._store.forget(binding)

    async def given(self, user: str) -> tuple[Given, ...]:
        return tuple(
            Given(
                provider=kept.provider,
                agent=kept.binding.agent,
                tool=kept.binding.tool,
                definition=kept.binding.definition,
                scopes=kept.scopes,
                since=kept.since,
                expires_at=kept.expires_at,
            )
            for kept in await self._store.given(user)
        )


def _bound(binding: ConsentBinding) -> tuple[str, ...]:
    return ("grant", binding.user, binding.agent, binding.tool, binding.definition)
