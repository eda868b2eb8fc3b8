"""The figures of effects, measured small: each row has its numbers."""

from pathlib import Path

from bench.effects import FIGURES, Sizes, measure
from bench.local_tools import render


def test_every_figure_is_measured(tmp_path: Path) -> None:
    found = measure(tmp_path.resolve(), Sizes(rounds=1, files=40, new_files=20))

    wanted = {name for each in FIGURES for figure in each.figures for name in (figure.ours, figure.reference) if name}
    assert {name for series in found.values() for name in series} == wanted
    assert len(render(found, FIGURES)) == sum(len(each.figures) for each in FIGURES) + 2
