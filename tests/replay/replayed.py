"""A run with everything in it, recorded once per test: reads side by side, mistakes of the model, failures, a long
output, questions that were answered in different ways, a check, and a claim that the facts contradict."""

from collections.abc import Sequence
from typing import Any

import msgspec

from interlock import MemoryLog, NormalizedOutput, Rule, RulePolicy, tool
from interlock.agent.agent import Agent
from interlock.domain.call import Answer, Question
from interlock.domain.event import LogEntry
from interlock.domain.tool import CheckProblem, JsonObject, ToolContext, ToolDefinition
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.policy.interface import PolicyEvent
from interlock.runs.runner import Runner
from interlock.storage.memory_artifacts import MemoryArtifacts


class Recorded(msgspec.Struct, frozen=True):
    run_id: str
    entries: list[LogEntry]
    artifacts: MemoryArtifacts


class World:
    """What the tools of the run did."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def tools(self) -> list[ToolDefinition]:
        done = self.done

        @tool(risk="read")
        def add(a: int, b: int = 1) -> int:
            """Add two numbers."""
            done.append("add")
            return a + b

        @tool(risk="read")
        def broken(why: str) -> str:
            """Fail."""
            done.append("broken")
            raise ValueError(why)

        @tool(risk="read", max_output_chars=500)
        def long() -> str:
            """Say a lot."""
            done.append("long")
            return "\n".join(f"line {number}" for number in range(1000))

        @tool(risk="write")
        def send(to: str, text: str = "hi") -> str:
            """Send something."""
            done.append(f"send {to}")
            return f"sent {text} to {to}"

        def look(arguments: JsonObject, context: ToolContext) -> CheckProblem | None:
            done.append("look")
            return CheckProblem(message="There is no such file") if arguments["path"] == "gone.py" else None

        @tool(risk="write", check=look)
        def edit(path: str) -> str:
            """Edit a file."""
            done.append(f"edit {path}")
            return "edited"

        def verified(value: Any) -> NormalizedOutput:
            facts = {"verification": {"ok": False, "program": "pytest", "command": "pytest", "exit_code": 1}}
            return NormalizedOutput(
                ok=False, code="tests_failed", summary=str(value), exit_code=1, kind="verification", facts=facts
            )

        @tool(risk="read", normalize=verified)
        def run_tests() -> str:
            """Run the tests."""
            done.append("run_tests")
            return "1 failed"

        return [add, broken, long, send, edit, run_tests]


#: What the model says. The ids of its calls are `call_1`, `call_2`, ...
TURNS = (
    ScriptedTurn(
        text="Let me look.",
        calls=(
            tool_call("add", a=1, b=2),
            tool_call("broken", why="no luck"),
            tool_call("long"),
            tool_call("add", a="one"),
            tool_call("missing", a=1),
            tool_call("add", raw="{not json"),
        ),
    ),
    ScriptedTurn(calls=(tool_call("send", to="bob"), tool_call("send", to="eve"), tool_call("send", to="root"))),
    ScriptedTurn(calls=(tool_call("edit", path="gone.py"), tool_call("edit", path="main.py"))),
    ScriptedTurn(calls=(tool_call("run_tests"),)),
    ScriptedTurn(text="Done. All tests pass."),
    ScriptedTurn(text="The tests fail."),
)


def _is_root(event: PolicyEvent) -> bool:
    return event.arguments.get("to") == "root"


def policy(*more: Rule) -> RulePolicy:
    return RulePolicy([Rule(id="no-root", verdict="deny", tools="send", when=_is_root, reason="Never."), *more])


class People:
    """Implements `InteractionProvider`: yes to bob and to files, no to eve."""

    approval_timeout_s = None
    approval_fallback: Any = "wait"
    interactive = True

    async def ask(self, question: Question) -> Answer:
        if question.arguments.get("to") == "eve":
            return Answer(approved=False, by="ann", reason="Not to eve.")
        return Answer(approved=True, by="ann")


def agent(tools: Sequence[Any] | None = None, turns: Sequence[ScriptedTurn] = TURNS, **fields: Any) -> Agent:
    given: dict[str, Any] = {"policy": policy(), "instructions": "Be careful.", "name": "fixer", **fields}
    declared = World().tools() if tools is None else tools
    return Agent(provider=ScriptedModel(turns, by_position=True), tools=declared, **given)


async def record(recorded: Agent, task: str = "Fix it.", **options: Any) -> Recorded:
    """The run of an agent, from its task to its end."""
    artifacts, log = MemoryArtifacts(), MemoryLog()
    given: dict[str, Any] = {"interaction": People(), **options}
    async with Runner(recorded, log=log, artifacts=artifacts, **given) as runner:
        handle = await runner.start(task)
        await handle.result()
        return Recorded(handle.run_id, await log.read(handle.run_id), artifacts)
