"""Print how far a reader walks: the functions and files that one call, one model turn and one approval pass through.

`python -m scripts.walk` prints the figures; with `--steps` also every step of the first walk.
"""

import argparse
import asyncio
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import interlock
from interlock import (
    Agent,
    FileArtifacts,
    Inbox,
    LocalTools,
    Rule,
    RulePolicy,
    Runner,
    ScriptedModel,
    SqliteLog,
    ToolRuntime,
    tool,
    tool_call,
)

PACKAGE = Path(interlock.__file__).parent
#: Which thread of a log is first changes the figures a little, so the shortest of some walks is printed.
ROUNDS = 5


class Walk(NamedTuple):
    """What was entered between two points, in order."""

    name: str
    steps: tuple[CodeType, ...]

    @property
    def files(self) -> list[str]:
        """Return the file of every step."""
        return [str(Path(step.co_filename).relative_to(PACKAGE)) for step in self.steps]

    @property
    def changes(self) -> int:
        """Return how often the next step is in another file."""
        return sum(before != after for before, after in pairwise(self.files))

    @property
    def figures(self) -> str:
        """Return the counts as one line."""
        return f"{len(set(self.steps))} functions in {len(set(self.files))} files, {self.changes} changes of file"


class Tracer:
    """Every function of the package that is entered while something is recorded, in every thread.

    A coroutine that resumes is entered again.
    """

    def __init__(self) -> None:
        self._steps: list[CodeType] | None = None

    @contextmanager
    def install(self) -> Generator[None]:
        """Trace this thread, and the threads that start from now on."""
        sys.setprofile(self._enter)
        threading.setprofile(self._enter)
        try:
            yield
        finally:
            sys.setprofile(None)
            threading.setprofile(None)

    async def record(self, name: str, work: Awaitable[Any]) -> Walk:
        """Wait for something, and return what was entered meanwhile."""
        steps: list[CodeType] = []
        self._steps = steps
        try:
            await work
        finally:
            self._steps = None
        return Walk(name, tuple(steps))

    def _enter(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if self._steps is None or event != "call" or code.co_name[0] == "<":
            return
        if code.co_filename.startswith(str(PACKAGE)):
            self._steps.append(code)


@tool(risk="read")
def weather(city: str) -> str:
    """Return the weather of a city."""
    return f"{city}: rain"


@tool(risk="network")
def send_mail(to: str) -> str:
    """Send a mail."""
    return "sent"


async def plain_call(tracer: Tracer, folder: Path) -> AsyncIterator[Walk]:
    """Walk through one allowed call of a plain function, when another has been executed before."""
    async with ToolRuntime(tools=[weather]) as runtime:
        await runtime.execute([{"id": "c0", "name": "weather", "arguments": {"city": "x"}}])
        call = {"id": "c1", "name": "weather", "arguments": {"city": "Bern"}}
        yield await tracer.record("one allowed read call", runtime.execute([call]))


async def read_call(tracer: Tracer, folder: Path) -> AsyncIterator[Walk]:
    """Walk through one allowed `read_file`, when another has been executed before."""
    (folder / "notes.txt").write_text("hello\n")
    async with ToolRuntime(tools=LocalTools(folder)) as runtime:
        call = {"id": "1", "function": {"name": "read_file", "arguments": '{"path": "notes.txt"}'}}
        await runtime.execute([call])
        yield await tracer.record("one allowed read_file", runtime.execute([{**call, "id": "2"}]))


async def model_turn(tracer: Tracer, folder: Path) -> AsyncIterator[Walk]:
    """Walk through a run of one model turn with one call, and the final answer."""
    agent = Agent(provider=ScriptedModel([tool_call("weather", city="Bern"), "Rain."]), tools=[weather])

    async def run() -> None:
        handle = await runner.start("hi")
        await handle.result()

    async with Runner(agent) as runner:
        yield await tracer.record("one model turn", run())


async def approval(tracer: Tracer, folder: Path) -> AsyncIterator[Walk]:
    """Walk through a run that three processes could share: one asks, one approves, one resumes."""
    log, artifacts = SqliteLog(folder / "runs.db"), FileArtifacts(folder / "artifacts")

    def agent() -> Agent:
        turns = [tool_call("send_mail", to="ana"), "done"]
        return Agent(provider=ScriptedModel(turns, by_position=True), tools=[send_mail])

    async def start() -> None:
        handle = await runner.start("greet", run_id="run-1")
        await handle.result()

    async def resume() -> None:
        (handle,) = await runner.recover()
        await handle.result()

    async with Runner(agent(), log=log, artifacts=artifacts) as runner:
        yield await tracer.record("start until a person is asked", start())
    inbox = Inbox(log, artifacts)
    (question,) = await inbox.pending("run-1")
    yield await tracer.record("approve", inbox.approve(question, by="bea"))
    await inbox.close()
    async with Runner(agent(), log=log, artifacts=artifacts) as runner:
        yield await tracer.record("resume until the end", resume())
    await log.close()


async def approval_in_process(tracer: Tracer, folder: Path) -> AsyncIterator[Walk]:
    """Walk from an approval by a rule's question to the end of the run, inside one process."""
    policy = RulePolicy([Rule(id="ask-send", tools=("send_mail",), verdict="ask", reason="It leaves the house.")])
    provider = ScriptedModel([tool_call("send_mail", to="ana"), "done"])

    async def approve() -> None:
        await handle.decide(paused.questions[0].action_id, approved=True, by="bea")
        await handle.wait_until_finished()

    async with Runner(Agent(provider=provider, tools=[send_mail], policy=policy)) as runner:
        handle = await runner.start("send")
        paused = await handle.result()
        yield await tracer.record("approve and resume in one process", approve())


WALKS: tuple[Callable[[Tracer, Path], AsyncIterator[Walk]], ...] = (
    plain_call,
    read_call,
    model_turn,
    approval,
    approval_in_process,
)


async def measure(rounds: int = ROUNDS) -> list[Walk]:
    """Return every walk, each the shortest of some rounds."""
    shortest: dict[str, Walk] = {}
    tracer = Tracer()
    for take in WALKS * rounds:
        with tempfile.TemporaryDirectory() as folder, tracer.install():
            async for walk in take(tracer, Path(folder)):
                shortest[walk.name] = min(shortest.get(walk.name, walk), walk, key=lambda walk: walk.changes)
    return list(shortest.values())


async def main(show_steps: bool) -> None:
    """Print the figures of every walk."""
    for number, walk in enumerate(await measure()):
        print(f"{walk.name}: {walk.figures}")
        if show_steps and number == 0:
            for step, file in zip(walk.steps, walk.files, strict=True):
                print(f"  {file}: {step.co_qualname}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", action="store_true", help="print every step of the first walk")
    asyncio.run(main(parser.parse_args().steps))
