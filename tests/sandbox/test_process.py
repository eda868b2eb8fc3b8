"""A handler in a process of its own: what goes in, what comes out, and what it inherits."""

import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from pydantic import BaseModel

from interlock.domain.outcome import SideEffect
from interlock.domain.tool import ToolDefinition
from interlock.sandbox.handlers.process import ProcessToolError, run_in_process
from tests.patience import HANG_SECONDS

from . import process_tools
from .declare import NoArguments, context_for, declare
from .process_tools import Amount, Booking

BOOKING = Booking(day=date(2026, 1, 2), folder=Path("/tickets/july"))


async def run(tool: ToolDefinition, checked: BaseModel | None = None) -> Any:
    return await run_in_process(tool, checked or NoArguments(), context_for(tool))


async def test_arguments_arrive_with_their_types_and_the_value_comes_back_as_json_data() -> None:
    expected = {"weekday": 5, "name": "july", "seats": [1], "day": "2026-01-02", "set": [1]}

    assert await run(process_tools.book, BOOKING) == expected
    assert await run(process_tools.book_at_once, BOOKING) == "2026 july"


async def test_a_function_whose_definition_is_elsewhere_gets_arguments_as_it_declares_them() -> None:
    class Day(BaseModel):
        day: date

    tool = declare(process_tools.plain, Day, context_parameter="ctx")
    at_once = declare(process_tools.plain_at_once, Booking, args_parameter="booking")

    assert await run(tool, Day(day=date(2026, 1, 2))) == "5 call_1"
    assert await run(at_once, BOOKING) == 1


async def test_the_handler_knows_its_call() -> None:
    assert await run(process_tools.whoami) == "run_1 call_1 whoami"


@pytest.mark.requirement("R228")
async def test_progress_and_side_effects_are_passed_on() -> None:
    heard: list[str] = []
    context = context_for(process_tools.speak, heard.append)

    assert await run_in_process(process_tools.speak, NoArguments(), context) is None

    assert heard == ["half way"]
    assert context.effects == [SideEffect(kind="modified", target="a.txt", detail="2 lines")]


@pytest.mark.requirement("R234")
async def test_the_environment_holds_what_a_program_needs_to_start_and_no_secret(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("API_TOKEN", "HOME", "AWS_SECRET_ACCESS_KEY", "LC_SECRET", "PYTHONSTARTUP"):
        monkeypatch.setenv(name, "a secret")
    monkeypatch.setenv("TZ", "UTC")

    inherited = await run(process_tools.environment)
    passed_on = await run(process_tools.environment_of_grandchild)

    # Python itself adds LC_CTYPE where no language is set.
    assert set(inherited) <= {"PATH", "LANG", "LC_ALL", "LC_CTYPE", "TZ"}
    assert inherited["TZ"] == "UTC"
    assert "secret" not in passed_on
    assert "PYTHONPATH" not in passed_on


async def test_what_the_handler_prints_is_no_result_and_its_standard_input_is_empty() -> None:
    assert await run(process_tools.noise) == ""


async def test_an_exception_arrives_as_its_type_and_text() -> None:
    with pytest.raises(ProcessToolError, match=r"^ValueError: seat 7 is taken$"):
        await run(process_tools.fail)
    with pytest.raises(ProcessToolError, match=r"^SystemExit: enough$"):
        await run(process_tools.leave)
    with pytest.raises(ProcessToolError, match=r"^ValueError: half a character: \\ud800$"):
        await run(process_tools.fail_by_return)


async def test_a_child_that_exits_is_an_error_with_its_status_and_last_words() -> None:
    with pytest.raises(ProcessToolError, match=r"exited with status 3 .*; its last words: these are my last words$"):
        await run(process_tools.die, Amount(count=3))


async def test_a_child_that_is_killed_is_an_error_that_names_the_signal() -> None:
    with pytest.raises(ProcessToolError, match="ended by SIGSEGV before it returned"):
        await run(process_tools.die_by_signal)


async def test_a_child_that_dies_is_noticed_though_a_process_it_forked_holds_its_channel() -> None:
    with pytest.raises(ProcessToolError, match="exited with status 4"):
        await run(process_tools.die_with_a_fork_left)


async def test_a_large_value_comes_back_whole_and_one_over_the_limit_is_refused() -> None:
    assert len(await run(process_tools.large, Amount(count=9 * 2**20))) == 9 * 2**20

    with pytest.raises(ProcessToolError, match="ValueError: the value is 10485762 bytes of JSON"):
        await run(process_tools.large, Amount(count=10 * 2**20))


async def test_a_message_over_the_limit_ends_the_call() -> None:
    with pytest.raises(ProcessToolError, match="the tool sent more than 10485760 bytes"):
        await run(process_tools.say_too_much, Amount(count=11 * 2**20))


async def test_a_child_that_hangs_up_and_lives_on_is_an_error() -> None:
    with pytest.raises(ProcessToolError, match="hung up before it returned"):
        await run(process_tools.hang_up)


async def test_large_arguments_arrive_whole() -> None:
    booking = BOOKING.model_copy(update={"seats": tuple(range(200_000))})

    assert (await run(process_tools.book, booking))["seats"] == list(range(200_000))


async def test_a_value_that_cannot_be_json_is_an_error() -> None:
    with pytest.raises(ProcessToolError, match="Circular reference"):
        await run(process_tools.unspeakable)


async def test_arguments_are_checked_again_in_the_child() -> None:
    with pytest.raises(ProcessToolError, match=r"ValidationError: (?s:.)*greater than or equal to 0"):
        await run(process_tools.large, Amount.model_construct(count=-1))


async def test_a_module_that_cannot_be_imported_is_an_error() -> None:
    def handler() -> None: ...

    handler.__module__ = "no_such_module"
    with pytest.raises(ProcessToolError, match="ModuleNotFoundError: No module named 'no_such_module'"):
        await run(declare(handler, isolation="process"))


PROGRAM = """
import asyncio
from tests.sandbox.declare import NoArguments, context_for
from tests.sandbox.process_tools import process_tool
from interlock.sandbox.handlers.process import run_in_process

@process_tool()
def where() -> str:
    return __name__

def main() -> None:
    print(asyncio.run(run_in_process(where, NoArguments(), context_for(where))))
"""
GUARD = 'if __name__ == "__main__": '


def python(*arguments: str, path: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *sys.path])}
    command = [sys.executable, *arguments]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=HANG_SECONDS, check=False
    ).stdout


def test_a_tool_of_a_script_works_and_its_program_does_not_start_again(tmp_path: Path) -> None:
    script = tmp_path / "program"
    script.write_text(PROGRAM + GUARD + "main()")

    assert python(str(script), path=tmp_path) == "__interlock_script__\n"


def test_a_tool_of_a_program_started_as_a_module_is_imported_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM + GUARD + "main()")

    assert python("-m", "program", path=tmp_path) == "program\n"


def test_a_script_that_calls_its_tool_on_import_is_told_to_guard_its_start(tmp_path: Path) -> None:
    unguarded = "try:\n    main()\nexcept RuntimeError as error:\n    print(error)\n    raise"
    (tmp_path / "program.py").write_text(PROGRAM + unguarded)

    printed = python(str(tmp_path / "program.py"), path=tmp_path)

    assert printed.startswith("ProcessToolError: where was called while its module was imported")


def test_a_tool_typed_at_a_prompt_is_refused_because_no_other_process_could_load_it(tmp_path: Path) -> None:
    program = PROGRAM + "try:\n    main()\nexcept RuntimeError as error:\n    print(error)"

    assert python("-c", program, path=tmp_path) == "where is defined in no file, so another process cannot load it\n"
