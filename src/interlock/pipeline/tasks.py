"""Start a task at once: it runs until it first waits, and one that never waits needs no turn of the event loop.

Python 3.12 has such tasks. Before it, the first step is run here, as the task that continues it: so `asyncio.timeout`
or a task group inside that step cancels the right one. The functions for that are those that asyncio documents for
other implementations of tasks (docs.python.org, Extending asyncio).
"""

import asyncio
import sys
from asyncio.tasks import _enter_task, _leave_task  # pyright: ignore[reportPrivateUsage] - documented, see above
from collections.abc import Callable, Coroutine, Generator, Iterable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING, Any, TypeAlias

StartFunction: TypeAlias = Callable[["asyncio.Task[None] | None"], Coroutine[Any, Any, None]]


class _EagerTask(asyncio.Task[None]):
    """A task that the event loop gets to know only when its coroutine waits. `asyncio.Task.__init__` runs then."""

    coroutine: Coroutine[Any, Any, None]

    if TYPE_CHECKING:

        def __init__(self) -> None: ...

    else:
        __init__ = object.__init__

    def continue_later(self, awaited: object, loop: asyncio.AbstractEventLoop, context: Context) -> None:
        """Let the event loop continue the coroutine when what it waits for is there."""
        requests = self.cancelling()
        super().__init__(_Rest(self.coroutine, awaited), loop=loop, context=context)
        for _ in range(requests):
            self.cancel()

    def get_coro(self) -> Any:
        """Return the coroutine."""
        return self.coroutine

    def get_name(self) -> str:
        """Return the name of the task."""
        return super().get_name() or "interlock-call"

    def __repr__(self) -> str:
        return f"<{self.get_name()} {self.coroutine!r}>"


class _Rest(Coroutine[Any, Any, None]):
    """What is left of a coroutine whose first step ended with waiting for something."""

    def __init__(self, coroutine: Coroutine[Any, Any, None], awaited: object) -> None:
        self._coroutine = coroutine
        self._awaited: object = awaited

    def send(self, value: Any, /) -> Any:
        """Continue. The first time, wait for what the first step wanted to wait for."""
        awaited, self._awaited = self._awaited, None
        return self._coroutine.send(value) if awaited is None else awaited

    def throw(self, *error: Any) -> Any:
        """Continue with an error."""
        self._awaited = None
        return self._coroutine.throw(*error)

    def close(self) -> None:
        """End the coroutine."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, None, None]:
        return self._coroutine.__await__()


def start_at_once(functions: Iterable[StartFunction], loop: asyncio.AbstractEventLoop) -> None:
    """Run coroutines, each in a task of its own, one after another until each first waits.

    A function is given its task, where that is known before the coroutine is there.
    """
    if sys.version_info >= (3, 12):
        for function in functions:
            asyncio.Task(function(None), loop=loop, eager_start=True)
        return
    starter: Any = asyncio.current_task(loop)
    current = starter
    try:
        for function in functions:
            task, context = _EagerTask(), copy_context()
            task.coroutine = coroutine = function(task)
            _leave_task(loop, current)
            current = task
            _enter_task(loop, task)
            try:
                awaited = context.run(coroutine.send, None)
            except StopIteration:
                continue
            task.continue_later(awaited, loop, context)
    finally:
        _leave_task(loop, current)
        _enter_task(loop, starter)
