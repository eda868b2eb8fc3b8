"""Daemon threads for synchronous handlers."""

import asyncio
import os
import subprocess
import sys
import threading
import weakref
from collections.abc import AsyncIterator
from contextvars import ContextVar
from types import FrameType

import pytest
import pytest_asyncio

from interlock.sandbox.handlers import threads
from interlock.sandbox.handlers.threads import ThreadPool
from interlock.sandbox.interface import SandboxFullError
from tests.patience import HANG_SECONDS, eventually, wait_until


@pytest_asyncio.fixture
async def pool() -> AsyncIterator[ThreadPool]:
    pool = ThreadPool()
    yield pool
    pool.close()


@pytest.mark.requirement("R107")
async def test_a_handler_runs_in_a_thread_and_the_loop_goes_on(pool: ThreadPool) -> None:
    set_by_loop = threading.Event()
    asyncio.get_running_loop().call_soon(set_by_loop.set)

    def handler() -> tuple[bool, int]:
        return set_by_loop.wait(HANG_SECONDS), threading.get_ident()

    loop_went_on, thread = await pool.run(handler, {})

    assert loop_went_on
    assert thread != threading.get_ident()


async def test_a_hundred_handlers_run_at_the_same_time(pool: ThreadPool) -> None:
    everyone = threading.Barrier(100)

    arrivals = await asyncio.gather(*(pool.run(everyone.wait, {"timeout": 5}) for _ in range(100)))

    assert sorted(arrivals) == list(range(100))


async def test_an_idle_thread_is_used_again(pool: ThreadPool) -> None:
    identities = {await pool.run(threading.get_ident, {}) for _ in range(20)}

    assert len(identities) == 1
    assert pool.thread_count == 1


async def test_arguments_value_and_exception_pass_through_as_they_are(pool: ThreadPool) -> None:
    given, error = object(), ValueError("no")

    def give_back(value: object) -> object:
        return value

    def fail() -> None:
        raise error

    assert await pool.run(give_back, {"value": given}) is given
    with pytest.raises(ValueError, match="no") as raised:
        await pool.run(fail, {})
    assert raised.value is error


async def test_the_handler_sees_the_callers_context_variables_and_cannot_change_them(pool: ThreadPool) -> None:
    variable: ContextVar[str] = ContextVar("variable")
    variable.set("the caller's")

    def handler() -> str:
        seen = variable.get()
        variable.set("the handler's")
        return seen

    assert await pool.run(handler, {}) == "the caller's"
    assert variable.get() == "the caller's"


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt(), StopIteration(1), asyncio.CancelledError()])
async def test_an_exception_that_would_end_more_than_the_call_arrives_as_a_runtime_error(
    pool: ThreadPool, error: BaseException
) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(RuntimeError, match=type(error).__name__) as raised:
        await pool.run(fail, {})
    assert raised.value.__cause__ is error


async def test_a_full_pool_says_so_and_starts_nothing(pool: ThreadPool) -> None:
    pool.max_threads, release, started = 1, threading.Event(), list[str]()
    busy = pool.run(release.wait, {"timeout": 5})

    with pytest.raises(SandboxFullError, match="All 1 threads are busy"):
        pool.run(started.append, {})

    release.set()
    assert await busy
    assert started == []
    assert isinstance(await pool.run(threading.get_ident, {}), int)


async def test_a_thread_that_the_system_refuses_is_a_full_sandbox(
    pool: ThreadPool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threads, "start_new_thread", refuse)

    with pytest.raises(SandboxFullError, match="can't start new thread"):
        pool.run(threading.get_ident, {})
    assert pool.thread_count == 0


async def test_a_cancelled_handler_runs_on_and_its_thread_is_free_again_when_it_ends() -> None:
    pool, release, ran_on = ThreadPool(max_threads=1), threading.Event(), threading.Event()

    def handler() -> None:
        release.wait(HANG_SECONDS)
        ran_on.set()
        raise ValueError("too late for anybody")

    future = pool.run(handler, {})
    future.cancel()
    release.set()
    assert await asyncio.to_thread(ran_on.wait, 5)
    await eventually(lambda: _has_room(pool))

    assert pool.thread_count == 1
    pool.close()


def _has_room(pool: ThreadPool) -> bool:
    try:
        pool.run(threading.get_ident, {})
    except SandboxFullError:
        return False
    return True


def test_a_handler_that_ends_after_its_loop_was_closed_disturbs_nobody() -> None:
    pool, release = ThreadPool(), threading.Event()

    async def give_up() -> None:
        pool.run(release.wait, {"timeout": 5})

    asyncio.run(give_up())
    release.set()
    pool.close()

    wait_until(lambda: pool.thread_count == 0)


async def test_a_thread_that_is_idle_for_long_enough_ends() -> None:
    pool = ThreadPool(idle_seconds=0.001)
    await pool.run(threading.get_ident, {})

    await eventually(lambda: pool.thread_count == 0)


async def test_no_job_is_lost_to_a_thread_that_is_just_ending() -> None:
    pool = ThreadPool(idle_seconds=0)

    values = [await asyncio.wait_for(pool.run(str, {"object": number}), HANG_SECONDS) for number in range(500)]

    assert values == [str(number) for number in range(500)]
    pool.close()


async def test_an_idle_thread_keeps_nothing_of_its_last_call_alive(pool: ThreadPool) -> None:
    class Thing:
        pass

    def handler(thing: Thing) -> None:
        assert isinstance(thing, Thing)

    thing = Thing()
    gone = weakref.ref(thing)
    await pool.run(handler, {"thing": thing})
    del thing

    await eventually(lambda: gone() is None)


async def test_a_debugger_that_traces_new_threads_sees_the_handler() -> None:
    pool, seen, before = ThreadPool(), list[str](), threading.gettrace()

    def handler() -> None: ...

    def trace(frame: FrameType, event: str, argument: object) -> None:
        seen.append(frame.f_code.co_name)

    threading.settrace(trace)
    try:
        await pool.run(handler, {})
    finally:
        threading.settrace(before)
    pool.close()

    assert "handler" in seen


async def test_closing_ends_idle_threads_at_once_and_busy_ones_when_they_are_done() -> None:
    pool, release = ThreadPool(), threading.Event()
    busy = pool.run(release.wait, {"timeout": 5})
    await pool.run(threading.get_ident, {})

    pool.close()
    pool.close()
    await eventually(lambda: pool.thread_count == 1)
    release.set()

    assert await busy
    await eventually(lambda: pool.thread_count == 0)


async def test_a_closed_pool_starts_nothing() -> None:
    pool = ThreadPool()
    await pool.run(threading.get_ident, {})
    pool.close()

    with pytest.raises(SandboxFullError, match="closed"):
        pool.run(threading.get_ident, {})


PROGRAM = """
import asyncio, threading
from interlock.sandbox.handlers.threads import ThreadPool

async def main():
    started = threading.Event()
    ThreadPool().run(lambda: (started.set(), threading.Event().wait()), {})
    started.wait()

asyncio.run(main())
"""


def test_a_handler_that_hangs_for_ever_does_not_keep_the_program_from_ending() -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, timeout=HANG_SECONDS, check=True
    )

    assert ended.stderr == b""
