"""Runs to look back at: real ones, with tools that do nothing and somebody who answers."""

from collections.abc import Callable, Sequence
from typing import Any

from interlock import CallbackInteractionProvider, MemoryLog, ToolRuntime, tool
from interlock.domain.call import Question, ToolIntent
from interlock.domain.event import Event
from interlock.domain.tool import ToolDefinition
from interlock.policy.analysis.recorded_calls import RecordedCall, read_recorded_calls
from interlock.policy.engine.rule_policy import RulePolicy
from interlock.replay.trace import Replay


@tool(risk="execute", resources={"command": "command"})
def bash(command: str) -> str:
    return "done"


@tool(risk="write", resources={"path": "path"})
def write_file(path: str, content: str = "") -> str:
    return "done"


@tool(risk="network")
def send_mail(to: str, subject: str = "hello") -> str:
    return "done"


TOOLS: tuple[ToolDefinition, ...] = (bash, write_file, send_mail)
Says = Callable[[Question], Any]


def yes(question: Question) -> bool:
    return True


def no(question: Question) -> bool:
    return False


async def record(calls: Sequence[tuple[str, dict[str, Any]]], says: Says = yes, **options: Any) -> list[Event]:
    """A run in which these calls were made one after the other."""
    given: dict[str, Any] = {
        "policy": RulePolicy(),
        "log": MemoryLog(),
        "workspace": "/work/space",
        "interaction": CallbackInteractionProvider(says),
        **options,
    }
    async with ToolRuntime(tools=TOOLS, **given) as runtime:
        for number, (name, arguments) in enumerate(calls):
            await runtime.execute([ToolIntent(call_id=f"call_{number}", tool_name=name, arguments=arguments)])
        return events_of(await runtime.replay())


def events_of(replay: Replay) -> list[Event]:
    return [step.event for step in replay]


async def commands(*texts: str, says: Says = yes, **options: Any) -> list[RecordedCall]:
    """The same for commands, as recorded calls."""
    return read_recorded_calls(await record([("bash", {"command": text}) for text in texts], says, **options))
