"""Consents that users gave to tools, sealed in storage."""

import msgspec

from ..domain.tool import ConsentBinding
from .tokens import SealedGrant, Sealer, Tokens, TokenStore


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
        return await self._store.forget(binding)

    async def list_grants(self, user: str) -> tuple[GrantSummary, ...]:
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
