"""`make demo-cluster`: two servers and two workers on one Postgres, and a worker that is killed. Offline, in a minute.

Every part is a process, as on hosts of its own: Postgres (from a wheel), two `interlock serve --no-worker`, and two
`interlock worker`. A payment is a line in a file, so that it can be counted how often each happened.
"""

import os
import re
import subprocess
import sys
import time
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx2

from interlock import Agent, Rule, RulePolicy, ToolContext, tool
from interlock.testing import ScriptedModel, ScriptedTurn, tool_call
from tests.postgres.server import PostgresServer

ROOT = Path(__file__).resolve().parent.parent
_AGENT = "scripts.demo_cluster:clerk"
_COMMAND = [sys.executable, "-c", "from interlock.cli.main import main; main()"]
_FOLDER = "DEMO_FOLDER"
_RUNS = 6
_SLOW_SECONDS = 4.0
_LEASE_SECONDS = "4"
_LIMIT_SECONDS = 180.0


def clerk() -> Agent:
    """Return the agent of the demo: it checks an invoice, asks to pay it, pays, and files it."""
    folder = Path(os.environ[_FOLDER])

    def note(context: ToolContext, what: str) -> None:
        with (folder / "effects").open("a") as file:
            file.write(f"{context.run_id} {what}\n")

    @tool(risk="write", concurrency="safe")
    def check(context: ToolContext) -> str:
        """Check the invoice."""
        note(context, "checked")
        return "It is correct."

    @tool(risk="write", concurrency="safe")
    def pay(context: ToolContext) -> str:
        """Pay the invoice. It takes some seconds."""
        note(context, "paid")
        time.sleep(_SLOW_SECONDS)
        return "Paid."

    @tool(risk="write", concurrency="safe")
    def archive(context: ToolContext) -> str:
        """File the invoice."""
        note(context, "filed")
        return "Filed."

    turns = [
        *(ScriptedTurn(calls=(tool_call(name),)) for name in ("check", "pay", "archive")),
        ScriptedTurn(text="Done."),
    ]
    return Agent(
        name="clerk",
        provider=ScriptedModel(turns, by_position=True),
        tools=[check, pay, archive],
        policy=RulePolicy([Rule(id="ask", verdict="ask", tools="pay", reason="Money.")], default="allow"),
    )


def main() -> int:
    """Run the demo. Return 1 if an effect happened twice, or a run did not complete."""
    postgres = PostgresServer()
    with ExitStack() as stack:
        stack.callback(postgres.close)
        _say("Starting Postgres, two servers and two workers.")
        folder = Path(stack.enter_context(TemporaryDirectory()))
        postgres.start()
        cluster = _Cluster(stack, postgres, folder)
        here, there = cluster.serve("server-a"), cluster.serve("server-b")
        cluster.sign_in(here, there)
        workers = [cluster.work("worker-a"), cluster.work("worker-b")]
        return _tell(cluster, here, there, workers)


def _tell(
    cluster: "_Cluster", here: httpx2.Client, there: httpx2.Client, workers: "list[subprocess.Popen[str]]"
) -> int:
    tasks = [f"Pay invoice {number}." for number in range(1, _RUNS + 1)]
    runs = [
        here.post("/v1/runs", json={"agent": "clerk", "task": task}).raise_for_status().json()["run_id"]
        for task in tasks
    ]
    _say(f"{_RUNS} runs were started at server-a. Each checks an invoice, and asks before it pays.")
    asked = _until(lambda: _list_pending(there), lambda found: len(found) == _RUNS)
    for question in asked:
        body = {"payload_hash": question["payload_hash"]}
        there.post(f"/v1/approvals/{question['action_id']}/approve", json=body).raise_for_status()
    _say(f"{_RUNS} questions were approved at server-b. Each payment takes {_SLOW_SECONDS:g} seconds.")
    _until(cluster.effects, lambda found: sum(line.endswith(" paid") for line in found) == _RUNS)
    _say(f"All payments are under way. kill -9 {workers[0].pid}: worker-a is gone, in the middle of its payments.")
    workers[0].kill()
    killed_at = time.monotonic()
    _until(lambda: _read_states(there, runs), lambda found: all(state == "COMPLETED" for state in found))
    _say(f"All runs are completed, {time.monotonic() - killed_at:.0f} s later: worker-b took over after the lease.")
    unknown = sum(_count_unknown(there, run_id) for run_id in runs)
    _say(f"{unknown} payments of worker-a have an unknown outcome: they were not repeated, and the model was informed.")
    verified = [there.get(f"/v1/runs/{run_id}/audit/verify").json()["ok"] for run_id in runs]
    repeated = [line for line, count in Counter(cluster.effects()).items() if count > 1]
    _say(f"{len(cluster.effects())} effects, {len(repeated)} of them twice. {sum(verified)} of {_RUNS} runs verified.")
    return 0 if all(verified) and not repeated else 1


