"""Consents of users, locks of their tokens, and pending authorization flows, in the server's database. Secrets are
sealed.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from secrets import token_hex
from time import monotonic, time_ns
from typing import Any

import msgspec
from msgspec.structs import astuple

from ...domain.errors import ConsentError
from ...domain.tool import ConsentBinding
from ...oauth.tokens import FlowMiss, SealedFlow, SealedGrant
from .database.interface import Connection, Database
from .errors import StorageError

_COLUMNS = "person, agent, tool, definition, provider, scopes, since, expires_at, sealed"
_BINDING = "person = ? AND agent = ? AND tool = ? AND definition = ?"
_SELECT_GRANT = f"SELECT {_COLUMNS} FROM consent_tokens WHERE {_BINDING}"  # noqa: S608
_SELECT_GRANTS_OF_USER = f"SELECT {_COLUMNS} FROM consent_tokens WHERE person = ? ORDER BY agent, tool, since"  # noqa: S608
_UPSERT_GRANT = f"""INSERT INTO consent_tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (person, agent, tool, definition) DO UPDATE SET provider = excluded.provider, scopes = excluded.scopes,
    since = excluded.since, expires_at = excluded.expires_at, sealed = excluded.sealed"""  # noqa: S608
_DELETE_GRANT = f"DELETE FROM consent_tokens WHERE {_BINDING}"  # noqa: S608
_INSERT_FLOW = "INSERT INTO oauth_flows (state_hash, owner, expires_at, sealed) VALUES (?, ?, ?, ?)"
_DELETE_EXPIRED_FLOWS = "DELETE FROM oauth_flows WHERE expires_at <= ?"
_DELETE_EXCESS_FLOWS = """DELETE FROM oauth_flows WHERE owner = ? AND sealed IS NOT NULL AND number NOT IN (
    SELECT number FROM oauth_flows WHERE owner = ? AND sealed IS NOT NULL ORDER BY number DESC LIMIT ?)"""
_SELECT_FLOW = "SELECT owner, expires_at, sealed FROM oauth_flows WHERE state_hash = ? AND expires_at > ?"
_MARK_FLOW_USED = "UPDATE oauth_flows SET sealed = NULL WHERE state_hash = ?"
_KEY = "person, agent, tool, definition"
_LOCK = f"""INSERT INTO consent_locks ({_KEY}, holder, until) VALUES (?, ?, ?, ?, ?, ?)
    ON CONFLICT ({_KEY}) DO UPDATE SET holder = excluded.holder, until = excluded.until
    WHERE consent_locks.until <= ? OR consent_locks.until > ?"""  # noqa: S608
_UNLOCK = f"DELETE FROM consent_locks WHERE {_BINDING} AND holder = ?"  # noqa: S608
#: Longer than a provider may take to answer, so only a process that died leaves a lock for so long.
_LOCK_SECONDS = 60
_LOCK_NS = _LOCK_SECONDS * 1_000_000_000
_RETRY_SECONDS = 0.1


class TokenTable:
    """Implementation of the consents' `TokenStore`."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def load(self, binding: ConsentBinding) -> SealedGrant | None:
        """Load the grant of a binding, or None."""
        key = astuple(binding)
        row = await self._database.read(lambda connection: connection.execute(_SELECT_GRANT, key).fetchone())
        return _to_grant(row) if row else None

    async def save(self, grant: SealedGrant) -> None:
        """Save a grant, replacing an earlier one."""
        scopes = msgspec.json.encode(grant.scopes).decode()
        row = (*astuple(grant.binding), grant.provider, scopes, grant.since, grant.expires_at, grant.sealed)
        await self._database.run(lambda connection: connection.execute(_UPSERT_GRANT, row))

    async def forget(self, binding: ConsentBinding) -> bool:
        """Delete a grant. Return True if there was one."""
        key = astuple(binding)
        return await self._database.run(lambda connection: connection.execute(_DELETE_GRANT, key).rowcount > 0)

    async def list_grants(self, user: str) -> tuple[SealedGrant, ...]:
        """List the grants of a user."""
        rows = await self._database.read(
            lambda connection: connection.execute(_SELECT_GRANTS_OF_USER, (user,)).fetchall()
        )
        return tuple(map(_to_grant, rows))

    @asynccontextmanager
    async def lock(self, binding: ConsentBinding) -> AsyncGenerator[None]:
        """Let one process at a time change a grant."""
        key, holder = astuple(binding), token_hex(8)
        give_up = monotonic() + _LOCK_SECONDS
        while not await self._try_lock(key, holder):
            if monotonic() > give_up:
                raise ConsentError("The consent is being renewed or revoked elsewhere. Try again.")
            await asyncio.sleep(_RETRY_SECONDS)
        try:
            yield
        finally:
            with suppress(StorageError):  # it ends by itself
                await self._database.run(lambda connection: connection.execute(_UNLOCK, (*key, holder)))

    async def _try_lock(self, key: tuple[str, ...], holder: str) -> bool:
        now = self._now()
        # A lock that ends later than any that is made now was made by a clock that was wrong.
        values = (*key, holder, now + _LOCK_NS, now, now + 2 * _LOCK_NS)
        return await self._database.run(lambda connection: connection.execute(_LOCK, values).rowcount > 0)

    async def put_flow(self, flow: SealedFlow, now: int, at_most: int) -> None:
        """Save a flow. Delete expired ones and the oldest above the limit of its owner."""

        def put(connection: Connection) -> None:
            connection.execute(_DELETE_EXPIRED_FLOWS, (now,))
            connection.execute(_INSERT_FLOW, (flow.state_hash, flow.owner, flow.expires_at, flow.sealed))
            connection.execute(_DELETE_EXCESS_FLOWS, (flow.owner, flow.owner, at_most))

        await self._database.run(put)

    async def take_flow(self, state_hash: str, now: int) -> SealedFlow | FlowMiss:
        """Take a flow, which can be taken once."""

        def take(connection: Connection) -> SealedFlow | FlowMiss:
            row = connection.execute(_SELECT_FLOW, (state_hash, now)).fetchone()
            if row is None:
                return "unknown"
            owner, expires_at, sealed = row
            if sealed is None:
                return "used"
            connection.execute(_MARK_FLOW_USED, (state_hash,))
            return SealedFlow(state_hash=state_hash, owner=owner, expires_at=expires_at, sealed=sealed)

        return await self._database.run(take)


def _to_grant(row: tuple[Any, ...]) -> SealedGrant:
    user, agent, tool, definition, provider, scopes, since, expires_at, sealed = row
    return SealedGrant(
        binding=ConsentBinding(user=user, agent=agent, tool=tool, definition=definition),
        provider=provider,
        scopes=msgspec.json.decode(scopes, type=tuple[str, ...]),
        since=since,
        expires_at=expires_at,
        sealed=bytes(sealed),
    )
