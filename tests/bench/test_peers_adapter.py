"""Our adapters, and the floor where its packages are installed, do all of the work that the harness measures."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PEERS = Path(__file__).parents[2] / "bench" / "peers"
#: The work of every section, once and small.
_SMALL = """
import asyncio, importlib, json, sys
import harness
harness.PAUSES, harness.SLEEP_SECONDS = (2,), 0.001
sys.path.insert(0, sys.argv[1])
module = importlib.import_module(sys.argv[2])

async def work():
    found = {}
    for section in ("overhead", "counts", "sleeping", "pauses", "durable"):
        adapter = module.Adapter()
        await adapter.setup()
        try:
            found[section] = sorted(await harness.SECTIONS[section](adapter, 1))
        except NotImplementedError as error:
            found[section] = str(error)
        await adapter.teardown()
    return found

print(json.dumps(asyncio.run(work())))
"""


@pytest.mark.parametrize(
    ("adapter", "absent"),
    [
        ("interlock_loop", {}),
        ("interlock_runtime", {"pauses": "needs the agent loop"}),
        ("interlock_gate", {"pauses": "a framework pauses", "durable": "not measured"}),
    ],
)
def test_an_adapter_does_the_work_of_every_section(tmp_path: Path, adapter: str, absent: dict[str, str]) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PEERS), "BENCH_TMP": str(tmp_path)}
    command = [sys.executable, "-c", _SMALL, str(PEERS / "adapters"), adapter]

    done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True, timeout=120)

    measured = {
        "overhead": sorted(
            f"{name}_{clock}_us"
            for name in ("sequential", "one_call", "parallel_100", "parallel_1000")
            for clock in ("cpu", "wall")
        ),
        "counts": ["one_call", "parallel_100", "turn_210", "turn_30"],
        "sleeping": ["sleep_ms", "sleep_sync_ms"],
        "pauses": ["bytes_2", "pause_cpu_us_2", "pause_us_2", "resume_cpu_us_2", "resume_us_2"],
        "durable": sorted(
            f"{way}_{name}" for way in ("parallel", "sequential") for name in ("bytes", "cpu_us", "wall_us")
        ),
    }
    assert json.loads(done.stdout) == measured | absent
