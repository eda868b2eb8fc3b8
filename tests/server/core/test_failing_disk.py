"""The disk fails under `interlock serve`, at the n-th write, with an approval waiting.

The server is a process of its own. Its disk answers with EIO or ENOSPC, or another process locks the log, from the n-th
write on until the server was seen not to be ready. Meanwhile a person approves, again and again, as people do. Whatever
the moment: the server is not ready within a second, no effect follows a failed write, and everything recovers when the
disk works again, in the same process or in the next one.
"""

import asyncio
import errno
import signal
import sqlite3
from collections import Counter
from collections.abc import Generator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count
from pathlib import Path
from random import Random
from threading import Event
from time import monotonic
from typing import Any

import httpx2
import pytest

from interlock import SqliteLog, verify
from interlock.domain.event import CallObserved, RunCompleted
from tests.patience import HANG_SECONDS, wait_until
from tests.runs.support import facts
from tests.server.story.agents import task
from tests.server.story.process import serving
from tests.soak.budget import Budget

from .failing_disk import FailingDisk, is_available

pytestmark = pytest.mark.skipif(not is_available, reason="needs seccomp notifications")

FAULTS = {"EIO": errno.EIO, "ENOSPC": errno.ENOSPC, "locked": 0}
#: About as many writing system calls as one run of the story makes to the log.
WRITES_PER_RUN = 80
MOMENTS = (23, 61)
#: Why a server is not ready that fails in these ways.
PROBLEMS = {
    "The event log cannot be written: a write failed (disk I/O error).",
    "The event log cannot be written: a write failed (database or disk is full).",
    "The event log cannot be written: another process holds the write lock.",
    "Events cannot be read from the log.",
    "The server's database cannot be used.",
}


def pause() -> None:
    """Let others work, before something is looked at again that no event announces."""
    Event().wait(0.01)


