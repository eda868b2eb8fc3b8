"""Three processes and one run: it starts and waits, a person answers elsewhere, and it continues."""

import asyncio
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from interlock import (
    Agent,
    FileArtifacts,
    Inbox,
    Runner,
    ScriptedModel,
    SqliteLog,
    tool,
    tool_call,
)


@tool(risk="network")
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent {len(text)} characters to {to}"


TURNS = [
    tool_call("send_mail", to="ana@example.org", text="Hello"),
    "Ana has her mail.",
]


def agent() -> Agent:
    """The same in every process. A script by position continues where the conversation is."""
    return Agent(provider=ScriptedModel(TURNS, by_position=True), tools=[send_mail])


async def start(log: SqliteLog, artifacts: FileArtifacts) -> None:
    async with Runner(agent(), log=log, artifacts=artifacts) as runner:
        handle = await runner.start("Greet Ana.", run_id="run-45")
        result = await handle.result()
        print("start: ", result.status, "-", result.questions[0].capability)


async def answer(log: SqliteLog, artifacts: FileArtifacts) -> None:
    """It needs neither the agent nor its tools."""
    async with Inbox(log, artifacts) as inbox:
        for question in await inbox.pending():
            print("answer:", question.prompt, question.arguments)
            await inbox.approve(question, by="bea")


async def go_on(log: SqliteLog, artifacts: FileArtifacts) -> None:
    async with Runner(agent(), log=log, artifacts=artifacts) as runner:
        for handle in await runner.recover():
            result = await handle.result()
            print("go on: ", result.status, "-", result.text, [record.output for record in result.tool_executions])


async def life(part: str, folder: str) -> None:
    async with SqliteLog(Path(folder, "runs.db")) as log:
        await {"start": start, "answer": answer, "go_on": go_on}[part](log, FileArtifacts(Path(folder, "artifacts")))


def live(part: str, folder: str) -> None:
    asyncio.run(life(part, folder))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        for part in ("start", "answer", "go_on"):
            process = get_context("spawn").Process(target=live, args=(part, folder))
            process.start()
            process.join()
