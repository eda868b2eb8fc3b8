"""The schema of a log in Postgres: migrated once, and everything that would not work is refused in a sentence."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import LiteralString

import psycopg
import pytest

from interlock.domain.errors import ConfigurationError, LogError, LogVersionError
from interlock.storage.postgres.log import PostgresLog
from interlock.storage.postgres.migrate import MIGRATIONS, SCHEMA_VERSION, grant, migrate, read_status
from tests.each import each
from tests.postgres.server import PostgresServer

from .runs import append, chained

STEPS = [migration.stem for migration in MIGRATIONS]


@pytest.fixture
def schema(postgres: PostgresServer) -> Iterator[str]:
    """The name of a schema that does not exist."""
    yield "fresh"
    postgres.execute("DROP SCHEMA IF EXISTS fresh CASCADE")


def test_one_of_many_processes_migrates(postgres: PostgresServer, schema: str) -> None:
    assert read_status(postgres.url, schema).version == 0

    with ThreadPoolExecutor(4) as threads:
        applied = list(threads.map(migrate, [postgres.url] * 4, [schema] * 4))

    assert sorted(applied) == [[], [], [], STEPS]
    assert read_status(postgres.url, schema).version == SCHEMA_VERSION == len(STEPS)


async def test_migrating_again_keeps_the_runs(postgres: PostgresServer) -> None:
    schema, run = postgres.new_schema(), chained("run", 2)
    async with postgres.open_log(schema) as log:
        await append(log, "run", run)

    assert migrate(postgres.url, schema) == []

    async with postgres.open_log(schema) as log:
        assert await log.read("run") == run


def test_missing_schema_is_refused(postgres: PostgresServer, schema: str) -> None:
    with pytest.raises(LogError, match=r"has no log\. Run `interlock database migrate`\. Nothing was changed"):
        postgres.open_log(schema)


def test_newer_schema_is_refused(postgres: PostgresServer) -> None:
    schema = postgres.new_schema()
    postgres.execute("INSERT INTO schema_steps (step, name) VALUES (1000, 'later')", schema)

    words = f"its schema is 1000, and this version uses {SCHEMA_VERSION}"
    with pytest.raises(LogVersionError, match=words):
        postgres.open_log(schema)
    with pytest.raises(LogVersionError, match=words):
        migrate(postgres.url, schema)


def test_older_schema_is_refused(postgres: PostgresServer) -> None:
    schema = postgres.new_schema()
    postgres.execute("DELETE FROM schema_steps WHERE step > 1", schema)

    with pytest.raises(LogError, match=f"has schema 1, and this .* uses {SCHEMA_VERSION}. Run `interlock database"):
        postgres.open_log(schema)


@each("setting", ["synchronous_commit=off", "synchronous_commit=local", "synchronous_commit=remote_write"])
def test_weak_commits_are_refused(postgres: PostgresServer, setting: str) -> None:
    schema, name = postgres.new_schema(), setting.partition("=")[0]
    url = f"{postgres.url}&options=-c%20{setting.replace('=', '%3D')}"

    with pytest.raises(LogError, match=f"would not be durable: {name} is .* must be on or remote_apply"):
        PostgresServer.open_log(_At(url), schema)


def test_a_database_of_another_encoding_is_refused(postgres: PostgresServer) -> None:
    postgres.execute("CREATE DATABASE ascii ENCODING 'SQL_ASCII' LOCALE 'C' TEMPLATE template0")

    for use in (migrate, PostgresLog):
        with pytest.raises(LogError, match="has the encoding SQL_ASCII and must have UTF8"):
            use(postgres.url.replace("/postgres?", "/ascii?"))


@each("url, words", [
    ("mysql://bob:hunter2@host/database", "URL of the database cannot be read"),
    ("host='", "URL of the database cannot be read"),
    ("postgresql://postgres@/postgres?host=/nowhere", "cannot open the database postgres on /nowhere"),
    ("postgresql://bob:hunter2@127.0.0.1:1/runs", "cannot open the database runs on 127.0.0.1"),
])  # fmt: skip
def test_wrong_urls_are_refused(url: str, words: str) -> None:
    with pytest.raises((ConfigurationError, LogError), match=words) as refused:
        PostgresServer.open_log(_At(url), "interlock")
    assert "hunter2" not in str(refused.value)


@each("schema", ["", "Interlock", "a-b", 'x"; DROP SCHEMA public; --', "1st", "x" * 49])
def test_strange_schema_names_are_refused(postgres: PostgresServer, schema: str) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the schema of a log"):
        postgres.open_log(schema)


@each("seconds", [0.0, -1.0, 0.5, 601.0])
def test_leases_have_bounds(postgres: PostgresServer, seconds: float) -> None:
    with pytest.raises(ConfigurationError, match="lease_seconds"):
        postgres.open_log("interlock", lease_seconds=seconds)


def test_missing_rights_are_refused(postgres: PostgresServer) -> None:
    schema = postgres.new_schema()
    postgres.execute("CREATE ROLE stranger LOGIN")

    with pytest.raises(LogError, match="role stranger has no right to use it"):
        PostgresServer.open_log(_At(postgres.url.replace("postgres@", "stranger@")), schema)


@each("statement", [
    "UPDATE appends SET bodies = ''",
    "DELETE FROM appends",
    "TRUNCATE appends",
    "UPDATE effects SET at = 0",
    "DELETE FROM effects",
    "UPDATE artifact_parts SET content = ''",
    "DELETE FROM artifacts",
    "DELETE FROM runs",
    "DROP TABLE appends",
    "CREATE TABLE more (id int)",
    "INSERT INTO schema_steps (step, name) VALUES (1000, 'later')",
])  # fmt: skip
def test_role_of_a_worker_only_adds(postgres: PostgresServer, statement: LiteralString) -> None:
    """All other tests of logs in Postgres have these rights, so they are enough."""
    schema = postgres.new_schema()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        _At(postgres.worker_url).execute(statement, schema)


@each("statement", [
    "SELECT * FROM accounts",
    "SELECT * FROM api_keys",
    "SELECT * FROM sessions",
    "SELECT * FROM login_attempts",
    "SELECT * FROM oauth_flows",
    "SELECT * FROM journal",
    "SELECT * FROM signing_keys",
    "INSERT INTO consent_tokens SELECT * FROM consent_tokens",
])  # fmt: skip
def test_role_of_a_worker_sees_no_accounts(postgres: PostgresServer, statement: LiteralString) -> None:
    schema = postgres.empty_schema()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        _At(postgres.worker_url).execute(statement, schema)


@each("statement", [
    "UPDATE appends SET bodies = ''",
    "DELETE FROM appends",
    "UPDATE journal SET body = ''",
    "DELETE FROM journal",
    "UPDATE checkpoints SET document = ''",
    "DELETE FROM checkpoints",
    "UPDATE signing_keys SET public_key = ''",
    "DELETE FROM accounts",
    "DROP TABLE accounts",
])  # fmt: skip
def test_role_of_a_server_changes_no_record(postgres: PostgresServer, statement: LiteralString) -> None:
    schema = postgres.empty_schema()
    with pytest.raises(psycopg.errors.InsufficientPrivilege):
        _At(postgres.server_url).execute(statement, schema)


@each("role", ["nobody", "", 'x"; DROP SCHEMA public; --'])
def test_unknown_roles_get_no_rights(postgres: PostgresServer, role: str) -> None:
    with pytest.raises(LogError, match=r"cannot grant rights .*Nothing was changed"):
        grant(postgres.url, role, postgres.new_schema())


class _At(PostgresServer):
    """Something with another URL."""

    def __init__(self, url: str) -> None:
        self._url = url

    @property
    def url(self) -> str:
        return self._url

    @property
    def worker_url(self) -> str:
        return self._url
