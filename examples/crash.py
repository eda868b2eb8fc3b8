"""A process is killed between an effect and its record. The next one repeats nothing and hides nothing."""

import asyncio
import os
import signal
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory

from interlock import SqliteLog, ToolRuntime, tool


def open_run(folder: str) -> ToolRuntime:
    paid = Path(folder, "paid.txt")

    @tool
    def pay(amount: int) -> str:
        """Pay, and then lose power. The outcome is unknown."""
        with paid.open("a") as file:
            file.write(f"{amount}\n")
        os.kill(os.getpid(), signal.SIGKILL)
        return "paid"

    return ToolRuntime(run_id="run-43", tools=[pay], log=SqliteLog(Path(folder, "runs.db")))


async def first_life(folder: str) -> None:
    async with open_run(folder) as runtime:
        await runtime.execute([{"id": "call_1", "name": "pay", "arguments": {"amount": 10}}])


async def second_life(folder: str) -> None:
    async with open_run(folder) as runtime:
        result = await runtime.resume()
        print(result.observations[0].code, "-", result.observations[0].summary)


def start(folder: str) -> None:
    asyncio.run(first_life(folder))


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        process = get_context("spawn").Process(target=start, args=(folder,))
        process.start()
        process.join()
        print("the first process ended with", process.exitcode)
        asyncio.run(second_life(folder))
        print("paid:", Path(folder, "paid.txt").read_text().split())
