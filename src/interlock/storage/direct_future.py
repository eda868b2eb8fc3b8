"""Futures whose first callback runs as they are completed.

A plain future schedules its callbacks: a task that waits for a write then continues one turn of the event loop later,
and each turn gives the interpreter's lock to the thread that wrote. So the futures of writes, and those of callers that
wait for one, call the first callback at once. That is safe outside of tasks only; inside of one, it is scheduled.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from typing import Any, TypeVar

T = TypeVar("T")


class DirectFuture(asyncio.Future[T]):
    """A future that `complete` completes. The task that awaits it continues at once."""

    _first: "tuple[Callable[[asyncio.Future[T]], object], Context] | None" = None

    def complete(self, answer: T | Exception) -> None:
        """Set the result, or an exception, and call the first callback. Do nothing when the caller was cancelled."""
        if self.done():
            return
        if isinstance(answer, Exception):
            super().set_exception(answer)
        else:
            super().set_result(answer)
        if self._first is not None and asyncio.current_task(self.get_loop()) is None:
            callback, context = self._first
            self._first = None
            context.run(callback, self)
        else:
            self._schedule_first()

    def add_done_callback(
        self, fn: "Callable[[asyncio.Future[T]], object]", /, *, context: Context | None = None
    ) -> None:
        """Add a callback: the first one is called directly."""
        if self._first is None and not self.done():
            self._first = fn, copy_context() if context is None else context  # an empty context is false
        else:
            super().add_done_callback(fn, context=context)

    def remove_done_callback(self, fn: "Callable[[asyncio.Future[T]], object]", /) -> int:
        """Remove a callback. Return how often it was there."""
        is_first = self._first is not None and self._first[0] == fn
        if is_first:
            self._first = None
        return super().remove_done_callback(fn) + is_first

    def cancel(self, msg: Any | None = None) -> bool:
        """Cancel, and schedule the callbacks."""
        is_cancelled = super().cancel(msg)
        self._schedule_first()
        return is_cancelled

    def set_result(self, result: T, /) -> None:
        """Set the result, and schedule the callbacks."""
        super().set_result(result)
        self._schedule_first()

    def set_exception(self, exception: type | BaseException, /) -> None:
        """Set an exception, and schedule the callbacks."""
        super().set_exception(exception)
        self._schedule_first()

    def _schedule_first(self) -> None:
        if self._first is not None and self.done():
            callback, context = self._first
            self._first = None
            self.get_loop().call_soon(callback, self, context=context)


def complete_all(answers: Sequence[tuple[DirectFuture[Any], Any]]) -> None:
    """Complete futures of one event loop, one after another, whatever their callbacks raise."""
    for at, (future, answer) in enumerate(answers):
        try:
            future.complete(answer)
        except BaseException:  # such as KeyboardInterrupt
            future.get_loop().call_soon(complete_all, answers[at + 1 :])
            raise
