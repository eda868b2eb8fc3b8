"""Readings as a table of ratios, each with what it must reach."""

import math
import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from statistics import median

from .figures import FIGURES, Figure, Source
from .rounds import Readings

_CALM_LOAD_PER_CORE = 0.4
_HEAD = ("figure", "ours", "reference", "ratio", "spread", "target", "")


def render(readings: Readings, load_before: float) -> str:
    measured = {section for section, _ in readings}
    rows = [_row(figure, readings) for figure in FIGURES if figure.section in measured]
    return "\n".join([*_lines([_HEAD, *rows]), "", _circumstances(load_before)])


def _row(figure: Figure, readings: Readings) -> tuple[str, ...]:
    values = _series(figure.value, figure, readings)
    shown = _number(median(values))
    if figure.reference is None:
        return figure.label, shown, "", "", "", _target(figure), _mark(figure, median(values))
    references = _series(figure.reference, figure, readings)
    ratios = [value / reference for value, reference in zip(values, references, strict=True)]
    return (
        figure.label,
        shown,
        _number(median(references)),
        f"{median(ratios):.2f}x",
        f"{min(ratios):.2f}-{max(ratios):.2f}",
        _target(figure),
        _mark(figure, median(ratios)),
    )


def _series(source: Source, figure: Figure, readings: Readings) -> list[float]:
    return [figures[source.name] for figures in readings[figure.section, source.subject]]


def _target(figure: Figure) -> str:
    if figure.limit is None:
        return ""
    if figure.reference is None:
        return f"<= {figure.limit:g}"
    stretch = f" ({figure.stretch:g}x)" if figure.stretch is not None else ""
    return f"<= {figure.limit:g}x{stretch}"


def _mark(figure: Figure, reached: float) -> str:
    if figure.limit is None:
        return ""
    return "ok" if reached <= figure.limit else "MISSED"


def _number(value: float) -> str:
    if math.isnan(value):
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _lines(rows: list[tuple[str, ...]]) -> Iterable[str]:
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    for number, row in enumerate(rows):
        cells = [
            cell.rjust(width) if 0 < column < 5 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        yield "| " + " | ".join(cells) + " |"
        if number == 0:
            yield "|" + "|".join("-" * (width + 2) for width in widths) + "|"


def _circumstances(load_before: float) -> str:
    cores, day = os.cpu_count() or 1, datetime.now(UTC).date()
    where = f"{day}, {cores} cores, Python {platform.python_version()}, load {load_before:.1f} at the start."
    busy = load_before > cores * _CALM_LOAD_PER_CORE
    return f"{where} The machine was busy: read no times from this." if busy else where
