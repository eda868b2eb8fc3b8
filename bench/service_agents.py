"""The agents of the server that is measured: offline, with scripted models.

`asker` writes once, which a person has to approve; its tool reports when it starts. `busy` works until it is cancelled,
`sleeper` waits for a tool until then, and `stepper` makes five calls.
"""

import asyncio
import os
import socket
from time import time_ns

from interlock import Agent, Rule, RulePolicy, ScriptedModel, ScriptedTurn, tool
from interlock.domain.messages import UserMessage
from interlock.models.interface import ModelRequest
from interlock.models.scripted import tool_call

#: Where the start of a tool is told: the UDP port of whoever measures, on this machine.
REPORT_VARIABLE = "INTERLOCK_BENCH_PORT"
#: How long each step of a busy run takes.
STEP_SECONDS = 0.25
_MAX_STEPS = 2_000


@tool(risk="write")
async def write_file(path: str, content: str) -> str:
    """Say that it starts."""
    began = time_ns()
    port = os.environ.get(REPORT_VARIABLE)
    if port:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as telling:
            telling.sendto(f"{path} {began}".encode(), ("127.0.0.1", int(port)))
    return "written"


@tool(risk="read")
async def look(path: str) -> str:
    """Take a moment."""
    await asyncio.sleep(STEP_SECONDS)
    return f"{path}: 42 lines"


@tool(risk="read", timeout_seconds=3_600)
async def rest(path: str) -> str:
    """Take longer than anything is measured."""
    await asyncio.sleep(3_600)
    return path


def _asks(request: ModelRequest) -> ScriptedTurn:
    """The task is the path."""
    task = next(message.text for message in request.messages if isinstance(message, UserMessage))
    return ScriptedTurn(calls=(tool_call("write_file", path=task, content="x" * 200),))


def asker() -> Agent:
    rule = Rule(id="writes-need-a-person", verdict="ask", tools="write_file")
    return Agent(
        name="asker",
        provider=ScriptedModel([_asks, ScriptedTurn(text="Done.")], by_position=True),
        tools=[write_file],
        policy=RulePolicy([rule], default="allow"),
    )


def busy() -> Agent:
    step = ScriptedTurn(calls=(tool_call("look", path="src/parser.py"),))
    return Agent(name="busy", provider=ScriptedModel([step] * _MAX_STEPS, by_position=True), tools=[look])


@tool(risk="read")
async def glance(path: str) -> str:
    """Answer at once."""
    return f"{path}: 42 lines"


def stepper() -> Agent:
    steps = [ScriptedTurn(calls=(tool_call("glance", path=f"src/module_{step}.py"),)) for step in range(5)]
    rule = Rule(id="reads", verdict="allow", tools="glance")
    return Agent(
        name="stepper",
        provider=ScriptedModel([*steps, ScriptedTurn(text="Done.")], by_position=True),
        tools=[glance],
        policy=RulePolicy([rule], default="deny"),
    )


def sleeper() -> Agent:
    step = ScriptedTurn(calls=(tool_call("rest", path="src/parser.py"),))
    return Agent(name="sleeper", provider=ScriptedModel([step], by_position=True), tools=[rest])
