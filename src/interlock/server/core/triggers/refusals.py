"""What schedules and webhooks did not start, and why: counted by code, so that a flood of requests costs one row.

Counts are written once a second at most for each code; what came meanwhile is written with the next, or when it is
read here.
"""

from collections.abc import Callable
from time import time_ns
from typing import Literal, TypeAlias

import msgspec

from ....domain.json import escape_surrogates
from ....domain.rendering import truncate
from ..database.interface import Connection, Database

TriggerKind: TypeAlias = Literal["schedule", "webhook"]
_WRITE_SECONDS = 1.0
_MAX_MESSAGE_CHARS = 500
_SELECT = """SELECT name, code, message, count, first_at, last_at FROM trigger_refusals WHERE kind = ?
    ORDER BY last_at DESC, code"""
_UPSERT = """INSERT INTO trigger_refusals (kind, name, code, message, count, first_at, last_at)
    VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (kind, name, code) DO UPDATE SET message = excluded.message,
    count = trigger_refusals.count + excluded.count, last_at = CASE
    WHEN excluded.last_at > trigger_refusals.last_at THEN excluded.last_at ELSE trigger_refusals.last_at END"""


class TriggerRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a trigger started nothing, how often, and when that was first and last so."""

    code: str
    message: str
    count: int
    first_at: int
    last_at: int


class _Pending:
    __slots__ = ("count", "first_at", "last_at", "message", "written_at")

    def __init__(self) -> None:
        self.count = self.first_at = self.last_at = 0
        self.written_at: int | None = None
        self.message = ""


class TriggerRefusals:
    """Counts refusals of triggers."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now
        self._pending: dict[tuple[TriggerKind, str, str], _Pending] = {}

    async def record(self, kind: TriggerKind, name: str, code: str, message: str) -> None:
        """Count a refusal of a configured trigger."""
        now = self._now()
        pending = self._pending.setdefault((kind, name, code), _Pending())
        pending.first_at = now if pending.count == 0 else pending.first_at
        pending.count += 1
        pending.last_at = now
        pending.message = truncate(escape_surrogates(message), _MAX_MESSAGE_CHARS)
        if pending.written_at is None or now - pending.written_at >= _WRITE_SECONDS * 1e9:
            await self._write()

    async def list(self, kind: TriggerKind) -> dict[str, tuple[TriggerRefusal, ...]]:
        """Return the refusals of all triggers of a kind by name, the newest first."""
        await self._write()
        rows = await self._database.read(lambda connection: connection.execute(_SELECT, (kind,)).fetchall())
        found: dict[str, tuple[TriggerRefusal, ...]] = {}
        for name, code, message, count, first_at, last_at in rows:
            refusal = TriggerRefusal(code=code, message=message, count=count, first_at=first_at, last_at=last_at)
            found[name] = (*found.get(name, ()), refusal)
        return found

    async def _write(self) -> None:
        rows: list[tuple[str, str, str, str, int, int, int]] = []
        for key, pending in self._pending.items():
            if pending.count:
                rows.append((*key, pending.message, pending.count, pending.first_at, pending.last_at))
                pending.count, pending.written_at = 0, pending.last_at

        def write(connection: Connection) -> None:
            connection.executemany(_UPSERT, rows)

        if rows:
            await self._database.run(write)
