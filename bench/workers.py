"""`python -m bench.workers [RUNS]`: runs of five governed steps on two workers, on one log in Postgres.

The runs are submitted first; then two `interlock worker` processes execute them. Measured from the first event of a
worker to the end of the last run: runs per second, and the CPU time of the workers and of Postgres per run, which also
counts on a busy machine.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from interlock import Agent, RulePolicy, Runner, tool
from interlock.testing import ScriptedModel, ScriptedTurn, tool_call
from tests.postgres.server import PostgresServer

RUNS, STEPS = 200, 5
MIN_RATE, MAX_CPU_MS = 148.0, 13.5
_ROOT = Path(__file__).parents[1]
_COMMAND = [
    sys.executable,
    "-c",
    "from interlock.cli.main import main; main()",
    "worker",
]
_TICKS = os.sysconf("SC_CLK_TCK")
_COUNT = "SELECT count(*) FILTER (WHERE state = 2), count(*) FILTER (WHERE next_seq > 2), sum(next_seq) FROM runs"


def agent() -> Agent:
    """Return an agent with five steps that write."""

    @tool(risk="write", concurrency="safe")
    def step(number: int) -> str:
        """A step."""
        return f"done {number}"

    turns = [*(ScriptedTurn(calls=(tool_call("step", number=n),)) for n in range(STEPS)), ScriptedTurn(text="Done.")]
    return Agent(
        name="counter",
        provider=ScriptedModel(turns, by_position=True),
        tools=[step],
        policy=RulePolicy(default="allow"),
    )


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and of its children, also of those that ended."""
    total = 0.0
    with suppress(FileNotFoundError, ProcessLookupError):  # it ended meanwhile, and counts as a child that did
        own = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        total = sum(map(int, own[11:15])) / _TICKS
        for task in Path(f"/proc/{pid}/task").iterdir():
            total += sum(cpu_seconds(int(child)) for child in (task / "children").read_text().split())
    return total


@contextmanager
def start_worker(server: PostgresServer, schema: str, agent: str) -> Generator["subprocess.Popen[bytes]"]:
    """Run a worker until the block ends."""
    environ = os.environ | {"INTERLOCK_DATABASE_URL": server.worker_url, "PYTHONPATH": str(_ROOT)}
    options: dict[str, Any] = {"env": environ, "cwd": _ROOT, "stdout": subprocess.DEVNULL}
    with subprocess.Popen[bytes]([*_COMMAND, "--agent", agent, "--database-schema", schema], **options) as worker:
        try:
            yield worker
        finally:
            worker.terminate()


async def _submit(server: PostgresServer, schema: str, runs: int) -> None:
    async with server.open_log(schema) as log, Runner(agent(), log=log) as runner:
        for _ in range(runs):
            await runner.submit("Count.")


def measure(server: PostgresServer, runs: int) -> dict[str, float]:
    """Return runs per second, CPU milliseconds per run, and events per run."""
    schema = server.new_schema()
    asyncio.run(_submit(server, schema, runs))
    database_before = cpu_seconds(server.pid)
    with ExitStack() as stack:
        workers = [stack.enter_context(start_worker(server, schema, "bench.workers:agent")) for _ in range(2)]
        began, start_cpu = 0.0, 0.0
        while True:
            ((over, begun, events),) = server.query(_COUNT, schema)
            if begun and not began:
                began, start_cpu = perf_counter(), sum(cpu_seconds(worker.pid) for worker in workers)
            if over == runs:
                break
            sleep(0.1)
        seconds = perf_counter() - began
        spent = sum(cpu_seconds(worker.pid) for worker in workers) - start_cpu
    return {
        "runs per second": runs / seconds,
        "CPU ms per run, workers": spent / runs * 1e3,
        "CPU ms per run, Postgres": (cpu_seconds(server.pid) - database_before) / runs * 1e3,
        "events per run": float(events) / runs,
    }


def main() -> int:
    """Print the figures. Return 1 when neither the speed nor the CPU time is reached."""
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else RUNS
    server = PostgresServer()
    try:
        found = measure(server.start(), runs)
    finally:
        server.close()
    cpu = found["CPU ms per run, workers"] + found["CPU ms per run, Postgres"]
    is_met = found["runs per second"] >= MIN_RATE or cpu <= MAX_CPU_MS
    for name, figure in found.items():
        print(f"{name:<28} {figure:8.1f}")
    print(f"to reach: {MIN_RATE:g} runs/s, or {MAX_CPU_MS:g} ms CPU per run: {'met' if is_met else 'MISSED'}")
    print(f"{runs} runs, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
