"""The figures that must be reached, each with its target: `python -m bench` prints all of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from statistics import median
from typing import NamedTuple, TypeAlias

from .local_search import SEARCHES
from .peers.driver import Measured

#: By its name, a figure in every round.
Series: TypeAlias = Mapping[str, Sequence[float]]
_FLOOR, _LOOP, _RUNTIME = "floor-gov", "interlock", "interlock-runtime"
_LENGTHS = (10, 100, 500)
#: With no more matches than are shown: beyond that, ripgrep is stopped early.
_GREPS = tuple(name for name in SEARCHES if name.startswith("grep") and "more than" not in name)
_GLOBS = tuple(name for name in SEARCHES if name.startswith("glob"))


class Results(NamedTuple):
    """Everything that one run of the benchmark measured."""

    runtimes: Measured
    imports: Series
    #: By section.
    local: Mapping[str, Series]
    server: Mapping[str, Series]
    #: Other runtimes that took part.
    peers: Sequence[str] = ()


class Value(NamedTuple):
    """A figure: what is judged, and how it is shown."""

    number: float | None
    text: str


class Target(NamedTuple):
    """A figure and what it must reach."""

    figure: str
    limit: float
    measure: Callable[[Results], Value]
    unit: str = ""
    is_minimum: bool = False
    needs_peers: bool = False

    @property
    def wanted(self) -> str:
        """The target as text."""
        return f"{'>=' if self.is_minimum else '<='} {self.limit:,g}{self.unit}"

    def judge(self, results: Results) -> tuple[str, str, str, str]:
        """Return the row: figure, measured, target, verdict."""
        number, text = self.measure(results)
        if number is None:
            return self.figure, "not measured", self.wanted, "-"
        is_reached = number >= self.limit if self.is_minimum else number <= self.limit
        return self.figure, text, self.wanted, "ok" if is_reached else "MISSED"


def _ratio(section: str, runtime: str, name: str, unit: str) -> Callable[[Results], Value]:
    """Beside the floor, within rounds."""

    def measure(results: Results) -> Value:
        ours, floor = (results.runtimes.median(section, each, name) for each in (runtime, _FLOOR))
        ratio = results.runtimes.ratio(section, runtime, name, _FLOOR)
        return Value(ratio, f"{ratio:.2f}x ({number(ours)} beside {number(floor)} {unit})" if ratio else "")

    return measure


def _value(section: str, runtime: str, name: str, divided: float = 1) -> Callable[[Results], Value]:
    def measure(results: Results) -> Value:
        found = results.runtimes.median(section, runtime, name)
        return Value(None, "") if found is None else Value(found / divided, number(found / divided))

    return measure


def _ahead(results: Results) -> Value:
    """How many times the best peer's CPU is that of our loop."""
    found = _best_peer(results, "overhead", "sequential_cpu_us")
    ours = results.runtimes.median("overhead", _LOOP, "sequential_cpu_us")
    if found is None or not ours:
        return Value(None, "")
    name, best = found
    return Value(best / ours, f"{best / ours:.1f}x ({name}: {number(best)} us)")


def _pauses(results: Results) -> Value:
    """Our share of the best peer's time, of pauses and resumes of every length: the largest."""
    shares: list[tuple[float, str]] = []
    for what in ("pause", "resume"):
        for length in _LENGTHS:
            name = f"{what}_cpu_us_{length}"
            best, ours = _best_peer(results, "pauses", name), results.runtimes.median("pauses", _LOOP, name)
            if best is None or ours is None:
                return Value(None, "")
            shares.append((ours / best[1], f"{what} at {length} turns beside {best[0]}"))
    share, where = max(shares)
    return Value(share, f"{share:.2f}x ({where})")


def _best_peer(results: Results, section: str, name: str) -> tuple[str, float] | None:
    found = [(peer, results.runtimes.median(section, peer, name)) for peer in results.peers]
    return min(((peer, value) for peer, value in found if value), key=lambda each: each[1], default=None)


def _import(name: str, reference: str = "") -> Callable[[Results], Value]:
    def measure(results: Results) -> Value:
        return _compare(results.imports, name, reference)

    return measure


def _local(section: str, name: str, reference: str = "") -> Callable[[Results], Value]:
    def measure(results: Results) -> Value:
        return _compare(results.local.get(section, {}), name, reference)

    return measure


def _slowest(names: Iterable[str]) -> Callable[[Results], Value]:
    """Of several searches, the one that is farthest from ripgrep."""

    def measure(results: Results) -> Value:
        series = results.local.get("search", {})
        found = [(_compare(series, name, f"{name}, rg"), name) for name in names]
        known = [(value.number, value.text, name) for value, name in found if value.number is not None]
        worst = max(known, default=None)
        return Value(None, "") if worst is None else Value(worst[0], f"{worst[1]}: {worst[2]}")

    return measure


def _server(section: str, name: str) -> Callable[[Results], Value]:
    def measure(results: Results) -> Value:
        return _compare(results.server.get(section, {}), name, "")

    return measure


