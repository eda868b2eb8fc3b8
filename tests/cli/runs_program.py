"""A program with an agent of its own, for tests: `python -m tests.cli.runs_program FOLDER MODE`.

The agent adds, sends a mail, which has to be approved, and is done. Every mail is a line in the file `sent`. It says
the id of its run, and at the end what became of it.

- headless: nobody is asked; the run waits, and the process ends.
- asking: somebody is asked who never answers; the process keeps the run.
- hanging: a read never ends; the process keeps the run.
- resume: as headless, with the last run.
"""

import asyncio
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from interlock import SqliteLog, tool
from interlock.agent.agent import Agent
from interlock.cli.display.run_list import follow_events
from interlock.domain.call import Answer, Question
from interlock.domain.ids import new_run_id
from interlock.interaction.providers import CallbackInteractionProvider
from interlock.models.scripted import ScriptedModel, ScriptedTurn, tool_call
from interlock.runs.result import AgentResult
from interlock.runs.runner import Runner
from tests.log_rows import edit_events
from tests.patience import HANG_SECONDS

TASK = "please send the mail to bob"
TEXT = "All done."
_ROOT = Path(__file__).parents[2]


def mailer(folder: Path, *calls: tuple[str, dict[str, Any]], text: str = TEXT, more: tuple[Any, ...] = ()) -> Agent:
    @tool(risk="read")
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @tool(risk="write")
    def send(to: str) -> str:
        """Send a mail."""
        with open(folder / "sent", "a") as sent:
            sent.write(f"{to}\n")
        return f"sent to {to}"

    @tool(risk="read")
    async def hang() -> str:
        """Never return."""
        print("hanging", flush=True)
        await asyncio.Event().wait()
        return ""

    wanted = calls or (("add", {"a": 1, "b": 2}), ("send", {"to": "bob"}))
    turns = [
        ScriptedTurn(text=f"Step {at}.", calls=(tool_call(name, call_id=f"call_{at}", **arguments),))
        for at, (name, arguments) in enumerate(wanted, 1)
    ]
    provider = ScriptedModel([*turns, ScriptedTurn(text=text)], by_position=True)
    return Agent(name="mailer", provider=provider, tools=[add, send, hang, *more], instructions="Be good.")


async def run_in(folder: Path, agent: Agent | None = None, task: str = TASK, run_id: str = "") -> AgentResult:
    async with SqliteLog(folder / "runs.db") as log, Runner(agent or mailer(folder), log=log) as runner:
        handle = await runner.start(task, run_id=run_id or new_run_id())
        return await handle.result()


def recorded(folder: Path, agent: Agent | None = None, task: str = TASK, run_id: str = "") -> AgentResult:
    """A run in the log of the folder, up to where it is over or waits. Nobody has it then."""
    return asyncio.run(run_in(folder, agent, task, run_id))


def resumed(folder: Path, agent: Agent | None = None) -> AgentResult:
    """The last run, gone on with."""

    async def resume() -> AgentResult:
        async with SqliteLog(folder / "runs.db") as log, Runner(agent or mailer(folder), log=log) as runner:
            outer = [run_id for run_id in await log.run_ids() if "." not in run_id]
            return await (await runner.open(outer[-1])).result()

    return asyncio.run(resume())


def damage(log: Path, run_id: str, seq: int = 3) -> None:
    """An event of the run is not what was written."""
    statement = "UPDATE events SET body = 'x' WHERE seq = ? AND run = (SELECT number FROM runs WHERE run_id = ?)"
    edit_events(log, statement, parameters=(seq, run_id))


def sent(folder: Path) -> list[str]:
    file = folder / "sent"
    return file.read_text().split() if file.exists() else []


@contextmanager
def program(folder: Path, mode: str) -> Generator["subprocess.Popen[str]"]:
    """The program as a process of its own, ended with the test."""
    words = [sys.executable, "-m", "tests.cli.runs_program", str(folder), mode]
    with subprocess.Popen(words, cwd=_ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def said_by(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def wait_for(folder: Path, run_id: str, kind: str) -> None:
    """Until the log of the folder has such an event."""

    async def wait() -> None:
        async with SqliteLog(folder / "runs.db") as log, asyncio.timeout(HANG_SECONDS):
            async for event in follow_events(log, run_id):
                if event.type == kind:
                    return
        raise AssertionError(f"{run_id} ended without {kind}")

    asyncio.run(wait())


def started(*arguments: object, **streams: Any) -> "subprocess.Popen[str]":
    """The command as a process of its own."""
    words = [sys.executable, "-c", "from interlock.cli.main import main; main()", *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(words, text=True, **(pipes | streams))


async def _never(question: Question) -> Answer:
    await asyncio.Event().wait()
    raise AssertionError(question)


async def _main(folder: Path, mode: str) -> None:
    agent = mailer(folder, ("hang", {})) if mode == "hanging" else mailer(folder)
    options: Any = {"interaction": CallbackInteractionProvider(_never, None)} if mode == "asking" else {}
    async with SqliteLog(folder / "runs.db") as log, Runner(agent, log=log, **options) as runner:
        if mode == "resume":
            handle = await runner.open((await log.run_ids())[-1])
        else:
            handle = await runner.start(TASK)
        print(handle.run_id, flush=True)
        result = await handle.result()
        print(result.status, result.text or result.message, flush=True)


if __name__ == "__main__":
    asyncio.run(_main(Path(sys.argv[1]), sys.argv[2]))
