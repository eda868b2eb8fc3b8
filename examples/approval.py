"""A run waits for a person, its process ends, and another one continues with the answer."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from interlock import HeadlessInteractionProvider, SqliteLog, ToolRuntime, tool


@tool(risk="network")
def send_mail(to: str, text: str) -> str:
    """Send a mail."""
    return f"sent {len(text)} characters to {to}"


def open_run(folder: str) -> ToolRuntime:
    """The same run, in whichever process: its id names it, its log has it."""
    return ToolRuntime(
        run_id="run-42",
        tools=[send_mail],
        interaction=HeadlessInteractionProvider("wait"),
        log=SqliteLog(Path(folder, "runs.db")),
    )


async def ask(folder: str) -> str:
    async with open_run(folder) as runtime:
        call = {"id": "call_1", "name": "send_mail", "arguments": {"to": "ana@example.org", "text": "Hello"}}
        result = await runtime.execute([call])
        print(result.status, "-", result.questions[0].prompt)
        return result.questions[0].action_id


async def go_on(folder: str, action_id: str) -> None:
    async with open_run(folder) as runtime:
        await runtime.decide(action_id, approved=True, by="ana")
        result = await runtime.resume()
        print(result.status, "-", result.tool_executions[0].output)


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        action_id = asyncio.run(ask(folder))
        asyncio.run(go_on(folder, action_id))
