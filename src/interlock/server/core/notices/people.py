"""What people chose about their own notices: channels that they switched off, and browsers that get push."""

from collections.abc import Callable
from hashlib import sha256
from time import time_ns
from typing import Any

import msgspec

from ..database.interface import Connection, Database

#: Browsers of one person; the oldest one makes room.
MAX_SUBSCRIPTIONS = 10
_COLUMNS = "subscription_id, account, channel, endpoint, public_key, auth, created_at"
_SELECT = f"SELECT {_COLUMNS} FROM push_subscriptions"  # noqa: S608
_INSERT = f"INSERT INTO push_subscriptions ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?)"  # noqa: S608
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

    async def subscribe(
        self, account: str, channel: str, endpoint: str, public_key: str, auth: str
    ) -> PushSubscription:
        """Record a browser of a person. It replaces any record of the same browser: what was meant for another person
        who used it has another id, and is not sent any more.
        """
        new = PushSubscription(
            subscription_id=sha256(f"{account}\n{endpoint}".encode()).hexdigest()[:24],
            account=account,
            channel=channel,
            endpoint=endpoint,
            public_key=public_key,
            auth=auth,
            created_at=self._now(),
        )

        def write(connection: Connection) -> None:
            connection.execute("DELETE FROM push_subscriptions WHERE endpoint = ?", (endpoint,))
            connection.execute(_INSERT, msgspec.structs.astuple(new))
            connection.execute(_DELETE_EXCESS, (account, account, MAX_SUBSCRIPTIONS))

        await self._database.run(write)
        return new

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

    async def list_subscriptions(self, *, channel: str = "", account: str = "") -> list[PushSubscription]:
        """Return the browsers of a channel, of a person, or of both."""
        chosen = {name: value for name, value in (("channel", channel), ("account", account)) if value}
        condition = f" WHERE {' AND '.join(f'{name} = ?' for name in chosen)}" if chosen else ""
        query = f"{_SELECT}{condition} ORDER BY created_at, subscription_id"
        rows = await self._database.read(
            lambda connection: connection.execute(query, tuple(chosen.values())).fetchall()
        )
        return list(map(_to_subscription, rows))


def _to_subscription(row: tuple[Any, ...]) -> PushSubscription:
    return PushSubscription(**dict(zip(PushSubscription.__struct_fields__, row, strict=True)))
