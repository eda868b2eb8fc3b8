"""Which handler runs where, and with which arguments."""

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from pydantic import BaseModel

from interlock.domain.tool import ToolContext
from interlock.sandbox.handlers.executor import HandlerExecutor
from interlock.sandbox.interface import Sandbox, SandboxFullError

from .declare import NoArguments, context_for, declare
from .process_tools import whoami


class Point(BaseModel):
    x: int
    y: int = 2


def add(x: int, y: int) -> int:
    return x + y


async def add_async(x: int, y: int) -> int:
    return x + y


def add_point(point: Point) -> int:
    return point.x + point.y


def say(x: int, y: int, ctx: ToolContext) -> str:
    return f"{ctx.run_id} {ctx.call_id} {x + y}"


@pytest_asyncio.fixture
async def sandbox() -> AsyncIterator[Sandbox]:
    sandbox = HandlerExecutor()
    yield sandbox
    await sandbox.close()


async def test_an_async_handler_is_the_coroutine_itself_and_needs_no_task_or_thread(sandbox: Sandbox) -> None:
    tool = declare(add_async, Point)

    started = sandbox.start(tool, Point(x=1), context_for(tool))

    assert inspect.iscoroutine(started)
    assert await started == 3
    assert sandbox.executor_name(tool) == "async"


@pytest.mark.requirement("R107")
async def test_a_sync_handler_runs_in_a_thread(sandbox: Sandbox) -> None:
    def where() -> int:
        return threading.get_ident()

    tool = declare(where)

    assert await sandbox.start(tool, NoArguments(), context_for(tool)) != threading.get_ident()
    assert sandbox.executor_name(tool) == "thread"


async def test_arguments_are_passed_one_by_one_with_their_defaults(sandbox: Sandbox) -> None:
    tool = declare(add, Point)

    assert await sandbox.start(tool, Point(x=1), context_for(tool)) == 3


async def test_arguments_are_passed_as_one_object_where_the_tool_says_so(sandbox: Sandbox) -> None:
    tool = declare(add_point, Point, args_parameter="point")

    assert await sandbox.start(tool, Point(x=1), context_for(tool)) == 3


async def test_the_context_is_passed_where_the_tool_asks_for_it(sandbox: Sandbox) -> None:
    tool, checked = declare(say, Point, context_parameter="ctx"), Point(x=1)

    assert await sandbox.start(tool, checked, context_for(tool)) == "run_1 call_1 3"
    assert checked == Point(x=1, y=2)


async def test_a_handler_with_process_isolation_runs_in_another_process(sandbox: Sandbox) -> None:
    assert await sandbox.start(whoami, NoArguments(), context_for(whoami)) == "run_1 call_1 whoami"
    assert sandbox.executor_name(whoami) == "process"


def test_the_local_sandbox_holds_nothing_back_and_says_so() -> None:
    assert HandlerExecutor().unconfined_scope.sandbox == "none"


async def test_a_sandbox_without_a_free_thread_refuses_at_once() -> None:
    sandbox, release = HandlerExecutor(max_threads=1), threading.Event()
    tool = declare(release.wait)
    busy = asyncio.ensure_future(sandbox.start(tool, NoArguments(), context_for(tool)))

    with pytest.raises(SandboxFullError):
        sandbox.start(tool, NoArguments(), context_for(tool))

    release.set()
    assert await busy
    await sandbox.close()
