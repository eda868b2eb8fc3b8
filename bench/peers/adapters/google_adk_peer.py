"""Google ADK with a model of its own; sessions in memory, and in SQLite for pauses and durable runs."""

import asyncio
import logging
import os
import shutil
import tempfile
import time

from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_response import LlmResponse
from google.adk.runners import Runner
from google.adk.sessions.in_memory_session_service import InMemorySessionService
from google.adk.sessions.sqlite_session_service import SqliteSessionService
from google.adk.tools.function_tool import FunctionTool
from google.genai import types
from harness import MARK, SLEEP_SECONDS, arguments, file_bytes, main, now, per_call, result_text, span, temporary_folder

logging.disable(logging.WARNING)

STATE = {"script": [], "turn": 0, "seen": [], "confirm": None}
CONFIRM = "adk_request_confirmation"


class Model(BaseLlm):
    async def generate_content_async(self, llm_request, stream=False):
        MARK.enter()
        said = STATE["script"][STATE["turn"]]
        STATE["turn"] += 1
        STATE["seen"] = llm_request.contents
        MARK.exit()
        yield said


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
    return types.Part(function_call=types.FunctionCall(id=f"call_{number}", name=name, args=arguments(number)))


def response(*parts):
    return LlmResponse(content=types.Content(role="model", parts=list(parts)))


def user(*parts):
    return types.Content(role="user", parts=list(parts))


class Adapter:
    PACKAGES = ("google-adk", "google-genai")

    async def setup(self):
        self.agent = LlmAgent(
            name="bench",
            model=Model(model="fake"),
            instruction="bench",
            tools=[t_async, t_sleep, t_sleep_sync, FunctionTool(t_appr, require_confirmation=True)],
        )
        self.sessions = InMemorySessionService()
        self.count = 0
        self.folder = tempfile.mkdtemp(dir=temporary_folder())

    def prepare(self, turns, calls, tool):
        script = [
            response(*(call(turn * calls + index, "t_" + tool) for index in range(calls))) for turn in range(turns)
        ]
        return [*script, response(types.Part(text="done"))]

    async def drive(self, sessions, name, message):
        """Run until it ends or pauses; return the last event."""
        runner, last = Runner(app_name="bench", agent=self.agent, session_service=sessions), None
        options = {"user_id": "u", "session_id": name, "run_config": RunConfig(max_llm_calls=0)}
        async for event in runner.run_async(new_message=message, **options):
            last = event
            for part in (event.content.parts or []) if event.content else []:
                if part.function_call and part.function_call.name == CONFIRM:
                    STATE["confirm"] = part.function_call.id
        return last

    async def begin(self, sessions, script):
        STATE["script"], STATE["turn"] = script, 0
        self.count += 1
        name = f"s{self.count}"
        await sessions.create_session(app_name="bench", user_id="u", session_id=name)
        return name, await self.drive(sessions, name, user(types.Part(text="go")))

    async def execute(self, script, sessions=None):
        _, last = await self.begin(sessions or self.sessions, script)
        assert last.content.parts[0].text == "done"
        return sum([bool(part.function_response) for content in STATE["seen"] for part in content.parts or []])

    async def pause_resume(self, turns):
        path, script = self.new_path(), self.prepare(turns, 1, "async")
        script = [*script[:-1], response(call(10_000_000, "t_appr")), script[-1]]
        name, _ = await self.begin(SqliteSessionService(path), script)
        paused, said = now(), MARK.exits[-1]
        confirmed = types.FunctionResponse(id=STATE["confirm"], name=CONFIRM, response={"confirmed": True})
        sessions = SqliteSessionService(path)
        began = now()
        last = await self.drive(sessions, name, user(types.Part(function_response=confirmed)))
        assert last.content.parts[0].text == "done", last
        return {
            **span("pause", said, paused),
            **span("resume", began, MARK.enters[-1]),
            "bytes": file_bytes(path),
        }

    async def durable(self, turns, calls):
        path, script = self.new_path(), self.prepare(turns, calls, "async")
        sessions = SqliteSessionService(path)
        began = now()
        await self.execute(script, sessions)
        return per_call(began, now(), turns * calls, file_bytes(path))

    def new_path(self):
        return os.path.join(self.folder, f"{self.count}.sqlite")

    async def teardown(self):
        shutil.rmtree(self.folder, ignore_errors=True)


if __name__ == "__main__":
    main(Adapter)
