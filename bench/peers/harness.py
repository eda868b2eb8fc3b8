"""The work of every adapter, and how it is measured. Standard library only: each adapter imports it in its environment.

An adapter is a class with these methods; one that does not support a measurement raises `NotImplementedError`:

    async setup()                 once per process
    prepare(turns, calls, tool)   the scripted model's answers, made before the clock starts
    async execute(plan)           one complete run; return how many tool results the model saw in its last request
    async pause_resume(turns)     what pausing and resuming a run of that length costs
    async durable(turns, calls)   the same work with everything on disk
    async teardown()

`tool` is `async` (trivial), `sleep` or `sleep_sync` (50 ms). The scripted model calls `MARK.enter()` when it is asked
and `MARK.exit()` before it answers; every tool calls `MARK.tool()`. Work that was not done is an error, not a figure.
"""

import asyncio
import cProfile
import gc
import json
import os
import sqlite3
import statistics
import sys
import time
import traceback
from importlib.metadata import PackageNotFoundError, version
from typing import Any

SLEEP_SECONDS = 0.05
#: Lengths of a run in turns, at which it is paused and resumed.
PAUSES = (10, 100, 500)

Figures = dict[str, float]
#: Nanoseconds of wall time and of CPU time of this process.
Moment = tuple[int, int]


class Mark:
    """When the model was asked and answered, and how many tools ran."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.enters: list[Moment] = []
        self.exits: list[Moment] = []
        self.tools = 0

    def enter(self) -> None:
        self.enters.append(now())

    def exit(self) -> None:
        self.exits.append(now())

    def tool(self) -> None:
        self.tools += 1


def now() -> Moment:
    return time.perf_counter_ns(), time.process_time_ns()


MARK = Mark()


def span(name: str, begin: Moment, end: Moment) -> Figures:
    return {f"{name}_us": (end[0] - begin[0]) / 1e3, f"{name}_cpu_us": (end[1] - begin[1]) / 1e3}


def per_call(begin: Moment, end: Moment, calls: int, stored_bytes: int) -> Figures:
    """Return the figures of a durable run."""
    return {
        "wall_us": (end[0] - begin[0]) / calls / 1e3,
        "cpu_us": (end[1] - begin[1]) / calls / 1e3,
        "bytes": stored_bytes / calls,
    }


def arguments(number: int) -> dict[str, Any]:
    return {"path": f"src/module_{number % 97}.py", "count": number, "ratio": 0.5}


def arguments_json(number: int) -> str:
    return json.dumps(arguments(number))


def result_text(path: str, count: int, ratio: float) -> str:
    return f"{path}:{count}:{ratio}"


def temporary_folder() -> str:
    return os.environ["BENCH_TMP"]


def file_bytes(path: str) -> int:
    return os.path.getsize(path)


def database_bytes(path: str) -> int:
    """Return the size of an SQLite database that may have pages in its journal."""
    database = sqlite3.connect(path)
    pages, size = (database.execute(f"pragma {name}").fetchone()[0] for name in ("page_count", "page_size"))
    database.close()
    return pages * size


async def run_timed(adapter: Any, turns: int, calls: int, tool: str) -> tuple[Moment, Moment]:
    """Run once, and check that the work was done. Return its begin and end."""
    plan = adapter.prepare(turns, calls, tool)
    MARK.reset()
    gc.collect()
    begin = now()
    seen = await adapter.execute(plan)
    end = now()
    done = (MARK.tools, seen, len(MARK.enters))
    if done != (turns * calls, turns * calls, turns + 1):
        raise AssertionError(f"{turns} turns of {calls} calls, but (tools, results, model requests) is {done}")
    return begin, end


async def overhead(adapter: Any, repeat: int) -> dict[str, float]:
    """CPU time per call: 200 turns of one call, and one turn with 1, 100 and 1,000 calls."""
    await run_timed(adapter, 5, 2, "async")
    figures: Figures = {}
    for name, turns, calls in (
        ("sequential", 200, 1),
        ("one_call", 1, 1),
        ("parallel_100", 1, 100),
        ("parallel_1000", 1, 1_000),
    ):
        spans = [
            await run_timed(adapter, turns, calls, "async") for _ in range(repeat * (10 if calls == 1 == turns else 1))
        ]
        figures[f"{name}_cpu_us"] = statistics.median(end[1] - begin[1] for begin, end in spans) / turns / calls / 1e3
        figures[f"{name}_wall_us"] = statistics.median(end[0] - begin[0] for begin, end in spans) / turns / calls / 1e3
    return figures


async def counts(adapter: Any, repeat: int) -> Figures:
    """Function calls per tool call, Python's and C's, in the event loop's thread, and of a run of one call with its
    set-up. They repeat exactly.
    """
    await run_timed(adapter, 5, 2, "async")
    counted = {turns: await _count(adapter, turns, 1) for turns in (20, 40, 200, 220)}
    return {
        "turn_30": (counted[40] - counted[20]) / 20,
        "turn_210": (counted[220] - counted[200]) / 20,
        "parallel_100": await _count(adapter, 1, 100) / 100,
        "one_call": await _count(adapter, 1, 1),
    }


async def _count(adapter: Any, turns: int, calls: int) -> int:
    plan = adapter.prepare(turns, calls, "async")
    MARK.reset()
    profile = cProfile.Profile()
    profile.enable()
    await adapter.execute(plan)
    profile.disable()
    return sum(entry.callcount for entry in profile.getstats())


async def sleeping(adapter: Any, repeat: int) -> Figures:
    """Wall time of one turn with 100 tools that wait 50 ms."""
    await run_timed(adapter, 1, 10, "sleep")
    figures: Figures = {}
    for tool in ("sleep", "sleep_sync"):
        try:
            spans = [await run_timed(adapter, 1, 100, tool) for _ in range(repeat)]
        except NotImplementedError:
            continue
        figures[f"{tool}_ms"] = statistics.median(end[0] - begin[0] for begin, end in spans) / 1e6
    return figures


async def pauses(adapter: Any, repeat: int) -> Figures:
    """From the model's answer until the pause is stored, and from the stored state to the next model request."""
    await adapter.pause_resume(2)
    figures: Figures = {}
    for turns in PAUSES:
        seen: list[Figures] = []
        for _ in range(repeat):
            gc.collect()
            MARK.reset()
            seen.append(await adapter.pause_resume(turns))
            if MARK.tools != turns + 1:
                raise AssertionError(f"{turns + 1} calls, {MARK.tools} executed")
        figures |= {f"{name}_{turns}": statistics.median(one[name] for one in seen) for name in seen[0]}
    return figures


