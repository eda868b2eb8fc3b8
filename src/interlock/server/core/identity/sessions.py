"""Sessions of the console: a random token in a cookie, of which the server stores the SHA-256.

Permissions are read with every request from the account, so that a changed role counts at once. A session
ends after an hour without a request, after twelve hours anyway, and when the account's stamp changed: its password was
changed, or it was disabled. The token against forged requests is derived from the session's, so a page can show it and
nothing more is stored.
"""

import hmac
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from hashlib import sha256
from secrets import token_urlsafe
from time import time_ns

import msgspec

from ..audit.audit_log import AuditEvent, append_event
from ..database.interface import Connection, Database
from ..errors import StorageError
from .account_rows import ACCOUNT_COLUMNS, to_account
from .principal import Principal, check_name

_SECOND_NS = 1_000_000_000
LIFETIME_NS = 12 * 3_600 * _SECOND_NS
IDLE_NS = 3_600 * _SECOND_NS
MAX_SESSIONS_PER_PERSON = 20

_LAST_USED_RESOLUTION_NS = 60 * _SECOND_NS
_TOKEN_BYTES = 32

_is_session_id = re.compile(r"[0-9a-f]{64}").fullmatch
_is_token = re.compile(r"[A-Za-z0-9_-]{43}").fullmatch

_INSERT_SESSION = (
    "INSERT INTO sessions (session_id, name, stamp, started_at, used_at, ends_at) VALUES (?, ?, ?, ?, ?, ?)"
)
_DELETE_EXPIRED = "DELETE FROM sessions WHERE ends_at <= ? OR used_at <= ?"
_DELETE_EXCESS = """DELETE FROM sessions WHERE name = ? AND session_id NOT IN (
    SELECT session_id FROM sessions WHERE name = ? ORDER BY started_at DESC LIMIT ?)"""
_SELECT_SESSION = f"""SELECT started_at, used_at, ends_at, {ACCOUNT_COLUMNS} FROM sessions JOIN accounts USING (name)
    WHERE session_id = ? AND sessions.stamp = accounts.stamp AND disabled = 0"""  # noqa: S608
