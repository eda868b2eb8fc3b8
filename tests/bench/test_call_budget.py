"""What a tool call costs, as a count of function calls: it repeats exactly, so it can be a gate where a time cannot.

The same count as the peers' benchmark makes. It is made in a process of its own, because a test runner's hooks into the
garbage collector would be counted too. `python -m bench --section calls` prints it.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import HANG_SECONDS

MAX_CALLS = 250
#: Through a gate, which also opens and holds the run for a framework. About half of them are calls of Python functions.
MAX_GATE_CALLS = 380
_MAX_RUNS = 12
ROOT = Path(__file__).parents[2]


class Counted(NamedTuple):
    turn_30: float
    turn_210: float
    parallel_100: float


@pytest.fixture(scope="module")
def counted() -> Counted:
    """The first counts that a second run repeats. A process that stalls for 25 ms writes more of what is under way to
    the log, so on a busy machine some counts differ, and rarely twice in the same way.
    """
    command = [sys.executable, "-m", "bench.ours", "calls"]
    seen = list[Counted]()
    while len(seen) < _MAX_RUNS:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_SECONDS)
        found = Counted(**json.loads(done.stdout))
        if found in seen:
            return found
        seen.append(found)
    return Counted(*map(min, zip(*seen, strict=True)))


def test_a_single_call_costs_at_most_250_function_calls(counted: Counted) -> None:
    assert counted.turn_30 <= MAX_CALLS


def test_a_call_of_a_large_batch_costs_at_most_250_function_calls(counted: Counted) -> None:
    assert counted.parallel_100 <= MAX_CALLS


def test_a_late_turn_costs_what_an_early_one_costs(counted: Counted) -> None:
    assert counted.turn_210 == pytest.approx(counted.turn_30, rel=0.01)


def test_a_call_through_a_gate_costs_the_same_late_in_a_run() -> None:
    command = [sys.executable, "-m", "bench.gate", "calls"]
    # It also polls for answers, every few milliseconds: what a slow machine adds is left out.
    seen = list[Counted]()
    while len(seen) < 6:
        done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_SECONDS)
        seen.append(Counted(**json.loads(done.stdout)))
        smallest = Counted(*map(min, zip(*seen, strict=True)))
        if max(smallest.turn_30, smallest.turn_210) <= MAX_GATE_CALLS:
            return
    pytest.fail(f"a call through a gate costs at most {MAX_GATE_CALLS}, not {seen}")
