"""Our adapter keeps the contract of the peers' harness, of which this is as much as the adapter needs."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.peers import run_peers

BENCH = Path(__file__).parents[2] / "bench"

_HARNESS = """
import asyncio, json, time

SLEEP_S = 0.001


class Mark:
    models = tools = 0
    entered = left = (0, 0)

    def enter(self):
        self.models += 1
        self.entered = now()

    def exit(self):
        self.left = now()

    def tool(self):
        self.tools += 1


MARK = Mark()


def now():
    return time.perf_counter_ns(), time.process_time_ns()


def last_enter():
    return MARK.entered


def last_exit():
    return MARK.left


def span(name, begin, end):
    return {f"{name}_us": (end[0] - begin[0]) / 1e3, f"{name}_cpu_us": (end[1] - begin[1]) / 1e3}


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
        measured = {"seen": seen, "models": MARK.models, "tools": MARK.tools, "durable": sorted(durable)}
        MARK.tools = 0
        try:
            paused = await adapter.pause_resume(2)
            measured["paused"] = [name for name in ("pause_us", "resume_us") if paused[name] > 0]
        except NotImplementedError:
            measured["paused"] = []
        await adapter.teardown()
        return measured

    print(json.dumps(asyncio.run(measured())))
"""


@pytest.mark.parametrize(
    ("adapter", "paused"), [("peers_adapter.py", ["pause_us", "resume_us"]), ("peers_runtime.py", [])]
)
def test_the_adapters_do_what_the_harness_asks(tmp_path: Path, adapter: str, paused: list[str]) -> None:
    (tmp_path / "common.py").write_text(_HARNESS)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "BENCH_TMP": str(tmp_path)}

    done = subprocess.run(
        [sys.executable, BENCH / adapter], env=environment, stdout=subprocess.PIPE, check=True, timeout=50
    )

    measures = ["bytes_per_call", "cpu_us_per_call", "us_per_call"]
    assert json.loads(done.stdout) == {
        "seen": [6] * 5,
        "models": 3 * 6,
        "tools": 6 * 6,
        "durable": sorted([*measures, *(f"{name}_full" for name in measures)]),
        "paused": paused,
    }


def test_a_missing_benchmark_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_peers(tmp_path, "floor-gov", "n", 1) == 1
    assert capsys.readouterr().err == f"error: there is no peers.py in {tmp_path}; name its folder with --from\n"
