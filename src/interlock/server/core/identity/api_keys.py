"""API keys of programs: `ik_<id>_<secret>`. Only the SHA-256 of the secret is kept: it is random, so that is enough.

`authenticate` runs on every request. A key that was found right is remembered for a few seconds, so most requests ask
no database; revoking in this process forgets it at once, and in another one after those seconds.
"""

import hmac
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from secrets import token_hex, token_urlsafe
from time import time_ns
from typing import Any, NamedTuple

import msgspec

from ..audit.audit_log import AuditEvent, append_event
from ..database.interface import Connection, Database
from ..errors import StorageError
from .principal import (
    IdentityProblem,
    Principal,
    Role,
    check_agents,
    check_name,
    decode_agents,
    decode_roles,
    describe_grants,
    encode_agents,
    encode_roles,
)

MAX_ACTIVE_KEYS = 10_000
MAX_LISTED = 1_000

_SECOND_NS = 1_000_000_000
_CACHE_NS = 5 * _SECOND_NS
_LAST_USED_RESOLUTION_NS = 60 * _SECOND_NS
_MAX_CACHED_KEYS = 1_000
_SECRET_BYTES = 32

_is_key_id = re.compile(r"[0-9a-f]{8}").fullmatch
_match_key = re.compile(r"ik_([0-9a-f]{8})_([A-Za-z0-9_-]{43})").fullmatch

_COLUMNS = "key_id, name, roles, agents, created_by, created_at, expires_at, last_used_at, revoked_at"
_ACTIVE_CONDITION = "revoked_at = 0 AND (expires_at = 0 OR expires_at > ?)"
_INSERT_KEY = """INSERT INTO api_keys (key_id, hash, name, roles, agents, created_by, created_at, expires_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?)"""
_TOUCH_KEY = "UPDATE api_keys SET last_used_at = ? WHERE key_id = ?"
_SELECT_KEYS = f"SELECT {_COLUMNS} FROM api_keys ORDER BY revoked_at > 0, created_at DESC LIMIT {MAX_LISTED}"  # noqa: S608


class ApiKey(msgspec.Struct, frozen=True, kw_only=True):
    """An API key without its secret. Times are nanoseconds since 1970; 0 is never."""

    key_id: str
    name: str
    roles: frozenset[Role]
    #: The agents that it is for; None: all of them.
    agents: frozenset[str] | None
    created_by: str
    created_at: int
    expires_at: int = 0
    #: To the minute.
    last_used_at: int = 0
    revoked_at: int = 0

    @property
    def principal(self) -> Principal:
        """Principal that the key authenticates."""
        return Principal(name=f"key:{self.name}", kind="key", roles=self.roles, agents=self.agents)

    def is_active(self, now: int) -> bool:
        """Return True if the key is neither revoked nor expired."""
        return not self.revoked_at and not 0 < self.expires_at <= now


class NewApiKey(NamedTuple):
    """A new API key with its secret."""

    key: ApiKey
    #: Shown once; it cannot be recovered later.
    secret: str


class _CachedKey(NamedTuple):
    hash: bytes
    key: ApiKey
    principal: Principal
    until: int


