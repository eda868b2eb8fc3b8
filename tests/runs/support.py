"""What tests of whole runs share: agents that say what a script says, and what they left in the log."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from interlock import MemoryLog, Question
from interlock.agent.agent import Agent
from interlock.domain.event import Fact, decode_event
from interlock.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from interlock.history.fold import fold_entries
from interlock.models.interface import ModelRequest
from interlock.models.scripted import ScriptedModel, ScriptedTurn, TurnFactory, tool_call
from interlock.runs.handle import RunHandle
from interlock.runs.inbox import Inbox
from interlock.runs.result import AgentResult
from interlock.runs.runner import Runner
from interlock.storage.event_log import EventLog
from tests.patience import HANG_SECONDS

_F = TypeVar("_F")


class Heard(ScriptedModel):
    """A scripted model that remembers what it was asked."""

    def __init__(self, turns: Iterable[ScriptedTurn | TurnFactory]) -> None:
        super().__init__(turns, by_position=True)
        self.requests: list[ModelRequest] = []

    def stream(self, request: ModelRequest) -> Any:
        self.requests.append(request)
        return super().stream(request)


def says(*turns: ScriptedTurn | TurnFactory | str) -> Heard:
    """The turns in their order; a text is a final answer."""
    return Heard([ScriptedTurn(text=turn) if isinstance(turn, str) else turn for turn in turns])


def calls(*calls: tuple[str, str, dict[str, Any]], text: str = "") -> ScriptedTurn:
    """An answer with these calls: id, tool, arguments."""
    return ScriptedTurn(
        text=text, calls=tuple(tool_call(tool, **arguments, call_id=call_id) for call_id, tool, arguments in calls)
    )


def agent_of(*turns: ScriptedTurn | TurnFactory | str, tools: Sequence[Any] = (), **declared: Any) -> Agent:
    return Agent(provider=says(*turns), tools=tools, **declared)


def asked_of(agent: Agent) -> list[ModelRequest]:
    assert isinstance(agent.provider, Heard)
    return agent.provider.requests


async def run_of(agent: Agent, task: str = "Do it.", **options: Any) -> AgentResult:
    async with Runner(agent, **options) as runner:
        return await runner.run(task)


async def facts(log: EventLog, run_id: str) -> list[Fact]:
    return [decode_event(entry).fact for entry in await log.read(run_id)]


async def facts_of(kind: type[_F], log: EventLog, run_id: str) -> list[_F]:
    return [fact for fact in await facts(log, run_id) if isinstance(fact, kind)]


async def messages(log: EventLog, run_id: str) -> list[Message]:
    """The conversation as the log has it."""
    return fold_entries(run_id, await log.read(run_id)).dialogue.messages


def in_words(messages: Iterable[Message]) -> list[str]:
    """A conversation, short: who said what, and which calls."""
    lines: list[str] = []
    for message in messages:
        match message:
            case UserMessage():
                lines.append(f"user: {message.text}")
            case AssistantMessage():
                lines.append(f"model: {message.text}{[call.call_id for call in message.calls] or ''}")
            case ToolMessage():
                lines.append(f"tool: {message.call_id}")
    return lines


async def asked_in(run_id: str, desk: Inbox) -> Question:
    """The first question of a run in a file, as soon as there is one: reading goes through a thread, so others move."""
    async with asyncio.timeout(HANG_SECONDS):
        while not (questions := await desk.pending(run_id)):
            pass
    return questions[0]


async def start(agent: Agent, log: EventLog | None = None, **options: Any) -> tuple[Runner, RunHandle]:
    runner = Runner(agent, log=MemoryLog() if log is None else log, **options)
    return runner, await runner.start("Do it.")
