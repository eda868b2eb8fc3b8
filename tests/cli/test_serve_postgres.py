"""`interlock serve` on several hosts: processes that share a database in Postgres."""

import json
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

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


REFUSALS = [
    (URL, "", "INTERLOCK_DATABASE_URL has no URL"),
    (URL, "postgresql://ann:hunter2@127.0.0.1:1/runs", "cannot open the database runs on 127.0.0.1"),
    (URL, "not a url: hunter2", "The URL of the database cannot be read"),
    ("INTERLOCK_SIGNING_KEY", "", "INTERLOCK_SIGNING_KEY is not set"),
    ("INTERLOCK_SIGNING_KEY", "hunter2", "INTERLOCK_SIGNING_KEY has another"),
    ("INTERLOCK_SEALING_KEY", "", "INTERLOCK_SEALING_KEY is not set"),
]


def test_a_start_that_lacks_something_says_what_in_a_sentence(
    cli: Run, home: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(place: str, **variables: str) -> str:
        for name, value in {URL: postgres.server_url, **KEYS, **variables}.items():
            monkeypatch.setenv(name, value)
        said = cli("serve", "--demo", "--port", "0", "--log", place)
        assert (said.exit_code, said.stderr.count("\n"), "hunter2" in said.stderr) == (2, 1, False)
        return said.stderr

    place = f"postgres:{postgres.new_schema()}"
    for name, value, message in REFUSALS:
        assert message in start(place, **{name: value})

    message = start(place, **{URL: postgres.worker_url})
    assert "Run `interlock database grant worker --serve`" in message
    assert "has no log. Run `interlock database migrate`" in start("postgres:empty_schema_name")
    postgres.execute("INSERT INTO schema_steps (step, name) VALUES (999, 'later')", place.removeprefix("postgres:"))
    assert "was written by a newer version of Interlock" in start(place)
    assert "Nothing was started." in start(place)


def test_a_server_with_a_replaced_signing_key_does_not_start(
    cli: Run, home: Path, tmp_path: Path, postgres: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = f"postgres:{postgres.new_schema()}"
    variables = {URL: postgres.server_url, **KEYS}
    new = variables | {"INTERLOCK_SIGNING_KEY": KEYS["INTERLOCK_SEALING_KEY"]}
    for each in (variables, new):
        with served(tmp_path, "--demo", "--log", place, variables=each) as server:
            assert server.stop() == (0, "")

    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    said = cli("serve", "--demo", "--port", "0", "--log", place)
    assert (said.exit_code, "which another server has replaced. Set the new one." in said.stderr) == (2, True)
