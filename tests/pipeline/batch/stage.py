"""Handlers that a test watches, holds and lets go, and what a run recorded about one call."""

import asyncio
from collections import defaultdict

from interlock import BatchResult, ToolRuntime
from tests.patience import HANG_SECONDS, eventually

#: No wait in these tests may take longer.
PATIENCE = HANG_SECONDS


class Stage:
    """Whoever plays here is seen to start, is held until it is let go, and is seen to end."""

    def __init__(self) -> None:
        self.seen: list[str] = []
        self.running: set[str] = set()
        self.most_running = 0
        self._started: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
        self._let_go: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def play(self, name: str, path: str = "") -> str:
        """Start, wait to be let go, end."""
        self.enter(name)
        try:
            await self._let_go[name].wait()
        except asyncio.CancelledError:
            self.seen.append(f"{name} is cancelled")
            raise
        finally:
            self.running.discard(name)
        self.seen.append(f"{name} ends")
        return f"{name} done"

    async def act(self, name: str, path: str = "") -> str:
        """Start and end at once."""
        self.enter(name)
        self.running.discard(name)
        self.seen.append(f"{name} ends")
        return f"{name} done"

    async def fail(self, name: str) -> str:
        """Start, wait to be let go, raise."""
        self.enter(name)
        await self._let_go[name].wait()
        self.running.discard(name)
        self.seen.append(f"{name} fails")
        raise ValueError(f"{name} went wrong")

    async def ignore(self, name: str) -> str:
        """Start, and end only when let go, however often it is cancelled."""
        self.enter(name)
        while not self._let_go[name].is_set():
            try:
                await self._let_go[name].wait()
            except asyncio.CancelledError:
                self.seen.append(f"{name} ignores it")
        self.running.discard(name)
        self.seen.append(f"{name} ends late")
        return f"{name} done"

    def enter(self, name: str) -> None:
        self.seen.append(f"{name} starts")
        self.running.add(name)
        self.most_running = max(self.most_running, len(self.running))
        self._started[name].set()

    async def started(self, *names: str) -> None:
        async with asyncio.timeout(PATIENCE):
            for name in names:
                await self._started[name].wait()

    async def ended(self, name: str) -> None:
        await eventually(lambda: f"{name} ends" in self.seen)

    def let_go(self, *names: str) -> None:
        for name in names:
            self._let_go[name].set()

    def starts(self) -> list[str]:
        return [line.removesuffix(" starts") for line in self.seen if line.endswith(" starts")]


async def others_ran(turns: int = 100) -> None:
    """Give everything that could go on a chance, before a test says that it did not. Otherwise use `eventually`."""
    loop = asyncio.get_running_loop()
    for _ in range(turns):
        turn: asyncio.Future[None] = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


def codes(result: BatchResult) -> dict[str, str]:
    """The outcome of each call, in model order."""
    return {observation.call_id: observation.code for observation in result.observations}


async def walk(runtime: ToolRuntime, call_id: str) -> list[str]:
    """The types of everything that was recorded about one call, in order."""
    return [step.event.type for step in await runtime.replay() if step.event.correlation_id == call_id]
