"""What is measured, section by section, in a process of its own: `python -m bench.ours SECTION`, `bench.floor SECTION`.

Prints one line of JSON: figures by name. Both do the same work (`work.py`) and are measured by the same code.
"""

import asyncio
import cProfile
import gc
import json
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from statistics import median
from typing import NamedTuple, TypeAlias

from .work import SLEEP_SECONDS, LiveRun, OpenRun, go_through, make_plan

Figures: TypeAlias = dict[str, float]

_KIB_PER_MIB = 1024
#: Enough repetitions for a median, in a few tenths of a second.
_REPEAT = 7


class Cost(NamedTuple):
    """What one call cost."""

    wall_us: float
    cpu_us: float


async def sequential(open_run: OpenRun) -> Figures:
    """One call per turn, 200 turns; and a run of a single call, which is mostly the opening of the run."""
    return {
        "cpu_us": await _cpu_us(open_run, 200, 1),
        "sync_cpu_us": await _cpu_us(open_run, 200, 1, "quick_sync"),
        "one_call_cpu_us": await _cpu_us(open_run, 1, 1),
    }


async def parallel(open_run: OpenRun) -> Figures:
    """One turn with many calls."""
    return {f"cpu_us_{calls}": await _cpu_us(open_run, 1, calls) for calls in (100, 1_000)}


async def calls(open_run: OpenRun) -> Figures:
    """Function calls per tool call, Python's and C's, in the event loop's thread. They repeat exactly."""
    await go_through(open_run(None), make_plan(5, 2))
    counted = {turns: await _count(open_run, turns, 1) for turns in (20, 40, 200, 220)}
    return {
        "turn_30": (counted[40] - counted[20]) / 20,
        "turn_210": (counted[220] - counted[200]) / 20,
        "parallel_100": await _count(open_run, 1, 100) / 100,
    }


async def durable(open_run: OpenRun) -> Figures:
    """With a log on disk, `synchronous=FULL`. The file is opened before the clock starts."""
    with tempfile.TemporaryDirectory() as folder:
        one_by_one = [await _durable(open_run, 100, 1, Path(folder, f"a{number}.db")) for number in range(4)]
        together = [await _durable(open_run, 1, 100, Path(folder, f"b{number}.db")) for number in range(_REPEAT)]
        return {
            "wall_us": median(cost.wall_us for cost in one_by_one[1:]),
            "cpu_us": median(cost.cpu_us for cost in one_by_one[1:]),
            "wall_us_100": median(cost.wall_us for cost in together),
            "cpu_us_100": median(cost.cpu_us for cost in together),
            "bytes": _size_bytes(folder, "a0.db") / 100,
            "bytes_100": _size_bytes(folder, "b0.db") / 100,
        }


async def sleeping(open_run: OpenRun) -> Figures:
    """100 tools that wait 50 ms, in one turn."""
    return {
        "async_ms": await _wall_ms(open_run, "sleeping"),
        "sync_ms": await _wall_ms(open_run, "sleeping_sync"),
        "ideal_ms": SLEEP_SECONDS * 1e3,
    }


async def turns(open_run: OpenRun) -> Figures:
    """One turn of one call, early and late in a run of 505 turns."""
    model = await go_through(open_run(None), make_plan(505, 1))
    cost = model.turn_cpu_us()
    return {f"turn_{turn}": median(cost[turn - 5 : turn + 5]) for turn in (10, 100, 500)} | {
        "total_ms": sum(cost) / 1e3
    }


async def memory(open_run: OpenRun) -> Figures:
    """Resident memory of the process: with everything loaded, after 200 turns, after 1,000 calls in one turn."""
    figures = {"loaded_mib": _resident_mib()}
    await go_through(open_run(None), make_plan(200, 1))
    figures["after_200_turns_mib"] = _resident_mib()
    await go_through(open_run(None), make_plan(1, 1_000))
    return figures | {"after_1000_calls_mib": _resident_mib()}


SECTIONS: dict[str, Callable[[OpenRun], Coroutine[None, None, Figures]]] = {
    "sequential": sequential,
    "parallel": parallel,
    "calls": calls,
    "durable": durable,
    "sleeping": sleeping,
    "turns": turns,
    "memory": memory,
}


def main(open_run: OpenRun) -> None:
    print(json.dumps(asyncio.run(SECTIONS[sys.argv[1]](open_run))))


async def _cpu_us(open_run: OpenRun, turns: int, calls: int, tool_name: str = "quick") -> float:
    await go_through(open_run(None), make_plan(5, 2, tool_name))
    costs = [await _timed(lambda: open_run(None), turns, calls, tool_name) for _ in range(_REPEAT)]
    return median(cost.cpu_us for cost in costs)


async def _wall_ms(open_run: OpenRun, tool_name: str) -> float:
    costs = [await _timed(lambda: open_run(None), 1, 100, tool_name) for _ in range(3)]
    return median(cost.wall_us for cost in costs) * 100 / 1e3


async def _durable(open_run: OpenRun, turns: int, calls: int, path: Path) -> Cost:
    run = open_run(path)
    cost = await _timed(lambda: run, turns, calls, "quick")
    await run.close()
    return cost


async def _timed(open_run: Callable[[], LiveRun], turns: int, calls: int, tool_name: str) -> Cost:
    plan = make_plan(turns, calls, tool_name)
    gc.collect()
    cpu, wall = time.process_time_ns(), time.perf_counter_ns()
    await go_through(open_run(), plan)
    wall, cpu = time.perf_counter_ns() - wall, time.process_time_ns() - cpu
    return Cost(wall / turns / calls / 1e3, cpu / turns / calls / 1e3)


async def _count(open_run: OpenRun, turns: int, calls: int) -> int:
    plan = make_plan(turns, calls)
    profile = cProfile.Profile()
    profile.enable()
    await go_through(open_run(None), plan)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


def _size_bytes(folder: str, name: str) -> int:
    """Of a log that is closed, so that all of it is in the one file."""
    return Path(folder, name).stat().st_size


def _resident_mib() -> float:
    """Where the system does not say, there is no figure."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return float("nan")
    return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / _KIB_PER_MIB
