"""Daemon threads for synchronous handlers.

Why not the standard pool: a hung handler must not keep the interpreter from ending, a full pool must say so instead of
queueing behind a handler that never returns, and a hop must be cheap. Each worker has its own queue, so a job
wakes exactly one thread; its outcome goes straight to a future of the event loop.

A thread cannot be stopped. When its future is cancelled the handler runs on, its outcome is dropped, and the worker is
idle again when the handler ends. The set of idle workers is a deque, shared by the loop and the threads without a lock:
taking a worker out of it means owning that worker.
"""

import sys
import threading
from _thread import start_new_thread
from asyncio import AbstractEventLoop, Future, get_running_loop
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import Context, copy_context
from queue import Empty, SimpleQueue
from typing import Any, TypeAlias

from ..interface import SandboxFullError

_Job: TypeAlias = tuple[AbstractEventLoop, Future[Any], Context, Callable[..., Any], Mapping[str, Any]]
#: A worker is known by the queue of its next job; None ends it.
_Worker: TypeAlias = SimpleQueue[_Job | None]


class ThreadPool:
    """A pool of daemon threads for synchronous handlers."""

    def __init__(self, max_threads: int = 512, idle_seconds: float = 60.0) -> None:
        self.max_threads = max_threads
        self._idle_seconds = idle_seconds
        self._idle: deque[_Worker] = deque()
        self._workers: set[_Worker] = set()
        self._closed = False

    def run(self, function: Callable[..., Any], arguments: Mapping[str, Any]) -> Future[Any]:
        """Start the function in a thread, with a copy of the current context. Raise `SandboxFullError` when no thread
        is free.
        """
        if self._closed:
            raise SandboxFullError("The sandbox is closed.")
        loop = get_running_loop()
        future: Future[Any] = loop.create_future()
        job = (loop, future, copy_context(), function, arguments)
        try:
            self._idle.pop().put(job)
        except IndexError:
            self._start_worker(job)
        return future

    def _start_worker(self, job: _Job) -> None:
        if len(self._workers) >= self.max_threads:
            raise SandboxFullError(f"All {self.max_threads} threads are busy.")
        worker: _Worker = SimpleQueue()
        self._workers.add(worker)
        worker.put(job)
        # `threading.Thread.start` waits until the thread runs, which costs three times as much as the rest.
        try:
            start_new_thread(self._work, (worker,))
        except RuntimeError as error:
            self._workers.discard(worker)
            raise SandboxFullError(f"No thread could be started ({error}).") from error

    def close(self) -> None:
        """End idle threads now and busy ones when their handler returns. Closing twice is fine."""
        self._closed = True
        for worker in list(self._workers):
            worker.put(None)

    @property
    def thread_count(self) -> int:
        """Number of worker threads."""
        return len(self._workers)

    def _work(self, worker: _Worker) -> None:
        # As `threading.Thread` does: debuggers, profilers and coverage see what runs here.
        sys.settrace(threading.gettrace())
        sys.setprofile(threading.getprofile())
        self._serve(worker)
        self._workers.discard(worker)

    def _serve(self, worker: _Worker) -> None:
        while job := self._next_job(worker):
            loop, future = job[:2]
            value, error = _run_job(job)
            self._idle.append(worker)
            # A closed loop has no waiter left.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(_set_outcome, future, value, error)
            # An idle thread must not keep the last call alive.
            del loop, future, job, value, error

    def _next_job(self, worker: _Worker) -> _Job | None:
        try:
            return worker.get(timeout=self._idle_seconds)
        except Empty:
            try:
                self._idle.remove(worker)
            except ValueError:
                # The loop took this worker in the same moment: its job is on the way.
                return worker.get()
            return None


def _run_job(job: _Job) -> tuple[Any, Exception | None]:
    _, _, context, function, arguments = job
    try:
        return context.run(function, **arguments), None
    except BaseException as raised:
        return None, _as_exception(raised)


def _as_exception(raised: BaseException) -> Exception:
    """Return an exception that a future can carry: `sys.exit()` in a tool must not end the whole program."""
    if isinstance(raised, Exception) and not isinstance(raised, StopIteration):
        return raised
    wrapped = RuntimeError(f"{type(raised).__name__}: {raised}")
    wrapped.__cause__ = raised
    return wrapped


def _set_outcome(future: Future[Any], value: Any, error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)
