"""What the local tools cost beside the same work without them: `python -m bench local` prints a table of ratios.

Both sides of a ratio are measured in turn, round by round, in one process, so that a busy moment hits both alike. A
ratio is taken within a round and the median counts; beside it stands the ratio of the fastest rounds, which says more
on a busy machine. Work that was not done is an error, not a figure. The sections:

- commands: `true` in the sandbox beside a plain spawn, and beside the launcher alone with the very same options, its
  gate open; then whole calls of `bash`, in an empty workspace and in one of 25,000 files, and the fingerprints of that
  one, beside looking at the same files and nothing else.
- search: `grep` and `glob` beside ripgrep itself (`local_search.py`).
- files: reading 2,000 lines, and an edit of them, beside the plain thing.
- together: eight commands at once beside one after another.
- egress: a connection, and 1 GB, through the proxy of a command beside loopback (`egress.py`).
- output: 100 MB through `bash` beside `cat > file`, and by how much this process grew. In a process of its own.
"""

import asyncio
import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias
from unittest.mock import patch

import msgspec

from interlock import FileArtifacts, RulePolicy, ToolRuntime
from interlock.domain.tool import CallContext, ToolContext
from interlock.local import LocalTools
from interlock.sandbox.commands.probe import choose_sandbox
from interlock.sandbox.commands.running_command import Launch
from interlock.sandbox.interface import (
    CommandLimits,
    CommandSandbox,
    CommandSpec,
    OutputHandler,
    RunningCommand,
    SandboxProfile,
)
from interlock.tools.shell.fingerprint import MAX_FILES, FolderListings, compare_fingerprints, take_fingerprint

from .egress import measure_proxy
from .local_search import SEARCHES, make_tree, search

#: By name, what each round took.
Series: TypeAlias = dict[str, list[float]]

_TOGETHER = 8
_KIB_PER_MIB = 1024
_MS, _US = 1e3, 1e6
#: A spawn is short and its time scatters, so it has more rounds.
_MORE = 4
#: Nobody can prove that it only reads, so the workspace is looked at before and after.
_READS, _WRITES = "true", "eval true"
#: Memory is measured in a process of its own, which begins small.
_APART = "output"
#: Sections that need many files, which take a while to make.
_LARGE = frozenset({"commands", "search"})


class Sizes(NamedTuple):
    rounds: int = 15
    files: int = 25_000
    lines: int = 2_000
    output_bytes: int = 100_000_000
    output_rounds: int = 3
    sleep_seconds: float = 0.1
    #: Of something that takes microseconds, how often it is done in a round.
    repeat: int = 20
    searches: tuple[str, ...] = tuple(SEARCHES)
    #: Through the proxy.
    connections: int = 200
    transfer_bytes: int = 1 << 30


_USUAL = Sizes()


class Figure(NamedTuple):
    label: str
    ours: str
    #: None: it stands alone.
    reference: str | None
    limit: float | None = None


class Wanted(NamedTuple):
    section: str
    figures: tuple[Figure, ...]


FIGURES: tuple[Wanted, ...] = (
    Wanted(
        "commands",
        (
            Figure("`true` in the sandbox beside a plain spawn, ms", "sandboxed", "plain", 10),
            Figure("the same beside the launcher alone, ms", "sandboxed", "bare", 1.15),
            Figure("with files to protect, beside the launcher doing that itself, ms", "covered", "bare_covered", 1.3),
            Figure("alone in the workspace, beside the same without, ms", "alone", "sandboxed", 1.3),
            Figure("bash, only reading, beside `true` in the sandbox, ms", "call", "sandboxed_again"),
            Figure("bash that may write, ms", "writing_call", "sandboxed_again"),
            Figure("bash, only reading, 25,000 files, ms", "large_call", "sandboxed_again"),
            Figure("bash that may write, 25,000 files, ms", "large_writing_call", "sandboxed_again"),
            Figure("fingerprints of it, before and after, nothing changed, CPU ms", "fingerprints", None, 30),
            Figure("the same beside a look at the same files, CPU ms", "fingerprints", "looks"),
        ),
    ),
    Wanted("search", tuple(Figure(f"{name}, beside ripgrep, ms", name, f"{name}, rg", 1.2) for name in SEARCHES)),
    Wanted(
        "files",
        (
            Figure("read_file, 2,000 lines, beside a plain read, CPU us", "read", "plain_read", 5),
            Figure("the same beside a read with numbers, CPU us", "read", "numbered_read"),
            Figure("the same as a whole call, beside a plain read, CPU us", "read_call", "plain_read"),
            Figure("edit_file beside read, replace, write, fsync, us", "edit_call", "plain_edit"),
        ),
    ),
    Wanted("together", (Figure("8 commands of 100 ms at once beside one by one, ms", "at_once", "one_by_one", 0.25),)),
    Wanted(
        "egress",
        (
            Figure("what the proxy adds to a connection, ms", "added", None, 2),
            Figure("1 GB through the proxy beside loopback, ms", "through", "direct", 1.25),
        ),
    ),
    Wanted(
        "output",
        (
            Figure("100 MB through bash beside cat > file, ms", "output", "cat"),
            Figure("growth of this process at 100 MB of output, MiB", "growth_mib", None, 10),
        ),
    ),
)


