"""Where a handler runs, and what it can reach there."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Protocol

from pydantic import BaseModel

from ..domain.payload import Surroundings
from ..domain.tool import Situation, ToolContext, ToolDefinition


class SandboxFull(Exception):
    """No worker is free. Nothing was started."""


class Sandbox(Protocol):
    @property
    def name(self) -> str:
        """What holds a handler back: `none`, `bubblewrap`, ..."""
        ...

    def executor(self, tool: ToolDefinition) -> str:
        """Who will run it, for the record: `async`, `thread`, `process`."""
        ...

    def surroundings(self, tool: ToolDefinition, situation: Situation, paths: Iterable[str]) -> Surroundings:
        """Where the tool would run, and the state of the files that the call names there, for an approval to bind."""
        ...

    def start(self, tool: ToolDefinition, checked: BaseModel, context: ToolContext) -> Awaitable[Any]:
        """Begin, and return what to wait for. Cancelling it stops the handler where that is possible."""
        ...

    def call(self, function: Callable[[], Any]) -> Awaitable[Any]:
        """Run a developer's function that may block, beside the event loop."""
        ...

    async def close(self) -> None: ...
