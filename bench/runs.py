"""`python -m bench.runs`: what pausing and resuming a run of an agent costs, by its length, on SQLite.

A run of so many events stops at an approval; then a fresh log and runner, with the yes, go on until the model is asked.
CPU time, the median of several; both lengths take turns in every round.
"""

import asyncio
import tempfile
from collections.abc import AsyncGenerator
from pathlib import Path
from statistics import median
from time import process_time_ns
from typing import NamedTuple

from interlock import (
    Agent,
    Answer,
    Budgets,
    ModelEvent,
    ModelRequest,
    ProposedCall,
    Runner,
    SqliteLog,
    StreamFinished,
    TextDelta,
    ToolCallDelta,
    tool,
)

ROUNDS = 9
LENGTHS = (1_000, 10_000)
_BUDGETS = Budgets(max_steps=10**9, max_model_calls=10**9, max_tool_calls=10**9)
_EVENTS_PER_TURN = 9


@tool
async def look(path: str, count: int) -> str:
    """Answer at once."""
    return f"{path}: {count} lines, {'x' * 60}"


@tool(risk="write")
async def write(path: str, count: int) -> str:
    """A person is asked."""
    return "written"


class Model:
    """Looks so many times, then wants to write, then is done."""

    name = "bench"

    def __init__(self, turns: int, begin: int = 0) -> None:
        self.turns = turns
        self.turn = begin
        self.asked_ns = 0
        self.told_ns = 0

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        self.asked_ns = process_time_ns()
        turn, self.turn = self.turn, self.turn + 1
        if turn > self.turns:
            yield TextDelta("Done.")
            yield StreamFinished(reason="stop")
            return
        name = "look" if turn < self.turns else "write"
        arguments = f'{{"path":"a/b.py","count":{turn}}}'
        yield ToolCallDelta(ProposedCall(call_id=f"call_{turn}", tool=name, arguments=arguments))
        self.told_ns = process_time_ns()
        yield StreamFinished(reason="tool_calls")

    async def close(self) -> None:
        """There is nothing to close."""


class Costs(NamedTuple):
    pause_ms: float
    resume_ms: float
    events: int


def _runner(model: Model, log: SqliteLog) -> Runner:
    return Runner(Agent(provider=model, tools=[look, write], budgets=_BUDGETS), log=log)


async def pause_and_resume(path: Path, events: int) -> Costs:
    turns = events // _EVENTS_PER_TURN
    model = Model(turns)
    async with SqliteLog(path) as log, _runner(model, log) as runner:
        paused = await runner.run("Go.")
        pause_ns = process_time_ns() - model.told_ns
        count = len(await log.read(paused.run_id))
    model = Model(turns, turns + 1)
    began = process_time_ns()
    async with SqliteLog(path) as log, _runner(model, log) as runner:
        answers = {paused.questions[0].action_id: Answer(approved=True, by="bench")}
        result = await (await runner.open(paused.run_id, answers=answers)).result()
    assert result.text == "Done."
    return Costs(pause_ns / 1e6, (model.asked_ns - began) / 1e6, count)


async def measure(rounds: int, lengths: tuple[int, ...] = LENGTHS) -> dict[int, Costs]:
    costs: dict[int, list[Costs]] = {length: [] for length in lengths}
    with tempfile.TemporaryDirectory() as folder:
        for number in range(rounds + 1):
            for length in lengths:
                cost = await pause_and_resume(Path(folder, f"{number}-{length}.db"), length)
                if number:  # the first of each loads code
                    costs[length].append(cost)
    return {
        length: Costs(median(c.pause_ms for c in of), median(c.resume_ms for c in of), of[0].events)
        for length, of in costs.items()
    }


def main() -> None:
    costs = asyncio.run(measure(ROUNDS))
    for cost in costs.values():
        print(f"{cost.events:6,} events: pause {cost.pause_ms:5.2f} ms CPU, resume {cost.resume_ms:5.2f} ms CPU")
    short, long = (costs[length].resume_ms for length in LENGTHS)
    print(f"resume of the longer one: {long / short:.2f} times the shorter one (to reach: 1.5)")


if __name__ == "__main__":
    main()