class Site(NamedTuple):
    """An empty workspace, and one with many files."""

    folder: Path
    sizes: Sizes

    @property
    def empty(self) -> Path:
        return self.folder / "empty"

    @property
    def large(self) -> Path:
        return self.folder / "large"

    @property
    def profile(self) -> SandboxProfile:
        return SandboxProfile(workspace=os.path.realpath(self.empty), writable=True)

    @property
    def covered_profile(self) -> SandboxProfile:
        """As in a repository with a secret."""
        root = Path(self.profile.workspace)
        for folder in (root / ".git/hooks", root / "app"):
            folder.mkdir(parents=True, exist_ok=True)
        for file in (root / ".git/config", root / ".env", root / "app/.env"):
            file.touch()
        return msgspec.structs.replace(
            self.profile,
            hidden=(f"{root}/.env", f"{root}/app/.env"),
            read_only=(f"{root}/.git/hooks", f"{root}/.git/config"),
        )


def make_site(folder: Path, sizes: Sizes) -> Site:
    site = Site(folder, sizes)
    site.empty.mkdir()
    site.large.mkdir()
    make_tree(site.large, sizes.files)
    return site


class Caller:
    """One run in one workspace, where everything that is not refused is allowed."""

    def __init__(self, root: Path, **options: Any) -> None:
        self._tools = LocalTools(root, limits=CommandLimits(output_bytes=1 << 30))
        self._runtime = ToolRuntime(tools=self._tools, mode="trusted", policy=RulePolicy(), **options)
        self._ids = count()

    async def __call__(self, tool_name: str, /, **arguments: Any) -> float:
        """How many seconds it took."""
        function = {"name": tool_name, "arguments": json.dumps(arguments)}
        calls = [{"id": f"c{next(self._ids)}", "type": "function", "function": function}]
        began = time.perf_counter()
        result = await self._runtime.execute(calls)
        taken = time.perf_counter() - began
        if not result.observations[0].ok:
            raise AssertionError(result.observations[0].summary)
        return taken

    def handler(self, tool_name: str, /, **arguments: Any) -> Callable[[], object]:
        """The handler alone, for a run that knows nothing yet."""
        definition = next(tool for tool in self._tools if tool.name == tool_name)
        context = ToolContext(CallContext(run_id="r"), "c", tool_name, lambda call_id, message: None)
        return lambda: definition.handler(context, **arguments)

    async def close(self) -> None:
        await self._runtime.close()
        await self._tools.close()


async def in_rounds(rounds: int, sides: dict[str, Callable[[], Awaitable[float]]], unit: float) -> Series:
    """Each side once in every round, in an order that turns; the first round fills caches and does not count."""
    series: Series = {name: [] for name in sides}
    for number in range(-1, rounds):
        for name in sides if number % 2 else reversed(sides):
            taken = await sides[name]()
            if number >= 0:
                series[name].append(taken * unit)
    return series


