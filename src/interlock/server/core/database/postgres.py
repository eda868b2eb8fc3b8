"""The server's database in Postgres, which servers on many hosts share.

One connection writes, and a few read. A change waits for those of other servers by an advisory lock that ends with its
transaction, so the rows that it reads are the newest ones. A connection that was lost while nothing happened is opened
again before the change begins; one that is lost during the commit leaves the outcome unknown, and the error says so.
"""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from functools import lru_cache
from threading import Lock
from typing import Any, TypeVar, cast

import psycopg

from ....domain.errors import ConfigurationError, LogError
from ....storage.postgres.connection import (
    Connection as PostgresConnection,
)
from ....storage.postgres.connection import ConnectionPool, Connector, execute, first_line, is_lost
from ....storage.postgres.migrate import check_schema
from ..errors import StorageError
from .interface import CHANGED, UNCERTAIN, UNCHANGED, Connection

T = TypeVar("T")

APPLICATION_NAME, LEADER_NAME = "interlock-server", "interlock-leader"
#: How long a query tries to connect again. Requests wait for it.
_PATIENCE_SECONDS = 1.0
_BEGIN = "BEGIN; SELECT pg_advisory_xact_lock(hashtextextended('interlock server ' || current_schema(), 0))"
_BEGIN_READING = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
#: Not a mistake in a statement but the state of the database, which may pass. `InternalError`: it is read-only.
_TRANSIENT_ERRORS = (psycopg.OperationalError, psycopg.InterfaceError, psycopg.InternalError)
_HAS_RIGHTS = """SELECT has_table_privilege('accounts', 'UPDATE') AND has_table_privilege('journal', 'INSERT')
    AND has_table_privilege('sealing_keys', 'INSERT'),
    current_user"""
#: The database ends the session of a leader that is silent for so long. Only Postgres 13 does not know this setting.
_SET_TIMEOUT = """SELECT set_config('idle_session_timeout', '10s', false)
    FROM pg_settings WHERE name = 'idle_session_timeout'"""
_LEAD = "SELECT pg_try_advisory_lock(hashtextextended('interlock leader ' || current_schema(), 0))"


