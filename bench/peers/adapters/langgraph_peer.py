"""LangGraph: `langchain.agents.create_agent` with a fake chat model; pauses and durable runs with its SQLite saver.

`LG_DURABILITY` is its durability: `async` (its default), `sync` or `exit`.
"""

import asyncio
import os
import shutil
import tempfile
import time
from pathlib import Path

from harness import (
    MARK,
    SLEEP_SECONDS,
    arguments,
    database_bytes,
    main,
    now,
    per_call,
    result_text,
    span,
    temporary_folder,
)
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.types import Command, interrupt

STATE = {"script": [], "turn": 0, "seen": []}
DURABILITY = os.environ.get("LG_DURABILITY", "async")


class Model(BaseChatModel):
    @property
    def _llm_type(self):
        return "fake"

    def bind_tools(self, tools, **options):
        return self

    def _answer(self, messages):
        MARK.enter()
        said = STATE["script"][STATE["turn"]]
        STATE["turn"] += 1
        STATE["seen"] = messages
        MARK.exit()
        return ChatResult(generations=[ChatGeneration(message=said)])

    def _generate(self, messages, stop=None, run_manager=None, **options):
        return self._answer(messages)

    async def _agenerate(self, messages, stop=None, run_manager=None, **options):
        return self._answer(messages)


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


@tool
async def t_appr(path: str, count: int, ratio: float) -> str:
    """Need an approval."""
    assert interrupt({"tool": "t_appr", "path": path, "count": count}) is True
    MARK.tool()
    return result_text(path, count, ratio)


def build(saver=None):
    tools = [t_async, t_sleep, t_sleep_sync, t_appr]
    return create_agent(Model(), tools, system_prompt="bench", checkpointer=saver)


def call(number, name):
    return {"name": name, "args": arguments(number), "id": f"call_{number}", "type": "tool_call"}


CONFIG = {"recursion_limit": 1_000_000}
THREAD = CONFIG | {"configurable": {"thread_id": "t1"}}


class Adapter:
    PACKAGES = ("langgraph", "langchain", "langgraph-checkpoint-sqlite")

    async def setup(self):
        self.graph = build()
        self.folder = Path(tempfile.mkdtemp(dir=temporary_folder()))
        self.files = 0

    def prepare(self, turns, calls, tool):
        script = [
            AIMessage(content="", tool_calls=[call(turn * calls + index, "t_" + tool) for index in range(calls)])
            for turn in range(turns)
        ]
        return [*script, AIMessage(content="done")]

    async def execute(self, script, graph=None):
        STATE["script"], STATE["turn"] = script, 0
        task = {"messages": [HumanMessage("go")]}
        if graph is None:
            result = await self.graph.ainvoke(task, CONFIG)
        else:
            result = await graph.ainvoke(task, THREAD, durability=DURABILITY)
        assert result["messages"][-1].content == "done"
        return sum([isinstance(message, ToolMessage) for message in STATE["seen"]])

    async def pause_resume(self, turns):
        path = self.new_path()
        script = self.prepare(turns, 1, "async")
        asks = AIMessage(content="", tool_calls=[call(10_000_000, "t_appr")])
        STATE["script"], STATE["turn"] = [*script[:-1], asks, script[-1]], 0
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            result = await build(saver).ainvoke({"messages": [HumanMessage("go")]}, THREAD, durability=DURABILITY)
            assert result["__interrupt__"]
            paused, said = now(), MARK.exits[-1]
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            graph = build(saver)
            began = now()
            result = await graph.ainvoke(Command(resume=True), THREAD, durability=DURABILITY)
            assert result["messages"][-1].content == "done"
            asked = MARK.enters[-1]
        return {**span("pause", said, paused), **span("resume", began, asked), "bytes": database_bytes(path)}

    async def durable(self, turns, calls):
        path = self.new_path()
        script = self.prepare(turns, calls, "async")
        async with AsyncSqliteSaver.from_conn_string(path) as saver:
            graph = build(saver)
            began = now()
            await self.execute(script, graph)
            ended = now()
        return per_call(began, ended, turns * calls, database_bytes(path))

    def new_path(self):
        self.files += 1
        return str(self.folder / f"{self.files}.sqlite")

    async def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    main(Adapter)
