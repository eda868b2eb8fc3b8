"""Interlock: a run is `Runner` and its loop, with a model whose answers were written before."""

import asyncio
import shutil
import tempfile
import time
from collections.abc import AsyncGenerator
from pathlib import Path

from harness import (
    MARK,
    SLEEP_SECONDS,
    Figures,
    arguments_json,
    main,
    now,
    per_call,
    result_text,
    span,
    temporary_folder,
)

from interlock import (
    Agent,
    Answer,
    Budgets,
    EventLog,
    MemoryLog,
    ModelEvent,
    ModelRequest,
    ProposedCall,
    RulePolicy,
    Runner,
    SqliteLog,
    StreamFinished,
    TextDelta,
    ToolCallDelta,
    ToolMessage,
    tool,
)


@tool
async def t_async(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    MARK.tool()
    return result_text(path, count, ratio)


@tool
async def t_sleep(path: str, count: int, ratio: float) -> str:
    """Wait without blocking."""
    MARK.tool()
    await asyncio.sleep(SLEEP_SECONDS)
    return "ok"


@tool
def t_sleep_sync(path: str, count: int, ratio: float) -> str:
    """Wait and block a thread."""
    MARK.tool()
    time.sleep(SLEEP_SECONDS)
    return "ok"


@tool(risk="write")
async def t_appr(path: str, count: int, ratio: float) -> str:
    """Need an approval."""
    MARK.tool()
    return result_text(path, count, ratio)


TOOLS = [t_async, t_sleep, t_sleep_sync, t_appr]
POLICY = RulePolicy()
#: No run is to end because it is long.
BUDGETS = Budgets(max_steps=10**9, max_model_calls=10**9, max_tool_calls=10**9)
STOP, CALLS = StreamFinished(reason="stop"), StreamFinished(reason="tool_calls")

Plan = list[tuple[ToolCallDelta, ...]]


class Model:
    """Says what the plan says, and notes what it was shown last."""

    name = "bench"

    def __init__(self) -> None:
        self.plan: Plan = []
        self.turn = 0
        self.seen: tuple[object, ...] = ()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        MARK.enter()
        calls = self.plan[self.turn]
        self.turn += 1
        self.seen = request.messages
        MARK.exit()
        for call in calls:
            yield call
        if not calls:
            yield TextDelta("done")
        yield CALLS if calls else STOP

    async def close(self) -> None:
        """There is nothing to close."""


def call(number: int, tool_name: str) -> ToolCallDelta:
    return ToolCallDelta(ProposedCall(call_id=f"call_{number}", tool=tool_name, arguments=arguments_json(number)))


class Adapter:
    PACKAGES = ("interlock", "pydantic", "msgspec")

    async def setup(self) -> None:
        self.folder = Path(tempfile.mkdtemp(dir=temporary_folder()))
        self.model = Model()
        self.files = 0

    def prepare(self, turns: int, calls: int, tool: str) -> Plan:
        numbers = [range(turn * calls, (turn + 1) * calls) for turn in range(turns)]
        return [*(tuple(call(number, "t_" + tool) for number in turn) for turn in numbers), ()]

    def runner(self, log: EventLog) -> Runner:
        return Runner(Agent(provider=self.model, tools=TOOLS, policy=POLICY, budgets=BUDGETS), log=log)

    async def execute(self, plan: Plan) -> int:
        return await self.loop(plan, self.runner(MemoryLog()))

    async def loop(self, plan: Plan, runner: Runner) -> int:
        self.model.plan, self.model.turn = plan, 0
        result = await runner.run("go")
        assert result.text == "done", result
        return sum([type(message) is ToolMessage for message in self.model.seen])

    async def pause_resume(self, turns: int) -> Figures:
        path, log = self.new_log()
        plan = self.prepare(turns, 1, "async")
        self.model.plan, self.model.turn = [*plan[:-1], (call(10_000_000, "t_appr"),), ()], 0
        runner = self.runner(log)
        handle = await runner.start("go")
        result = await handle.result()
        paused, said = now(), MARK.exits[-1]
        question = result.questions[0]
        await runner.close()
        await log.close()
        began = now()
        log = SqliteLog(path)
        runner = self.runner(log)
        handle = await runner.open(handle.run_id, answers={question.action_id: Answer(approved=True, by="bench")})
        result = await handle.result()
        assert result.text == "done", result
        await runner.close()
        await log.close()
        return {
            **span("pause", said, paused),
            **span("resume", began, MARK.enters[-1]),
            "bytes": path.stat().st_size,
        }

    async def durable(self, turns: int, calls: int) -> Figures:
        path, log = self.new_log()
        plan = self.prepare(turns, calls, "async")
        began = now()
        await self.loop(plan, self.runner(log))
        ended = now()
        await log.close()
        return per_call(began, ended, turns * calls, path.stat().st_size)

    def new_log(self) -> tuple[Path, SqliteLog]:
        self.files += 1
        path = self.folder / f"{self.files}.db"
        return path, SqliteLog(path)

    async def teardown(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    main(Adapter)
