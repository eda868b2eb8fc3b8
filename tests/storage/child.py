"""A process of its own that appends to a log: `python -m tests.storage.child WHAT PATH`. Tests kill it or starve it."""

import asyncio
import os
import resource
import subprocess
import sys
from pathlib import Path

from interlock.domain.errors import LogFencedError, LogWriteError, RunClaimedError
from interlock.storage.sqlite.log import SqliteLog

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


async def hold_until_killed(path: str) -> None:
    """Claim the run, append to it, and then do nothing."""
    log = SqliteLog(path)
    claim = await log.acquire("run")
    await append(log, "run", chained("run", 1), claim)
    say(claim.token)
    await asyncio.Event().wait()


async def try_claim(path: str) -> None:
    """Say the token, or why there is none."""
    log = SqliteLog(path)
    try:
        say((await log.acquire("run")).token)
    except RunClaimedError as error:
        say(error)
    await log.close()


async def append_until_fenced(path: str) -> None:
    """Claim the run and append to it; say the token, every event that is written, and why no more can be."""
    log, run = SqliteLog(path), chained("run", 50_000)
    claim = await log.acquire("run")
    say(claim.token)
    for seq, entry in enumerate(run):
        try:
            await append(log, "run", [entry], claim)
            say(seq)
        except LogFencedError as error:
            say(error)
            break
    await log.close()


async def upgrade(path: str) -> None:
    """Open when told to, and say how many events the run has."""
    say("ready")
    sys.stdin.readline()
    log = SqliteLog(path)
    await log.acquire("run", force=True)
    say(len(await log.read("run")))
    await log.close()


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


WHAT = {
    one.__name__: one
    for one in (
        append_until_killed,
        append_until_full,
        append_and_leave,
        hold_until_killed,
        try_claim,
        append_until_fenced,
        upgrade,
        contend,
    )
}

ROOT = Path(__file__).parents[2]


def start(what: str, path: Path) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "tests.storage.child", what, str(path)]
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


if __name__ == "__main__":
    asyncio.run(WHAT[sys.argv[1]](sys.argv[2]))
