"""Results as tables, and as the record (`results.json`) that the documentation is made from."""

import os
import platform
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from .peers.driver import Measured
from .targets import number

RECORD = Path(__file__).with_name("results.json")
_CALM_LOAD_PER_CORE = 0.4
#: Rows of the table of runtimes: what, section, figures that are shown together, and what they are divided by.
_ROWS: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    ("1 call x 200 turns, CPU us per call", "overhead", ("sequential_cpu_us",), 1),
    ("a run of one call, CPU us", "overhead", ("one_call_cpu_us",), 1),
    ("100 / 1,000 calls in a turn, CPU us per call", "overhead", ("parallel_100_cpu_us", "parallel_1000_cpu_us"), 1),
    ("function calls per tool call, turn 30 / turn 210", "counts", ("turn_30", "turn_210"), 1),
    ("the same, 100 calls in a turn", "counts", ("parallel_100",), 1),
    ("100 async / sync tools of 50 ms, wall ms", "sleeping", ("sleep_ms", "sleep_sync_ms"), 1),
    ("pause at 10 / 100 / 500 turns, CPU ms", "pauses", tuple(f"pause_cpu_us_{n}" for n in (10, 100, 500)), 1e3),
    ("resume at 10 / 100 / 500 turns, CPU ms", "pauses", tuple(f"resume_cpu_us_{n}" for n in (10, 100, 500)), 1e3),
    ("stored at 10 / 100 / 500 turns, kB", "pauses", tuple(f"bytes_{n}" for n in (10, 100, 500)), 1e3),
    ("durable, 1 call x 100 turns, wall us per call", "durable", ("sequential_wall_us",), 1),
    ("durable, 100 calls in a turn, wall us per call", "durable", ("parallel_wall_us",), 1),
    ("import, CPU ms / resident MiB", "import", ("import_cpu_ms", "import_mib"), 1),
)

#: What the README shows of the table of runtimes.
_SUMMARY_RUNTIMES = frozenset({"interlock", "pydantic-ai", "LangGraph", "inspect-ai", "OpenAI Agents", "Google ADK"})
_SUMMARY_ROWS = frozenset(
    {
        "1 call x 200 turns, CPU us per call",
        "100 / 1,000 calls in a turn, CPU us per call",
        "function calls per tool call, turn 30 / turn 210",
        "pause at 10 / 100 / 500 turns, CPU ms",
        "resume at 10 / 100 / 500 turns, CPU ms",
    }
)


class Circumstances(msgspec.Struct, frozen=True):
    """When and where it was measured."""

    date: str
    cores: int
    python: str
    rounds: int
    load_before: float
    load_after: float

    @property
    def text(self) -> str:
        """One sentence, and a second where the machine was busy."""
        where = (
            f"{self.date}, {self.cores} cores, Python {self.python}, {self.rounds} rounds, load {self.load_before:.1f} "
            f"at the start and {self.load_after:.1f} at the end."
        )
        if max(self.load_before, self.load_after) > self.cores * (1 + _CALM_LOAD_PER_CORE):
            return f"{where} The machine was busy with other work: only counts and bytes mean something."
        return where


class Record(msgspec.Struct, frozen=True):
    """One run with all peers."""

    circumstances: Circumstances
    #: Figure, measured, target, verdict.
    targets: list[tuple[str, str, str, str]]
    #: The first row has the names of the runtimes.
    runtimes: list[list[str]]
    #: By runtime, its packages.
    versions: Mapping[str, Mapping[str, str]]
    problems: Sequence[str]


def describe(rounds: int, load_before: float) -> Circumstances:
    """Return the circumstances of a run that ends now."""
    return Circumstances(
        datetime.now(UTC).date().isoformat(),
        os.cpu_count() or 1,
        platform.python_version(),
        rounds,
        round(load_before, 1),
        round(os.getloadavg()[0], 1),
    )


def compare_runtimes(measured: Measured, names: Sequence[str]) -> list[list[str]]:
    """Return the table of runtimes; without the rows of which nothing was measured."""
    rows = [["", *names]]
    for label, section, figures, divided in _ROWS:
        cells = [_cell(measured, section, name, figures, divided) for name in names]
        if any(cell != "-" for cell in cells):
            rows.append([label, *cells])
    return rows


def _cell(measured: Measured, section: str, runtime: str, figures: Sequence[str], divided: float) -> str:
    values = [measured.median(section, runtime, name) for name in figures]
    if all(value is None for value in values):
        return "-"
    return " / ".join("-" if value is None else number(value / divided) for value in values)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table; the first row is its head."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    return "\n".join([lines[0], rule, *lines[1:]])


def show_targets() -> str:
    """Return the targets of the record, for the documentation."""
    record = read()
    rows = table([("figure", "measured", "target", ""), *record.targets])
    return f"`python -m bench peers --write`: {record.circumstances.text}\n\n{rows}"


def show_runtimes() -> str:
    """Return all runtimes of the record, with their versions."""
    record = read()
    versions = "; ".join(
        f"{name}: {', '.join(f'{package} {version}' for package, version in packages.items() if package != 'python')}"
        for name, packages in record.versions.items()
        if name in record.runtimes[0]
    )
    missing = "".join(f"\n- Not measured: {problem}" for problem in record.problems)
    return f"{record.circumstances.text}\n\n{table(record.runtimes)}\n\nVersions: {versions}.\n{missing}".rstrip()


def show_summary() -> str:
    """Return the rows and runtimes that the README shows."""
    record = read()
    columns = [at for at, name in enumerate(record.runtimes[0]) if not at or name in _SUMMARY_RUNTIMES]
    rows = [record.runtimes[0], *(row for row in record.runtimes[1:] if row[0] in _SUMMARY_ROWS)]
    where = f"Measured in one run: {record.circumstances.text}"
    return f"{where}\n\n{table([[row[at] for at in columns] for row in rows])}"


def write(record: Record, path: Path = RECORD) -> None:
    """Replace the record that the documentation is made from."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(record), indent=1) + b"\n")


def read(path: Path = RECORD) -> Record:
    """Read the record."""
    return msgspec.json.decode(path.read_bytes(), type=Record)