class _Cluster:
    """The processes of the demo."""

    def __init__(self, stack: ExitStack, postgres: PostgresServer, folder: Path) -> None:
        self._stack, self._postgres, self._folder = stack, postgres, folder
        self._schema = postgres.new_schema()
        self._keys = {f"INTERLOCK_{name}_KEY": b64encode(os.urandom(32)).decode() for name in ("SIGNING", "SEALING")}
        self._password = ""

    def serve(self, name: str) -> httpx2.Client:
        options = ["serve", "--agent", _AGENT, "--port", "0", "--log", f"postgres:{self._schema}", "--no-worker"]
        greeting = self._start(name, options, self._postgres.server_url, "Ctrl-C")[1]
        self._password = "".join(re.findall(r"with the password (\S+)", greeting)) or self._password
        base = re.findall(r" at (http://\S+)/", greeting)[0]
        return self._stack.enter_context(httpx2.Client(base_url=base, timeout=60, trust_env=False))

    def work(self, name: str) -> "subprocess.Popen[str]":
        options = ["worker", "--agent", _AGENT, "--database-schema", self._schema, "--lease", _LEASE_SECONDS]
        return self._start(name, [*options, "--name", name], self._postgres.worker_url, "Worker ")[0]

    def sign_in(self, *clients: httpx2.Client) -> None:
        for client in clients:
            session = client.post("/v1/session", json={"name": "admin", "password": self._password}).raise_for_status()
            client.headers["X-CSRF-Token"] = session.json()["csrf_token"]

    def effects(self) -> list[str]:
        path = self._folder / "effects"
        return path.read_text().splitlines() if path.exists() else []

    def _start(self, name: str, options: list[str], url: str, last: str) -> "tuple[subprocess.Popen[str], str]":
        """Start a process with a home of its own, all in one folder: an approval is bound to the folder of its call.
        Return it and what it said up to a line.
        """
        home = self._folder / name
        home.mkdir()
        environ = {"HOME": str(home), "PATH": os.defpath, "PYTHONPATH": str(ROOT), _FOLDER: str(self._folder)}
        environ |= {"INTERLOCK_DATABASE_URL": url, **self._keys}
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "env": environ, "cwd": self._folder}
        errors = self._stack.enter_context((home / "stderr").open("w"))
        process = self._stack.enter_context(
            subprocess.Popen([*_COMMAND, *options], stderr=errors, **pipes)  # noqa: S603 - our own program
        )
        self._stack.callback(process.kill)
        said = ""
        for line in process.stdout or ():
            said += line
            if line.startswith(last):
                return process, said
        raise SystemExit(f"{name} did not start: {(home / 'stderr').read_text()}")


def _list_pending(client: httpx2.Client) -> list[dict[str, Any]]:
    return client.get("/v1/approvals").raise_for_status().json()["approvals"]


def _read_states(client: httpx2.Client, runs: list[str]) -> list[str]:
    return [client.get(f"/v1/runs/{run_id}").raise_for_status().json()["status"] for run_id in runs]


def _count_unknown(client: httpx2.Client, run_id: str) -> int:
    return client.get(f"/v1/runs/{run_id}/events?limit=500").text.count('"outcome_unknown"') and 1


def _until(look: Callable[[], list[Any]], is_done: Callable[[list[Any]], bool]) -> list[Any]:
    """Look until it is so. Raise `SystemExit` when that takes too long."""
    until = time.monotonic() + _LIMIT_SECONDS
    while not is_done(found := look()):
        if time.monotonic() > until:
            raise SystemExit(f"Not within {_LIMIT_SECONDS:g} s: {found}")
        time.sleep(0.2)
    return found


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
