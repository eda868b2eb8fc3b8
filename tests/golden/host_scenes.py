"""Runs in processes, folders and sandboxes of this host: the demo, the story, a killed process and the examples."""

import asyncio
import functools
import io
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, TypeAlias

import pytest

import interlock
from interlock import LogEntry, MemoryLog, SqliteLog
from tests.crash.lives import KILLED, Lives
from tests.crash.scripted import FINISHED, LOG
from tests.patience import HANG_SECONDS
from tests.story.story import run_whole

from .scenes import Runs

EXAMPLES = Path(__file__).parents[2] / "examples"
_DEMO = "import sys; sys.argv[0] = 'interlock'; from interlock.cli.main import main; main()"


@contextmanager
def workspace() -> Generator[Path]:
    """Give a folder whose path has the length of the golden one."""
    with tempfile.TemporaryDirectory(prefix="golden-", dir="/tmp") as folder:
        yield Path(folder)


def demo(folder: Path) -> Runs:
    """Run `interlock demo`, which kills a process of its own, and keep its log."""
    subprocess.run(
        [sys.executable, "-c", _DEMO, "demo", "--keep"],
        env={"TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
        timeout=HANG_SECONDS,
    )
    [log] = folder.glob("interlock-demo-*/runs.db")
    return {"demo": next(iter(_runs_in(log).values()))}


def story(folder: Path) -> Runs:
    """Fix a failing project in six rounds."""
    return {"story": next(iter(_runs_in(run_whole(folder, "bubblewrap", "unittest").log).values()))}


def killed(folder: Path) -> Runs:
    """Kill a process amid its calls, where one outcome is unknown and another can be found out, and recover."""
    lives = Lives()
    try:
        for number in range(12):
            run = folder / f"run-{number}"
            assert lives.live(run, "resubmit", "done", number) == KILLED
            assert lives.live(run, "resume") == FINISHED
            entries = next(iter(_runs_in(run / LOG).values()))
            text = b"".join(entry.body for entry in entries)
            if b"outcome_unknown" in text and text.count(b'"tool":"book","executor"') > 2:
                return {"killed": entries}
    finally:
        lives.close()
    raise AssertionError("No death left both kinds of calls.")


def example(name: str, folder: Path) -> Runs:
    """Run an example as it is, with a log that can be read afterwards."""
    log = MemoryLog()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(io.StringIO()):
        for entry_point in ("Runner", "ToolRuntime"):
            patch.setattr(interlock, entry_point, _with_log(getattr(interlock, entry_point), log))
        patch.setattr(tempfile, "TemporaryDirectory", _Kept(folder))
        patch.chdir(folder)
        runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name="__main__")
    runs = asyncio.run(_read(log))
    for path in folder.glob("runs.db"):
        runs |= _runs_in(path)
    names = (f"example.{name}" + (f".{number}" if number else "") for number in range(len(runs)))
    return dict(zip(names, runs.values(), strict=True))


def _with_log(made: Callable[..., Any], log: MemoryLog) -> Callable[..., Any]:
    @functools.wraps(made, updated=())
    def make(*given: Any, **options: Any) -> Any:
        return made(*given, **{"log": log, **options})

    return make


class _Kept:
    """Stands for `TemporaryDirectory`, and keeps what is in the folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def __call__(self) -> "_Kept":
        return self

    def __enter__(self) -> str:
        return str(self._folder)

    def __exit__(self, *_: object) -> None:
        """Remove nothing: the log is read later."""


async def _read(log: MemoryLog | SqliteLog) -> dict[str, list[LogEntry]]:
    return {run_id: await log.read(run_id) for run_id in await log.run_ids()}


def _runs_in(path: Path) -> dict[str, list[LogEntry]]:
    async def read() -> dict[str, list[LogEntry]]:
        async with SqliteLog(path) as log:
            return await _read(log)

    return asyncio.run(read())


HostScene: TypeAlias = Callable[[Path], Runs]
#: Those whose events are the same every time, in whatever order their threads end.
REPEATABLE: Mapping[str, HostScene] = {"demo": demo, "story": story}
HOST_SCENES: Mapping[str, HostScene] = {
    **REPEATABLE,
    "killed": killed,
    **{f"example.{path.stem}": functools.partial(example, path.stem) for path in sorted(EXAMPLES.glob("*.py"))},
}
