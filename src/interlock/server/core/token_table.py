"""Consents of users and pending authorization flows, in the server's database. Secrets are sealed."""

import sqlite3
from typing import Any

import msgspec
from msgspec.structs import astuple

from ...domain.tool import ConsentBinding
from ...oauth.tokens import FlowMiss, SealedFlow, SealedGrant
from .database import Database

_COLUMNS = "user, agent, tool, definition, provider, scopes, since, expires_at, sealed"
_BINDING = "user = ? AND agent = ? AND tool = ? AND definition = ?"
_SELECT_GRANT = f"SELECT {_COLUMNS} FROM consent_tokens WHERE {_BINDING}"  # noqa: S608
_SELECT_GRANTS_OF_USER = f"SELECT {_COLUMNS} FROM consent_tokens WHERE user = ? ORDER BY agent, tool, since"  # noqa: S608
_UPSERT_GRANT = f"INSERT OR REPLACE INTO consent_tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_DELETE_GRANT = f"DELETE FROM consent_tokens WHERE {_BINDING}"  # noqa: S608
_INSERT_FLOW = "INSERT INTO oauth_flows (state_hash, owner, expires_at, sealed) VALUES (?, ?, ?, ?)"
_DELETE_EXPIRED_FLOWS = "DELETE FROM oauth_flows WHERE expires_at <= ?"
_DELETE_EXCESS_FLOWS = """DELETE FROM oauth_flows WHERE owner = ? AND sealed IS NOT NULL AND number NOT IN (
    SELECT number FROM oauth_flows WHERE owner = ? AND sealed IS NOT NULL ORDER BY number DESC LIMIT ?)"""
_SELECT_FLOW = "SELECT owner, expires_at, sealed FROM oauth_flows WHERE state_hash = ? AND expires_at > ?"
_MARK_FLOW_USED = "UPDATE oauth_flows SET sealed = NULL WHERE state_hash = ?"


class TokenTable:
    """Implementation of the consents' `TokenStore`."""

    def __init__(self, database: Database) -> None:
        self._database = database

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

    async def put_flow(self, flow: SealedFlow, now: int, at_most: int) -> None:
        """Save a flow. Delete expired ones and the oldest above the limit of its owner."""

        def put(connection: sqlite3.Connection) -> None:
            connection.execute(_DELETE_EXPIRED_FLOWS, (now,))
            connection.execute(_INSERT_FLOW, (flow.state_hash, flow.owner, flow.expires_at, flow.sealed))
            connection.execute(_DELETE_EXCESS_FLOWS, (flow.owner, flow.owner, at_most))

        await self._database.run(put)

    async def take_flow(self, state_hash: str, now: int) -> SealedFlow | FlowMiss:
        """Take a flow, which can be taken once."""

        def take(connection: sqlite3.Connection) -> SealedFlow | FlowMiss:
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
