"""What it costs to keep apart what a command changes, to commit it and to undo it: `python -m bench effects`.

- overlay: `true` in an overlay of the workspace beside `true` in the workspace, both alone in it.
- changes: reading the effect of a command that changed one file among 25,000, from its end to the digest;
  committing and undoing 100 files; the same for 10,000 new files.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

from interlock.changes.change_set import ChangeSet
from interlock.changes.commit import Committed
from interlock.changes.store import ChangeStore
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.sandbox.interface import CommandSandbox, CommandSpec, OverlayPaths, SandboxProfile
from interlock.sandbox.workspace.workspace import Workspace

from .local_search import make_tree
from .local_tools import Figure, Series, Wanted, render

_MS = 1e3
_MANY = 100


class Sizes(NamedTuple):
    rounds: int = 9
    files: int = 25_000
    new_files: int = 10_000


FIGURES = (
    Wanted("overlay", (Figure("`true` in an overlay beside `true` in the workspace, ms", "overlay", "plain", 2.2),)),
    Wanted(
        "changes",
        (
            Figure("effect of one file among 25,000, to its digest, ms", "digest", None, 150),
            Figure(f"commit of {_MANY} files, ms", "commit", None, 100),
            Figure("the same beside writing, flushing and renaming them, ms", "commit", "plain_write"),
            Figure("the same, CPU alone, ms", "commit_cpu", None, 100),
            Figure(f"undo of {_MANY} files, ms", "undo", None, 100),
            Figure("effect of 10,000 new files, to its digest, ms", "read_many", None),
            Figure("commit of 10,000 new files, ms", "commit_many", None),
            Figure("undo of 10,000 new files, ms", "undo_many", None),
        ),
    ),
)


class _Bench:
    def __init__(self, folder: Path, sizes: Sizes) -> None:
        self.folder = folder / "workspace"
        self.folder.mkdir()
        make_tree(self.folder, sizes.files)
        for number in range(_MANY):
            (self.folder / f"file{number}").write_text(f"old {number}\n" * 50)
        # A commit flushes the file system, and these files are none of it.
        os.sync()
        self.sizes = sizes
        self.sandbox: CommandSandbox = choose_sandbox("bubblewrap")
        self.store = ChangeStore(folder / "store")
        self.workspace = Workspace(self.folder)
        self.found: dict[str, Series] = {"overlay": {}, "changes": {}}
        self.cpu_seconds = 0.0

    def note(self, section: str, name: str, seconds: float) -> None:
        self.found[section].setdefault(name, []).append(seconds * _MS)

    async def run(self, script: str, overlay: OverlayPaths | None = None) -> None:
        profile = SandboxProfile(workspace=str(self.folder), writable=True)
        spec = CommandSpec(profile=profile, script=script, exclusive_until="end", overlay=overlay)
        running = await self.sandbox.start(spec, lambda stream, chunk: None)
        ended = await running.wait()
        assert ended.exit_code == 0

    async def starts(self) -> None:
        """Time a command with and without an overlay, in turn."""
        for number in range(2 * self.sizes.rounds):
            with self.store.open_overlay(self.workspace) as overlay:
                for name, place in sorted((("plain", None), ("overlay", overlay)), reverse=bool(number % 2)):
                    self.note("overlay", name, await _timed(lambda place=place: self.run("true", place)))

    async def changes(self) -> None:
        for number in range(self.sizes.rounds):
            await self._change(f"echo {number} > file0", ("digest", "", ""))
            script = f"for n in {{0..{_MANY - 1}}}; do echo {number} $n >> file$n; done"
            await self._change(script, ("", "commit", "undo"))
            self._write_plainly(number)
        for number in range(3):
            script = f"mkdir new && cd new && for n in {{1..{self.sizes.new_files}}}; do echo {number} $n > $n; done"
            await self._change(script, ("read_many", "commit_many", "undo_many"))

    async def _change(self, script: str, names: tuple[str, str, str]) -> None:
        with self.store.open_overlay(self.workspace) as overlay:
            await self.run(script, overlay)
            started = time.perf_counter()
            change_set = self.store.read_overlay(overlay, self.workspace)
            change_set.digest()
            took = [time.perf_counter() - started]
        cpu_started = time.process_time()
        took.append(self._commit(change_set))
        self.cpu_seconds = time.process_time() - cpu_started
        took.append(self._commit(change_set.invert()))
        if names[1] == "commit":
            self.note("changes", "commit_cpu", self.cpu_seconds)
        for name, seconds in zip(names, took, strict=True):
            if name:
                self.note("changes", name, seconds)

    def _write_plainly(self, number: int) -> None:
        started = time.perf_counter()
        for each in range(_MANY):
            (self.folder / f"file{each}.tmp").write_text(f"old {number}\n" * 50)
        os.sync()
        for each in range(_MANY):
            (self.folder / f"file{each}.tmp").replace(self.folder / f"file{each}")
        self.note("changes", "plain_write", time.perf_counter() - started)

    def _commit(self, change_set: ChangeSet) -> float:
        started = time.perf_counter()
        done = self.store.commit(change_set, self.workspace)
        assert isinstance(done, Committed)
        assert len(done.change_set.changes) == len(change_set.changes)
        return time.perf_counter() - started


async def _timed(work: Callable[[], Awaitable[None]]) -> float:
    started = time.perf_counter()
    await work()
    return time.perf_counter() - started


async def _measure(folder: Path, sizes: Sizes) -> dict[str, Series]:
    bench = _Bench(folder, sizes)
    await bench.run("true")
    await bench.starts()
    await bench.changes()
    return bench.found


def measure(folder: Path, sizes: Sizes) -> dict[str, Series]:
    """Return what each round took, in milliseconds."""
    return asyncio.run(_measure(folder, sizes))


def report(sizes: Sizes) -> str:
    """Return the figures as a table."""
    with TemporaryDirectory(prefix="bench-") as folder:
        return "\n".join(render(measure(Path(folder).resolve(), sizes), FIGURES))