async def commands(site: Site) -> Series:
    sandbox, command = choose_sandbox(), CommandSpec(profile=site.profile, script="true")
    small, large = Caller(site.empty), Caller(site.large)
    spawns: dict[str, Callable[[], Awaitable[float]]] = {
        "plain": lambda: _spawned(["/bin/true"]),
        "sandboxed": lambda: _sandboxed(sandbox, [command]),
    }
    if sandbox.confinement.backend == "bubblewrap":
        covered = msgspec.structs.replace(command, profile=site.covered_profile)
        alone = msgspec.structs.replace(command, exclusive_until="end")
        spawns |= {
            "bare": lambda: _bare(sandbox, command),
            "covered": lambda: _sandboxed(sandbox, [covered]),
            "bare_covered": lambda: _bare(sandbox, command, _mount_options(covered.profile)),
            "alone": lambda: _sandboxed(sandbox, [alone]),
        }
    calls: dict[str, Callable[[], Awaitable[float]]] = {
        "sandboxed_again": lambda: _sandboxed(sandbox, [command]),
        "call": lambda: small("bash", command=_READS),
        "writing_call": lambda: small("bash", command=_WRITES),
        "large_call": lambda: large("bash", command=_READS),
        "large_writing_call": lambda: large("bash", command=_WRITES),
        "fingerprints": partial(_fingerprints, site.large, FolderListings()),
        "looks": partial(_looks, [path for path in site.large.rglob("*") if path.is_file()][:MAX_FILES]),
    }
    try:
        found = await in_rounds(_MORE * site.sizes.rounds, spawns, _MS)
        return found | await in_rounds(site.sizes.rounds, calls, _MS)
    finally:
        await small.close()
        await large.close()


async def searches(site: Site) -> Series:
    chosen = {name: SEARCHES[name] for name in site.sizes.searches}
    readings = await search(site.large, site.sizes.rounds, chosen)
    ours = {name: [reading.ours_ms for reading in found] for name, found in readings.items()}
    return ours | {f"{name}, rg": [reading.plain_ms for reading in found] for name, found in readings.items()}


async def files(site: Site) -> Series:
    lines = [f"    line {number} of a file = some(text, as_long_as={number})" for number in range(site.sizes.lines - 1)]
    text = "\n".join(["value = 1", *lines, ""])
    ours, plain = site.empty / "read.py", site.empty / "plain.py"
    for path in (ours, plain, site.empty / "edit.py"):
        path.write_text(text)
    caller = Caller(site.empty)
    await caller("read_file", path="edit.py")
    repeat, handler = site.sizes.repeat, caller.handler("read_file", path="read.py")
    values, plain_values = count(1), count(1)
    sides: dict[str, Callable[[], Awaitable[float]]] = {
        "plain_read": lambda: _repeated_cpu(repeat, lambda: _plain_read(plain)),
        "numbered_read": lambda: _repeated_cpu(repeat, lambda: _numbered_read(plain)),
        "read": lambda: _repeated_cpu(repeat, handler),
        "read_call": lambda: _cpu_of(caller("read_file", path="read.py", again=True)),
        "plain_edit": lambda: _repeated(1, lambda: _plain_edit(plain, *_edit(next(plain_values)))),
        "edit_call": lambda: _edit_call(caller, next(values)),
    }
    try:
        return await in_rounds(site.sizes.rounds, sides, _US)
    finally:
        await caller.close()


async def together(site: Site) -> Series:
    sandbox = choose_sandbox()
    profile = site.profile
    command = CommandSpec(profile=profile, script=f"sleep {site.sizes.sleep_seconds}")

    async def one_by_one() -> float:
        return sum([await _sandboxed(sandbox, [command]) for _ in range(_TOGETHER)])

    sides: dict[str, Callable[[], Awaitable[float]]] = {
        "one_by_one": one_by_one,
        "at_once": lambda: _sandboxed(sandbox, [command] * _TOGETHER),
    }
    return await in_rounds(min(site.sizes.rounds, 5), sides, _MS)


async def egress(site: Site) -> Series:
    sizes = site.sizes
    return await measure_proxy(min(sizes.rounds, 7), sizes.connections, sizes.transfer_bytes)


async def output(site: Site) -> Series:
    """The growth is that of the first time: later ones find memory that was not given back."""
    _write_log(site.empty / "log.txt", site.sizes.output_bytes)
    caller = Caller(site.empty, artifacts=FileArtifacts(site.folder / "artifacts"))
    copy = site.folder / "copy.txt"
    await caller("bash", command="echo warm")
    series: Series = {"cat": [], "output": [], "growth_mib": []}
    for _ in range(site.sizes.output_rounds):
        before = forget_peak()
        series["output"].append(await caller("bash", command="cat log.txt") * _MS)
        if not series["growth_mib"]:
            series["growth_mib"].append(memory_mib("VmHWM") - before)
        words = ["/bin/sh", "-c", 'cat "$1" > "$2"', "sh", str(site.empty / "log.txt"), str(copy)]
        series["cat"].append(await _spawned(words) * _MS)
        copy.unlink()
    await caller.close()
    return series


