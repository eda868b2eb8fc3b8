"""The schema of a log in Postgres: numbered SQL files, each applied once and never edited after its release.

`migrate` applies what is missing in one transaction, under an advisory lock, so of several processes one does it. A log
is opened only when all of it is there: an older or a newer schema is refused. Nothing else changes the schema, so the
processes that use a log need no right to.
"""

from importlib import resources
from pathlib import Path
from typing import LiteralString, cast

import msgspec
import psycopg
from psycopg import sql

from ...domain.errors import LogError, LogVersionError
from .connection import Connection, Connector, first_line

MIGRATIONS = sorted(Path(__file__).with_name("migrations").glob("[0-9]*_*.sql"))

SCHEMA_VERSION = len(MIGRATIONS)

#: This step also creates the tables of jobs, as the package that uses them defines them.
_JOBS_STEP = "0003_queues"
_GRANTS, _SERVER_GRANTS = (Path(__file__).with_name(name) for name in ("grants.sql", "server_grants.sql"))

#: Any number that other programs hardly use for an advisory lock.
_LOCK = 7_070_220_001
_CHECK_RIGHT = "SELECT has_schema_privilege(oid, 'USAGE'), current_user FROM pg_namespace WHERE nspname = %s"
_ADD_STEP = "INSERT INTO schema_steps (step, name) VALUES (%s, %s)"


class SchemaStatus(msgspec.Struct, frozen=True):
    """The schema that a database has, and the one that this version uses."""

    database: str
    #: 0: there is none.
    version: int
    needed_version: int


def read_status(url: str, schema: str = "interlock") -> SchemaStatus:
    """Return which schema a database has. Changes nothing."""
    connector = Connector(url, schema)
    with connector.open("interlock-migrate") as connection:
        return SchemaStatus(connector.description, read_version(connection), SCHEMA_VERSION)


def migrate(url: str, schema: str = "interlock") -> list[str]:
    """Create the schema, or bring it up to date. Return the names of the steps that were applied."""
    connector = Connector(url, schema)
    try:
        with connector.open("interlock-migrate") as connection, connection.transaction():
            connection.execute("SET LOCAL lock_timeout = 0")
            connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            version = read_version(connection)
            _check_not_newer(connector.description, version)
            if not version:
                connection.execute(cast(LiteralString, f'CREATE SCHEMA IF NOT EXISTS "{schema}"'))
                connection.execute(
                    "CREATE TABLE schema_steps (step integer PRIMARY KEY, name text NOT NULL,"
                    " applied_at timestamptz NOT NULL DEFAULT clock_timestamp())"
                )
            for step, migration in enumerate(MIGRATIONS[version:], version + 1):
                connection.execute(cast(LiteralString, migration.read_text()))
                if migration.stem == _JOBS_STEP:
                    connection.execute(cast(LiteralString, _read_jobs_schema()))
                connection.execute(_ADD_STEP, (step, migration.stem))
    except psycopg.Error as error:
        raise LogError(
            f"cannot migrate the {connector.description}: {first_line(error)}. Nothing was changed."
        ) from error
    return [migration.stem for migration in MIGRATIONS[version:]]


def grant(url: str, role: str, schema: str = "interlock", *, is_server: bool = False) -> None:
    """Let a role use the log, and nothing else: it can add events, and cannot change or delete them. A server also uses
    accounts, keys, sessions and the other tables of its own.
    """
    connector = Connector(url, schema)
    files = (_GRANTS, _SERVER_GRANTS) if is_server else (_GRANTS,)
    statements = sql.SQL(cast(LiteralString, "".join(file.read_text() for file in files)))
    names = {"schema": sql.Identifier(schema), "role": sql.Identifier(role)}
    try:
        with connector.open("interlock-migrate") as connection, connection.transaction():
            check_schema(connection, connector)
            connection.execute(statements.format(**names))
    except psycopg.Error as error:
        raise LogError(
            f"cannot grant rights in the {connector.description}: {first_line(error)}. Nothing was changed."
        ) from error


def check_schema(connection: Connection, connector: Connector, *, is_server: bool = False) -> None:
    """Raise unless the schema is the one of this version, and may be used."""
    description = connector.description
    row = connection.execute(_CHECK_RIGHT, (connector.schema,)).fetchone()
    if row is not None and not row[0]:
        command = f"interlock database grant {row[1]}{' --serve' if is_server else ''}"
        raise LogError(
            f"The {description} cannot be used: the role {row[1]} has no right to use it. Run `{command}` as the owner "
            "of the schema. Nothing was changed."
        )
    version = read_version(connection)
    _check_not_newer(description, version)
    if version < SCHEMA_VERSION:
        found = (
            f"has schema {version}, and this version of Interlock uses {SCHEMA_VERSION}" if version else "has no log"
        )
        raise LogError(f"The {description} {found}. Run `interlock database migrate`. Nothing was changed.")


def read_version(connection: Connection) -> int:
    """Return the number of steps that were applied; 0 when there is no log."""
    row = connection.execute("SELECT to_regclass('schema_steps')").fetchone()
    if row is None or row[0] is None:
        return 0
    row = connection.execute("SELECT coalesce(max(step), 0) FROM schema_steps").fetchone()
    return row[0] if row else 0


def _read_jobs_schema() -> str:
    return (resources.files("procrastinate") / "sql" / "schema.sql").read_text()


def _check_not_newer(description: str, version: int) -> None:
    if version > SCHEMA_VERSION:
        raise LogVersionError(
            f"The {description} was written by a newer version of Interlock: its schema is {version}, and this version "
            f"uses {SCHEMA_VERSION}. Use a newer Interlock. Nothing was changed."
        )
