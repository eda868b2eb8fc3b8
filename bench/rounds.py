"""Measure in rounds: every section of everybody, each in a fresh process, in an order that turns from round to round.

So a slow moment of the machine hits both sides of a ratio, and a ratio is taken within one round.
"""

import json
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple, TypeAlias

from .imports import import_costs
from .sections import Figures

#: In the order that they are run and shown.
NAMES = (
    *("sequential", "parallel", "calls", "durable", "sleeping", "import", "turns", "memory"),
    *("decisions", "decision_calls", "governed", "approvals"),
)
_ONCE = frozenset({"calls", "decision_calls"})
#: Sections that only one is measured in.
_ALONE = {
    "import": "both",
    "sleeping": "ours",
    **dict.fromkeys(("decisions", "decision_calls", "governed", "approvals"), "policy"),
}

#: By section and subject, the figures of each round.
Readings: TypeAlias = dict[tuple[str, str], list[Figures]]


class Step(NamedTuple):
    round: int
    section: str
    subject: str


def steps(sections: Sequence[str], rounds: int) -> Iterator[Step]:
    for number in range(rounds):
        for section in sections:
            if number > 0 and section in _ONCE:
                continue
            for subject in _subjects(section, number):
                yield Step(number, section, subject)


def measure(sections: Sequence[str], rounds: int, progress: Callable[[int, int, Step], None]) -> Readings:
    readings: Readings = defaultdict(list)
    todo = list(steps(sections, rounds))
    if "import" in sections:
        import_costs()  # compiles what was not compiled yet
    for done, step in enumerate(todo):
        progress(done, len(todo), step)
        readings[step.section, step.subject].append(_measured(step))
    return readings


def _subjects(section: str, number: int) -> tuple[str, ...]:
    if section in _ALONE:
        return (_ALONE[section],)
    return ("ours", "floor") if number % 2 else ("floor", "ours")


def _measured(step: Step) -> Figures:
    if step.section == "import":
        return import_costs()
    command = [sys.executable, "-m", f"bench.{step.subject}", step.section]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return json.loads(done.stdout)