SECTIONS: Mapping[str, Callable[[Site], Coroutine[None, None, Series]]] = {
    "commands": commands,
    "search": searches,
    "files": files,
    "together": together,
    "egress": egress,
    "output": output,
}


def forget_peak() -> float:
    """What this process holds now, from where on its peak is counted; not a number where nobody can say."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        return math.nan
    return memory_mib("VmRSS")


def memory_mib(what: str) -> float:
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
            if line.startswith(f"{what}:"):
                return int(line.split()[1]) / _KIB_PER_MIB
    return math.nan


async def _spawned(words: list[str]) -> float:
    """In the event loop's thread, as the sandbox does it: another thread would have to be woken first."""
    began = time.perf_counter()
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)  # noqa: ASYNC221
    return time.perf_counter() - began


async def _sandboxed(sandbox: CommandSandbox, commands: Iterable[CommandSpec]) -> float:
    began = time.perf_counter()
    codes = await asyncio.gather(*(_exit_code(sandbox, command) for command in commands))
    taken = time.perf_counter() - began
    if any(codes):
        raise AssertionError(f"ended with {codes}")
    return taken


async def _exit_code(sandbox: CommandSandbox, command: CommandSpec) -> int | None:
    running = await sandbox.start(command, lambda stream, chunk: None)
    return (await running.wait()).exit_code


class _NotLaunched(Exception):
    def __init__(self, launch: Launch) -> None:
        super().__init__()
        self.launch = launch


def _mount_options(profile: SandboxProfile) -> tuple[str, ...]:
    """How the launcher would protect the same files by their paths."""
    pinned = sorted({os.path.dirname(path) for path in (*profile.hidden, *profile.read_only)} - {profile.workspace})
    return (
        *(word for path in pinned for word in ("--bind", path, path)),
        *(word for path in profile.read_only for word in ("--ro-bind", path, path)),
        *(word for path in profile.hidden for word in ("--ro-bind", "/dev/null", path)),
    )


async def _bare(sandbox: CommandSandbox, command: CommandSpec, more: tuple[str, ...] = ()) -> float:
    """The launcher with all that it is given, and nobody who watches it. Making what it is given is not timed."""
    launch = await _launch_of(sandbox, command)
    if more:
        options = int(launch.argv[launch.argv.index("--args") + 1])
        os.pwrite(options, "\0".join((*more, "")).encode(), os.fstat(options).st_size)
    os.write(launch.gate_fd, b"\n")
    os.close(launch.barrier_fd)
    began = time.perf_counter()
    done = subprocess.run(  # noqa: ASYNC221
        launch.argv,
        check=False,
        env=dict(launch.environment),
        stdin=subprocess.DEVNULL,
        pass_fds=launch.pass_fds,
        start_new_session=True,
        cwd="/",
    )
    taken = time.perf_counter() - began
    for fd in (launch.status_fd, launch.report_fd, launch.gate_fd, *launch.pass_fds):
        os.close(fd)
    if done.returncode:
        raise AssertionError(f"the launcher ended with {done.returncode}")
    return taken


async def _launch_of(sandbox: CommandSandbox, command: CommandSpec) -> Launch:
    async def instead(launch: Launch, limits: CommandLimits, on_output: OutputHandler) -> RunningCommand:
        raise _NotLaunched(launch)

    with patch("interlock.sandbox.commands.bubblewrap.run_launch", instead):
        try:
            await sandbox.start(command, lambda stream, chunk: None)
        except _NotLaunched as caught:
            return caught.launch
    raise AssertionError("nothing was launched")


async def _repeated(times: int, work: Callable[[], object]) -> float:
    began = time.perf_counter()
    for _ in range(times):
        work()
    return (time.perf_counter() - began) / times


async def _repeated_cpu(times: int, work: Callable[[], object]) -> float:
    began = time.process_time()
    for _ in range(times):
        work()
    return (time.process_time() - began) / times


async def _cpu_of(work: Awaitable[object]) -> float:
    began = time.process_time()
    await work
    return time.process_time() - began


