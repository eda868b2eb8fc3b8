"""Views of the inbox that people saved for themselves: a name, and the filters."""

from collections.abc import Callable
from time import time_ns

import msgspec

from ....rendering.escaping import is_visible
from ..database.interface import Connection, Database
from ..errors import ConflictError, InvalidRequestError, not_found_error
from .filters import parse_query_string

MAX_VIEWS = 50
MAX_VIEW_NAME_CHARS = 60
MAX_VIEW_QUERY_CHARS = 2_000
_SELECT = "SELECT name, query FROM inbox_views WHERE account = ? ORDER BY name"
_UPSERT = """INSERT INTO inbox_views (account, name, query, saved_at) VALUES (?, ?, ?, ?)
    ON CONFLICT (account, name) DO UPDATE SET query = excluded.query, saved_at = excluded.saved_at"""
_COUNT_OTHERS = "SELECT count(*) FROM inbox_views WHERE account = ? AND name != ?"
_DELETE = "DELETE FROM inbox_views WHERE account = ? AND name = ?"


class SavedView(msgspec.Struct, frozen=True, kw_only=True):
    """A saved view. The query is that of the inbox page: `?q=refund&sort=newest`; empty: all open questions."""

    name: str
    query: str


class SavedViews:
    """Stores views."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def list(self, account: str) -> tuple[SavedView, ...]:
        """Return the views of a person, by name."""
        rows = await self._database.read(lambda connection: connection.execute(_SELECT, (account,)).fetchall())
        return tuple(SavedView(name=name, query=query) for name, query in rows)

    async def save(self, account: str, name: str, query: str) -> SavedView:
        """Save a view, or replace the one with this name. Keys of the query that are no filter are left out."""
        name = name.strip()
        if not 0 < len(name) <= MAX_VIEW_NAME_CHARS or not all(map(is_visible, name)):
            raise InvalidRequestError("name", f"must be 1 to {MAX_VIEW_NAME_CHARS} visible characters")
        view = SavedView(name=name, query=parse_query_string(query[:MAX_VIEW_QUERY_CHARS]).query)
        row = (account, name, view.query, self._now())

        def write(connection: Connection) -> None:
            if connection.execute(_COUNT_OTHERS, (account, name)).fetchone()[0] >= MAX_VIEWS:
                raise ConflictError("too_many_views", f"You have {MAX_VIEWS} views, which is the limit. Delete one.")
            connection.execute(_UPSERT, row)

        await self._database.run(write)
        return view

    async def delete(self, account: str, name: str) -> None:
        """Delete a view. Raise `NotFoundError` if there is none with this name."""
        if await self._database.run(lambda connection: connection.execute(_DELETE, (account, name)).rowcount) < 1:
            raise not_found_error("view", name)