class PostgresDatabase:
    """The database of servers in a schema of Postgres, which `interlock database migrate` creates."""

    is_shared = True
    own_paths = ()

    def __init__(self, url: str, schema: str = "interlock", readers: int = 2) -> None:
        """Connect. Raise `LogError` or `ConfigurationError` for a database that cannot be used, and change nothing."""
        self.connector = Connector(url, schema)
        #: Why the last change failed; empty when it did not.
        self.problem = ""
        self._write_lock = Lock()
        self._is_closed = False
        self._writer: PostgresConnection | None = self.connector.open(APPLICATION_NAME)
        try:
            check_schema(self._writer, self.connector, is_server=True)
            _check_rights(self._writer, self.connector)
        except psycopg.errors.InsufficientPrivilege as error:
            role = self._writer.info.user
            self._writer.close()
            raise _lacks_rights(role, self.connector) from error
        except psycopg.Error as error:
            self._writer.close()
            raise LogError(f"cannot use the {self.connector.description}: {first_line(error)}") from error
        except BaseException:
            self._writer.close()
            raise
        self._readers = ConnectionPool(self.connector, APPLICATION_NAME, readers, _PATIENCE_SECONDS)

    async def run(self, change: Callable[[Connection], T]) -> T:
        """Run a change in one transaction, in a thread, after those of other servers."""
        return await asyncio.to_thread(self.run_now, change)

    async def read(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a thread, on one state of the database."""
        return await asyncio.to_thread(self.read_now, query)

    async def look_up(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        """Return the rows of a statement, which is run in a thread."""
        return await self.read(lambda connection: connection.execute(sql, parameters).fetchall())

    async def check(self) -> str:
        """Return why the database cannot be used; empty when it can. After a failed change, try to write."""
        try:
            await (self.run(_do_nothing) if self.problem else self.read(_do_nothing))
        except (StorageError, psycopg.Error) as error:
            return str(error)
        return ""

    def run_now(self, change: Callable[[Connection], T]) -> T:
        """Run a change in a transaction. Raise a storage error that says whether it was committed."""
        with self._write_lock:
            outcome = UNCHANGED
            try:
                connection = self._begin()
                try:
                    result = change(_TranslatedConnection(connection))
                    outcome = UNCERTAIN
                    ended = connection.execute("COMMIT").statusmessage
                except BaseException:
                    if not is_lost(connection):  # an error that it answered a commit with is no commit
                        outcome = UNCHANGED
                        with suppress(psycopg.Error):
                            connection.execute("ROLLBACK")
                    raise
            except _TRANSIENT_ERRORS as error:
                raise self._to_storage_error(error, outcome) from error
            if ended != "COMMIT":
                raise psycopg.InternalError("a statement of the change failed, and nothing was committed")
            self.problem = ""
            return result

    def read_now(self, query: Callable[[Connection], T]) -> T:
        """Run a query in a transaction that cannot write."""

        def read(connection: PostgresConnection) -> T:
            connection.execute(_BEGIN_READING)
            try:
                return query(_TranslatedConnection(connection))
            finally:
                if not is_lost(connection):
                    connection.execute("ROLLBACK")

        try:
            return self._readers.run(read)
        except LogError as error:
            cause = error.__cause__
            if not isinstance(cause, _TRANSIENT_ERRORS):
                raise cause or error from None
            raise self._to_storage_error(cause, "Try again.") from cause

    def create_leader_lock(self) -> "PostgresLock":
        """Return the lock that the leader of all servers has."""
        return PostgresLock(self.connector)

    def close(self) -> None:
        """Close all connections."""
        with self._write_lock:
            self._is_closed = True
            if self._writer is not None:
                self._writer.close()
                self._writer = None
        self._readers.close()

    def _begin(self) -> PostgresConnection:
        """Begin a transaction. A connection that was lost meanwhile is replaced: it did nothing yet."""
        connection = self._writer
        if connection is not None and not is_lost(connection):
            try:
                connection.execute(_BEGIN)
            except psycopg.Error:
                if not is_lost(connection):
                    with suppress(psycopg.Error):
                        connection.execute("ROLLBACK")
                    raise
            else:
                return connection
        self._writer = connection = self._connect()
        connection.execute(_BEGIN)
        return connection

    def _connect(self) -> PostgresConnection:
        if self._is_closed:
            raise psycopg.InterfaceError("the server's database is closed")
        connection = self.connector.connect(APPLICATION_NAME)
        try:
            check_schema(connection, self.connector)
        except LogError as error:  # it was migrated meanwhile
            connection.close()
            raise psycopg.OperationalError(str(error)) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def _to_storage_error(self, error: psycopg.Error, outcome: str) -> StorageError:
        if not isinstance(error, psycopg.errors.LockNotAvailable):
            self.problem = first_line(error)
        name = "storage_full" if isinstance(error, psycopg.errors.DiskFull) else "database_unavailable"
        message = f"The server's database cannot be used right now: {first_line(error)}. {outcome}"
        changed = CHANGED.get(outcome)
        return StorageError(name, message, {} if changed is None else {"changed": changed})


class PostgresLock:
    """An advisory lock, for as long as a connection lasts."""

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._connection: PostgresConnection | None = None
        self._is_held = False

    def hold(self) -> bool:
        """Acquire the lock, or make sure that the connection that has it is alive. When it is not, another server may
        have the lock by now, so this one tries the next time.
        """
        was_held, was_connected = self._is_held, self._connection is not None
        try:
            self._ask()
        except psycopg.Error:
            self.release()
            if was_connected and not was_held:
                with suppress(psycopg.Error):
                    self._ask()
        return self._is_held

    def _ask(self) -> None:
        if self._connection is None:
            self._connection = self._connector.connect(LEADER_NAME)
            self._connection.execute(_SET_TIMEOUT)
        row = self._connection.execute("SELECT true" if self._is_held else _LEAD).fetchone()
        self._is_held = bool(row and row[0])

    def release(self) -> None:
        """Close the connection, and with it the lock."""
        self._is_held = False
        if self._connection is not None:
            with suppress(psycopg.Error):
                self._connection.close()
            self._connection = None


class _TranslatedConnection:
    """A connection that understands the statements of `interface`."""

    def __init__(self, connection: PostgresConnection) -> None:
        self._connection = connection

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> "_Rows":
        return _Rows(execute(self._connection, _translate(sql), tuple(map(_to_value, parameters))))

    def executemany(self, sql: str, rows: Iterable[Sequence[Any]], /) -> None:
        with self._connection.cursor() as cursor:
            cursor.executemany(cast(Any, _translate(sql)), [tuple(map(_to_value, row)) for row in rows])


class _Rows:
    """A cursor whose types say no more than the interface."""

    def __init__(self, cursor: "psycopg.Cursor[tuple[Any, ...]]") -> None:
        self._cursor = cursor

    @property
    def rowcount(self) -> int:
        return self._cursor.rowcount

    def fetchone(self) -> Any:
        return self._cursor.fetchone()

    def fetchall(self) -> list[Any]:
        return self._cursor.fetchall()

    def __iter__(self) -> Iterator[Any]:
        return iter(self._cursor)


@lru_cache(maxsize=500)
def _translate(sql: str) -> str:
    """Return a statement with the placeholders of psycopg. No statement has a question mark in a text."""
    return sql.replace("%", "%%").replace("?", "%s")


def _to_value(value: Any) -> Any:
    """Return a value for Postgres, whose texts cannot have the character NUL."""
    return value.replace("\0", "\N{REPLACEMENT CHARACTER}") if isinstance(value, str) else value


def _do_nothing(connection: Connection) -> None:
    connection.execute("SELECT 1").fetchone()


def _check_rights(connection: PostgresConnection, connector: Connector) -> None:
    row = connection.execute(_HAS_RIGHTS).fetchone()
    if row is not None and not row[0]:
        raise _lacks_rights(row[1], connector)


def _lacks_rights(role: str, connector: Connector) -> ConfigurationError:
    return ConfigurationError(
        f"The role {role} may not use the tables of a server in the {connector.description}. Run "
        f"`interlock database grant {role} --serve` as the owner of the schema. Nothing was changed."
    )
