"""The position of each destination, and its dead letters. Both change in one transaction, so an event is before the
position, a dead letter, or still to come: never lost between them.
"""

from collections.abc import Sequence

import msgspec

from ..database.interface import Connection, Database

_UPSERT_POSITION = """INSERT INTO forward_positions (destination, position, hash, sending, sent_at)
    VALUES (?, ?, ?, ?, ?) ON CONFLICT (destination) DO UPDATE SET
    position = excluded.position, hash = excluded.hash, sending = excluded.sending, sent_at = excluded.sent_at"""
_UPSERT_DEAD_LETTER = """INSERT INTO forward_set_aside (destination, position, run_id, seq, problem, at)
    VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (destination, position) DO UPDATE SET
    run_id = excluded.run_id, seq = excluded.seq, problem = excluded.problem, at = excluded.at"""


class ForwardPosition(msgspec.Struct, frozen=True, kw_only=True):
    """How far a destination is in the feed."""

    #: Everything up to here was sent, set aside, or is not for this destination. 0: nothing yet.
    position: int = 0
    #: The chain's hash of the event there: is it still the same log?
    hash: bytes = b""
    #: The end of the batch that was under way; it is sent again as it was, so that its receiver can know it.
    sending: int = 0
    #: When the receiver last took something. 0: never.
    sent_at: int = 0


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """An event that the destination rejected, and why. It is still in the log."""

    position: int
    run_id: str
    seq: int
    problem: str
    at: int


class ForwardPositionStore:
    """The position and dead letters of one destination."""

    def __init__(self, db: Database, destination: str) -> None:
        self._db = db
        self._destination = destination

    async def load(self) -> ForwardPosition:
        """Load the position of the destination."""

        def find(connection: Connection) -> ForwardPosition:
            row = connection.execute(
                "SELECT position, hash, sending, sent_at FROM forward_positions WHERE destination = ?",
                (self._destination,),
            ).fetchone()
            return (
                ForwardPosition(position=row[0], hash=row[1], sending=row[2], sent_at=row[3])
                if row
                else ForwardPosition()
            )

        return await self._db.read(find)

    async def save(self, position: ForwardPosition, dead_letters: Sequence[DeadLetter] = ()) -> None:
        """Save the position and the dead letters before it in one transaction."""

        def write(connection: Connection) -> None:
            self.write(connection, position)
            connection.executemany(
                _UPSERT_DEAD_LETTER,
                [(self._destination, one.position, one.run_id, one.seq, one.problem, one.at) for one in dead_letters],
            )

        await self._db.run(write)

    def write(self, connection: Connection, position: ForwardPosition) -> None:
        """Save the position in the transaction of a connection."""
        values = (self._destination, position.position, position.hash, position.sending, position.sent_at)
        connection.execute(_UPSERT_POSITION, values)

    async def list_dead_letters(self, after: int = 0, limit: int = 100) -> list[DeadLetter]:
        """List events that the destination did not accept."""

        def find(connection: Connection) -> list[DeadLetter]:
            rows = connection.execute(
                "SELECT position, run_id, seq, problem, at FROM forward_set_aside"
                " WHERE destination = ? AND position > ? ORDER BY position LIMIT ?",
                (self._destination, after, limit),
            )
            return [DeadLetter(position=row[0], run_id=row[1], seq=row[2], problem=row[3], at=row[4]) for row in rows]

        return await self._db.read(find)

    async def count_dead_letters(self) -> int:
        """Count events that the destination did not accept."""

        def count(connection: Connection) -> int:
            query = "SELECT count(*) FROM forward_set_aside WHERE destination = ?"
            return int(connection.execute(query, (self._destination,)).fetchone()[0])

        return await self._db.read(count)

    async def delete_dead_letter(self, position: int) -> None:
        """Delete a dead letter that was delivered."""

        def delete(connection: Connection) -> None:
            connection.execute(
                "DELETE FROM forward_set_aside WHERE destination = ? AND position = ?", (self._destination, position)
            )

        await self._db.run(delete)
