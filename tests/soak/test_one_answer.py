"""Sixteen people answer every question at once; one of them is first, and all are told who."""

from pathlib import Path

import pytest

from tests.runs.deciding import check, deciders

pytestmark = pytest.mark.soak

ROUNDS = 400


async def test_sixteen_people_answer_at_once(tmp_path: Path) -> None:
    with deciders(tmp_path / "log", people=16, processes=8) as people:
        for number in range(ROUNDS):
            check(await people.answer(number, here=("first", "later", "never", "never")[number % 4]))