async def durable(adapter: Any, repeat: int) -> Figures:
    """Per call with everything on disk: 100 turns of one call, and one turn of 100 calls."""
    await adapter.durable(2, 1)
    figures: Figures = {}
    for name, turns, calls in (("sequential", 100, 1), ("parallel", 1, 100)):
        seen: list[Figures] = []
        for _ in range(repeat):
            gc.collect()
            MARK.reset()
            seen.append(await adapter.durable(turns, calls))
            if MARK.tools != turns * calls:
                raise AssertionError(f"{turns * calls} calls, {MARK.tools} executed")
        figures |= {f"{name}_{part}": statistics.median(one[part] for one in seen) for part in seen[0]}
    return figures


SECTIONS = {
    "overhead": overhead,
    "counts": counts,
    "pauses": pauses,
    "durable": durable,
    "sleeping": sleeping,
}


def main(adapter_class: Any) -> None:
    """Print one line of JSON: the figures of a section, why there are none, or with `versions` what is installed."""
    section, repeat = sys.argv[1], int(sys.argv[2])
    if section == "versions":
        print(json.dumps(_versions(adapter_class.PACKAGES)))
        return
    try:
        found: dict[str, Any] = asyncio.run(_measure(adapter_class(), section, repeat))
    except NotImplementedError as error:
        found = {"skipped": str(error) or "not supported"}
    except Exception as error:
        traceback.print_exc()
        found = {"error": f"{type(error).__name__}: {error}"[:400]}
    print(json.dumps(found), flush=True)
    os._exit(0)  # some leave threads behind


async def _measure(adapter: Any, section: str, repeat: int) -> Figures:
    await adapter.setup()
    try:
        return await SECTIONS[section](adapter, repeat)
    finally:
        await adapter.teardown()


def _versions(packages: tuple[str, ...]) -> dict[str, str]:
    found = {"python": sys.version.split()[0]}
    for package in packages:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found
