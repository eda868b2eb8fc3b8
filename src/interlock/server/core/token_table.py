"""What users consented to, and who is on their way to a provider, in the server's database. Secrets are sealed."""

import sqlite3
from typing import Any

import msgspec
from msgspec.structs import astuple

from ...domain.tool import ConsentBinding
from ...oauth.tokens import KeptFlow, KeptGrant, NoFlow
from .database import Database

TABLES = (
    # Tokens of versions that bound a consent to user and tool only. They serve nothing: users are asked again.
    "DROP TABLE IF EXISTS oauth_tokens",
    """CREATE TABLE IF NOT EXISTS consent_tokens (
        user TEXT NOT NULL, agent TEXT NOT NULL, tool TEXT NOT NULL, definition TEXT NOT NULL,
        provider TEXT NOT NULL, scopes TEXT NOT NULL,
        since INTEGER NOT NULL, expires_at INTEGER NOT NULL, sealed BLOB NOT NULL,
        PRIMARY KEY (user, agent, tool, definition)
    ) WITHOUT ROWID""",
    # Once used, only the hash of the state is kept, until it would have expired.
    """CREATE TABLE IF NOT EXISTS oauth_flows (
        number INTEGER PRIMARY KEY, state_hash TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, expires_at INTEGER NOT NULL,
        sealed BLOB
    )""",
    "CREATE INDEX IF NOT EXISTS oauth_flows_by_owner ON oauth_flows (owner, number)",
    "CREATE INDEX IF NOT EXISTS oauth_flows_by_end ON oauth_flows (expires_at)",
)

_COLUMNS = "user, agent, tool, definition, provider, scopes, since, expires_at, sealed"
_BINDING = "user = ? AND agent = ? AND tool = ? AND definition = ?"
_LOAD = f"SELECT {_COLUMNS} FROM consent_tokens WHERE {_BINDING}"  # noqa: S608
_GIVEN = f"SELECT {_COLUMNS} FROM consent_tokens WHERE user = ? ORDER BY agent, tool, since"  # noqa: S608
_SAVE = f"INSERT OR REPLACE INTO consent_tokens ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
_FORGET = f"DELETE FROM consent_tokens WHERE {_BINDING}"  # noqa: S608
_PUT = "INSERT INTO oauth_flows (state_hash, owner, expires_at, sealed) VALUES (?, ?, ?, ?)"
_OVER = "DELETE FROM oauth_flows WHERE expires_at <= ?"
_TOO_MANY = """DELETE FROM oauth_flows WHERE owner = ? AND sealed IS NOT NULL AND number NOT IN (
    SELECT number FROM oauth_flows WHERE owner = ? AND sealed IS NOT NULL ORDER BY number DESC LIMIT ?)"""
_FIND = "SELECT owner, expires_at, sealed FROM oauth_flows WHERE state_hash = ? AND expires_at > ?"
_USE = "UPDATE oauth_flows SET sealed = NULL WHERE state_hash = ?"


class TokenTable:
    """Implements `TokenStore` of the consents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def load(self, binding: ConsentBinding) -> KeptGrant | None:
        key = astuple(binding)
        row = await self._database.run(lambda connection: connection.execute(_LOAD, key).fetchone())
        return _grant(row) if row else None

    async def save(self, grant: KeptGrant) -> None:
        scopes = msgspec.json.encode(grant.scopes).decode()
        row = (*astuple(grant.binding), grant.provider, scopes, grant.since, grant.expires_at, grant.sealed)
        await self._database.run(lambda connection: connection.execute(_SAVE, row))

    async def forget(self, binding: ConsentBinding) -> bool:
        key = astuple(binding)
        return await self._database.run(lambda connection: connection.execute(_FORGET, key).rowcount > 0)

    async def given(self, user: str) -> tuple[KeptGrant, ...]:
        rows = await self._database.run(lambda connection: connection.execute(_GIVEN, (user,)).fetchall())
        return tuple(map(_grant, rows))

    async def put_flow(self, flow: KeptFlow, now: int, at_most: int) -> None:
        def put(connection: sqlite3.Connection) -> None:
            connection.execute(_OVER, (now,))
            connection.execute(_PUT, (flow.state_hash, flow.owner, flow.expires_at, flow.sealed))
            connection.execute(_TOO_MANY, (flow.owner, flow.owner, at_most))

        await self._database.run(put)

    async def take_flow(self, state_hash: str, now: int) -> KeptFlow | NoFlow:
        def take(connection: sqlite3.Connection) -> KeptFlow | NoFlow:
            row = connection.execute(_FIND, (state_hash, now)).fetchone()
            if row is None:
                return "unknown"
            owner, expires_at, sealed = row
            if sealed is None:
                return "used"
            connection.execute(_USE, (state_hash,))
            return KeptFlow(state_hash=state_hash, owner=owner, expires_at=expires_at, sealed=sealed)

        return await self._database.run(take)


def _grant(row: tuple[Any, ...]) -> KeptGrant:
    user, agent, tool, definition, provider, scopes, since, expires_at, sealed = row
    return KeptGrant(
        binding=ConsentBinding(user=user, agent=agent, tool=tool, definition=definition),
        provider=provider,
        scopes=msgspec.json.decode(scopes, type=tuple[str, ...]),
        since=since,
        expires_at=expires_at,
        sealed=bytes(sealed),
    )
