"""Fixtures for pytest: a log, a clock, and factories of runtimes and runners that use them.

# conftest.py
pytest_plugins = ["interlock.testing.pytest_plugin"]
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any, Protocol

from ..agent.agent import Agent
from ..domain.errors import ConfigurationError
from ..runs.runner import Runner
from ..runtime import ToolRuntime
from ..storage.memory import MemoryLog
from .clock import FakeClock

try:
    import pytest
    import pytest_asyncio
except ImportError as missing:
    raise ConfigurationError(
        "The fixtures need pytest and pytest-asyncio: pip install 'interlock[testing]'"
    ) from missing


class RuntimeFactory(Protocol):
    """Make a `ToolRuntime`. Log and clock are the fixtures' unless others are given."""

    def __call__(self, **options: Any) -> ToolRuntime: ...


class RunnerFactory(Protocol):
    """Make a `Runner`. Log and clock are the fixtures' unless others are given."""

    def __call__(self, agent: Agent, **options: Any) -> Runner: ...


@pytest.fixture
def interlock_log() -> MemoryLog:
    """Return the event log of the test, in memory."""
    return MemoryLog()


@pytest.fixture
def interlock_clock() -> FakeClock:
    """Return the clock of the test."""
    return FakeClock()


@pytest_asyncio.fixture
async def interlock_runtime(interlock_log: MemoryLog, interlock_clock: FakeClock) -> AsyncIterator[RuntimeFactory]:
    """Return a factory of runtimes. They are closed after the test."""
    defaults: dict[str, Any] = {"log": interlock_log, "clock": interlock_clock}
    async with AsyncExitStack() as opened:

        def make(**options: Any) -> ToolRuntime:
            runtime = ToolRuntime(**(defaults | options))
            opened.push_async_callback(runtime.close)
            return runtime

        yield make


@pytest_asyncio.fixture
async def interlock_runner(interlock_log: MemoryLog, interlock_clock: FakeClock) -> AsyncIterator[RunnerFactory]:
    """Return a factory of runners. They are closed after the test."""
    defaults: dict[str, Any] = {"log": interlock_log, "clock": interlock_clock}
    async with AsyncExitStack() as opened:

        def make(agent: Agent, **options: Any) -> Runner:
            runner = Runner(agent, **(defaults | options))
            opened.push_async_callback(runner.close)
            return runner

        yield make
