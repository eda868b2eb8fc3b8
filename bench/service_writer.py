"""`python -m bench.service_writer LOG COUNT RATE`: appends so many events, so many each second, to the run `run_live`.

It is a process of its own, as a worker beside the server would be. It waits for a line before it begins, and says what
it took. Every event says its number and when it was handed over.
"""

import asyncio
import sys
from time import perf_counter, time_ns

from interlock import SqliteLog
from interlock.domain.event import RunStarted, UserMessageReceived, WarningRaised

from .service_lists import Writer


async def write(path: str, count: int, rate: float) -> None:
    async with SqliteLog(path) as log:
        writer = Writer("run_live")
        begun = [
            RunStarted(schema=1, agent="elsewhere", requester="user:1"),
            UserMessageReceived(text="Tell what you do."),
        ]
        appended = log.append(writer.run_id, [writer.entry(fact) for fact in begun])
        assert appended is not None
        await appended
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        began = perf_counter()
        for number in range(count):
            await asyncio.sleep(max(0.0, began + number / rate - perf_counter()))
            told = WarningRaised(message=f"event {number} at {time_ns()} {'x' * 200}")
            appended = log.append(writer.run_id, [writer.entry(told)])
            assert appended is not None
            await appended
        print(f"{perf_counter() - began}", flush=True)


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], int(sys.argv[2]), float(sys.argv[3])))
