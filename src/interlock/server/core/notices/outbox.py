"""Deliveries of notices in the server's database.

A delivery is one notice for one recipient of one channel, and exists once: its key says what it is about. It is
recorded before anything is sent, marked as `sending` before every attempt, and gets its outcome after it. So a process
that was killed leaves a delivery that waits, or one that is `sending`: that one is sent again under the same key. What
the notice says is not here but in the log.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from time import time_ns
from typing import Any, Literal, TypeAlias

import msgspec

from ..database.interface import Connection, Database

#: `asked` and `escalated` are notices of a question; the others say in their messages how it was answered.
DeliveryKind: TypeAlias = Literal["asked", "answered", "escalated", "escalation_answered"]
DeliveryState: TypeAlias = Literal["waiting", "sending", "sent", "withdrawn", "dead"]

#: Longer than any attempt takes. A delivery that is `sending` for longer belongs to a process that is gone.
LEASE_SECONDS = 90.0
_LEASE_NS = int(LEASE_SECONDS * 1e9)
#: The kind of the update of each kind of notice.
_UPDATE_KINDS: Mapping[str, DeliveryKind] = {"asked": "answered", "escalated": "escalation_answered"}
_NOTICE_KINDS: Mapping[str, DeliveryKind] = {"answered": "asked", "escalation_answered": "escalated"}
_MAX_PROBLEM_CHARS = 500

_COLUMNS = """number, key, channel, account, recipient, kind, run_id, action_id, seq, state, attempts, due_at,
    created_at, changed_at, batch, reference, problem"""
_INSERT = """INSERT INTO notice_deliveries
    (key, channel, account, recipient, kind, run_id, action_id, seq, state, due_at, created_at, changed_at)
    VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'waiting', ?, ?, ?) ON CONFLICT (key) DO NOTHING"""
_SELECT = f"SELECT {_COLUMNS} FROM notice_deliveries"  # noqa: S608
_SELECT_DUE = f"""{_SELECT} WHERE channel = ? AND state IN ('waiting', 'sending') AND due_at <= ?
    ORDER BY number LIMIT 1"""
_SELECT_BATCH = f"""{_SELECT} WHERE channel = ? AND batch = ? AND state IN ('waiting', 'sending') ORDER BY number"""
_SELECT_DUE_OF_RECIPIENT = f"""{_SELECT} WHERE channel = ? AND recipient = ? AND kind = ? AND state = 'waiting'
    AND batch = '' AND due_at <= ? ORDER BY number LIMIT ?"""
_SELECT_NEXT_DUE = "SELECT min(due_at) FROM notice_deliveries WHERE channel = ? AND state IN ('waiting', 'sending')"
_SELECT_COLLECTING = """SELECT min(due_at) FROM notice_deliveries
    WHERE channel = ? AND recipient = ? AND kind = 'asked' AND state = 'waiting'"""
_SELECT_FAILED = """SELECT channel, attempts, problem, changed_at FROM notice_deliveries
    WHERE state IN ('waiting', 'sending') AND attempts > 0 AND problem != '' ORDER BY changed_at"""
_CLAIM = """UPDATE notice_deliveries SET state = 'sending', attempts = attempts + 1, batch = ?, due_at = ?,
    changed_at = ? WHERE number = ? AND (state = 'waiting' OR (state = 'sending' AND due_at <= ?))"""
_FINISH = """UPDATE notice_deliveries SET state = ?, due_at = ?, changed_at = ?, reference = ?, problem = ?
    WHERE number = ? AND state IN ('waiting', 'sending')"""
_WITHDRAW_UNKNOWN = """UPDATE notice_deliveries SET state = 'withdrawn', changed_at = ?,
    problem = 'The channel is not configured any more.' WHERE state IN ('waiting', 'sending') AND channel = ?"""
_RELEASE = "UPDATE notice_deliveries SET due_at = ? WHERE state = 'sending'"
_WITHDRAW = """UPDATE notice_deliveries SET state = 'withdrawn', changed_at = ?, problem = 'The question was closed.'
    WHERE run_id = ? AND action_id = ? AND kind IN ('asked', 'escalated') AND state = 'waiting'"""
#: One that was part of a digest is sent alone, and so under its own key.
_RETRY = """UPDATE notice_deliveries SET state = 'waiting', due_at = ?, changed_at = ?, attempts = 0, problem = '',
    batch = CASE WHEN batch = key THEN batch ELSE '' END WHERE number = ? AND state = 'dead'"""
_DELETE_OLD = "DELETE FROM notice_deliveries WHERE state IN ('sent', 'withdrawn') AND changed_at < ?"


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """A notice for one recipient of one channel. Times are nanoseconds since 1970."""

    number: int
    key: str
    channel: str
    #: Whose notice it is; empty for a channel as a whole.
    account: str
    recipient: str
    kind: DeliveryKind
    run_id: str
    action_id: str
    #: The event that it is about.
    seq: int
    state: DeliveryState
    attempts: int
    due_at: int
    created_at: int
    changed_at: int
    #: The key of the message that it was sent with; another one than its own: a digest. Empty: it was not sent yet.
    batch: str
    #: How the receiver called the message.
    reference: str
    problem: str


class NewDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """A delivery to record."""

    channel: str
    account: str
    recipient: str
    kind: DeliveryKind
    run_id: str
    action_id: str
    seq: int

    @property
    def key(self) -> str:
        """The identity of the delivery."""
        parts = (self.channel, self.recipient, self.kind, self.run_id, self.action_id)
        return sha256("\n".join(parts).encode()).hexdigest()[:32]


class ChannelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """How many deliveries of a channel are in each state."""

    waiting: int = 0
    sending: int = 0
    sent: int = 0
    withdrawn: int = 0
    dead: int = 0
    #: When something was sent last; 0: never.
    last_sent_at: int = 0
    #: Of what waits after a failed attempt: how often it was tried, why and when it failed last. Empty: nothing does.
    failures: int = 0
    last_error: str = ""
    last_error_at: int = 0


class Outbox:
    """Records deliveries, hands them out and records what became of them."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def open(self, channels: Collection[str]) -> None:
        """Make deliveries due that a process of this database was sending when it ended, and withdraw those of other
        channels. Servers that share it wait for the lease: another one may still be sending.
        """

        def change(connection: Connection) -> None:
            now = self._now()
            if not self._database.is_shared:
                connection.execute(_RELEASE, (now,))
            known = connection.execute("SELECT DISTINCT channel FROM notice_deliveries").fetchall()
            for name in {name for (name,) in known} - set(channels):
                connection.execute(_WITHDRAW_UNKNOWN, (now, name))

        await self._database.run(change)

    def add(self, connection: Connection, new: NewDelivery, due_at: int = 0, *, is_collected: bool = False) -> None:
        """Record a delivery in a transaction, unless it is known. One that `is_collected` joins those that wait."""
        now = self._now()
        due_at = due_at or now
        if is_collected:
            earliest = connection.execute(_SELECT_COLLECTING, (new.channel, new.recipient)).fetchone()[0]
            due_at = min(due_at, earliest or due_at)
        row = (new.key, new.channel, new.account, new.recipient, new.kind, new.run_id, new.action_id, new.seq)
        connection.execute(_INSERT, (*row, due_at, now, now))

    def close_question(
        self, connection: Connection, run_id: str, action_id: str, seq: int, updating: frozenset[str]
    ) -> None:
        """Withdraw what was not sent of a question, and record updates of what was. Empty `action_id`: of all of the
        run.
        """
        condition, values = ("AND action_id = ?", (action_id,)) if action_id else ("", ())
        query = f"{_SELECT} WHERE run_id = ? AND kind IN ('asked', 'escalated') {condition}"
        rows = connection.execute(query, (run_id, *values))
        for asked in map(_to_delivery, rows.fetchall()):
            connection.execute(_WITHDRAW, (self._now(), run_id, asked.action_id))
            if asked.state in {"sending", "sent"} and asked.channel in updating:
                self.add(
                    connection,
                    NewDelivery(
                        channel=asked.channel,
                        account=asked.account,
                        recipient=asked.recipient,
                        kind=_UPDATE_KINDS[asked.kind],
                        run_id=run_id,
                        action_id=asked.action_id,
                        seq=seq,
                    ),
                )

    async def find_due(self, channel: str, limit: int) -> list[Delivery]:
        """Return the oldest delivery that is due, and those that belong to its message or could be sent with it."""

        def find(connection: Connection) -> list[Delivery]:
            now = self._now()
            row = connection.execute(_SELECT_DUE, (channel, now)).fetchone()
            if row is None:
                return []
            first = _to_delivery(row)
            if first.batch:
                rows = connection.execute(_SELECT_BATCH, (channel, first.batch))
            elif first.kind not in _UPDATE_KINDS:
                return [first]
            else:
                values = (channel, first.recipient, first.kind, now, limit)
                rows = connection.execute(_SELECT_DUE_OF_RECIPIENT, values)
            return list(map(_to_delivery, rows.fetchall()))

        return await self._database.read(find)

    async def get_next_due(self, channel: str) -> int:
        """Return when the next delivery of a channel is due; 0: none waits."""
        found = await self._database.read(
            lambda connection: connection.execute(_SELECT_NEXT_DUE, (channel,)).fetchone()
        )
        return found[0] or 0

    async def find_asked(self, delivery: Delivery) -> Delivery | None:
        """Return the delivery that an update is about."""
        query = f"{_SELECT} WHERE channel = ? AND recipient = ? AND run_id = ? AND action_id = ? AND kind = ?"
        kind = _NOTICE_KINDS[delivery.kind]
        values = (delivery.channel, delivery.recipient, delivery.run_id, delivery.action_id, kind)
        row = await self._database.read(lambda connection: connection.execute(query, values).fetchone())
        return _to_delivery(row) if row else None

    async def claim(self, deliveries: Sequence[Delivery], batch: str) -> bool:
        """Mark deliveries as being sent. Return False, and change nothing, if another process was first."""

        def mark(connection: Connection) -> bool:
            now = self._now()
            for each in deliveries:
                if connection.execute(_CLAIM, (batch, now + _LEASE_NS, now, each.number, now)).rowcount == 0:
                    raise _ClaimedElsewhereError
            return True

        try:
            return await self._database.run(mark)
        except _ClaimedElsewhereError:
            return False

    async def finish(
        self,
        deliveries: Sequence[Delivery],
        state: DeliveryState,
        *,
        due_at: int = 0,
        reference: str = "",
        problem: str = "",
    ) -> None:
        """Record the outcome of an attempt, or that there is none."""

        def write(connection: Connection) -> None:
            now = self._now()
            for each in deliveries:
                values = (state, due_at or now, now, reference, problem[:_MAX_PROBLEM_CHARS], each.number)
                connection.execute(_FINISH, values)

        await self._database.run(write)

    async def list_deliveries(
        self, *, channel: str = "", state: str = "", before: int = 0, limit: int = 100
    ) -> list[Delivery]:
        """Return deliveries, newest first."""
        conditions = {"channel = ?": channel, "state = ?": state, "number < ?": before}
        chosen = {condition: value for condition, value in conditions.items() if value}
        where = f" WHERE {' AND '.join(chosen)}" if chosen else ""
        query = f"{_SELECT}{where} ORDER BY number DESC LIMIT ?"
        rows = await self._database.read(
            lambda connection: connection.execute(query, (*chosen.values(), limit)).fetchall()
        )
        return list(map(_to_delivery, rows))

    async def get(self, number: int) -> Delivery | None:
        """Return a delivery, or None."""
        query = f"{_SELECT} WHERE number = ?"
        row = await self._database.read(lambda connection: connection.execute(query, (number,)).fetchone())
        return _to_delivery(row) if row else None

    async def retry(self, number: int) -> bool:
        """Let a dead letter be sent again. Return False if the delivery is none."""
        now = self._now()
        return await self._database.run(lambda connection: connection.execute(_RETRY, (now, now, number)).rowcount > 0)

    async def count_by_channel(self) -> dict[str, ChannelCounts]:
        """Return how many deliveries each channel has in each state."""

        def count(connection: Connection) -> dict[str, ChannelCounts]:
            query = "SELECT channel, state, count(*), max(changed_at) FROM notice_deliveries GROUP BY channel, state"
            found: dict[str, dict[str, int]] = {}
            for channel, state, number, changed_at in connection.execute(query):
                values = found.setdefault(channel, {})
                values[state] = number
                if state == "sent":
                    values["last_sent_at"] = changed_at
            failed = {row[0]: row[1:] for row in connection.execute(_SELECT_FAILED)}
            return {channel: _to_counts(values, failed.get(channel, (0, "", 0))) for channel, values in found.items()}

        return await self._database.read(count)

    async def delete_old(self, keep_seconds: float) -> None:
        """Delete deliveries that ended longer ago. Dead letters stay until they are sent."""
        before = self._now() - int(keep_seconds * 1e9)
        await self._database.run(lambda connection: connection.execute(_DELETE_OLD, (before,)))


class _ClaimedElsewhereError(Exception):
    """Roll the claim back."""


def _to_counts(counts: Mapping[str, int], failure: tuple[int, str, int]) -> ChannelCounts:
    failures, last_error, last_error_at = failure
    return ChannelCounts(**counts, failures=failures, last_error=last_error, last_error_at=last_error_at)


def _to_delivery(row: tuple[Any, ...]) -> Delivery:
    return Delivery(**dict(zip(Delivery.__struct_fields__, row, strict=True)))
