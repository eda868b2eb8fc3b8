"""Interlock on the measured work: one `ToolRuntime` per run, with one rule that looks at every call."""

from pathlib import Path

from interlock import Rule, RulePolicy, SqliteLog, ToolRuntime, tool

from .sections import main
from .work import FUNCTIONS, Call, Message

_TOOLS = [tool(function) for function in FUNCTIONS]
_POLICY = RulePolicy([Rule(id="bench", verdict="allow", tools="*", reason="measured")])


class OurRun:
    """Implements `work.LiveRun`."""

    def __init__(self, path: Path | None) -> None:
        if path is None:
            self._runtime = ToolRuntime(tools=_TOOLS, policy=_POLICY)
        else:
            self._runtime = ToolRuntime(tools=_TOOLS, policy=_POLICY, log=SqliteLog(path))

    async def turn(self, calls: list[Call]) -> list[Message]:
        return (await self._runtime.execute(calls)).messages

    async def close(self) -> None:
        await self._runtime.close()


if __name__ == "__main__":
    main(OurRun)
