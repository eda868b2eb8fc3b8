"""Functions of the developer that decide something: they may block, and the event loop goes on; they have a limit."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from interlock import Agent, Decision, Limits, NormalizedOutput, Rule, RulePolicy, Runner, ScriptedModel, ToolRuntime
from interlock import tool as declare
from interlock.domain.decision import Verdict
from tests.patience import HANG_SECONDS, eventually
from tests.support import call

ALLOW = Decision(verdict=Verdict.ALLOW, reason="Yes.")


class Blocking:
    """A function that blocks its thread until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.let_go = threading.Event()

    def returning(self, value: Any) -> Callable[..., Any]:
        def block(*arguments: Any) -> Any:
            self.entered.set()
            assert self.let_go.wait(HANG_SECONDS)
            return value

        return block


class BlockingPolicy:
    def __init__(self, evaluate: Callable[..., Any]) -> None:
        self.evaluate = evaluate


@pytest.fixture
def blocking() -> Iterator[Blocking]:
    blocking = Blocking()
    yield blocking
    blocking.let_go.set()


def runtime_with(place: str, blocking: Blocking, **options: Any) -> ToolRuntime:
    """A runtime in which the function at one place blocks."""
    declared: dict[str, Any] = {}
    match place:
        case "when":
            always = RulePolicy([Rule(id="r", verdict="allow", when=blocking.returning(True), reason="Yes.")])
            options["policy"] = always
        case "policy":
            options["policy"] = BlockingPolicy(blocking.returning(ALLOW))
        case "authorize":
            declared["authorize"] = blocking.returning(ALLOW)
        case "normalize":
            declared["normalize"] = blocking.returning(NormalizedOutput(text="seen"))
        case "check":
            declared["check"] = blocking.returning(None)
        case _:
            declared[place] = (blocking.returning(None),)

    async def look() -> str:
        return "seen"

    return ToolRuntime(tools=[declare(look, **declared)], **options)


PLACES = ("when", "policy", "authorize", "check", "input_guardrails", "output_guardrails", "normalize")


@pytest.mark.parametrize("place", PLACES)
async def test_a_blocking_function_does_not_block_the_event_loop(place: str, blocking: Blocking) -> None:
    async with runtime_with(place, blocking) as runtime, asyncio.timeout(HANG_SECONDS):
        running = asyncio.create_task(runtime.execute([call("c1", "look")]))
        await eventually(blocking.entered.is_set)
        assert not running.done()
        blocking.let_go.set()
        result = await running

    assert [seen.code for seen in result.observations] == ["ok"]


@pytest.mark.parametrize("place", PLACES)
async def test_a_function_that_takes_too_long_refuses(place: str, blocking: Blocking) -> None:
    runtime = runtime_with(place, blocking, limits=Limits(check_seconds=0.05))
    async with runtime, asyncio.timeout(HANG_SECONDS):
        result = await runtime.execute([call("c1", "look")])

    [seen] = result.observations
    assert (seen.ok, "it took longer than 0.05 s" in seen.summary) == (False, True)


async def test_instructions_may_block(blocking: Blocking) -> None:
    agent = Agent(provider=ScriptedModel(["done"]), instructions=blocking.returning("Be brief."))

    async with Runner(agent) as runner, asyncio.timeout(HANG_SECONDS):
        handle = await runner.start("go")
        await eventually(blocking.entered.is_set)
        blocking.let_go.set()
        result = await handle.result()

    assert result.status == "COMPLETED"
