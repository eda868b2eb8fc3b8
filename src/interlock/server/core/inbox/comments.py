"""Comments on questions, for people. They are in the server's database and never in the log of a run, so no model gets
them. The audit log has the digest of each, so that it shows who wrote what, without keeping the text.
"""

from collections.abc import Callable
from hashlib import sha256
from time import time_ns

import msgspec

from ..audit.audit_log import AuditEvent, append_event
from ..database.interface import Connection, Database
from ..errors import ConflictError
from ..identity.permissions import Operation

MAX_COMMENT_CHARS = 4_000
#: Of one question.
MAX_COMMENTS = 500
_INSERT = """INSERT INTO question_comments (action_id, run_id, author, text, created_at) VALUES (?, ?, ?, ?, ?)
    RETURNING number"""
_SELECT = "SELECT number, author, text, created_at FROM question_comments WHERE action_id = ? ORDER BY number"
_COUNT = "SELECT count(*) FROM question_comments WHERE action_id = ?"


class Comment(msgspec.Struct, frozen=True, kw_only=True):
    """A comment. The text is whatever a person wrote."""

    number: int
    author: str
    text: str
    created_at: int


class Comments:
    """Stores comments."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def add(self, action_id: str, run_id: str, author: str, text: str) -> Comment:
        """Add a comment to a question."""
        at = self._now()
        text = text.encode(errors="replace").decode().replace("\0", "\ufffd")

        def write(connection: Connection) -> int:
            if connection.execute(_COUNT, (action_id,)).fetchone()[0] >= MAX_COMMENTS:
                raise ConflictError(
                    "too_many_comments", f"{action_id} has {MAX_COMMENTS} comments, which is the limit."
                )
            (number,) = connection.execute(_INSERT, (action_id, run_id, author, text, at)).fetchone()
            detail = {"comment": str(number), "sha256": sha256(text.encode()).hexdigest()}
            event = AuditEvent(by=author, action=Operation.COMMENT, target=action_id, detail=detail)
            append_event(connection, at, event)
            return number

        return Comment(number=await self._database.run(write), author=author, text=text, created_at=at)

    async def list(self, action_id: str) -> tuple[Comment, ...]:
        """Return the comments of a question, oldest first."""
        rows = await self._database.read(lambda connection: connection.execute(_SELECT, (action_id,)).fetchall())
        return tuple(
            Comment(number=number, author=author, text=text, created_at=created_at)
            for number, author, text, created_at in rows
        )
