"""Assignments: which account is to answer a question. One at a time; the audit log has all of them."""

from collections.abc import Callable, Collection, Mapping
from time import time_ns

import msgspec

from ..audit.audit_log import AuditEvent, append_event
from ..database.interface import Connection, Database
from ..identity.permissions import Operation

#: Of an account, or of all: more are not looked at by a filter.
MAX_ASSIGNED = 20_000
_PAGE = 500
_UPSERT = """INSERT INTO question_assignments (action_id, run_id, account, assigned_by, assigned_at, is_open)
    VALUES (?, ?, ?, ?, ?, 1) ON CONFLICT (action_id) DO UPDATE SET account = excluded.account,
    assigned_by = excluded.assigned_by, assigned_at = excluded.assigned_at, is_open = 1"""
_SELECT = "SELECT action_id, account, assigned_by, assigned_at FROM question_assignments"
_SELECT_IDS = "SELECT action_id FROM question_assignments WHERE is_open"
_CLOSE = "UPDATE question_assignments SET is_open = 0 WHERE action_id = ?"


class Assignment(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment. Names are those of principals: `user:ada`."""

    action_id: str
    account: str
    assigned_by: str
    assigned_at: int


class Assignments:
    """Stores assignments."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def set(self, action_id: str, run_id: str, account: str, by: str) -> Assignment:
        """Assign a question to an account; an empty one takes the assignment back."""
        at = self._now()

        def write(connection: Connection) -> None:
            if account:
                connection.execute(_UPSERT, (action_id, run_id, account, by, at))
            else:
                connection.execute("DELETE FROM question_assignments WHERE action_id = ?", (action_id,))
            detail = {"account": account or "none"}
            append_event(connection, at, AuditEvent(by=by, action=Operation.ASSIGN, target=action_id, detail=detail))

        await self._database.run(write)
        return Assignment(action_id=action_id, account=account, assigned_by=by, assigned_at=at)

    async def find(self, action_ids: Collection[str]) -> Mapping[str, Assignment]:
        """Return the assignments of these questions."""
        names = sorted(action_ids)

        def read(connection: Connection) -> dict[str, Assignment]:
            found: dict[str, Assignment] = {}
            for start in range(0, len(names), _PAGE):
                part = names[start : start + _PAGE]
                sql = f"{_SELECT} WHERE action_id IN ({', '.join('?' * len(part))})"
                for action_id, account, by, at in connection.execute(sql, part):
                    found[action_id] = Assignment(action_id=action_id, account=account, assigned_by=by, assigned_at=at)
            return found

        return await self._database.read(read) if names else {}

    async def list_ids(self, account: str = "", *, with_answered: bool = False) -> frozenset[str]:
        """Return the questions of an account, or those that any has. By default only those that are open."""
        sql = f"{_SELECT_IDS} {'>= 0' if with_answered else '= 1'}"
        values: tuple[str | int, ...] = (MAX_ASSIGNED,)
        if account:
            sql, values = f"{sql} AND account = ?", (account, *values)
        sql = f"{sql} ORDER BY assigned_at DESC LIMIT ?"
        rows = await self._database.read(lambda connection: connection.execute(sql, values).fetchall())
        return frozenset(action_id for (action_id,) in rows)

    async def close(self, action_ids: Collection[str]) -> None:
        """Mark these questions as no longer open."""
        if action_ids:
            rows = [(action_id,) for action_id in sorted(action_ids)]
            await self._database.run(lambda connection: connection.executemany(_CLOSE, rows))
