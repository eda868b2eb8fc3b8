"""What stands in for the world when a recorded run is gone through again: time, results and artifacts of the record.

Nothing is started here. A call that has a recorded result gets it, after the time that it took then; a call that has
none gets `ReplayExecutedError`. Time is counted, not waited for: of the calls under way, the one that ended first then
ends first now, so calls that were cancelled because another one failed are cancelled again.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from heapq import heappop, heappush
from itertools import count
from typing import Any

from pydantic import BaseModel

from ..domain.errors import InterlockError
from ..domain.payload import Surroundings
from ..domain.tool import JsonObject, Reach, Situation, ToolContext, ToolDefinition
from ..history.recording import PastCall, Recording, stopped_by_runtime
from ..storage.artifacts import Artifacts

_REACH = Reach(sandbox="replay")
#: Turns of the event loop in which nobody came, after which nobody is expected.
_QUIET_TURNS = 4


class ReplayExecutedError(InterlockError):
    """In a replay something would have been executed. Nothing was."""


class StoppedThen(Exception):
    """The call had no result when it was recorded: it failed, took too long, or was stopped. Says what was said."""


class VirtualTime:
    """A clock that jumps to the next end, when everything that can begin has begun."""

    def __init__(self, now: int = 0) -> None:
        #: In nanoseconds.
        self.at = 0
        self._now = now
        self._ends: list[tuple[int, int, asyncio.Future[None]]] = []
        self._order = count()
        self._quiet = 0
        self._looking = False

    def now(self) -> int:
        return self._now + self.at

    def elapsed(self) -> int:
        return self.at

    async def spend(self, milliseconds: float) -> None:
        end = self.at + round(milliseconds * 1e6)
        ended = asyncio.get_running_loop().create_future()
        heappush(self._ends, (end, next(self._order), ended))
        self._quiet = 0
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look)
        await ended
        self.at = end

    def _look(self) -> None:
        self._quiet += 1
        if self._quiet > _QUIET_TURNS:
            self._quiet = 0
            self._end_next()
        self._looking = bool(self._ends)
        if self._looking:
            asyncio.get_running_loop().call_soon(self._look)

    def _end_next(self) -> None:
        while self._ends:
            _, _, ended = heappop(self._ends)
            if not ended.done():
                ended.set_result(None)
                return


class RecordedSandbox:
    """Implements `Sandbox` without running anything."""

    unconfined = _REACH

    def __init__(self, calls: dict[str, PastCall], time: VirtualTime) -> None:
        self._calls = calls
        self._time = time

    def executor(self, tool: ToolDefinition) -> str:
        return "replay"

    def reach(self, tool: ToolDefinition, arguments: JsonObject, situation: Situation) -> Reach:
        return _REACH

    def surroundings(
        self, tool: ToolDefinition, arguments: JsonObject, situation: Situation, paths: Iterable[str]
    ) -> Surroundings:
        """No file is looked at: they are not what they were then."""
        return Surroundings(cwd=situation.workspace, sandbox="replay")

    async def start(self, tool: ToolDefinition, checked: BaseModel, context: ToolContext) -> Any:
        call = self._calls.get(context.call_id)
        if call is None or not call.ran or call.observation is None:
            raise ReplayExecutedError(f"{tool.name} would run now, and there is no recorded result of it.")
        await self._time.spend(call.duration_ms)
        if stopped_by_runtime(call.observation):
            raise StoppedThen(call.observation.summary)
        kept = call.observation.artifacts
        context.kept.extend(kept[:-1] if call.output is not None else kept)
        return call

    def call(self, function: Callable[[], Any]) -> Awaitable[Any]:
        raise ReplayExecutedError("A function of the developer would run now.")

    async def close(self) -> None:
        """There is nothing to close."""


class RecordedArtifacts:
    """Implements `Artifacts`: what is kept in a replay is gone with it. Paths are those of the record."""

    def __init__(self, kept: Artifacts, recording: Recording) -> None:
        self.keep, self.keep_stream = kept.keep, kept.keep_stream
        self.read, self.size_bytes = kept.read, kept.size_bytes
        observed = [call.observation for call in recording.calls.values() if call.observation is not None]
        self._paths = {ref.id: ref.path for observation in observed for ref in observation.artifacts}

    def path(self, artifact_id: str) -> str:
        return self._paths.get(artifact_id, "")
