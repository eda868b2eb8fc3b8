"""`python -m bench.replicas`: approve at one server, and follow the run at another one, on one log in Postgres.

Two servers with `--no-worker` and one worker are processes of their own. Measured from sending the approval to one
server until its event arrives in a stream of the other one.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter

from tests.postgres.server import PostgresServer
from tests.server.story.agents import task
from tests.server.story.cluster import cluster
from tests.server.story.process import Served

RUNS = 100
TARGET_MS = 50.0
_REFUND = task("Give it back.", ("refund", {"order": "7", "amount": 5.5}))


def measure(here: Served, there: Served, runs: int) -> tuple[list[float], list[float]]:
    """Return the milliseconds until an approval is answered, and until it is shown at the other server."""
    answered: list[float] = []
    shown: list[float] = []
    with here.as_person("olga") as approver, there.as_person("olga") as follower:
        for _ in range(runs):
            run_id = here.begin(_REFUND)
            with follower.stream("GET", f"/v1/runs/{run_id}/events/stream?after_seq=-1") as events:
                lines = events.iter_lines()
                _wait_for(lines, "APPROVAL_REQUIRED")
                while follower.get(f"/v1/runs/{run_id}").json()["status"] != "PAUSED_APPROVAL":
                    pass
                (asked,) = approver.get(f"/v1/runs/{run_id}/approvals").json()["approvals"]
                began = perf_counter()
                answer = approver.post(
                    f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": asked["payload_hash"]}
                )
                answered.append((perf_counter() - began) * 1e3)
                answer.raise_for_status()
                _wait_for(lines, "APPROVAL_GRANTED")
                shown.append((perf_counter() - began) * 1e3)
                _wait_for(lines, "COMPLETED")
    return answered, shown


def _wait_for(lines: Iterator[str], kind: str) -> None:
    next(line for line in lines if kind in line)


def main() -> None:
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    server = PostgresServer()
    try:
        with TemporaryDirectory() as folder, cluster(server.start(), Path(folder)) as (here, there):
            answered, shown = measure(here, there, runs)
    finally:
        server.close()
    print(f"{runs} approvals at one server, load {os.getloadavg()[0]:.1f}")
    print(f"answered: p50 {median(answered):.0f} ms, p95 {sorted(answered)[int(runs * 0.95)]:.0f} ms")
    print(f"shown at the other: p50 {median(shown):.0f} ms (to reach: {TARGET_MS:.0f}), max {max(shown):.0f} ms")


if __name__ == "__main__":
    main()