class Server:
    """The server on a disk that fails, and a person who uses it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        #: What the person was refused with, and why the server was not ready.
        self.refusals: list[str] = []
        self.problems: set[str] = set()
        #: For each fault, the seconds until the server was not ready.
        self.delays: list[float] = []
        #: By order, the runs that were made.
        self.runs: dict[str, str] = {}
        self.is_over = self.is_noticed = False
        self._is_full = False
        self._port, self._client = 0, httpx2.Client(timeout=20, trust_env=False)
        #: Four eyes: one makes runs, the other approves.
        self._keys: dict[str, str] = {}

    @contextmanager
    def running(self) -> Generator[None]:
        """One process of it. The next one has the same files and the same port."""
        self.disk = FailingDisk(self._fails_for, self.look)
        self.disk.start()
        with serving(self.folder, self._port, self.disk.launcher, [self.disk.descriptor]) as self.process:
            self._port = self.process.port
            if not self._keys:
                with self.process.as_person("admin", self.process.password) as admin:
                    for name in ("ada", "bob"):
                        made = admin.post("/v1/keys", json={"name": name, "roles": ["operator"]})
                        self._keys[name] = made.json()["secret"]
            wait_until(lambda: not self.find_problems())
            yield

    def break_at(self, fault: str, moment: int) -> None:
        """Let the disk fail from this write on."""
        self._is_full, self.is_noticed = fault == "ENOSPC", False
        self.disk.break_at(moment, FAULTS[fault])

    def _fails_for(self, name: str) -> bool:
        """A full disk is full for every file; a broken one is broken where the log is."""
        return self._is_full or name.startswith("runs.db")

    @property
    def reports(self) -> tuple[int, int]:
        """How many problems it reported on stderr, and how many as over."""
        begun = (" log cannot be written: ", " does not work, and is tried again: ")
        ended = (" log can be written again.", " works again.")
        return sum(map(self.said.count, begun)), sum(map(self.said.count, ended))

    def look(self) -> None:
        """Remember when the disk failed, and what had been paid."""
        self.broken_at, self.effects = monotonic(), self.process.ledger

    def request(self, method: str, path: str, by: str = "bob", key: str = "", **body: str) -> Any:
        """Ask until the server does as it was asked, as people do."""
        deadline = monotonic() + HANG_SECONDS
        headers = {"Authorization": f"Bearer {self._keys[by]}"} | ({"Idempotency-Key": key} if key else {})
        while monotonic() < deadline and not self.is_over:
            with suppress(httpx2.TransportError):  # it was killed
                url = f"{self.process.base}/v1{path}"
                answer = self._client.request(method, url, json=body or None, headers=headers)
                if answer.status_code < 500:
                    assert answer.status_code in {200, 201, 409}, answer.text
                    return answer.json()
                self.refusals.append(answer.json()["error"]["code"])
            pause()
        raise AssertionError(f"{method} {path} was refused until the end: {self.refusals[-1:]}")

    def refund(self, order: str) -> dict[str, Any]:
        """Make a run, approve what it asks, and return it when it is over."""
        text = task("Give it back.", ("refund", {"order": order, "amount": 1.0}))
        run_id = self.request("POST", "/runs", "ada", order, agent="shop", task=text)["run_id"]
        self.runs[order] = run_id
        while (run := self.request("GET", f"/runs/{run_id}"))["status"] not in {"COMPLETED", "FAILED"}:
            for asked in self.request("GET", f"/runs/{run_id}/approvals")["approvals"]:
                if asked["status"] == "PENDING":
                    approve = f"/approvals/{asked['action_id']}/approve"
                    self.request("POST", approve, payload_hash=asked["payload_hash"])
            pause()
        return run

    def refund_until_noticed(self, order: str) -> None:
        """Refund one order after the other until the server notices the fault, and see the last one to its end."""
        for number in count():
            self.refund(f"{order}-{number}")
            if self.is_noticed:
                return

    def close(self) -> None:
        """End the person, too, when a test fails."""
        self.is_over = True
        self._client.close()

    def find_problems(self) -> set[str]:
        """Return why the server is not ready."""
        answer = self._client.get(f"{self.process.base}/health/ready")
        self.problems |= (found := set() if answer.is_success else set(answer.json()["error"]["details"]["problems"]))
        return found

    @property
    def said(self) -> str:
        """All that it said on stderr."""
        return (self.folder / "stderr").read_text()


@contextmanager
def failing(server: Server, fault: str) -> Generator[None]:
    """Wait for the fault. In the block the server is not ready; afterwards the disk works again."""
    assert server.disk.is_broken.wait(HANG_SECONDS)
    with closing(sqlite3.connect(server.folder / "runs.db", isolation_level=None)) as other:
        if fault == "locked":
            other.execute("BEGIN IMMEDIATE")
            server.look()
        wait_until(lambda: bool(server.find_problems()))
        server.is_noticed = True
        server.delays.append(monotonic() - server.broken_at)
        wait_until(lambda: server.reports[0] > server.reports[1])
        yield
    server.disk.repair()


async def check(server: Server) -> None:
    """Look into the log, and at what was paid, when nothing runs any more."""
    paid = Counter(line.split()[0] for line in server.process.ledger)
    assert set(paid.values()) == {1}, "an effect happened twice"
    async with SqliteLog(server.folder / "runs.db") as log:
        assert sorted(await log.run_ids()) == sorted(server.runs.values())
        for order, run_id in server.runs.items():
            assert verify(await log.read(run_id), run_id).ok
            told = await facts(log, run_id)
            assert isinstance(told[-1], RunCompleted)
            (refund,) = [fact.observation for fact in told if isinstance(fact, CallObserved)]
            assert refund.ok == (paid[order] == 1) or refund.code == "outcome_unknown"


def survive(folder: Path, faults: Sequence[tuple[str, int]]) -> Server:
    """Let the disk fail in each way and moment. At the last the server is killed meanwhile, and the next one starts."""
    server = Server(folder)
    with ThreadPoolExecutor(1) as person, ExitStack() as lives:
        lives.callback(server.close)
        lives.enter_context(server.running())
        for number, (fault, moment) in enumerate(faults):
            server.break_at(fault, moment)
            refunding = person.submit(server.refund_until_noticed, f"order-{number}")
            is_last = number == len(faults) - 1
            with failing(server, fault):
                assert fault == "locked" or server.process.ledger == server.effects, "an effect after a failed write"
                if is_last:
                    server.process.kill()
            if is_last:
                lives.enter_context(server.running())
            refunding.result(HANG_SECONDS)
            wait_until(lambda: not server.find_problems())
            if not is_last:
                wait_until(lambda: server.reports[0] == server.reports[1])
        server.process.process.send_signal(signal.SIGTERM)
        assert server.process.process.wait(HANG_SECONDS) == 0
    asyncio.run(check(server))
    return server


@pytest.mark.requirement("P18")
def test_served_approvals_survive_a_failing_disk(tmp_path: Path) -> None:
    faults = [(fault, moment) for moment in MOMENTS for fault in FAULTS]
    server = survive(tmp_path, faults)

    for fault in FAULTS:
        delays = [delay for (other, _), delay in zip(faults, server.delays, strict=True) if other == fault]
        assert min(delays) < 1.0
        assert max(delays) < 5.0, "far more than it takes, for a busy machine"
    assert server.problems <= PROBLEMS
    assert set(server.refusals) <= {"log_unavailable", "index_unavailable", "storage_full"}
    assert "Traceback" not in server.said


@pytest.mark.soak
def test_served_approvals_survive_a_disk_that_fails_anywhere(tmp_path: Path, budget: Budget) -> None:
    for number in budget.rounds():
        random = Random(number)
        folder = tmp_path / str(number)
        folder.mkdir()
        survive(folder, [(random.choice(list(FAULTS)), random.randrange(WRITES_PER_RUN)) for _ in range(10)])
