"""What a decision costs. As a count of function calls it repeats exactly, so it can be a gate where a time cannot.

The count is made in a process of its own, because a test runner's hooks into the garbage collector would be counted
too. `python -m bench policy` prints it.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from bench import policy
from bench.local_tools import Series, render
from bench.policy import FIGURES, Figures
from interlock import Rule, RulePolicy

MAX_GROWTH = 3
ROOT = Path(__file__).parents[2]
#: Nothing can be looked up by a pattern of the value of an argument: each of these rules is asked.
LOOKED_UP = sorted(policy.RULE_SETS.keys() - {"patterns"})


@pytest.fixture(scope="module")
def counted() -> Figures:
    command = [sys.executable, "-m", "bench.policy", "decision_calls"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, timeout=50)
    return json.loads(done.stdout)


@pytest.mark.parametrize("rules", LOOKED_UP)
def test_a_decision_over_1000_rules_makes_at_most_3_times_the_calls_of_one_over_10(
    counted: Figures, rules: str
) -> None:
    assert counted[f"{rules}_many"] <= MAX_GROWTH * counted[f"{rules}_few"]


async def test_every_section_has_all_the_figures_that_are_shown() -> None:
    measured = {
        "decisions": await policy.decisions(many=20, repeat=1),
        "decision_calls": await policy.decision_calls(many=20),
        "governed": await policy.governed(turns=2, repeat=1),
        "approvals": await policy.approvals(turns=2, repeat=1),
    }

    assert {section: set(figures) for section, figures in measured.items()} == {
        wanted.section: _names(wanted.section) for wanted in FIGURES
    }
    assert all(figure > 0 for figures in measured.values() for figure in figures.values())


def test_a_slow_decision_and_a_large_share_are_shown_as_missed() -> None:
    decisions = dict.fromkeys(_names("decisions"), 10.0) | {"hosts_many": 29.0, "paths_many": 31.0}
    governed = {"quick_decision": 9.0, "quick_call": 100.0, "read_file_decision": 11.0, "read_file_call": 100.0}
    governed |= {"bash_decision": 5.0, "bash_call": 100.0}
    found: dict[str, Series] = {
        section: {name: [value] for name, value in figures.items()}
        for section, figures in (("decisions", decisions), ("governed", governed))
    }

    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in render(found, FIGURES)]

    marks = {row[0]: (row[3], row[-1]) for row in rows if len(row) == 7}
    assert marks["1,000 rules by host beside 10, CPU us"] == ("2.90x", "ok")
    assert marks["1,000 rules by path beside 10, CPU us"] == ("3.10x", "MISSED")
    assert marks["a decision by 10 rules, beside its whole call, CPU us"] == ("0.09x", "ok")
    assert marks["the same about a path"] == ("0.11x", "MISSED")


def test_a_decision_by_another_rule_than_the_one_that_is_meant_is_not_measured() -> None:
    kind = policy.RULE_SETS["hosts"]
    stranger = policy.RuleSet(lambda number: {"tools": f"tool_{number}"}, kind.calls)
    denied = RulePolicy([Rule(id="r", verdict="deny", tools="fetch")])

    for rules in (stranger.policy(10), denied):
        with pytest.raises(AssertionError, match="fetch: "):
            policy.judging(rules, kind.events(), 1)


def _names(section: str) -> set[str]:
    figures = next(wanted.figures for wanted in FIGURES if wanted.section == section)
    return {name for figure in figures for name in (figure.ours, figure.reference) if name}
