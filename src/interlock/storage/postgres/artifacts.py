"""Artifacts in Postgres, beside the log: every process that has the log has them, too.

An artifact is stored in one transaction, completely or not at all. What is read is checked: a whole read against the
digest, a range by checking the whole artifact once in this process.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from hashlib import sha256
from math import inf
from tempfile import SpooledTemporaryFile
from typing import Any
from weakref import finalize

import psycopg

from ...domain.errors import ArtifactError, LogError
from ..artifacts import (
    RememberedDigests,
    check_range,
    compute_artifact_id,
    format_artifact_id,
    limit_size,
    parse_artifact_id,
)
from .connection import Connection, ConnectionPool, Connector, Parameters, execute
from .migrate import check_schema
from .queries import QUERIES

PART_BYTES = 1 << 20
_DIGEST_CHARS = 64
_is_prefix = re.compile(rf"[0-9a-f]{{4,{_DIGEST_CHARS}}}").fullmatch


class PostgresArtifacts:
    """Store artifacts in the database of a `PostgresLog`.

    Args:
        url: The database, such as `postgresql://user@host/database`.
        schema: The schema of its tables, which `interlock database migrate` creates.
        patience_seconds: How long the database may be away before a call fails.
        connections: How many calls may use the database at once.
    """

    def __init__(
        self, url: str, *, schema: str = "interlock", patience_seconds: float = 20.0, connections: int = 2
    ) -> None:
        connector = Connector(url, schema)
        with connector.open("interlock-artifacts") as connection:
            check_schema(connection, connector)
        self._pool = ConnectionPool(connector, "interlock-artifacts", connections, patience_seconds)
        self._stored = RememberedDigests()
        self._checked = RememberedDigests(inf)
        self._finalizer = finalize(self, self._pool.close)

    def keep(self, content: bytes) -> str:
        """Store content durably. Return its id."""
        artifact_id = compute_artifact_id(content)
        digest = _digest_of(artifact_id)
        if digest not in self._stored:
            starts = range(0, len(content), PART_BYTES)
            self._store(digest, len(content), lambda: (content[at : at + PART_BYTES] for at in starts))
        return artifact_id

    def keep_stream(self, chunks: Iterable[bytes]) -> str:
        """Store content that arrives in chunks. Return its id."""
        computing, size_bytes = sha256(), 0
        with SpooledTemporaryFile[bytes](max_size=PART_BYTES) as file:
            for chunk in limit_size(chunks):
                computing.update(chunk)
                size_bytes += len(chunk)
                file.write(chunk)

            def read_parts() -> Iterator[bytes]:
                file.seek(0)
                while part := file.read(PART_BYTES):
                    yield part

            self._store(computing.digest(), size_bytes, read_parts)
        return format_artifact_id(computing.hexdigest())

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Read an artifact, or a part of it."""
        check_range(start, size_bytes)
        digest = _digest_of(artifact_id)
        total = self.size_bytes(artifact_id)
        end = total if size_bytes is None else min(total, start + size_bytes)
        if start >= end and digest in self._checked:
            return b""
        is_part = (start, end) != (0, total)
        if is_part and digest in self._checked:
            first = start // PART_BYTES
            found = self._read_parts(digest, first, (end - 1) // PART_BYTES)
            return found[start - first * PART_BYTES : end - first * PART_BYTES]
        content = self._read_parts(digest, 0, total // PART_BYTES)
        if sha256(content).digest() != digest:
            raise ArtifactError(f"artifact {artifact_id} is not what was kept")
        self._checked.add(digest)
        return content[start:end]

    def size_bytes(self, artifact_id: str) -> int:
        """Return the size of an artifact."""
        rows = self._query("artifact_size", (_digest_of(artifact_id),))
        if not rows:
            raise ArtifactError(f"there is no artifact {artifact_id}")
        return rows[0][0]

    def path(self, artifact_id: str) -> str:
        """Return an empty path: artifacts in a database have none."""
        if _digest_of(artifact_id) not in self._stored:
            self.size_bytes(artifact_id)
        return ""

    def find(self, prefix: str) -> list[str]:
        """Return the ids whose digest begins so: of 4 hexadecimal digits or more."""
        if not _is_prefix(prefix):
            return []
        first, last = (bytes.fromhex(prefix.ljust(_DIGEST_CHARS, digit)) for digit in "0f")
        return [format_artifact_id(bytes(row[0]).hex()) for row in self._query("find_artifacts", (first, last))]

    def delete(self, artifact_id: str) -> None:
        """Delete an artifact. Needs the role that owns the tables."""
        digest = _digest_of(artifact_id)
        self._run(lambda connection: execute(connection, QUERIES["delete_artifact"], {"digest": digest}))
        self._stored.discard(digest)
        self._checked.discard(digest)

    def close(self) -> None:
        """Close the connections."""
        self._finalizer()

    def _store(self, digest: bytes, size_bytes: int, parts: Callable[[], Iterator[bytes]]) -> None:
        def store(connection: Connection) -> None:
            with connection.transaction():
                if execute(connection, QUERIES["add_artifact"], (digest, size_bytes)).fetchone():
                    for number, part in enumerate(parts()):
                        execute(connection, QUERIES["add_artifact_part"], (digest, number, part))

        self._run(store)
        self._stored.add(digest)

    def _read_parts(self, digest: bytes, first: int, last: int) -> bytes:
        return b"".join([bytes(row[0]) for row in self._query("artifact_parts", (digest, first, last))])

    def _query(self, query: str, parameters: Parameters) -> list[tuple[Any, ...]]:
        return self._run(lambda connection: execute(connection, QUERIES[query], parameters).fetchall())

    def _run(self, work: Callable[[Connection], Any]) -> Any:
        try:
            return self._pool.run(work)
        except LogError as error:
            cause = error.__cause__
            raise ArtifactError(f"artifacts cannot be used: {error}") from (
                cause if isinstance(cause, psycopg.Error) else error
            )


def _digest_of(artifact_id: str) -> bytes:
    return bytes.fromhex(parse_artifact_id(artifact_id))
