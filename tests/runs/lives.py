"""Children that live the story (`story.py`) in a folder, one after another, and what they left."""

import asyncio
import json
import shutil
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from interlock import Observation, SqliteLog, verify
from interlock.domain.event import (
    ApprovalGranted,
    ApprovalRejected,
    ApprovalRequested,
    CallObserved,
    Fact,
    InvocationStarted,
    LogEntry,
    decode_event,
)
from interlock.domain.state.lifecycle import CallState
from interlock.history.fold import fold_entries
from tests.patience import HANG_SECONDS

from .story import (
    ANSWERS,
    CERTAIN,
    CODES,
    COUNTS,
    EFFECTS,
    ERROR,
    FINAL,
    IDEMPOTENT,
    LOG,
    NO_EFFECT,
    RESULT,
    RUN_ID,
)

ROOT = Path(__file__).parents[2]
KILLED = -signal.SIGKILL


class Lives:
    """One warm process that forks a child for each life."""

    def __init__(self) -> None:
        command = [sys.executable, "-m", "tests.runs.story"]
        self._process = subprocess.Popen(
            command, cwd=ROOT, text=True, bufsize=1, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def live(self, folder: Path, kind: str = "", number: int = 0) -> int:
        """The exit code of a child that dies when it reaches this point, or that ends by itself."""
        assert self._process.stdin
        assert self._process.stdout
        folder.mkdir(exist_ok=True)
        print(json.dumps([str(folder), kind, number]), file=self._process.stdin, flush=True)
        code = int(self._process.stdout.readline())
        error = folder / ERROR
        assert not error.exists(), error.read_text()
        return code

    def close(self) -> None:
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(HANG_SECONDS)


class Left(msgspec.Struct, frozen=True):
    """What a life has left behind: the logs of both runs, and the effects on the world."""

    entries: dict[str, list[LogEntry]]
    facts: list[Fact]
    effects: Counter[str]

    def count(self, *kinds: type) -> Counter[str]:
        return Counter(getattr(fact, "call_id", "") for fact in self.facts if isinstance(fact, kinds))

    @property
    def observations(self) -> list[Observation]:
        return [fact.observation for fact in self.facts if isinstance(fact, CallObserved)]

    @property
    def interrupted(self) -> set[str]:
        """Calls that started and have no end."""
        calls = {id: entry for run in CODES for id, entry in fold_entries(run, self.entries[run]).calls.items()}
        return {call_id for call_id, entry in calls.items() if entry.state is CallState.RUNNING}


def left_in(folder: Path) -> Left:
    """Read from a copy, so that whoever goes on is the first to open what the dead left."""
    copy = folder.with_name(folder.name + ".copy")
    shutil.copytree(folder, copy)
    entries = asyncio.run(_read(copy / LOG))
    effects = copy / EFFECTS
    lines = effects.read_text().splitlines() if effects.exists() else []
    shutil.rmtree(copy)
    facts = [decode_event(entry).fact for run in entries.values() for entry in run]
    return Left(entries, facts, Counter(lines))


async def _read(path: Path) -> dict[str, list[LogEntry]]:
    async with SqliteLog(path) as log:
        return {run_id: await log.read(run_id) for run_id in CODES}


def assert_sound(left: Left) -> None:
    """At every moment: the logs verify, no effect without a durable start, and none without the yes that it needs."""
    for run_id, entries in left.entries.items():
        audit = verify(entries, run_id)
        assert audit.ok, audit.flaw
    started, granted = left.count(InvocationStarted), left.count(ApprovalGranted)
    for call_id, count in left.effects.items():
        assert count <= started[call_id], f"{call_id} had {count} effects and {started[call_id]} starts"
        assert count == 1 or call_id in IDEMPOTENT, f"{call_id} had its effect {count} times"
    for call_id, yes in ANSWERS.items():
        assert started[call_id] <= granted[call_id], f"{call_id} started without a yes"
        assert yes or not granted[call_id]


def assert_went_on(death: Left | None, folder: Path) -> None:
    """Nothing durable was lost, everything came to its true end, nobody was asked twice, and the answer is the same."""
    after = left_in(folder)
    assert_sound(after)
    unknown: set[str] = set()
    if death is not None:
        unknown = death.interrupted - CERTAIN
        for run_id, entries in death.entries.items():
            assert after.entries[run_id][: len(entries)] == entries, "what was durable is still there"
    expected = {id: "outcome_unknown" if id in unknown else code for run in CODES.values() for id, code in run.items()}
    assert {seen.call_id: seen.code for seen in after.observations} == expected
    assert len(after.observations) == len(expected), "a call has two outcomes"
    for call_id in expected.keys() - NO_EFFECT - unknown:
        assert after.effects[call_id] >= 1, f"{call_id} says ok and had no effect"
    asked, answered = after.count(ApprovalRequested), after.count(ApprovalGranted, ApprovalRejected)
    assert asked == answered == dict.fromkeys(ANSWERS, 1), "a person is asked once, and an answer is kept"
    assert_told(folder, expected)


def assert_told(folder: Path, expected: dict[str, str]) -> None:
    status, text, told = json.loads((folder / RESULT).read_text())
    assert (status, text) == ("COMPLETED", FINAL)
    assert told == [[call_id, expected[call_id] == "ok"] for call_id in CODES[RUN_ID]], "in the order of the model"


def counts_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / COUNTS).read_text())
