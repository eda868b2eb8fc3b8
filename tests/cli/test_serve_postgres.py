"""`interlock serve` on several hosts: processes that share a database in Postgres."""

import json
from collections.abc import Callable
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, LiteralString

import pytest

from tests.each import each
from tests.patience import HANG_SECONDS
from tests.postgres.server import PostgresServer
from tests.server.core.serving import KEYS

from .conftest import Run
from .test_serve import Served, served

URL = "INTERLOCK_DATABASE_URL"


def post(server: Served, path: str, key: str, body: dict[str, Any]) -> tuple[int, Any]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=HANG_SECONDS)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    try:
        return answer.status, json.loads(answer.read() or b"null")
    finally:
        connection.close()


def test_two_servers_share_accounts_keys_and_runs(
    cli: Run, home: Path, tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = postgres.new_schema()
    variables = {URL: postgres.server_url, **KEYS}
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = tmp_path / "serve.toml"
    config.write_text(f"[database]\nschema = '{schema}'\n")
    made = cli("keys", "add", "ci", "--role", "operator", "--json", "--log", f"postgres:{schema}")
    key = json.loads(made.stdout)["key"]

    with (
        served(tmp_path, "--demo", "--config", config, variables=variables) as first,
        served(tmp_path, "--demo", "--log", f"postgres:{schema}", variables=variables) as second,
    ):
        assert (len(first.password) >= 20, second.password) == (True, "")
        agent = json.loads(first.get("/v1/agents", key)[1])["agents"][0]["name"]
        code, run = post(first, "/v1/runs", key, {"agent": agent, "task": "Say hello."})
        assert code == 201, run
        assert second.get(f"/v1/runs/{run['run_id']}", key)[0] == 200
        assert second.get("/health/ready")[0] == 200
        for server in (first, second):
            assert server.stop() == (0, "")


SIGNING, SEALING = "INTERLOCK_SIGNING_KEY", "INTERLOCK_SEALING_KEY"
OTHER_KEY = "b3RoZXJvdGhlcm90aGVyb3RoZXJvdGhlcm90aGVyb3Q="
REFUSALS = [
    (URL, "", "INTERLOCK_DATABASE_URL has no URL"),
    (URL, "postgresql://ann:hunter2@127.0.0.1:1/runs", "Check the URL, and that Postgres runs there"),
    (URL, "not a url: hunter2", "The URL of the database cannot be read. Expected: postgresql://user@host/database"),
    (SIGNING, "", "INTERLOCK_SIGNING_KEY is not set. `openssl rand -base64 32` makes one"),
    (SIGNING, "hunter2", "INTERLOCK_SIGNING_KEY has another"),
    (SEALING, "", "INTERLOCK_SEALING_KEY is not set. `openssl rand -base64 32` makes one"),
    (SEALING, "hunter2", "INTERLOCK_SEALING_KEY has to be 32 random bytes in base64"),
]
#: What the owner of a schema did to it, and what a server says then.
CHANGES: list[tuple[LiteralString, str]] = [
    ("REVOKE INSERT ON journal FROM server", "Run `interlock database grant server --serve`"),
    ("REVOKE SELECT ON schema_steps FROM server", "Run `interlock database grant server --serve`"),
    ("DELETE FROM schema_steps WHERE step > 5", "Run `interlock database migrate`"),
    ("INSERT INTO schema_steps (step, name) VALUES (999, 'later')", "was written by a newer version of Interlock"),
]


@pytest.fixture
def start(cli: Run, home: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Fail to start a server, and return its message: one line, without the password that it was given."""

    def start(schema: str, **variables: str) -> str:
        for name, value in {URL: postgres.server_url, **KEYS, **variables}.items():
            monkeypatch.setenv(name, value)
        said = cli("serve", "--demo", "--port", "0", "--log", f"postgres:{schema}")
        assert (said.exit_code, said.stderr.count("\n"), "hunter2" in said.stderr) == (2, 1, False)
        assert "Nothing was started." in said.stderr
        return said.stderr

    return start


def test_a_start_that_lacks_something_says_what(start: Callable[..., str], postgres: PostgresServer) -> None:
    schema = postgres.new_schema()
    for name, value, message in REFUSALS:
        assert message in start(schema, **{name: value})
    assert postgres.query("SELECT key_id FROM sealing_keys UNION SELECT key_id FROM signing_keys", schema) == []

    assert "Run `interlock database grant worker --serve`" in start(schema, **{URL: postgres.worker_url})
    assert "has no log. Run `interlock database migrate`" in start("empty_schema_name")
    careless = f"{postgres.server_url}&options=-csynchronous_commit%3Doff"
    assert "synchronous_commit is 'off' and must be on or remote_apply" in start(schema, **{URL: careless})


def test_retention_needs_the_role_of_the_owner(
    cli: Run, home: Path, tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "serve.toml"
    config.write_text(f"[database]\nschema = '{postgres.new_schema()}'\n[retention]\nerase_after = '30d'\n")
    for name, value in {URL: postgres.server_url, **KEYS}.items():
        monkeypatch.setenv(name, value)

    for owner_url, message in {
        "": "Put its URL into the environment variable INTERLOCK_OWNER_URL, which is not set.",
        postgres.server_url: "the role in INTERLOCK_OWNER_URL cannot. Use the URL of the role that owns the tables.",
        "postgresql://ann:hunter2@127.0.0.1:1/runs": "Check the URL, and that Postgres runs there",
    }.items():
        monkeypatch.setenv("INTERLOCK_OWNER_URL", owner_url)
        said = cli("serve", "--demo", "--port", "0", "--config", str(config))
        assert (said.exit_code, said.stderr.count("\n"), "hunter2" in said.stderr) == (2, 1, False)
        assert message in said.stderr

    with served(
        tmp_path,
        "--demo",
        "--config",
        str(config),
        variables={URL: postgres.server_url, **KEYS, "INTERLOCK_OWNER_URL": postgres.url},
    ) as server:
        assert server.get("/health/ready")[0] == 200
        assert server.stop() == (0, "")


@each("statement, message", CHANGES)
def test_a_database_that_does_not_fit_says_what_to_do(
    start: Callable[..., str], postgres: PostgresServer, statement: LiteralString, message: str
) -> None:
    schema = postgres.new_schema()
    postgres.execute(statement, schema)
    assert message in start(schema)


def test_servers_with_different_keys_are_noticed(
    start: Callable[..., str], home: Path, tmp_path: Path, postgres: PostgresServer
) -> None:
    """A new signing key replaces the old one. A new sealing key needs the old one beside it."""
    schema = postgres.new_schema()
    variables = {URL: postgres.server_url, **KEYS}
    new = variables | {SIGNING: OTHER_KEY, SEALING: f"{OTHER_KEY}, {KEYS[SEALING]}"}
    for each_server in (variables, new):
        with served(tmp_path, "--demo", "--log", f"postgres:{schema}", variables=each_server) as server:
            assert server.stop() == (0, "")

    assert "which other servers of this database seal with. Set the same value" in start(schema)
    rest = {SEALING: OTHER_KEY}
    assert "which another server has replaced. Set the new one." in start(schema, **rest)
