"""The local tools for long: many commands cancelled at any moment, folders that become links, much output."""

import asyncio
import gc
import json
import os
import random
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count, cycle
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from bench.local_tools import forget_peak, memory_mib
from interlock import FileArtifacts, Observation, RulePolicy, ToolRuntime
from interlock.domain.tool import JsonObject
from interlock.local import LocalTools
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.sandbox.host.process_tree import list_descendants
from interlock.sandbox.interface import CommandLimits
from tests.sandbox.race import CANARY, Race, _content, _scene, moving  # pyright: ignore[reportPrivateUsage]
from tests.support import call

from .budget import Budget

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(choose_sandbox().confinement.degraded, reason="nothing holds commands back here"),
]

#: In a round.
COMMANDS = 80
LANES = 8
#: In this part of the time memory grows to what it takes to run so many at once.
_WARM = 0.4
#: A run is closed after so many, and the next one begins.
_IN_A_RUN = 25
_MAX_GROWTH_MIB = 10
#: What ends by itself, and what has to be ended.
_SHORT = (
    "echo done",
    "seq 20000",
    "echo words >&2; exit 3",
    "cat kept.txt",
    "echo new > $RANDOM.txt; rm -f [0-9]*.txt",
)
_LONG = (
    "sleep 60",
    "sleep 60 & sleep 60 & wait",
    "trap '' TERM; while :; do sleep 60; done",
    "yes | while read -r line; do :; done",
    "(setsid sleep 60 &) ; mktemp; sleep 60",
)
#: In the folder that is moved; no tool may show it.
_HIDDEN = "zebra-crossing-17"


class Held(NamedTuple):
    """What this process has open, running and lying around."""

    fds: tuple[str, ...]
    children: tuple[int, ...]
    threads: int
    temporary: tuple[str, ...]


