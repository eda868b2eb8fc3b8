"""What people chose about their own notices: channels that they switched off, and browsers that get push."""

from collections.abc import Callable, Collection
from hashlib import sha256
from time import time_ns
from typing import Any

import msgspec

from ..database.interface import Connection, Database

#: Browsers of one person; the oldest one makes room.
MAX_SUBSCRIPTIONS = 10
_COLUMNS = "subscription_id, account, channel, endpoint, public_key, auth, created_at"
_SELECT = f"SELECT {_COLUMNS} FROM push_subscriptions"  # noqa: S608
_UPSERT = f"""INSERT INTO push_subscriptions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT (subscription_id) DO UPDATE SET account = excluded.account, channel = excluded.channel,
    public_key = excluded.public_key, auth = excluded.auth, created_at = excluded.created_at"""  # noqa: S608
_DELETE_EXCESS = """DELETE FROM push_subscriptions WHERE account = ? AND subscription_id NOT IN (
    SELECT subscription_id FROM push_subscriptions WHERE account = ? ORDER BY created_at DESC LIMIT ?)"""


class PushSubscription(msgspec.Struct, frozen=True, kw_only=True):
    """A browser that gets push. The endpoint is a secret of the person."""

    subscription_id: str
    account: str
    channel: str
    endpoint: str
    #: Of the browser, for encryption: base64url.
    public_key: str
    auth: str
    created_at: int


class NoticePeople:
    """Stores what people chose."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def list_muted(self, account: str) -> frozenset[str]:
        """Return the channels that a person switched off."""
        query = "SELECT channel FROM notice_mutes WHERE account = ?"
        rows = await self._database.read(lambda connection: connection.execute(query, (account,)).fetchall())
        return frozenset(channel for (channel,) in rows)

    async def set_muted(self, account: str, channel: str, is_muted: bool) -> None:
        """Switch the notices of a person in a channel off or on."""
        sql = (
            "INSERT INTO notice_mutes (account, channel) VALUES (?, ?) ON CONFLICT DO NOTHING"
            if is_muted
            else "DELETE FROM notice_mutes WHERE account = ? AND channel = ?"
        )
        await self._database.run(lambda connection: connection.execute(sql, (account, channel)))

    async def subscribe(self, account: str, channel: str, endpoint: str, public_key: str, auth: str) -> str:
        """Record a browser of a person, and return its id. The same browser again replaces the earlier record."""
        subscription_id = sha256(endpoint.encode()).hexdigest()[:24]
        row = (subscription_id, account, channel, endpoint, public_key, auth, self._now())

        def write(connection: Connection) -> None:
            connection.execute(_UPSERT, row)
            connection.execute(_DELETE_EXCESS, (account, account, MAX_SUBSCRIPTIONS))

        await self._database.run(write)
        return subscription_id

    async def unsubscribe(self, subscription_id: str, account: str = "") -> bool:
        """Delete a browser, of one person or of any. Return True if there was one."""
        condition, values = (" AND account = ?", (account,)) if account else ("", ())
        sql = f"DELETE FROM push_subscriptions WHERE subscription_id = ?{condition}"  # noqa: S608
        found = await self._database.run(
            lambda connection: connection.execute(sql, (subscription_id, *values)).rowcount
        )
        return found > 0

    async def get_subscription(self, subscription_id: str) -> PushSubscription | None:
        """Return a browser, or None."""
        query = f"{_SELECT} WHERE subscription_id = ?"
        row = await self._database.read(lambda connection: connection.execute(query, (subscription_id,)).fetchone())
        return _to_subscription(row) if row else None

    async def list_subscriptions(
        self, *, channel: str = "", accounts: Collection[str] | None = None
    ) -> list[PushSubscription]:
        """Return the browsers of a channel, or of some people."""
        condition, values = (" WHERE channel = ?", (channel,)) if channel else ("", ())
        query = f"{_SELECT}{condition} ORDER BY created_at, subscription_id"
        rows = await self._database.read(lambda connection: connection.execute(query, values).fetchall())
        found = map(_to_subscription, rows)
        return [each for each in found if accounts is None or each.account in accounts]


def _to_subscription(row: tuple[Any, ...]) -> PushSubscription:
    return PushSubscription(**dict(zip(PushSubscription.__struct_fields__, row, strict=True)))
