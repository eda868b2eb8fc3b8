"""Connections to the database of a log.

A connection waits for nothing longer than the lease: a host that is gone is noticed, a client that stops in a
transaction loses it, and a statement that waits for a lock gives up.
"""

import re
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from queue import SimpleQueue
from threading import Event
from time import monotonic
from typing import Any, LiteralString, TypeAlias, TypeVar, cast

from ...domain.errors import ConfigurationError, LogError

try:
    import psycopg
    from psycopg.conninfo import conninfo_to_dict
except ImportError as missing:
    raise ConfigurationError("A log in Postgres needs psycopg: pip install 'interlock[postgres]'") from missing

T = TypeVar("T")

Connection: TypeAlias = psycopg.Connection[tuple[Any, ...]]
Parameters: TypeAlias = tuple[Any, ...] | Mapping[str, Any]

#: The name of the connections that append. The feed waits for their transactions, and for no others.
WRITER = "interlock-writer"
_CONNECT_SECONDS = 5
RETRY_SECONDS = 0.1
#: Weaker settings confirm a commit that a crash, or a standby that takes over, may lose.
_DURABLE = ("on", "remote_apply")
_is_schema = re.compile(r"[a-z_][a-z0-9_]{0,47}").fullmatch


class Connector:
    """Opens connections to one schema of a database."""

    def __init__(self, url: str, schema: str, lease_seconds: float = 10.0) -> None:
        if not _is_schema(schema):
            raise ConfigurationError(
                f"{schema[:60]!r} cannot be the schema of a log: up to 48 small letters, digits and underscores."
            )
        try:
            given = cast(dict[str, Any], conninfo_to_dict(url))
        except psycopg.ProgrammingError:  # which may quote a password
            raise ConfigurationError(
                "The URL of the database cannot be read. Expected: postgresql://user@host/database"
            ) from None
        self.schema = schema
        self.lease_seconds = lease_seconds
        lease_ms = int(lease_seconds * 1000)
        options = (
            f"-c search_path={schema} -c lock_timeout={lease_ms // 3}"
            f" -c idle_in_transaction_session_timeout={lease_ms // 2}"
        )
        # A host that is gone is noticed within the lease, also while an answer of it is waited for.
        probes = {"tcp_user_timeout": lease_ms, "keepalives_idle": 1, "keepalives_interval": 1}
        defaults = {"target_session_attrs": "read-write", "connect_timeout": _CONNECT_SECONDS, **probes}
        self._parameters: dict[str, Any] = {**defaults, **given, "options": f"{given.get('options') or ''} {options}"}
        host, name = given.get("host") or "the local socket", given.get("dbname") or given.get("user") or "default"
        #: What messages call it: the URL may have a password.
        self.description = f"database {name} on {host}, schema {schema}"

    def connect(self, application_name: str) -> Connection:
        """Open a connection. Every statement is its own transaction."""
        return psycopg.connect(autocommit=True, **self.parameters_of(application_name))

    def parameters_of(self, application_name: str) -> dict[str, Any]:
        """Return the parameters of a connection."""
        return {**self._parameters, "application_name": application_name}

    def open(self, application_name: str) -> Connection:
        """Open the first connection. Raise `LogError` when that fails, when the database is not one of UTF-8, and when
        its commits would not be durable.
        """
        try:
            connection = self.connect(application_name)
        except psycopg.Error as error:
            raise LogError(
                f"cannot open the {self.description}: {first_line(error)}. Check the URL, and that Postgres runs there"
            ) from error
        try:
            _check_encoding(connection, self.description)
            _check_durability(connection, self.description)
        except BaseException:
            connection.close()
            raise
        return connection


def execute(connection: Connection, sql: str, parameters: Parameters = ()) -> "psycopg.Cursor[tuple[Any, ...]]":
    """Execute a statement of `queries.sql`."""
    return connection.execute(cast(LiteralString, sql), parameters)


def is_lost(connection: Connection) -> bool:
    """Return True after an error that ended the connection: what it was about to do may be done."""
    return connection.closed or connection.broken


def _check_encoding(connection: Connection, description: str) -> None:
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise LogError(
            f"The {description} has the encoding {encoding} and must have UTF8. Create it with: CREATE DATABASE ... "
            "ENCODING 'UTF8' TEMPLATE template0. Nothing was changed."
        )


def _check_durability(connection: Connection, description: str) -> None:
    for setting, accepted in (("synchronous_commit", _DURABLE), ("fsync", ("on",))):
        row = connection.execute("SELECT current_setting(%s)", (setting,)).fetchone()
        found = row[0] if row else ""
        if found not in accepted:
            raise LogError(
                f"The {description} would not be durable: {setting} is {found!r} and must be {' or '.join(accepted)}. "
                "Nothing was changed."
            )


class ConnectionPool:
    """A few connections for queries, opened when they are needed."""

    def __init__(self, connector: Connector, application_name: str, count: int, patience_seconds: float) -> None:
        self._connector = connector
        self._application_name = application_name
        self._patience_seconds = patience_seconds
        self._closed = Event()
        self._idle: SimpleQueue[Connection | None] = SimpleQueue()
        self._count = count
        for _ in range(count):
            self._idle.put(None)

    def query(self, sql: str, parameters: Parameters = ()) -> list[tuple[Any, ...]]:
        """Return the rows of one query."""
        return self.run(lambda connection: execute(connection, sql, parameters).fetchall())

    def run(self, query: Callable[[Connection], T]) -> T:
        """Run a query. When the connection is lost, try again on a new one as long as the patience lasts: what it does
        may be done twice.
        """
        until = monotonic() + self._patience_seconds
        while True:
            try:
                with self._use() as connection:
                    return query(connection)
            except (psycopg.OperationalError, psycopg.InterfaceError) as error:
                if self._closed.is_set() or monotonic() > until:
                    raise self._error(error) from error
            except psycopg.Error as error:
                raise self._error(error) from error
            self._closed.wait(RETRY_SECONDS)

    def close(self) -> None:
        """Close the connections when they are idle."""
        if not self._closed.is_set():
            self._closed.set()
            for _ in range(self._count):
                connection = self._idle.get()
                if connection is not None:
                    connection.close()
            self._idle.put(None)  # a query that comes too late opens one, and closes it

    @contextmanager
    def _use(self) -> Generator[Connection]:
        connection = self._idle.get()
        try:
            if connection is None or is_lost(connection):
                connection = None
                connection = self._connector.connect(self._application_name)
            yield connection
        finally:
            if self._closed.is_set() and connection is not None:
                with suppress(psycopg.Error):
                    connection.close()
            self._idle.put(connection)

    def _error(self, error: psycopg.Error) -> LogError:
        return LogError(f"cannot use the {self._connector.description}: {first_line(error)}")


def first_line(error: BaseException) -> str:
    """Return what an error says, without the statement."""
    return (str(error).splitlines() or [type(error).__name__])[0]
