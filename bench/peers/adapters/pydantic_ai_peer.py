"""pydantic-ai with a `FunctionModel`; durable runs as DBOS workflows, where DBOS is installed."""

import asyncio
import json
import os
import shutil
import tempfile
import time
from contextlib import suppress

from harness import (
    MARK,
    SLEEP_SECONDS,
    arguments_json,
    database_bytes,
    main,
    now,
    per_call,
    result_text,
    span,
    temporary_folder,
)
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults
from pydantic_ai.messages import ModelMessagesTypeAdapter, ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage, UsageLimits

try:
    from dbos import DBOS
    from pydantic_ai.durable_exec.dbos import DBOSDurability
except ImportError:
    DBOS = None

NO_LIMITS = UsageLimits(request_limit=None)
#: Given, so that the model does not estimate tokens over the whole history.
USAGE = {"usage": RequestUsage(input_tokens=1, output_tokens=1)}
STATE = {"script": [], "turn": 0, "seen": []}


async def answer(messages, info):
    MARK.enter()
    said = STATE["script"][STATE["turn"]]
    STATE["turn"] += 1
    STATE["seen"] = messages
    MARK.exit()
    return said


async def t_async(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    MARK.tool()
    return result_text(path, count, ratio)


async def t_sleep(path: str, count: int, ratio: float) -> str:
    """Wait without blocking."""
    MARK.tool()
    await asyncio.sleep(SLEEP_SECONDS)
    return "ok"


def t_sleep_sync(path: str, count: int, ratio: float) -> str:
    """Wait and block a thread."""
    MARK.tool()
    time.sleep(SLEEP_SECONDS)
    return "ok"


async def t_appr(path: str, count: int, ratio: float) -> str:
    """Need an approval."""
    MARK.tool()
    return result_text(path, count, ratio)


def call(number, name):
    return ToolCallPart(tool_name=name, args=arguments_json(number), tool_call_id=f"call_{number}")


def response(*parts):
    return ModelResponse(parts=parts, **USAGE)


class Adapter:
    PACKAGES = ("pydantic-ai-slim", "dbos")

    async def setup(self):
        self.agent = Agent(
            FunctionModel(answer), name="bench", instructions="bench", output_type=[str, DeferredToolRequests]
        )
        for function in (t_async, t_sleep, t_sleep_sync):
            self.agent.tool_plain(function)
        self.agent.tool_plain(t_appr, requires_approval=True)
        self.folder = tempfile.mkdtemp(dir=temporary_folder())
        self.workflow = None

    def prepare(self, turns, calls, tool):
        script = [
            response(*(call(turn * calls + index, "t_" + tool) for index in range(calls))) for turn in range(turns)
        ]
        return [*script, response(TextPart("done"))]

    async def execute(self, script):
        STATE["script"], STATE["turn"] = script, 0
        result = await self.agent.run("go", usage_limits=NO_LIMITS)
        assert result.output == "done"
        return sum([isinstance(part, ToolReturnPart) for message in STATE["seen"] for part in message.parts])

    async def pause_resume(self, turns):
        script = self.prepare(turns, 1, "async")
        STATE["script"], STATE["turn"] = [*script[:-1], response(call(10_000_000, "t_appr")), script[-1]], 0
        result = await self.agent.run("go", usage_limits=NO_LIMITS)
        assert isinstance(result.output, DeferredToolRequests)
        state = result.all_messages_json()
        pending = json.dumps([wanted.tool_call_id for wanted in result.output.approvals]).encode()
        paused, said = now(), MARK.exits[-1]
        began = now()
        history = ModelMessagesTypeAdapter.validate_json(state)
        results = DeferredToolResults(approvals=dict.fromkeys(json.loads(pending), True))
        result = await self.agent.run(message_history=history, deferred_tool_results=results, usage_limits=NO_LIMITS)
        assert result.output == "done"
        return {
            **span("pause", said, paused),
            **span("resume", began, MARK.enters[-1]),
            "bytes": len(state) + len(pending),
        }

    def start_dbos(self):
        """Make a workflow whose tools are steps, as the documentation of DBOS prescribes."""
        self.path = os.path.join(self.folder, "dbos.sqlite")
        DBOS(
            config={
                "name": "bench",
                "system_database_url": f"sqlite:///{self.path}",
                "run_admin_server": False,
                "log_level": "ERROR",
            }
        )
        agent = Agent(FunctionModel(answer), name="benchd", instructions="bench", capabilities=[DBOSDurability()])
        agent.tool_plain(DBOS.step(name="t_async_step")(t_async))

        @DBOS.workflow(name="bench_workflow")
        async def workflow(prompt: str) -> str:
            return (await agent.run(prompt, usage_limits=NO_LIMITS)).output

        DBOS.launch()
        self.workflow = workflow

    async def durable(self, turns, calls):
        if DBOS is None:
            raise NotImplementedError("needs DBOS")
        if self.workflow is None:
            self.start_dbos()
        STATE["script"], STATE["turn"] = self.prepare(turns, calls, "async"), 0
        before = database_bytes(self.path)
        began = now()
        assert await self.workflow("go") == "done"
        return per_call(began, now(), turns * calls, database_bytes(self.path) - before)

    async def teardown(self):
        if self.workflow is not None:
            with suppress(Exception):
                DBOS.destroy(workflow_completion_timeout_sec=0)
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    main(Adapter)
