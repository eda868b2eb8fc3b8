"""The benchmark of the local tools: small, it measures every figure that is shown, and what it says is judged right."""

from pathlib import Path

import pytest

from bench.local_tools import FIGURES, SECTIONS, Caller, Series, Sizes, measure, render
from interlock.sandbox.commands.probe import choose_sandbox

pytestmark = pytest.mark.skipif(choose_sandbox().confinement.degraded, reason="nothing holds commands back here")

SMALL = Sizes(
    rounds=1,
    files=60,
    lines=20,
    output_bytes=200_000,
    output_rounds=1,
    sleep_seconds=0.01,
    repeat=1,
    searches=("grep, which files", "glob, all files"),
    connections=3,
    transfer_bytes=3_000_000,
)


def test_every_section_has_the_figures_that_are_shown(tmp_path: Path) -> None:
    found = measure(tmp_path, SMALL, tuple(SECTIONS))

    shown = {wanted.section: {name for figure in wanted.figures for name in figure[1:3] if name} for wanted in FIGURES}
    shown["search"] = {side for name in SMALL.searches for side in (name, f"{name}, rg")}
    assert {section: set(series) for section, series in found.items()} == shown
    assert all(value > 0 for section in ("commands", "files") for values in found[section].values() for value in values)
    assert [path.name for path in tmp_path.iterdir() if path.name not in ("empty", "large", "artifacts")] == []


def test_a_ratio_is_taken_within_a_round_and_compared_with_its_limit() -> None:
    series: Series = {"sandboxed": [11.0, 26.0, 130.0], "plain": [1.0, 2.0, 10.0], "bare": [10.0, 20.0, 100.0]}

    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in render({"commands": series})[2:]]

    assert [row[1:] for row in rows] == [
        ["26.0", "2.0", "13.00x", "11.00x", "<= 10x", "MISSED"],
        ["26.0", "20.0", "1.30x", "1.10x", "<= 1.15x", "MISSED"],
    ]


def test_growth_is_judged_by_itself_and_not_known_is_missed() -> None:
    for growth_mib, mark in ((9.0, "ok"), (11.0, "MISSED"), (float("nan"), "MISSED")):
        (row,) = render({"output": {"growth_mib": [growth_mib]}})[2:]

        assert [cell.strip() for cell in row.split("|")[6:-1]] == ["<= 10", mark]


async def test_a_call_that_failed_is_not_measured(tmp_path: Path) -> None:
    caller = Caller(tmp_path)
    with pytest.raises(AssertionError, match="does not exist"):
        await caller("read_file", path="missing.py")
    await caller.close()
