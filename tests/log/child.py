"""A process of its own that appends to a log: `python -m tests.log.child WHAT PATH`. Tests kill it or starve it."""

import asyncio
import os
import resource
import sys

from interlock.domain.errors import LogFencedError, LogWriteError
from interlock.log.sqlite import SqliteLog

from .runs import append, chained

EVENTS = 400
FILE_LIMIT_BYTES = 200_000


def say(word: object) -> None:
    os.write(1, f"{word}\n".encode())


async def append_until_killed(path: str) -> None:
    """Say the run and the number of its events after each append."""
    log = SqliteLog(path)

    async def append_run(name: str) -> None:
        run = chained(name, 20_000)
        for seq in range(0, len(run), 2):
            await append(log, name, run[seq : seq + 2])
            say(f"{name} {seq + 2}")

    await asyncio.gather(*(append_run(name) for name in ("a", "b", "c")))


async def append_until_full(path: str) -> None:
    """Say the number of events after each append, then what stopped it and what stopped the next one."""
    log, run = SqliteLog(path), chained("run", EVENTS, message="x" * 1000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_LIMIT_BYTES, FILE_LIMIT_BYTES))
    seq = 0
    try:
        while True:
            await append(log, "run", run[seq : seq + 1])
            seq += 1
            say(seq)
    except LogWriteError as error:
        say(error)
    try:
        await append(log, "other", chained("other", 1))
    except LogWriteError as error:
        say(error)


async def append_and_leave(path: str) -> None:
    """End without closing: one append is done, another was handed in and nobody waits for it."""
    log, run = SqliteLog(path), chained("run", 2)
    await append(log, "run", run[:1])
    caller = asyncio.ensure_future(append(log, "run", run[1:]))
    await asyncio.wait({caller}, timeout=0)


async def contend(path: str) -> None:
    """Try for every place in the run; say which ones were won."""
    log, run = SqliteLog(path), chained("run", EVENTS, message=f"from {os.getpid()}")
    seq = 0
    while seq < EVENTS:
        try:
            await append(log, "run", run[seq : seq + 1])
            say(f"{seq} {os.getpid()}")
            seq += 1
        except LogFencedError:
            seq = len(await log.read("run"))
    await log.close()


WHAT = {one.__name__: one for one in (append_until_killed, append_until_full, append_and_leave, contend)}

if __name__ == "__main__":
    asyncio.run(WHAT[sys.argv[1]](sys.argv[2]))