async def _fingerprints(root: Path, listings: FolderListings) -> float:
    """What a command that may write adds for the list of its changes."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY)
    began = time.process_time()
    before, after = (take_fingerprint(folder, listings=listings) for _ in range(2))
    changes = compare_fingerprints(before, after)
    taken = time.process_time() - began
    os.close(folder)
    if changes.count:
        raise AssertionError(f"{changes.count} changes, where there are none")
    return taken


async def _looks(files: Sequence[Path]) -> float:
    """The least that finds every change of a file: its size and times, twice."""
    names, began = [*map(str, files)], time.process_time()
    for name in (*names, *names):
        os.lstat(name)
    return time.process_time() - began


def _plain_read(path: Path) -> str:
    with open(path, encoding="utf-8") as file:
        return file.read()


def _numbered_read(path: Path) -> str:
    return "\n".join(f"{number}\t{line}" for number, line in enumerate(_plain_read(path).split("\n"), 1))


def _edit(number: int) -> tuple[str, str]:
    return f"value = {number}\n", f"value = {number + 1}\n"


def _plain_edit(path: Path, old: str, new: str) -> None:
    text = _plain_read(path)
    if text.count(old) != 1:
        raise AssertionError(f"{old!r} is not there once")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text.replace(old, new))
        file.flush()
        os.fsync(file.fileno())


async def _edit_call(caller: Caller, number: int) -> float:
    old, new = _edit(number)
    return await caller("edit_file", path="edit.py", old_string=old, new_string=new)


def _write_log(path: Path, size_bytes: int) -> None:
    """Lines as programs print them, no two alike."""
    with open(path, "w", encoding="ascii") as file:
        for number in count():
            if file.tell() >= size_bytes:
                break
            first = number * 1_000
            file.writelines(
                f"2026-01-02 12:00:{line % 60:02} INFO worker-{line % 7} finished step {line} in {line % 997} ms\n"
                for line in range(first, first + 1_000)
            )
        file.truncate(size_bytes)


_HEAD = ("figure", "ours", "reference", "ratio", "fastest", "target", "")


def render(found: Mapping[str, Series], figures: Sequence[Wanted] = FIGURES) -> list[str]:
    """A table; figures that could not be measured here are left out."""
    rows = [
        _row(figure, found[wanted.section])
        for wanted in figures
        for figure in wanted.figures
        if wanted.section in found and _is_measured(figure, found[wanted.section])
    ]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in (_HEAD, *rows)]
    return [lines[0], rule, *lines[1:]]


def _is_measured(figure: Figure, series: Series) -> bool:
    return all(series.get(name) for name in (figure.ours, figure.reference) if name is not None)


def _row(figure: Figure, series: Series) -> tuple[str, ...]:
    ours = series[figure.ours]
    if figure.reference is None:
        return figure.label, _number(median(ours)), "", "", "", *_judged(figure.limit, "", median(ours))
    reference = series[figure.reference]
    ratios, fastest = [mine / other for mine, other in zip(ours, reference, strict=True)], min(ours) / min(reference)
    numbers = _number(median(ours)), _number(median(reference)), f"{median(ratios):.2f}x", f"{fastest:.2f}x"
    return figure.label, *numbers, *_judged(figure.limit, "x", median(ratios))


def _judged(limit: float | None, unit: str, reached: float) -> tuple[str, str]:
    """What it must reach, and whether it did. What is not a number did not."""
    if limit is None:
        return "", ""
    return f"<= {limit:g}{unit}", "ok" if reached <= limit else "MISSED"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def measure(folder: Path, sizes: Sizes, names: Sequence[str]) -> dict[str, Series]:
    """Measure these sections in a folder."""
    site = make_site(folder, sizes if _LARGE.intersection(names) else sizes._replace(files=0))
    return {name: asyncio.run(SECTIONS[name](site)) for name in names}


def report(names: Sequence[str] = tuple(SECTIONS), sizes: Sizes = _USUAL) -> str:
    """These sections as a table."""
    load = os.getloadavg()[0]
    with TemporaryDirectory(prefix="interlock-bench-") as folder:
        found = measure(Path(folder), sizes, [name for name in names if name != _APART])
    if _APART in names:
        found[_APART] = _measured_apart()
    where = f"{sizes.rounds} rounds, load {load:.1f} at the start, {choose_sandbox().confinement.backend}."
    return "\n".join((*render(found), "", where))


def _measured_apart() -> Series:
    words = [sys.executable, "-m", "bench.local_tools"]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(words, cwd=root, stdout=subprocess.PIPE, check=True, timeout=300)
    return msgspec.json.decode(done.stdout, type=Series)


def main() -> None:
    """Print the section that needs a process of its own, as JSON."""
    with TemporaryDirectory(prefix="interlock-bench-") as folder:
        print(json.dumps(measure(Path(folder), _USUAL, [_APART])[_APART]))


if __name__ == "__main__":
    main()