_TOUCH_SESSION = "UPDATE sessions SET used_at = ? WHERE session_id = ?"
_SELECT_BY_ACCOUNT = (
    "SELECT session_id, started_at, used_at, ends_at FROM sessions WHERE name = ? ORDER BY started_at DESC"
)


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A new session with its token."""

    #: For the cookie; shown nowhere else.
    token: str
    session_id: str
    csrf: str
    ends_at: int

    def __repr__(self) -> str:
        return f"NewSession({self.session_id})"


class AuthenticatedSession(msgspec.Struct, frozen=True, kw_only=True):
    """The account behind a browser request."""

    principal: Principal
    #: Names the sign-in, and opens nothing.
    session_id: str
    #: What a form must send back.
    csrf: str
    started_at: int
    ends_at: int


class SessionRow(msgspec.Struct, frozen=True, kw_only=True):
    """A session as listed."""

    session_id: str
    started_at: int
    #: To the minute.
    used_at: int
    ends_at: int


class Sessions:
    """Starts, authenticates and ends sessions."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def start(self, name: str, *, detail: Mapping[str, str] | None = None) -> NewSession | None:
        """Start a session for an authenticated account; None when there is none, or it was disabled meanwhile."""
        if check_name(name):
            return None
        token, now = token_urlsafe(_TOKEN_BYTES), self._now()
        new = NewSession(
            token=token, session_id=_derive_session_id(token), csrf=derive_csrf_token(token), ends_at=now + LIFETIME_NS
        )
        is_created = await self._database.run(
            partial(_insert_session, name=name, session_id=new.session_id, now=now, detail=detail or {})
        )
        return new if is_created else None

    async def authenticate(self, token: str) -> AuthenticatedSession | None:
        """Return the session of a token. Return None if it is unknown or expired."""
        if not _is_token(token):
            return None
        session_id, now = _derive_session_id(token), self._now()
        row = await self._database.read(
            lambda connection: connection.execute(_SELECT_SESSION, (session_id,)).fetchone()
        )
        if row is None or _is_expired(row[1], row[2], now):
            return None
        started_at, used_at, ends_at = row[:3]
        if now - used_at >= _LAST_USED_RESOLUTION_NS:
            with suppress(StorageError):  # who is signed in may read, even if nothing can be written
                await self._database.run(lambda connection: connection.execute(_TOUCH_SESSION, (now, session_id)))
        return AuthenticatedSession(
            principal=to_account(row[3:]).principal,
            session_id=session_id,
            csrf=derive_csrf_token(token),
            started_at=started_at,
            ends_at=ends_at,
        )

    async def list_by_account(self, name: str) -> tuple[SessionRow, ...]:
        """Return the sessions of an account, newest first."""
        if check_name(name):
            return ()
        now = self._now()
        rows = await self._database.read(lambda connection: connection.execute(_SELECT_BY_ACCOUNT, (name,)).fetchall())
        found = (SessionRow(session_id=row[0], started_at=row[1], used_at=row[2], ends_at=row[3]) for row in rows)
        return tuple(row for row in found if not _is_expired(row.used_at, row.ends_at, now))

    async def end(self, session_id: str, *, by: str) -> bool:
        """End a session. Return False when there was none."""
        if not _is_session_id(session_id):
            return False
        ended = partial(_delete_sessions, condition="session_id = ?", value=session_id, now=self._now(), by=by)
        return await self._database.run(ended) > 0

    async def end_own(self, name: str, session_id: str, *, by: str) -> bool:
        """End a session of this account. Return False when it has no such session."""
        if all(row.session_id != session_id for row in await self.list_by_account(name)):
            return False
        return await self.end(session_id, by=by)

    async def end_others(self, name: str, session_id: str, *, by: str) -> int:
        """End all sessions of an account but this one, and return how many ended."""
        others = [row.session_id for row in await self.list_by_account(name) if row.session_id != session_id]
        return sum([await self.end(other, by=by) for other in others])

    async def end_all(self, name: str, *, by: str) -> int:
        """End all sessions of an account, and return their number."""
        if check_name(name):
            return 0
        return await self._database.run(
            partial(_delete_sessions, condition="name = ?", value=name, now=self._now(), by=by)
        )


def derive_csrf_token(token: str) -> str:
    """Derive the CSRF token from a session token."""
    return hmac.digest(token.encode(errors="backslashreplace"), b"interlock/csrf/v1", "sha256").hex()


def is_valid_csrf_token(expected: str, given: str) -> bool:
    """Compare CSRF tokens in constant time."""
    return hmac.compare_digest(expected.encode(), given.encode(errors="backslashreplace"))


def _derive_session_id(token: str) -> str:
    return sha256(token.encode()).hexdigest()


def _is_expired(used_at: int, ends_at: int, now: int) -> bool:
    return ends_at <= now or used_at + IDLE_NS <= now


def _insert_session(connection: Connection, name: str, session_id: str, now: int, detail: Mapping[str, str]) -> bool:
    row = connection.execute("SELECT stamp FROM accounts WHERE name = ? AND disabled = 0", (name,)).fetchone()
    if row is None:
        return False
    connection.execute(_DELETE_EXPIRED, (now, now - IDLE_NS))
    connection.execute(_DELETE_EXCESS, (name, name, MAX_SESSIONS_PER_PERSON - 1))
    connection.execute(_INSERT_SESSION, (session_id, name, row[0], now, now, now + LIFETIME_NS))
    person = f"user:{name}"
    append_event(connection, now, AuditEvent(by=person, action="session.started", target=person, detail=detail))
    return True


def _delete_sessions(connection: Connection, condition: str, value: str, now: int, by: str) -> int:
    query = f"DELETE FROM sessions WHERE {condition} RETURNING name"  # noqa: S608
    ended = connection.execute(query, (value,)).fetchall()
    for (name,) in ended:
        append_event(connection, now, AuditEvent(by=by, action="session.ended", target=f"user:{name}"))
    return len(ended)
