"""Named pipes between a test and the commands of its run, so that nobody has to guess how long something takes."""

import asyncio
import os
from pathlib import Path

from tests.patience import HANG_SECONDS


class Pipe:
    """In the workspace. A command waits with `read x < pipe` for `send`, or says `echo x > pipe` for `received`."""

    def __init__(self, path: Path) -> None:
        os.mkfifo(path)
        # Both ends, so that nobody waits for the other to open it.
        self._fd = os.open(path, os.O_RDWR | os.O_NONBLOCK)

    def send(self, line: str = "go") -> None:
        os.write(self._fd, f"{line}\n".encode())

    async def received(self) -> str:
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._fd, ready.set)
        try:
            await asyncio.wait_for(ready.wait(), HANG_SECONDS)
        finally:
            loop.remove_reader(self._fd)
        return os.read(self._fd, 1000).decode().strip()

    def close(self) -> None:
        os.close(self._fd)


def ended(path: Path) -> int:
    """The read end of a new pipe: it comes to its end when every process that opened the other end is gone."""
    os.mkfifo(path)
    return os.open(path, os.O_RDONLY | os.O_NONBLOCK)
