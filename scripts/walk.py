"""Print how far a reader walks: the functions and files that one call, one model turn and one approval pass through.

`python -m scripts.walk` prints the figures; with `--steps` also every step of the first walk.
"""

import argparse
import asyncio
import sys
import tempfile
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import NamedTuple

import interlock
from interlock import (
    Agent,
    LocalTools,
    Rule,
    RulePolicy,
    Runner,
    ScriptedModel,
    ToolRuntime,
    tool,
    tool_call,
)

PACKAGE = Path(interlock.__file__).parent


class Walk(NamedTuple):
    """What was entered between two points, in order."""

    steps: list[CodeType]

    @property
    def files(self) -> list[str]:
        """Return the file of every step."""
        return [str(Path(step.co_filename).relative_to(PACKAGE)) for step in self.steps]

    @property
    def figures(self) -> str:
        """Return the counts as one line."""
        files = self.files
        changes = sum(before != after for before, after in pairwise(files))
        return f"{len(set(self.steps))} functions in {len(set(files))} files, {changes} changes of file"


async def record(work: Callable[[], Awaitable[object]]) -> Walk:
    """Run something, and return every function of the package that was entered in this thread."""
    walk = Walk([])
    own = str(PACKAGE)

    def enter(frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(own) and frame.f_code.co_name[0] != "<":
            walk.steps.append(frame.f_code)

    sys.setprofile(enter)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return walk


async def read_call(folder: Path) -> Walk:
    """Walk through one allowed `read_file`."""
    (folder / "notes.txt").write_text("hello\n")
    async with ToolRuntime(tools=LocalTools(folder)) as runtime:
        call = {"id": "1", "function": {"name": "read_file", "arguments": '{"path": "notes.txt"}'}}
        await runtime.execute([call])
        return await record(lambda: runtime.execute([{**call, "id": "2"}]))


@tool(risk="read")
def look(what: str) -> str:
    """Look at something."""
    return what


@tool(risk="network")
def send(what: str) -> str:
    """Send something."""
    return what


async def model_turn(folder: Path) -> Walk:
    """Walk through a run of one model turn with one call, and the final answer."""
    agent = Agent(
        provider=ScriptedModel([tool_call("look", what="x"), "done"]),
        tools=[look],
    )
    async with Runner(agent) as runner:
        return await record(lambda: runner.run("look"))


async def approval(folder: Path) -> Walk:
    """Walk from a person's approval to the end of the run."""
    policy = RulePolicy([Rule(id="ask-send", tools=("send",), verdict="ask", reason="It leaves the house.")])
    agent = Agent(
        provider=ScriptedModel([tool_call("send", what="x"), "done"]),
        tools=[send],
        policy=policy,
    )
    async with Runner(agent) as runner:
        handle = await runner.start("send")
        paused = await handle.result()
        question = paused.questions[0]

        async def approve() -> None:
            await handle.decide(question.action_id, approved=True, by="person")
            await handle.wait_until_finished()

        return await record(approve)


WALKS = {"one allowed read call": read_call, "one model turn": model_turn, "approve to resume": approval}


async def main(show_steps: bool) -> None:
    """Print the figures of every walk."""
    for name, walk_of in WALKS.items():
        with tempfile.TemporaryDirectory() as folder:
            walk = await walk_of(Path(folder))
        print(f"{name}: {walk.figures}")
        if show_steps:
            for step, file in zip(walk.steps, walk.files, strict=True):
                print(f"  {file}: {step.co_qualname}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", action="store_true", help="print every step")
    asyncio.run(main(parser.parse_args().steps))
