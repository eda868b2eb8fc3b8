"""What the server costs, over HTTP on loopback, each side in a process of its own: `python -m bench service`."""

import asyncio
import os
import platform
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import NamedTuple

from .service_measures import SECTIONS, Series, Sizes

_HEAD = ("figure", "measured", "reference", "ratio", "target", "")


class Figure(NamedTuple):
    section: str
    label: str
    ours: str
    reference: str = ""
    #: What it, or its ratio to the reference, must not exceed.
    limit: float | None = None


def figures(sizes: Sizes) -> list[Figure]:
    listed, load = f"{sizes.listed:,} paused runs", f"GET /v1/runs/{{id}}, {sizes.connections} connections"
    beside = f"beside {sizes.paused} paused and {sizes.live} live runs"
    live = f"{sizes.readers} readers, {sizes.events_per_second} events/s"
    found = [
        Figure("lists", f"{listed} in a list, request to last byte, ms", "listed", limit=50),
        Figure("lists", "the same at worst, ms", "listed at worst"),
        Figure("lists", "the same, CPU of the server, ms", "listed cpu"),
        Figure("lists", "nobody asks for anything, share of a core", "idle"),
        Figure("making", "POST /runs, one agent, per second", "made"),
        Figure("making", "memory of a run that was made and paused, bytes", "bytes", limit=4_096),
        Figure("making", "memory of a live run that waits for its tool, bytes", "live bytes", limit=65_536),
        Figure("making", "growth of the databases per 1,000 runs of one call, MiB", "stored", limit=10),
        Figure("making", "signing in, ms", "login"),
        Figure("throughput", "runs of 5 governed calls on one core, per second", "runs"),
        Figure("throughput", "CPU of such a run, ms", "run cpu", limit=3.33),
        Figure("throughput", "share of HTTP in that CPU, %", "http", limit=13.5),
        Figure("live", f"{live}: lost", "lost", limit=0),
        Figure("live", f"{live}: twice", "twice", limit=0),
        Figure("live", "events that were written, per second", "rate"),
        Figure("live", "from writing to a reader, p50, ms", "delay p50"),
        Figure("live", "from writing to a reader, p99, ms", "delay p99"),
        Figure("live", "share of a core", "share"),
        Figure("approvals", "approval to the tool's start, p50, ms", "alone p50", limit=100),
        Figure("approvals", "the same, p99, ms", "alone p99"),
        Figure("approvals", f"the same {beside}, p50, ms", "beside p50", limit=100),
        Figure("approvals", f"the same {beside}, p99, ms", "beside p99"),
        Figure("load", f"{load}, p99, beside an empty route, ms", "ours p99", "empty p99", 5),
        Figure("load", "the same, p50, ms", "ours p50", "empty p50"),
        Figure("load", "the same, CPU of the server, us", "ours cpu", "empty cpu"),
        Figure("load", "the same, requests per second", "ours rate", "empty rate"),
    ]
    for paused in sizes.starts:
        found += [
            Figure("starts", f"start with {paused:,} paused runs, s", f"again {paused}", limit=2),
            Figure("starts", "until nothing is left to look at, s", f"settled {paused}", limit=30),
            Figure("starts", "the same without an index, s", f"anew {paused}"),
        ]
    return [
        *found,
        Figure("starts", f"resident with {sizes.starts[-1]:,} paused runs, MiB", "resident"),
        Figure("starts", "memory of a further paused run that was found, bytes", "bytes found", limit=256),
    ]


def measure(folder: Path, sizes: Sizes, sections: Sequence[str]) -> dict[str, Series]:
    """Measure these sections, each in a folder of its own."""
    found: dict[str, Series] = {}
    for section in sections:
        place = folder / section
        place.mkdir()
        found[section] = asyncio.run(SECTIONS[section](place, sizes))
    return found


def render(found: Mapping[str, Series], sizes: Sizes) -> list[str]:
    rows = [_row(figure, found[figure.section]) for figure in figures(sizes) if figure.section in found]
    widths = [max(map(len, column)) for column in zip(_HEAD, *rows, strict=True)]
    rule = "|" + "|".join("-" * (width + 2) for width in widths) + "|"
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in (_HEAD, *rows)]
    return [lines[0], rule, *lines[1:]]


def report(sections: Sequence[str], sizes: Sizes) -> str:
    load_before = os.getloadavg()[0]
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), sizes, sections)
    now = datetime.now(UTC).date()
    about = (
        f"{now}, {os.cpu_count()} cores, Python {platform.python_version()}, load {load_before:.1f} at the start and "
        f"{os.getloadavg()[0]:.1f} at the end."
    )
    return "\n".join([*render(found, sizes), "", about])


def _row(figure: Figure, series: Series) -> tuple[str, ...]:
    ours = series[figure.ours]
    if not figure.reference:
        return figure.label, _number(median(ours)), "", "", *_judged(figure.limit, "", median(ours))
    reference = series[figure.reference]
    ratio = median(mine / other for mine, other in zip(ours, reference, strict=True))
    numbers = _number(median(ours)), _number(median(reference)), f"{ratio:.2f}x"
    return figure.label, *numbers, *_judged(figure.limit, "x", ratio)


def _judged(limit: float | None, unit: str, reached: float) -> tuple[str, str]:
    if limit is None:
        return "", ""
    return f"<= {limit:g}{unit}", "ok" if reached <= limit else "MISSED"


def _number(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
