"""Plain functions and threads behind a gate."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from pathlib import Path

import pytest

from interlock import ConfigurationError, Gate, LocalTools, SqliteLog, ToolIntent
from interlock.storage.event_log import Lease
from tests.gate.support import SCHEMA, Desk, answer, intent, open_gate, until_asked
from tests.patience import HANG_SECONDS


def test_a_function_runs_in_the_thread_that_calls_it(tmp_path: Path) -> None:
    seen: list[int] = []

    def where(amount: int) -> str:
        """Say where it runs."""
        seen.append(threading.get_ident())
        return f"ran {amount}"

    with Gate(tmp_path, risk={"where": "read"}) as gate, gate.run("t"):
        said = gate.guard(where)(amount=3)

    assert (said, seen) == ("ran 3", [threading.get_ident()])


async def test_a_guarded_call_waits_until_somebody_answers(tmp_path: Path) -> None:
    paid: list[int] = []

    async def pay(amount: int) -> str:
        """Pay somebody."""
        paid.append(amount)
        return "done"

    async with Gate(tmp_path) as gate, gate.run("t"):
        waiting = asyncio.ensure_future(gate.guard(pay)(5))
        await until_asked(gate, "t")
        before = list(paid)
        await answer(gate, "t")
        said = await waiting

    assert (before, paid, said) == ([], [5], "done")


def test_the_same_program_again_repeats_nothing(tmp_path: Path) -> None:
    sent: list[str] = []

    def send(to: str) -> str:
        """Send a mail."""
        sent.append(to)
        return f"sent to {to}"

    said: list[str] = []
    for _ in range(2):
        with Gate(tmp_path, risk={"send": "read"}) as gate, gate.run("t"):
            guarded = gate.guard(send)
            said = [guarded("ana"), guarded("bob"), guarded("ana")]

    assert (sent, said) == (["ana", "bob", "ana"], ["sent to ana", "sent to bob", "sent to ana"])


def test_a_function_gets_the_types_of_its_signature(tmp_path: Path) -> None:
    got: list[object] = []

    def book(day: date, price: float, note: str = "none") -> str:
        """Book a day."""
        got.extend((day, price, note))
        return type(price).__name__

    with Gate(tmp_path, risk={"book": "read"}) as gate, gate.run("t"):
        said = gate.guard(book)(date(2026, 11, 17), price=5.0)

    assert (got, said) == ([date(2026, 11, 17), 5.0, "none"], "float")


def test_a_function_without_a_run_is_refused(tmp_path: Path) -> None:
    def look(amount: int) -> int:
        """Look."""
        return amount

    with Gate(tmp_path, risk={"look": "read"}) as gate, pytest.raises(ConfigurationError, match=r"gate\.run"):
        gate.guard(look)(1)


def test_threads_call_side_by_side(tmp_path: Path) -> None:
    together = threading.Barrier(8)
    results: list[object] = []

    def meet(arguments: dict[str, object]) -> str:
        together.wait(60)
        return "met"

    with open_gate(tmp_path) as gate:

        def call(at: int) -> None:
            results.append(gate.call_sync("t", intent("look", f"c{at}"), meet).result)

        threads = [threading.Thread(target=call, args=(at,)) for at in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    assert results == ["met"] * 8


def test_threads_declare_a_tool_once(tmp_path: Path) -> None:
    """A tool that is declared again is missing for a moment, in which a call of it would be refused."""
    together = threading.Barrier(8)
    with Gate(tmp_path) as gate:

        def declare(_: int) -> int:
            together.wait(HANG_SECONDS)
            return id(gate.declare("look", "Look something up.", SCHEMA))

        with ThreadPoolExecutor(8) as threads:
            declared = set(threads.map(declare, range(8)))

    assert len(declared) == 1


def test_a_call_inside_a_call_of_a_thread_does_not_wait_for_itself(tmp_path: Path) -> None:
    with open_gate(tmp_path) as gate:

        def outer(arguments: dict[str, object]) -> object:
            return gate.call_sync("t", intent("look", "inner"), lambda _: "inside").result

        settled = gate.call_sync("t", intent("look", "outer"), outer)

    assert settled.result == "inside"


async def test_own_tools_need_no_function(tmp_path: Path) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "notes.txt").write_text("hello")
    async with open_gate(tmp_path) as gate:
        names = [tool.name for tool in gate.tools(LocalTools(tmp_path / "project"))]
        read = ToolIntent(call_id="c1", tool_name="read_file", arguments={"path": "notes.txt"})
        settled = await gate.call("t", read)

    assert {"read_file", "bash"} <= set(names)
    assert "hello" in settled.text
    assert Desk(tmp_path).paid == []


async def test_a_tool_of_a_framework_does_not_replace_an_own_one(tmp_path: Path) -> None:
    async with open_gate(tmp_path) as gate:
        gate.tools(LocalTools(tmp_path))
        with pytest.raises(ConfigurationError, match="'read_file'"):
            gate.declare("read_file", "Read a file.", SCHEMA)


async def test_a_run_of_a_thread_is_released_in_its_loop(tmp_path: Path) -> None:
    released: list[str] = []

    class Log(SqliteLog):
        async def release(self, lease: Lease) -> bool:
            released.append(threading.current_thread().name)
            return await super().release(lease)

    async with Log(tmp_path / "runs.db") as log, Gate(log=log, risk={"look": "read"}) as gate:
        gate.declare("look", "Look something up.", SCHEMA)
        await asyncio.to_thread(gate.call_sync, "t", intent("look", "c1"), lambda _: "seen")
        await gate.release("t")

    assert released == ["interlock-gate"]


def test_a_run_of_an_idle_event_loop_is_released(tmp_path: Path) -> None:
    """A framework's `run_sync` keeps its loop, which rests between two runs."""
    desk = Desk(tmp_path)
    with asyncio.Runner() as runner, open_gate(tmp_path) as gate, open_gate(tmp_path) as other:
        with gate.run("t"):
            runner.run(gate.call("", intent("look", "c1"), desk.pay))
        named = other.call_sync("t", intent("look", "c2"), lambda _: "seen")
        other.release_sync("t")
        runner.run(gate.call("t", intent("look", "c3"), desk.pay))
        gate.close_sync()
        closed = other.call_sync("t", intent("look", "c4"), lambda _: "seen")

    assert (named.ok, closed.ok) == (True, True)


async def test_a_plain_with_in_async_code_releases_its_run(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    async with open_gate(tmp_path) as gate, open_gate(tmp_path) as other:
        with gate.run("t"):
            await gate.call("", intent("look", "c1"), desk.pay)
        await gate.release("t")  # waits for the release that began
        settled = await other.call("t", intent("look", "c2"), desk.pay)

    assert settled.ok
