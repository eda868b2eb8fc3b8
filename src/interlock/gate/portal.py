"""An event loop in a thread, for programs without one. What the caller gives to run, runs in the caller's thread."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from queue import SimpleQueue
from threading import Thread
from typing import Any, TypeVar

from ..domain.tool import JsonObject

_T = TypeVar("_T")

#: Runs a tool with these arguments.
Execute = Callable[[JsonObject], Any]


class Portal:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, name="interlock-gate", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run a coroutine in the loop, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def run_with_callback(
        self, work: Callable[[Callable[[JsonObject], Awaitable[Any]]], Coroutine[Any, Any, _T]], execute: Execute
    ) -> _T:
        """Run a coroutine in the loop that calls back: `execute` runs in this thread."""
        orders: SimpleQueue[tuple[JsonObject, asyncio.Future[Any]] | None] = SimpleQueue()

        async def call_back(arguments: JsonObject) -> Any:
            done: asyncio.Future[Any] = self._loop.create_future()
            orders.put((arguments, done))
            return await done

        ended = asyncio.run_coroutine_threadsafe(work(call_back), self._loop)
        ended.add_done_callback(lambda _: orders.put(None))
        try:
            while (order := orders.get()) is not None:
                self._answer(execute, *order)
        except BaseException:
            ended.cancel()
            raise
        return ended.result()

    def _answer(self, execute: Execute, arguments: JsonObject, done: "asyncio.Future[Any]") -> None:
        try:
            value = execute(arguments)
        except Exception as error:
            self._loop.call_soon_threadsafe(_settle, done, None, error)
        except BaseException as error:
            self._loop.call_soon_threadsafe(_settle, done, None, error)
            raise
        else:
            self._loop.call_soon_threadsafe(_settle, done, value, None)

    def stop(self) -> None:
        """End the loop and its thread."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


def _settle(done: "asyncio.Future[Any]", value: Any, error: BaseException | None) -> None:
    if done.done():
        return
    if error is None:
        done.set_result(value)
    else:
        done.set_exception(error)
