"""People who answer the same question at the same time, in several processes.

`python -m tests.runs.deciding LOG NAME ...` answers every question that it reads, once for each name, and prints who
was told what.
"""

import asyncio
import json
import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

from interlock import Answer, EventLog, Inbox, tool
from interlock.domain.errors import DecisionConflictError
from interlock.domain.event import ApprovalGranted, ApprovalRejected
from interlock.runs.runner import Runner
from tests.logs import open_log
from tests.patience import HANG_SECONDS

from .support import agent_of, calls, facts

ROOT = Path(__file__).parents[2]


class Told(NamedTuple):
    """What a person was told: that the answer counts, or whose does."""

    by: str
    counts: bool
    first_by: str
    status: str


@tool(risk="write")
def change() -> str:
    """A person is asked."""
    return "changed"


async def decide(log: EventLog, name: str, run_id: str, action_id: str) -> Told:
    approved = int(name.removeprefix("p")) % 2 == 0
    async with Inbox(log) as inbox:
        try:
            await inbox.deliver(run_id, action_id, Answer(approved=approved, by=name))
        except DecisionConflictError as conflict:
            return Told(name, False, conflict.by, conflict.status if conflict.at else "at no time")
    return Told(name, True, name, "approved" if approved else "rejected")


async def serve(path: str, names: Sequence[str]) -> None:
    logs = {name: open_log(path) for name in names}
    while line := await asyncio.to_thread(sys.stdin.readline):
        run_id, action_id = line.split()
        told = await asyncio.gather(*(decide(log, name, run_id, action_id) for name, log in logs.items()))
        print(json.dumps(told), flush=True)


class Round(NamedTuple):
    """One question that everybody answered: what they were told, and what the log has."""

    told: list[Told]
    by: str
    status: str


class Deciders:
    """Processes of people, and one person in this process who is asked by the run itself."""

    def __init__(self, path: Path, processes: Sequence["subprocess.Popen[str]"]) -> None:
        self._path = path
        self._processes = processes

    async def answer(self, number: int, *, here: Literal["first", "later", "never"]) -> Round:
        """Let all of them answer the question of a new run. `here`: when the person here does, whom the run asks; until
        then the run is live in this process.
        """
        run_id, asked, go = f"run{number}", asyncio.Event(), asyncio.Event()

        async with open_log(self._path) as log:

            async def approve(question: object) -> bool | None:
                asked.set()
                await go.wait()
                if here == "later":  # right after the first of the others
                    await log.wait_for_change(log.version(), HANG_SECONDS)
                return None if here == "never" else True

            agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change])
            async with Runner(agent, log=log, approve=approve) as runner:
                handle = await runner.start("Do it.", run_id=run_id)
                await asyncio.wait_for(asked.wait(), HANG_SECONDS)
                (question,) = await handle.questions()
                if here == "never":
                    go.set()
                    await handle.result()
                for process in self._processes:
                    assert process.stdin
                    process.stdin.write(f"{run_id} {question.action_id}\n")
                    process.stdin.flush()
                go.set()
                told = await asyncio.gather(*(asyncio.to_thread(_read_told, process) for process in self._processes))
                await handle.wait_until_finished()
            (answer,) = [
                fact for fact in await facts(log, run_id) if isinstance(fact, ApprovalGranted | ApprovalRejected)
            ]
            assert await log.queued_commands(run_id) == []
        status = "approved" if isinstance(answer, ApprovalGranted) else "rejected"
        return Round([one for some in told for one in some], answer.answer.by, status)


def _read_told(process: "subprocess.Popen[str]") -> list[Told]:
    assert process.stdout
    return [Told(*told) for told in json.loads(process.stdout.readline())]


@contextmanager
def deciders(path: Path, people: int, processes: int) -> Generator[Deciders]:
    names = [f"p{number}" for number in range(people)]
    with ExitStack() as stack:
        started: list[subprocess.Popen[str]] = []
        for number in range(processes):
            command = [sys.executable, "-m", "tests.runs.deciding", str(path), *names[number::processes]]
            process = subprocess.Popen(command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            started.append(stack.enter_context(process))
            stack.callback(process.kill)
        yield Deciders(path, started)


def check(played: Round) -> None:
    """Exactly one answer counts, and everybody was told which."""
    winners = [told.by for told in played.told if told.counts]
    assert winners == ([] if played.by == "callback" else [played.by]), played
    assert {(told.first_by, told.status) for told in played.told} == {(played.by, played.status)}


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1], sys.argv[2:]))