def held(temporary: Path) -> Held:
    gc.collect()
    links = (f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd"))
    kinds = sorted(os.readlink(link).split(":")[0] for link in links if os.path.islink(link))
    files = tuple(sorted(str(path) for path in temporary.rglob("*")))
    return Held(tuple(kinds), tuple(list_descendants(os.getpid())), threading.active_count(), files)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """All temporary files of the test are made here."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@asynccontextmanager
async def local_run(root: Path, **options: Any) -> AsyncGenerator[ToolRuntime]:
    tools = LocalTools(root, limits=CommandLimits(grace_seconds=0.1))
    async with ToolRuntime(tools=tools, mode="trusted", policy=RulePolicy(), **options) as runtime:
        yield runtime


async def _one(runtime: ToolRuntime, call_id: str, choice: random.Random) -> str:
    """One command, left alone or ended at any moment by any of the ways, and what became of it."""
    is_long, by_task = choice.random() < 0.5, choice.random() < 0.3
    script = choice.choice(_LONG if is_long else _SHORT)
    work = asyncio.ensure_future(runtime.execute([call(call_id, "bash", command=script)]))
    if is_long or choice.random() < 0.3:
        end: Callable[[], object] = work.cancel if by_task else lambda: runtime.cancel_call(call_id)
        asyncio.get_running_loop().call_later(choice.uniform(0, 0.2), end)
        # Should it not have begun when it was cancelled, it is cancelled again.
        again = asyncio.get_running_loop().call_later(5, work.cancel)
        await asyncio.wait([work])
        again.cancel()
    try:
        return (await work).observations[0].code
    except asyncio.CancelledError:
        return "task cancelled"


async def _lane(root: Path, number: int, commands: int) -> Counter[str]:
    choice, met, ids = random.Random(number), Counter[str](), count()
    for start in range(0, commands, _IN_A_RUN):
        async with local_run(root) as runtime:
            for _ in range(min(_IN_A_RUN, commands - start)):
                met[await _one(runtime, f"c{next(ids)}", choice)] += 1
    return met


async def _lanes(root: Path, commands: int) -> Counter[str]:
    lanes = (_lane(root, number, commands // LANES) for number in range(LANES))
    return sum(await asyncio.gather(*lanes), Counter[str]())


async def test_commands_cancelled_at_random_leave_nothing(tmp_path: Path, temporary: Path, budget: Budget) -> None:
    root = tmp_path / "ws"
    root.mkdir()
    (root / "kept.txt").write_text("kept")
    lost: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda loop, about: lost.append(about))
    for _ in budget.rounds(_WARM):
        await _lanes(root, COMMANDS)
    before, before_mib, met = held(temporary), memory_mib("VmRSS"), Counter[str]()

    for _ in budget.rounds():
        met += await _lanes(root, COMMANDS)

    after, after_mib = held(temporary), memory_mib("VmRSS")
    assert lost == []
    assert after._replace(threads=0) == before._replace(threads=0)
    assert after.children == after.temporary == ()
    assert after.threads <= before.threads + LANES
    assert after_mib - before_mib < _MAX_GROWTH_MIB
    assert met["ok"] > met.total() / 10
    assert met["cancelled"] + met["task cancelled"] > met.total() / 4
    assert {path.name for path in root.iterdir() if not path.name.split(".")[0].isdigit()} == {"kept.txt"}


#: Tools and their arguments. Names say what is moved: `a` is a folder or a link, `f` a file or a link, `made` a folder
#: that becomes a link as soon as it is there.
_CALLS: tuple[tuple[str, JsonObject], ...] = (
    ("read_file", {"path": "f", "again": True}),
    ("read_file", {"path": "a/f", "again": True}),
    ("read_file", {"path": "a/../a/f", "again": True}),
    ("read_file", {"path": "a/.env", "again": True}),
    ("edit_file", {"path": "a/f", "old_string": "inside", "new_string": "inside "}),
    ("edit_file", {"path": "f", "old_string": "inside", "new_string": "inside "}),
    ("write_file", {"path": "f", "content": "inside"}),
    ("write_file", {"path": "a/f", "content": "inside"}),
    ("write_file", {"path": "made/in/here", "content": "inside"}),
    ("list_dir", {"path": "a"}),
    ("grep", {"pattern": "out.ide, and|zebra|inside"}),
    ("grep", {"pattern": "out.ide, and|zebra|inside", "path": "a"}),
    ("grep", {"pattern": "out.ide, and|zebra|inside", "path": "f"}),
    ("glob", {"pattern": "**"}),
    ("glob", {"pattern": "a/**"}),
    ("bash", {"command": "cat f .env; ls -a", "cwd": "a"}),
    ("bash", {"command": "cat a/f f a/.env a.link/.env; ls a; echo inside > a/f"}),
    ("bash", {"command": "cd a && pwd -P && cat * .env && mkdir -p ../made/in && echo x > ../made/in/there"}),
)


async def test_nothing_leaks_through_the_tools_while_folders_become_links(
    tmp_path: Path, temporary: Path, budget: Budget
) -> None:
    outside, found, ids = _scene(tmp_path), Race(), count()
    root = tmp_path / "ws"
    (root / "a/.env").write_text(_HIDDEN)
    before = _content(outside)
    tools = {name for name, _ in _CALLS}

    def worked() -> set[str]:
        return {name for name, done in found.met if done == "ok"}

    async with local_run(root) as runtime:
        with moving(root, outside, found):
            rounds = budget.rounds(enough=lambda: worked() == tools)
            for (tool_name, arguments), _ in zip(cycle(_CALLS), rounds, strict=False):
                done = await _met(runtime, call(f"c{next(ids)}", tool_name, **arguments))
                found.met[tool_name, done] += 1
        told = (await runtime.export()).decode()

    assert CANARY not in told
    assert _HIDDEN not in told
    assert _content(outside) == before
    assert [str(path) for path in root.rglob(".interlock-*")] == []
    assert held(temporary).temporary == ()
    assert worked() == tools
    assert found.flips > 1_000


#: `a` is by turns a folder and a link, as fast as can be.
_FLIPPER = """
import ctypes, os
libc = ctypes.CDLL(None)
os.symlink("nowhere", "b")
while True:
    libc.renameat2(-100, b"a", -100, b"b", 2)
"""


async def test_a_task_that_moves_folders_uncovers_no_hidden_file_for_other_commands(
    tmp_path: Path, budget: Budget
) -> None:
    root = tmp_path / "ws"
    (root / "a").mkdir(parents=True)
    (root / "a/.env").write_text(_HIDDEN)
    (root / "flip.py").write_text(_FLIPPER)
    met = Counter[str]()
    async with local_run(root) as runtime:
        task = await _met(runtime, call("task", "bash", command=f"{sys.executable} flip.py", background=True))
        for number in budget.rounds(enough=lambda: met["ok"] + met["command_failed"] > 10):
            met[await _met(runtime, call(f"c{number}", "bash", command="cat a/.env b/.env flip.py"))] += 1

    assert task == "ok"
    assert met["ok"] + met["command_failed"] > 10
    assert met["tool_failed"] == met["command_killed"] == 0


async def _met(runtime: ToolRuntime, intent: Any) -> str:
    result = await runtime.execute([intent])
    shown = json.dumps(result.messages)
    assert CANARY not in shown
    assert "only outside" not in shown
    assert _HIDDEN not in shown
    return result.observations[0].code


async def test_a_hundred_megabytes_of_output_take_no_memory_and_are_kept(tmp_path: Path, temporary: Path) -> None:
    root, size_bytes = tmp_path / "ws", 100_000_000
    root.mkdir()
    artifacts = FileArtifacts(tmp_path / "artifacts")
    async with local_run(root, artifacts=artifacts) as runtime:
        await runtime.execute([call("c1", "bash", command="echo warm")])
        before_mib = forget_peak()
        observation = await _first(
            runtime.execute([call("c2", "bash", command=f"yes 'a line of output' | head -c {size_bytes}")])
        )
        growth_mib = memory_mib("VmHWM") - before_mib

    kept = observation.artifacts[0]
    assert observation.ok
    assert observation.facts["stdout_bytes"] == kept.size_bytes == artifacts.size_bytes(kept.id) == size_bytes
    assert observation.content is not None
    assert len(observation.content.text) < 40_000
    assert not growth_mib >= _MAX_GROWTH_MIB
    assert held(temporary).temporary == ()


async def _first(batch: Awaitable[Any]) -> Observation:
    return (await batch).observations[0]
