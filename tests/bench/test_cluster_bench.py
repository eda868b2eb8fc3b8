"""The benchmark of many hosts: small, it measures every section, and every row has its target and a verdict."""

import pytest

from bench.cluster import SECTIONS, Row, Sizes, report

SMALL = Sizes(runs=2, paused=5, answers=2, idle_seconds=0.1, appends=2, rows=2_000, approvals=1)


@pytest.mark.soak
@pytest.mark.parametrize("section", SECTIONS)
def test_section_prints_targets_and_verdicts(section: str) -> None:
    _, _, *rows, _, load = report([section], SMALL).splitlines()

    assert rows
    assert all(row.split("|")[-2].strip() in ("ok", "MISSED") for row in rows)
    assert all("= " in row.split("|")[-3] for row in rows)
    assert "load" in load


def test_missed_target_is_named() -> None:
    assert Row("a page, ms", "6", "<= 5", is_reached=False).cells == ("a page, ms", "6", "<= 5", "MISSED")
