"""OpenAI Agents with a model of its own, tracing off; durable runs with its `SQLiteSession`, which keeps messages."""

import asyncio
import os
import shutil
import tempfile
import time

import agents
from agents import Agent, ModelResponse, RunConfig, Runner, RunState, SQLiteSession, Usage, function_tool
from agents.models.interface import Model
from harness import (
    MARK,
    SLEEP_SECONDS,
    arguments_json,
    file_bytes,
    main,
    now,
    per_call,
    result_text,
    span,
    temporary_folder,
)
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText


class ScriptedModel(Model):
    def __init__(self):
        self.script, self.turn, self.seen = [], 0, []

    async def get_response(self, system_instructions, input, *rest, **options):
        MARK.enter()
        said = self.script[self.turn]
        self.turn += 1
        self.seen = input
        MARK.exit()
        return said

    def stream_response(self, *rest, **options):
        raise NotImplementedError


@function_tool
async def t_async(path: str, count: int, ratio: float) -> str:
    """Return the arguments."""
    MARK.tool()
    return result_text(path, count, ratio)


@function_tool
async def t_sleep(path: str, count: int, ratio: float) -> str:
    """Wait without blocking."""
    MARK.tool()
    await asyncio.sleep(SLEEP_SECONDS)
    return "ok"


@function_tool
def t_sleep_sync(path: str, count: int, ratio: float) -> str:
    """Wait and block a thread."""
    MARK.tool()
    time.sleep(SLEEP_SECONDS)
    return "ok"


@function_tool(needs_approval=True)
async def t_appr(path: str, count: int, ratio: float) -> str:
    """Need an approval."""
    MARK.tool()
    return result_text(path, count, ratio)


def response(*items):
    return ModelResponse(output=list(items), usage=Usage(requests=1), response_id=None)


def call(number, name):
    return ResponseFunctionToolCall(
        id=f"fc_{number}",
        call_id=f"call_{number}",
        name=name,
        type="function_call",
        arguments=arguments_json(number),
        status="completed",
    )


def final():
    text = ResponseOutputText(text="done", type="output_text", annotations=[], logprobs=[])
    return response(
        ResponseOutputMessage(id="msg_1", type="message", role="assistant", status="completed", content=[text])
    )


class Adapter:
    PACKAGES = ("openai-agents", "openai")

    async def setup(self):
        agents.set_tracing_disabled(True)
        self.model = ScriptedModel()
        self.agent = Agent(
            name="bench", instructions="bench", model=self.model, tools=[t_async, t_sleep, t_sleep_sync, t_appr]
        )
        self.options = {"max_turns": 100_000, "run_config": RunConfig(tracing_disabled=True)}
        self.folder = tempfile.mkdtemp(dir=temporary_folder())
        self.files = 0

    def prepare(self, turns, calls, tool):
        script = [
            response(*(call(turn * calls + index, "t_" + tool) for index in range(calls))) for turn in range(turns)
        ]
        return [*script, final()]

    async def execute(self, script, **options):
        self.model.script, self.model.turn = script, 0
        result = await Runner.run(self.agent, "go", **self.options, **options)
        assert result.final_output == "done"
        return sum([isinstance(item, dict) and item.get("type") == "function_call_output" for item in self.model.seen])

    async def pause_resume(self, turns):
        script = self.prepare(turns, 1, "async")
        self.model.script, self.model.turn = [*script[:-1], response(call(10_000_000, "t_appr")), script[-1]], 0
        result = await Runner.run(self.agent, "go", **self.options)
        assert result.interruptions
        stored = result.to_state().to_string().encode()
        paused, said = now(), MARK.exits[-1]
        began = now()
        state = await RunState.from_string(self.agent, stored.decode())
        for item in state.get_interruptions():
            state.approve(item)
        result = await Runner.run(self.agent, state, **self.options)
        assert result.final_output == "done"
        return {**span("pause", said, paused), **span("resume", began, MARK.enters[-1]), "bytes": len(stored)}

    async def durable(self, turns, calls):
        self.files += 1
        path = os.path.join(self.folder, f"{self.files}.sqlite")
        session, script = SQLiteSession("s1", path), self.prepare(turns, calls, "async")
        began = now()
        await self.execute(script, session=session)
        ended = now()
        session.close()
        return per_call(began, ended, turns * calls, file_bytes(path))

    async def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    main(Adapter)
