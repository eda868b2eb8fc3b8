"""Our adapter keeps the contract of the peers' harness, of which this is as much as the adapter needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import run_peers

ADAPTER = Path(__file__).parents[2] / "bench" / "peers_adapter.py"

_HARNESS = """
import asyncio, json, time

SLEEP_S = 0.001


class Mark:
    models = tools = 0

    def enter(self):
        self.models += 1

    def exit(self):
        pass

    def tool(self):
        self.tools += 1


MARK = Mark()


def now():
    return time.perf_counter_ns(), time.process_time_ns()


def args_json(number):
    return json.dumps({"path": "a.py", "count": number, "ratio": 0.5})


def result_text(path, count, ratio):
    return f"{path}:{count}:{ratio}"


def main(adapter_class):
    async def measured():
        adapter = adapter_class()
        await adapter.setup()
        seen = [await adapter.execute(adapter.prepare(2, 3, name)) for name in ("async", "sync", "sleep", "sleep_sync")]
        await adapter.enable_governed()
        seen.append(await adapter.execute(adapter.prepare(2, 3, "async")))
        durable = await adapter.durable(2, 3)
        await adapter.teardown()
        return {"seen": seen, "models": MARK.models, "tools": MARK.tools, "durable": sorted(durable)}

    print(json.dumps(asyncio.run(measured())))
"""


def test_the_adapter_does_what_the_harness_asks(tmp_path: Path) -> None:
    (tmp_path / "common.py").write_text(_HARNESS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "BENCH_TMP": str(tmp_path)}

    done = subprocess.run([sys.executable, ADAPTER], env=environment, stdout=subprocess.PIPE, check=True, timeout=50)

    measures = ["bytes_per_call", "cpu_us_per_call", "us_per_call"]
    assert json.loads(done.stdout) == {
        "seen": [6] * 5,
        "models": 3 * 6,
        "tools": 6 * 6,
        "durable": sorted([*measures, *(f"{name}_full" for name in measures)]),
    }


def test_a_missing_benchmark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_peers(tmp_path, "floor-gov", "n", 1) == 1
    assert capsys.readouterr().err == f"error: there is no peers.py in {tmp_path}; name its folder with --from\n"
