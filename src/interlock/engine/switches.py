"""Agents that people switched off: none of their runs starts or continues, in any process that uses the log.

A run that continues anyway when its agent is switched off is paused by the process that has it: running calls finish,
and no more begin. It stays where it is until the agent is switched on, or the run is cancelled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import TypeAlias

import msgspec

from ..domain.errors import InterlockError
from ..domain.rendering import neutralize, truncate
from ..runs.runner import Runner
from .advance import RunRules

#: How often the processes that have runs look at what was switched off.
WATCH_SECONDS = 1.0
_MAX_REASON_CHARS = 500
#: The name under which all agents are switched off.
ALL_AGENTS = ""


class SwitchedOffAgent(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that was switched off, by whom, when, and why."""

    #: Empty: all agents.
    name: str
    actor: str
    reason: str
    #: Nanoseconds since 1970.
    at: int

    def describe(self, agent: str) -> str:
        """Return why runs of the agent wait, for people."""
        what = f"Agent {agent}" if self.name else "Every agent"
        text = f"{what} was switched off by {self.actor}: {truncate(self.reason, _MAX_REASON_CHARS)}"
        return neutralize(text).rstrip(".") + "."


SwitchReader: TypeAlias = Callable[[], Awaitable[Sequence[SwitchedOffAgent]]]


def find_switch(switches: Sequence[SwitchedOffAgent], agent: str) -> SwitchedOffAgent | None:
    """Return the switch that applies to an agent: its own, or that of all agents."""
    return next((each for each in switches if each.name in (agent, ALL_AGENTS)), None)


class WorkerRules(RunRules):
    """What one of many workers knows about runs: which agents were switched off."""

    def __init__(self, read: SwitchReader) -> None:
        self._read = read

    async def find_hold(self, agent: str) -> str:
        """Return why runs of the agent must not continue now; empty when they may."""
        switch = find_switch(await self._read(), agent)
        return "" if switch is None else switch.describe(agent)


class SwitchWatch:
    """Pauses the live runs of this process when their agents are switched off."""

    def __init__(self, read: SwitchReader, runners: Mapping[str, Runner]) -> None:
        self._read = read
        self._runners = runners

    async def check(self) -> float:
        """Pause what must not continue. Return the seconds until the next check."""
        switches = await self._read()
        for agent, runner in self._runners.items() if switches else ():
            if find_switch(switches, agent) is not None:
                for handle in runner.list_live_handles():
                    handle.pause()
        return WATCH_SECONDS

    async def run(self) -> None:
        """Check until cancelled. While the switches cannot be read, runs continue: what is new is not opened."""
        while True:
            with suppress(InterlockError):
                await self.check()
            await asyncio.sleep(WATCH_SECONDS)
