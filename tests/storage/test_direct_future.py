"""Futures whose first callback runs as they are completed."""

import asyncio
from contextvars import Context, ContextVar
from typing import Any

import pytest

from interlock.storage.direct_future import DirectFuture, complete_all

place: ContextVar[str] = ContextVar("place", default="outside")


def _new() -> "DirectFuture[Any]":
    return DirectFuture(loop=asyncio.get_running_loop())


async def _run_outside_of_tasks(function: Any) -> None:
    """Call a function as the event loop calls what a thread sends, and wait for it."""
    done = asyncio.Event()

    def call() -> None:
        try:
            function()
        finally:
            done.set()

    asyncio.get_running_loop().call_soon(call)
    await done.wait()


async def _turn() -> None:
    """Let everything that is scheduled have its turn."""
    await _run_outside_of_tasks(lambda: None)


async def _start(awaited: "DirectFuture[Any]", seen: list[Any]) -> "asyncio.Task[None]":
    async def wait() -> None:
        place.set("inside")
        try:
            seen.append(await awaited)
        except Exception as error:
            seen.append(error)
        seen.append(place.get())

    task = asyncio.create_task(wait())
    await _turn()
    return task


@pytest.mark.parametrize("answer", [7, ValueError("no")])
async def test_task_continues_at_once(answer: object) -> None:
    future, seen = _new(), list[Any]()
    task = await _start(future, seen)

    def complete() -> None:
        future.complete(answer)
        assert seen == [answer, "inside"]

    await _run_outside_of_tasks(complete)
    await task


async def test_task_is_scheduled_from_inside_another() -> None:
    future, seen = _new(), list[Any]()
    task = await _start(future, seen)

    future.complete(7)

    assert seen == []
    await task
    assert seen == [7, "inside"]


@pytest.mark.parametrize("method", ["set_result", "set_exception"])
async def test_other_ways_to_complete_call_back(method: str) -> None:
    future, seen = _new(), list[Any]()
    task = await _start(future, seen)

    getattr(future, method)(ValueError("no"))

    await task
    assert len(seen) == 2


async def test_cancelled_task_is_woken_once() -> None:
    future, seen = _new(), list[Any]()
    task = await _start(future, seen)

    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    future.complete(7)

    assert (seen, future.cancelled()) == ([], True)


async def test_callbacks_can_be_removed() -> None:
    future, seen = _new(), list[Any]()
    future.add_done_callback(seen.append)
    future.add_done_callback(seen.append)

    assert future.remove_done_callback(seen.append) == 2
    assert future.remove_done_callback(seen.append) == 0
    future.complete(7)
    await _turn()
    assert seen == []


async def test_every_callback_is_called() -> None:
    future, seen = _new(), list[Any]()
    for _ in range(3):
        future.add_done_callback(seen.append)

    await _run_outside_of_tasks(lambda: future.complete(7))
    await _turn()
    future.add_done_callback(seen.append)
    await _turn()

    assert seen == [future] * 4


async def test_waits_with_a_limit_work() -> None:
    future, other = _new(), _new()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(future), 0.001)
    asyncio.get_running_loop().call_soon(complete_all, [(future, 7), (other, 8)])

    assert await asyncio.gather(future, other) == [7, 8]


async def test_interrupt_does_not_keep_others_waiting() -> None:
    first, second = _new(), _new()

    def interrupt(_: object) -> None:
        raise KeyboardInterrupt

    first.add_done_callback(interrupt)

    def complete() -> None:
        with pytest.raises(KeyboardInterrupt):
            complete_all([(first, 1), (second, 2)])

    await _run_outside_of_tasks(complete)
    assert await second == 2


async def test_task_keeps_its_own_context_if_that_is_empty() -> None:
    awaited = _new()

    async def wait() -> str:
        await awaited
        token = place.set("inside")
        await _turn()
        seen = place.get()
        place.reset(token)
        return seen

    task = asyncio.create_task(wait(), context=Context())
    await _turn()
    await _run_outside_of_tasks(lambda: awaited.complete(None))

    assert await task == "inside"
