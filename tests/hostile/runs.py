"""What every hostile test asks for: one observation, a log that verifies and can be read, and siblings left alone."""

import asyncio
from collections.abc import Callable
from typing import Any

from interlock import BatchResult, Observation, ToolRuntime, tool
from tests.patience import HANG_SECONDS
from tests.support import call


@tool
async def sibling() -> str:
    return "untouched"


async def survives(runtime: ToolRuntime, *calls: Any) -> BatchResult:
    """The batch ends in time with one observation per call, and what it left behind is whole."""
    async with asyncio.timeout(HANG_SECONDS):
        result = await runtime.execute(calls)
        assert len(result.observations) == len(calls)
        audit = await runtime.verify()
        assert audit.ok, audit.flaw
        await runtime.replay()
    return result


async def outcome(definition: Any, **options: Any) -> Observation:
    """What becomes of a call to the tool, proposed beside a harmless one that must not notice."""
    runtime = ToolRuntime(tools=[definition, sibling], **options)
    arguments = {"x": 1} if definition.spec.parameters_schema.get("properties") else {}
    result = await survives(runtime, call("c1", definition.name, **arguments), call("c2", "sibling"))
    first, second = result.observations
    assert second.ok
    return first


def raising(error: BaseException) -> Callable[..., Any]:
    def function(*_: object) -> Any:
        raise error

    return function


def saying(value: Any) -> Callable[..., Any]:
    def function(*_: object) -> Any:
        return value

    return function


def making(make: Callable[[], Any]) -> Callable[..., Any]:
    """Makes the value when it is called: some values refuse to be made."""

    def function(*_: object) -> Any:
        return make()

    return function


def answering(value: Any) -> Callable[..., Any]:
    """The same, asynchronously."""

    async def function(*_: object) -> Any:
        return value

    return function


async def hanging(*_: object) -> Any:
    await asyncio.Event().wait()


class Odd(BaseException):
    """Not an `Exception`."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")

    def __repr__(self) -> str:
        raise ValueError("no repr")


class NoText:
    def __str__(self) -> str:
        raise ValueError("no text")

    def __repr__(self) -> str:
        raise ValueError("no repr")
