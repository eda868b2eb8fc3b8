"""Handlers that raise, return or do anything at all: always one observation, never an exception out of the run."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel

from interlock import (
    CheckProblem,
    Failure,
    Limits,
    NormalizedOutput,
    Observation,
    Phase,
    SideEffect,
    ToolContext,
    ToolRuntime,
    render_for_model,
    tool,
)
from tests.each import each
from tests.hostile.runs import NoText, Odd, Unprintable, outcome, raising, saying, sibling, survives
from tests.patience import HANG_SECONDS
from tests.support import call

RAISED = [
    OSError("gone"),
    SystemExit(1),
    GeneratorExit(),
    asyncio.CancelledError(),
    StopIteration(),
    StopAsyncIteration(),
    RecursionError(),
    MemoryError(),
    Unprintable(),
    Odd("odd"),
    ExceptionGroup("many", [OSError("a"), ValueError("b")]),
    BaseExceptionGroup("many", [Odd("a")]),
    OSError("\ud800 surrogate"),
    OSError("x" * 1_000_000),
    UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad"),
]


@pytest.mark.requirement("R274")
@each("error", RAISED)
@each("is_async", [True, False])
async def test_whatever_a_handler_raises_is_a_failed_call(error: BaseException, is_async: bool) -> None:
    async def in_loop() -> None:
        raise error

    def in_thread() -> None:
        raise error

    observation = await outcome(tool(in_loop if is_async else in_thread, name="work"))

    assert observation.code in {"tool_failed", "cancelled"}
    assert len(render_for_model(observation)) < 5_000


@dataclass
class Point:
    x: int
    y: float


class Model(BaseModel):
    name: str
    inner: Any = None


class BadDump(BaseModel):
    name: str = ""

    def model_dump(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("no dump")


class Lying:
    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        raise ValueError("no")

    def __iter__(self) -> Any:
        raise ValueError("no")


def deep(levels: int) -> Any:
    value: Any = "bottom"
    for _ in range(levels):
        value = [value]
    return value


def recursive() -> Any:
    items: list[Any] = []
    items.append(items)
    return {"self": items}


def generator() -> Any:
    yield 1
    raise ValueError("in a generator")


RETURNED: dict[str, Any] = {
    "object": object(),
    "no text": NoText(),
    "recursive": recursive(),
    "nan": float("nan"),
    "infinities": [float("inf"), float("-inf")],
    "bytes": b"\xff\x00\x80",
    "bytes inside": {"a": b"\xff"},
    "set": {1, "a"},
    "dataclass": Point(1, float("nan")),
    "model": Model(name="a", inner=object()),
    "broken model": BadDump(),
    "lying": Lying(),
    "generator": generator(),
    "deep": deep(10_000),
    "lone surrogate": "a\ud800b",
    "surrogates inside": {"\ud800": ["\udfff"]},
    "big integer": 2**200,
    "big key": {2**200: 1, (1, 2): 3, None: 4},
    "class": int,
    "function": raising,
    "exception": ValueError("returned"),
    "exception class": ValueError,
    "ellipsis": ...,
    "complex": 1j,
    "nothing": None,
    "empty": "",
    "nulls": "\x00" * 100,
    "10 MiB": "漢" * (10 * 1024 * 1024 // 3),
    "10 MiB of lines": "x\n" * (5 * 1024 * 1024),
    "normalized": NormalizedOutput(text="a"),
    "problem": CheckProblem(message="a"),
    "observation": Observation(call_id="x", tool="y", ok=True, summary="z"),
}


@pytest.mark.requirement("R274")
@each("value", RETURNED.values())
async def test_whatever_a_handler_returns_can_be_shown_and_recorded(value: Any) -> None:
    @tool
    async def work() -> Any:
        return value

    observation = await outcome(work)

    text = render_for_model(observation)
    text.encode()
    assert len(text) < 100_000
    assert isinstance(json.loads(text.split("\n")[0]), dict)


@pytest.mark.parametrize("value", ["a\ud800b", ["\ud800"], {"\udfff": "\ud800"}], ids=repr)
async def test_what_the_model_was_sent_with_a_surrogate_is_what_the_log_says_it_was_sent(value: Any) -> None:
    @tool
    async def work() -> Any:
        return value

    runtime = ToolRuntime(tools=[work])
    result = await runtime.execute([call("c1", "work")])

    [replayed] = (await runtime.replay()).messages()
    assert result.messages[0]["content"] == replayed.text


async def test_a_number_that_json_does_not_know_is_shown_and_not_lost() -> None:
    @tool
    async def work() -> float:
        return float("nan")

    observation = await outcome(work)

    assert observation.content is not None
    assert "nan" in observation.content.text.lower()


@pytest.mark.requirement("R277")
@each("code", ["policy_denied", "user_denied", "unknown_tool", "schema_invalid", "timed_out", "ok"])
@each("way", ["returned failure", "normalized"])
async def test_a_tool_that_ran_cannot_pass_for_one_that_was_refused(code: str, way: str) -> None:
    ran: list[int] = []

    def said(_: Any) -> NormalizedOutput:
        return NormalizedOutput(ok=False, code=code, summary="Nothing was executed.")

    async def work() -> Any:
        ran.append(1)
        return Failure(phase=Phase.PERMIT, code=code, message="Nothing was executed.", retryable=False)

    definition = tool(work, normalize=said) if way == "normalized" else tool(work)
    observation = await outcome(definition)

    assert ran == [1]
    assert observation.failure is None or observation.failure.phase is Phase.EXECUTE
    assert observation.ok or observation.code not in {code, "ok"}
    text = render_for_model(observation)
    assert "Denied by" not in text.split("\n")[0]


NONSENSE: dict[str, Callable[[ToolContext], object]] = {
    "wrong kind": lambda ctx: ctx.side_effect(5, object()),  # pyright: ignore
    "wrong list": lambda ctx: ctx.effects.append("x"),  # pyright: ignore
    "wrong member": lambda ctx: ctx.effects.append(SideEffect(kind=["a"], target=None)),  # pyright: ignore
    "surrogate": lambda ctx: ctx.side_effect("sent", "\ud800"),
    "wrong warning": lambda ctx: ctx.warn(object()),  # pyright: ignore
    "wrong progress": lambda ctx: ctx.progress(object()),  # pyright: ignore
    "no effects": lambda ctx: setattr(ctx, "effects", None),
    "no warnings": lambda ctx: setattr(ctx, "warnings", None),
    "another id": lambda ctx: setattr(ctx, "call_id", "c2"),
}


@pytest.mark.requirement("R274")
@each("spoil", NONSENSE.values())
async def test_nonsense_in_the_context_of_a_call_does_not_reach_the_log(spoil: Any) -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        spoil(ctx)
        return "done"

    observation = await outcome(work)

    assert observation.call_id == "c1"


async def test_a_listener_for_progress_that_raises_does_not_fail_the_call() -> None:
    @tool
    async def work(ctx: ToolContext) -> str:
        ctx.progress("half way")
        return "done"

    observation = await outcome(work, on_progress=raising(OSError("the screen is gone")))

    assert observation.ok


async def test_a_thread_that_blocks_times_out_and_its_late_end_changes_nothing() -> None:
    released, ended = threading.Event(), threading.Event()

    @tool(timeout_seconds=1)  # enough for the thread to begin on a busy machine
    def block() -> str:
        released.wait(HANG_SECONDS)
        ended.set()
        return "late"

    runtime = ToolRuntime(tools=[block, sibling], limits=Limits(drain_seconds=0.02))
    result = await survives(runtime, call("c1", "block"), call("c2", "sibling"))
    before = await runtime.export()
    released.set()
    await asyncio.to_thread(ended.wait, HANG_SECONDS)

    assert [observation.code for observation in result.observations] == ["timed_out", "ok"]
    assert result.observations[0].side_effects == "unknown"
    assert await runtime.export() == before


async def test_a_coroutine_that_ignores_its_cancellation_is_left_behind() -> None:
    released = asyncio.Event()

    @tool(timeout_seconds=0.02)
    async def stubborn() -> str:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue
        return "late"

    runtime = ToolRuntime(tools=[stubborn, sibling], limits=Limits(drain_seconds=0.02))
    result = await survives(runtime, call("c1", "stubborn"), call("c2", "sibling"))
    before = await runtime.export()
    released.set()
    await runtime.close()

    assert [observation.code for observation in result.observations] == ["timed_out", "ok"]
    assert await runtime.export() == before


@pytest.mark.parametrize("words", [raising(OSError("x")), raising(Unprintable()), saying(NoText()), saying(None)])
async def test_error_words_that_fail_leave_the_plain_ones(words: Any) -> None:
    @tool(failure_error_function=words)
    async def work() -> None:
        raise OSError("disk gone")

    observation = await outcome(work)

    assert observation.code == "tool_failed"


@pytest.mark.parametrize("words", [raising(OSError("x")), saying(NoText())])
async def test_timeout_words_that_fail_leave_the_plain_ones(words: Any) -> None:
    @tool(timeout_seconds=0.02, timeout_error_function=words)
    async def work() -> None:
        await asyncio.Event().wait()

    observation = await outcome(work)

    assert observation.code == "timed_out"
    assert "did not finish in 0.02 s" in observation.summary
