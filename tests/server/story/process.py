"""`interlock serve` as a process of its own, with people and a key that its first account made over HTTP."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from tests.patience import HANG_SECONDS
from tests.server.story.agents import LEDGER

PASSWORD = "correct horse battery"
#: By name, what people are trusted with.
PEOPLE: dict[str, list[str]] = {"olga": ["operator"], "oscar": ["operator"], "audrey": ["auditor"], "sam": []}
_ROOT = Path(__file__).parents[3]
_COMMAND = [sys.executable, "-c", "from interlock.cli.main import main; main()", "serve"]
AGENT = "tests.server.story.agents:shop"


class Served:
    """A server that runs."""

    def __init__(self, process: "subprocess.Popen[str]", folder: Path, greeting: str) -> None:
        self.process = process
        self.folder = folder
        self.base = re.findall(r" at (http://\S+)/", greeting)[0]
        #: Of the account `admin`, where this start made it.
        self.password = (re.findall(r"with the password (\S+)", greeting) or [""])[0]
        #: With which an agent's program makes runs.
        self.key = ""

    @property
    def port(self) -> int:
        return int(self.base.rpartition(":")[2])

    @property
    def ledger(self) -> list[str]:
        """What refunds were really made."""
        path = self.folder / "ledger"
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def begin(self, text: str, **wish: str) -> str:
        """A run that an agent's program makes for sam. Its id."""
        body = {"agent": "shop", "task": text, "on_behalf_of": "sam"} | wish
        answer = self._as_agent("POST", "/v1/runs", json=body)
        assert answer.status_code == 201, answer.text
        return answer.json()["run_id"]

    def approve(self, run_id: str) -> None:
        """By olga, as soon as it asks."""
        with self.as_person("olga") as olga:
            with olga.stream("GET", f"/v1/runs/{run_id}/events/stream?after_seq=-1") as events:
                next(line for line in events.iter_lines() if "APPROVAL_REQUIRED" in line)
            (asked,) = olga.get(f"/v1/runs/{run_id}/approvals").json()["approvals"]
            wish = {"payload_hash": asked["payload_hash"], "reason": "Half is enough."}
            answer = olga.post(f"/v1/approvals/{asked['action_id']}/approve", json=wish)
            assert answer.status_code == 200, answer.text
            with olga.stream("GET", f"/v1/runs/{run_id}/events/stream?after_seq=-1") as events:
                next(line for line in events.iter_lines() if "COMPLETED" in line)

    @contextmanager
    def as_person(self, name: str, password: str = PASSWORD) -> Generator[httpx2.Client]:
        """Somebody who signed in over the API."""
        with httpx2.Client(base_url=self.base, timeout=HANG_SECONDS, trust_env=False, verify=False) as client:
            me = client.post("/v1/session", json={"name": name, "password": password})
            assert me.status_code == 201, me.text
            client.headers["X-CSRF-Token"] = me.json()["csrf_token"]
            yield client

    def run(self, run_id: str) -> dict[str, Any]:
        return self._as_agent("GET", f"/v1/runs/{run_id}").json()

    def events(self, run_id: str, view: str = "run") -> list[dict[str, Any]]:
        return self._as_agent("GET", f"/v1/runs/{run_id}/events?view={view}&limit=500").json()["events"]

    def kill(self) -> None:
        """As when the machine loses its power."""
        self.process.kill()
        self.process.wait(HANG_SECONDS)

    def stop(self) -> None:
        """As it should: at once, and without a word."""
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(HANG_SECONDS) == 0
        said = (self.folder / "stderr").read_text(encoding="utf-8")
        assert not said, said

    def settle(self) -> None:
        """The people and the key."""
        with self.as_person("admin", self.password) as admin:
            for name, roles in PEOPLE.items():
                made = admin.post("/v1/accounts", json={"name": name, "password": PASSWORD, "roles": roles})
                assert made.status_code == 201, made.text
            key = admin.post("/v1/keys", json={"name": "shop-bot", "roles": ["agent"], "agents": ["shop"]})
            self.key = key.json()["secret"]

    def _as_agent(self, method: str, path: str, **options: Any) -> httpx2.Response:
        headers = {"Authorization": f"Bearer {self.key}"}
        return httpx2.request(
            method,
            f"{self.base}{path}",
            headers=headers,
            timeout=HANG_SECONDS,
            trust_env=False,
            verify=False,
            **options,
        )


def environ_in(folder: Path) -> dict[str, str]:
    """The environment of a process that lives in a folder."""
    modules = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH", ""))))
    environ = {"HOME": str(folder), "PYTHONPATH": modules, LEDGER: str(folder / "ledger")}
    return environ | {name: value for name, value in os.environ.items() if name.startswith("COV")}


@contextmanager
def serving(
    folder: Path,
    port: int = 0,
    under: Sequence[str] = (),
    descriptors: Sequence[int] = (),
    *,
    options: Sequence[str] = (),
    variables: Mapping[str, str] = {},
) -> Generator[Served]:
    """Ends with the test, however that ends. `under` are words in front of the command, which inherits descriptors."""
    environ = {**environ_in(folder), **variables}
    options = options or ("--log", str(folder / "runs.db"))
    words = [*under, *_COMMAND, "--agent", AGENT, "--port", str(port), *options]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "text": True, "pass_fds": descriptors}
    with (
        (folder / "stderr").open("a") as errors,
        subprocess.Popen(words, env=environ, cwd=folder, stderr=errors, **pipes) as process,
    ):
        try:
            yield Served(process, folder, _greeting(process))
        finally:
            process.kill()


def _greeting(process: "subprocess.Popen[str]") -> str:
    assert process.stdout
    said = ""
    for line in process.stdout:
        said += line
        if line.startswith("Ctrl-C"):
            return said
    raise AssertionError(f"The server did not start: {said}")


@contextmanager
def settled(folder: Path) -> Generator[Served]:
    with serving(folder) as served:
        served.settle()
        yield served
