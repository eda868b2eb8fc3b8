"""The benchmark itself: it measures work that was really done, and prints it beside what must be reached."""

import subprocess
import sys
from pathlib import Path

import pytest

from bench.figures import FIGURES
from bench.floor import FloorRun
from bench.ours import OurRun
from bench.policy import SECTIONS as POLICY_SECTIONS
from bench.rounds import NAMES, Readings, Step, steps
from bench.sections import SECTIONS
from bench.table import render
from bench.work import Call, Message, OpenRun, go_through, make_plan

ROOT = Path(__file__).parents[2]


class LazyRun:
    """Answers without having executed anything."""

    async def turn(self, calls: list[Call]) -> list[Message]:
        return [{"role": "tool", "tool_call_id": call["id"], "content": ""} for call in calls]

    async def close(self) -> None: ...


@pytest.mark.parametrize("open_run", [OurRun, FloorRun])
@pytest.mark.parametrize("tool_name", ["quick", "quick_sync"])
async def test_ours_and_the_floor_do_the_same_work(open_run: OpenRun, tool_name: str, tmp_path: Path) -> None:
    for path in (None, tmp_path / "log.db"):
        run = open_run(path)
        model = await go_through(run, make_plan(2, 3, tool_name))
        await run.close()

        assert len(model.turn_cpu_us()) == 2


async def test_work_that_was_not_done_is_not_measured() -> None:
    with pytest.raises(AssertionError, match="2 calls, 0 executed, 2 answered"):
        await go_through(LazyRun(), make_plan(1, 2))


def test_every_section_is_shown() -> None:
    assert {figure.section for figure in FIGURES} == set(NAMES) == {*SECTIONS, *POLICY_SECTIONS, "import"}


def test_rounds_are_interleaved_and_their_order_turns() -> None:
    assert list(steps(["turns", "calls"], 2)) == [
        Step(0, "turns", "floor"),
        Step(0, "turns", "ours"),
        Step(0, "calls", "floor"),
        Step(0, "calls", "ours"),
        Step(1, "turns", "ours"),
        Step(1, "turns", "floor"),
    ]


def test_a_ratio_is_taken_within_a_round_and_compared_with_its_limit() -> None:
    ours = [{"cpu_us_100": 20.0, "cpu_us_1000": 30.0}, {"cpu_us_100": 80.0, "cpu_us_1000": 60.0}]
    floor = [{"cpu_us_100": 10.0, "cpu_us_1000": 10.0}, {"cpu_us_100": 40.0, "cpu_us_1000": 20.0}]
    readings: Readings = {("parallel", "ours"): ours, ("parallel", "floor"): floor}

    rows = [[cell.strip() for cell in line.split("|")[2:-1]] for line in render(readings, 0.0).splitlines()[2:4]]

    assert rows == [
        ["50.0", "25.0", "2.00x", "2.00-2.00", "<= 2.5x (1.5x)", "ok"],
        ["45.0", "15.0", "3.00x", "3.00-3.00", "<= 2.5x (1.5x)", "MISSED"],
    ]


def test_a_busy_machine_is_named() -> None:
    assert "The machine was busy" in render({}, 100.0)
    assert "The machine was busy" not in render({}, 0.0)


def test_the_command_prints_a_table_with_targets() -> None:
    command = [sys.executable, "-m", "bench", "--rounds", "1", "--section", "calls"]

    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=50)

    assert "function calls per tool call, turn 30" in done.stdout
    assert "<= 250" in done.stdout
    assert done.stderr.splitlines()[-1] == "[2/2] round 1: calls, ours"