def _compare(series: Series, name: str, reference: str) -> Value:
    ours, others = series.get(name), series.get(reference)
    if not ours or (reference and not others):
        return Value(None, "")
    if not others:
        return Value(median(ours), number(median(ours)))
    ratio = median(mine / other for mine, other in zip(ours, others, strict=True))
    return Value(ratio, f"{ratio:.2f}x ({number(median(ours))} beside {number(median(others))})")


TARGETS = (
    Target(
        "1 call x 200 turns through the loop, CPU beside the floor",
        2.5,
        _ratio("overhead", _LOOP, "sequential_cpu_us", "us"),
        "x",
    ),
    Target("the best peer's CPU beside that", 20, _ahead, "x", is_minimum=True, needs_peers=True),
    Target(
        "runtime alone, 1 call x 200 turns, CPU beside the floor",
        2,
        _ratio("overhead", _RUNTIME, "sequential_cpu_us", "us"),
        "x",
    ),
    Target(
        "runtime alone, 100 calls in a turn, CPU beside the floor",
        1.7,
        _ratio("overhead", _RUNTIME, "parallel_100_cpu_us", "us"),
        "x",
    ),
    Target("function calls per tool call, loop", 240, _value("counts", _LOOP, "turn_210")),
    Target("function calls per tool call, runtime", 170, _value("counts", _RUNTIME, "turn_210")),
    Target("function calls per tool call, 100 calls in a turn", 130, _value("counts", _LOOP, "parallel_100")),
    Target("a run of one call through the loop, CPU us", 500, _value("overhead", _LOOP, "one_call_cpu_us")),
    Target("a run of one call, runtime alone, CPU us", 300, _value("overhead", _RUNTIME, "one_call_cpu_us")),
    Target(
        "durable (FULL), 1 call x 100 turns, wall beside the floor",
        1.3,
        _ratio("durable", _LOOP, "sequential_wall_us", "us"),
        "x",
    ),
    Target(
        "durable (FULL), 100 calls in a turn, wall beside the floor",
        1.5,
        _ratio("durable", _LOOP, "parallel_wall_us", "us"),
        "x",
    ),
    Target("stored bytes per call, 500 turns", 1_600, _value("pauses", _LOOP, "bytes_500", 500)),
    Target("pause at 10 turns, CPU ms", 0.8, _value("pauses", _LOOP, "pause_cpu_us_10", 1e3)),
    Target("resume at 10 turns, CPU ms", 2.5, _value("pauses", _LOOP, "resume_cpu_us_10", 1e3)),
    Target("resume at 500 turns, CPU ms", 5, _value("pauses", _LOOP, "resume_cpu_us_500", 1e3)),
    Target("pause and resume beside the best peer, worst length", 1, _pauses, "x", needs_peers=True),
    Target("from interlock import Agent, Runner, tool, CPU ms", 100, _import("agent")),
    Target("the same, resident MiB", 32, _import("agent_mib")),
    Target("interlock --help beside import typer, CPU", 1.3, _import("help", "typer"), "x"),
    Target("interlock run --help beside import typer, CPU", 1.3, _import("run_help", "typer"), "x"),
    Target(
        "server: runs of 5 governed calls on one core, per second", 300, _server("throughput", "runs"), is_minimum=True
    ),
    Target("server: CPU of such a run, ms", 3.33, _server("throughput", "run cpu")),
    Target("server: share of HTTP in that CPU, %", 13.5, _server("throughput", "http")),
    Target("`true` in the sandbox beside bubblewrap alone", 1.15, _local("commands", "sandboxed", "bare"), "x"),
    Target("`true` in the sandbox beside a plain spawn", 10, _local("commands", "sandboxed", "plain"), "x"),
    Target("grep beside ripgrep, 25,000 files, slowest of 4", 1.2, _slowest(_GREPS), "x"),
    Target("glob beside ripgrep, 25,000 files, slowest of 3", 1.2, _slowest(_GLOBS), "x"),
    Target("read_file of 2,000 lines beside a plain read, CPU", 5, _local("files", "read", "plain_read"), "x"),
    Target("fingerprints of a command, 25,000 files, nothing changed, CPU ms", 30, _local("commands", "fingerprints")),
    Target("memory of a live run that waits for its tool, bytes", 65_536, _server("making", "live bytes")),
    Target("memory of a run that was made and paused, bytes", 4_096, _server("making", "bytes")),
    Target("memory of a paused run that was found at the start, bytes", 256, _server("starts", "bytes found")),
    Target("growth of the databases per 1,000 runs of one call, MiB", 10, _server("making", "stored")),
    Target("start with 100,000 paused runs, s", 2, _server("starts", "again 100000")),
    Target("until all of them were looked at, s", 30, _server("starts", "settled 100000")),
)
#: The last rows: what many runs cost.
SCALE = 6


def judge(results: Results) -> list[tuple[str, str, str, str]]:
    """Return a row for every target; those about peers only where peers took part."""
    return [target.judge(results) for target in TARGETS if results.peers or not target.needs_peers]


def number(value: float | None) -> str:
    """Format a figure with three digits that mean something."""
    if value is None:
        return "-"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
