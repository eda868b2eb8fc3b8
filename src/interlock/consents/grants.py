"""What users gave to tools, sealed where it is kept."""

import msgspec

from .tokens import KeptGrant, Seal, Tokens, TokenStore


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """As it is sealed: what a list says beside it decides nothing."""

    provider: str
    since: int
    tokens: Tokens


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What a user has consented to, as they may see it."""

    provider: str
    tool: str
    scopes: tuple[str, ...]
    #: Nanoseconds since 1970; `expires_at` is the access token's end, after which it is renewed. 0: not known.
    since: int
    expires_at: int


class Grants:
    def __init__(self, store: TokenStore, seal: Seal) -> None:
        self._store = store
        self._seal = seal

    async def load(self, user: str, tool: str, provider: str) -> Grant | None:
        """None, too, where it was sealed with a key that is gone, or for somebody else: that is no consent."""
        kept = await self._store.load(user, tool)
        opened = self._seal.unseal(kept.sealed, _bound(user, tool)) if kept else None
        grant = msgspec.json.decode(opened, type=Grant) if opened is not None else None
        return grant if grant and grant.provider == provider else None

    async def save(self, user: str, tool: str, grant: Grant) -> None:
        kept = msgspec.structs.replace(grant, tokens=msgspec.structs.replace(grant.tokens, id_token=""))
        await self._store.save(
            KeptGrant(
                user=user,
                tool=tool,
                provider=grant.provider,
                scopes=grant.tokens.scopes,
                since=grant.since,
                expires_at=grant.tokens.expires_at,
                sealed=self._seal.seal(msgspec.json.encode(kept), _bound(user, tool)),
            )
        )

    async def forget(self, user: str, tool: str) -> bool:
        return await self._store.forget(user, tool)

    async def given(self, user: str) -> tuple[Given, ...]:
        return tuple(
            Given(
                provider=kept.provider,
                tool=kept.tool,
                scopes=kept.scopes,
                since=kept.since,
                expires_at=kept.expires_at,
            )
            for kept in await self._store.given(user)
        )


def _bound(user: str, tool: str) -> tuple[str, ...]:
    return ("grant", user, tool)