class ApiKeys:
    """Creates, revokes and authenticates API keys."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now
        self._cache: dict[str, _CachedKey] = {}
        #: Grows with each revocation: what was read before one is not remembered after it.
        self._revocations = 0

    async def create(
        self,
        name: str,
        *,
        roles: Iterable[Role],
        agents: frozenset[str] | None = None,
        expires_at: int = 0,
        by: str,
    ) -> NewApiKey | IdentityProblem:
        """Create a key. Its secret is returned only here."""
        roles, now = frozenset(roles), self._now()
        if refusal := check_name(name) or _check_roles(roles, agents) or _check_expiry(expires_at, now):
            return refusal
        key = ApiKey(
            key_id=token_hex(4),
            name=name,
            roles=roles,
            agents=agents,
            created_by=by,
            created_at=now,
            expires_at=expires_at,
        )
        secret = token_urlsafe(_SECRET_BYTES)
        created = await self._database.run(partial(_insert_key, key=key, digest=sha256(secret.encode()).digest()))
        return created if isinstance(created, IdentityProblem) else NewApiKey(created, f"ik_{created.key_id}_{secret}")

    async def authenticate(self, text: str) -> Principal | None:
        """Return the principal of a key; None for anything that is not an active key."""
        match = _match_key(text)
        if match is None:
            return None
        key_id, digest, now = match[1], sha256(match[2].encode()).digest(), self._now()
        cached = self._cache.get(key_id)
        if cached is None or not 0 <= cached.until - now <= _CACHE_NS:
            return await self._look_up(key_id, digest, now)
        return cached.principal if hmac.compare_digest(cached.hash, digest) and cached.key.is_active(now) else None

    async def list(self) -> tuple[ApiKey, ...]:
        """Return all keys, active ones first, newest first."""
        rows = await self._database.read(lambda connection: connection.execute(_SELECT_KEYS).fetchall())
        return tuple(map(_to_api_key, rows))

    async def get(self, key_id: str) -> ApiKey | None:
        """Return a key by id, or None."""
        return await self._database.read(partial(_find_by_id, key_id=key_id))

    async def revoke(self, key_id: str, *, by: str) -> ApiKey | IdentityProblem:
        """Revoke a key. Revoking it again changes nothing."""
        revoked = await self._database.run(partial(_revoke_key, key_id=key_id, at=self._now(), by=by))
        self._revocations += 1
        self._cache.pop(key_id, None)
        return revoked

    async def _look_up(self, key_id: str, digest: bytes, now: int) -> Principal | None:
        revocations = self._revocations
        key = await self._database.read(partial(_authenticate_key, key_id=key_id, digest=digest, now=now))
        if key is None:
            return None
        if now - key.last_used_at >= _LAST_USED_RESOLUTION_NS:
            with suppress(StorageError):  # a known key may read, even if nothing can be written
                await self._database.run(lambda connection: connection.execute(_TOUCH_KEY, (now, key_id)))
        if revocations == self._revocations:
            if len(self._cache) >= _MAX_CACHED_KEYS:
                self._cache.clear()
            self._cache[key_id] = _CachedKey(digest, key, key.principal, now + _CACHE_NS)
        return key.principal


def _check_roles(roles: frozenset[Role], agents: frozenset[str] | None) -> IdentityProblem | None:
    if not roles:
        return IdentityProblem("roles", "must name at least one role")
    if Role.AGENT in roles and len(roles) > 1:
        return IdentityProblem("roles", "`agent` goes with no other role: what an agent holds must not decide about it")
    if Role.AGENT in roles and not agents:
        return IdentityProblem("agents", "must name the agents that the key is for")
    return check_agents(agents)


def _check_expiry(expires_at: int, now: int) -> IdentityProblem | None:
    if expires_at and not now < expires_at < 2**63:
        return IdentityProblem("expires_at", "must lie in the future")
    return None


def _insert_key(connection: Connection, key: ApiKey, digest: bytes) -> ApiKey | IdentityProblem:
    active_keys = f"SELECT count(*), count(CASE WHEN name = ? THEN 1 END) FROM api_keys WHERE {_ACTIVE_CONDITION}"  # noqa: S608
    count, same_name = connection.execute(active_keys, (key.name, key.created_at)).fetchone()
    if same_name:
        return IdentityProblem("name", f"there is a living key `{key.name}` already; revoke it first", "conflict")
    if count >= MAX_ACTIVE_KEYS:
        return IdentityProblem("name", f"there are {MAX_ACTIVE_KEYS} living keys, and can be no more", "conflict")
    while _find_by_id(connection, key.key_id):
        key = msgspec.structs.replace(key, key_id=token_hex(4))
    grants = (encode_roles(key.roles), encode_agents(key.agents))
    times = (key.created_by, key.created_at, key.expires_at)
    connection.execute(_INSERT_KEY, (key.key_id, digest, key.name, *grants, *times))
    detail = {"key_id": key.key_id, **describe_grants(key.roles, key.agents)}
    event = AuditEvent(by=key.created_by, action="key.created", target=key.principal.name, detail=detail)
    append_event(connection, key.created_at, event)
    return key


def _revoke_key(connection: Connection, key_id: str, at: int, by: str) -> ApiKey | IdentityProblem:
    key = _find_by_id(connection, key_id)
    if key is None:
        return IdentityProblem("key_id", "there is no such key", "unknown")
    if key.revoked_at:
        return key
    connection.execute("UPDATE api_keys SET revoked_at = ? WHERE key_id = ?", (at, key_id))
    append_event(
        connection, at, AuditEvent(by=by, action="key.revoked", target=key.principal.name, detail={"key_id": key_id})
    )
    return msgspec.structs.replace(key, revoked_at=at)


def _authenticate_key(connection: Connection, key_id: str, digest: bytes, now: int) -> ApiKey | None:
    """Return the key, if it is that one and active."""
    row = connection.execute("SELECT CAST(hash AS BLOB) FROM api_keys WHERE key_id = ?", (key_id,)).fetchone()
    if row is None or not hmac.compare_digest(row[0], digest):
        return None
    key = _find_by_id(connection, key_id)
    return key if key is not None and key.is_active(now) else None


def _find_by_id(connection: Connection, key_id: str) -> ApiKey | None:
    if not _is_key_id(key_id):
        return None
    query = f"SELECT {_COLUMNS} FROM api_keys WHERE key_id = ?"  # noqa: S608
    row = connection.execute(query, (key_id,)).fetchone()
    return _to_api_key(row) if row else None


def _to_api_key(row: tuple[Any, ...]) -> ApiKey:
    key_id, name, roles, agents, created_by, created_at, expires_at, last_used_at, revoked_at = row
    return ApiKey(
        key_id=key_id,
        name=name,
        roles=decode_roles(roles),
        agents=decode_agents(agents),
        created_by=created_by,
        created_at=created_at,
        expires_at=expires_at,
        last_used_at=last_used_at,
        revoked_at=revoked_at,
    )
