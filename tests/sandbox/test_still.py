"""What is asked when the sandbox stands and before the command begins: is it still the right one?"""

import asyncio
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands import probe
from interlock.sandbox.host.process_tree import list_children
from interlock.sandbox.host.programs import find_ripgrep
from interlock.sandbox.interface import CommandSandbox
from tests.patience import HANG_SECONDS

from .commands import Printed, a_command, run, usable
from .ordinary_user import pytest_as_ordinary_user


@pytest.fixture(params=["bubblewrap", "landlock", "none"])
def sandbox(request: pytest.FixtureRequest) -> CommandSandbox:
    return usable(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    (folder / "file").write_text("x")
    return folder


def fails() -> bool:
    raise PermissionError("not for you")


async def test_a_command_runs_while_it_is_still_right(sandbox: CommandSandbox, workspace: Path) -> None:
    asked: list[int] = []

    def still() -> bool:
        asked.append(threading.get_ident())
        return not (workspace / "ran").exists()

    outcome = await run(sandbox, "touch ran; echo up", workspace, is_still_valid=still)

    assert (outcome.stdout, outcome.ended.exit_code) == ("up\n", 0)
    assert len(asked) == 1
    assert asked != [threading.get_ident()]


@pytest.mark.parametrize(
    ("still", "words"), [(lambda: False, "not what it was"), (fails, "PermissionError: not for you")]
)
@pytest.mark.parametrize("what", ["touch ran", ("touch", "ran")])
async def test_nothing_is_executed_when_it_is_not_right_any_more(
    sandbox: CommandSandbox, workspace: Path, still: Callable[[], bool], words: str, what: str | tuple[str, ...]
) -> None:
    with pytest.raises(SandboxSetupError, match=f"{words}.*Nothing was executed"):
        await run(sandbox, what, workspace, is_still_valid=still)

    assert not (workspace / "ran").exists()


@pytest.mark.parametrize("hidden", [(), ("file",)])
async def test_a_program_without_the_system_waits_for_the_answer_too(workspace: Path, hidden: tuple[str, ...]) -> None:
    ripgrep = find_ripgrep()
    assert ripgrep is not None
    sandbox = probe.choose_sandbox("bubblewrap")
    words = (ripgrep.path, "--no-config", "--files")
    options: dict[str, Any] = {"system": False, "writable": False, "readable": (ripgrep.path,)}
    covered = tuple(str(workspace / name) for name in hidden)

    told = await run(sandbox, words, workspace, hidden=covered, is_still_valid=lambda: True, **options)
    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await run(sandbox, words, workspace, hidden=covered, is_still_valid=lambda: False, **options)

    assert told.stdout == "file\n"


async def test_cancelling_while_it_is_asked_executes_nothing_and_leaves_nothing(
    sandbox: CommandSandbox, workspace: Path
) -> None:
    loop, asked, answer = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    others = list_children(os.getpid())

    def still() -> bool:
        loop.call_soon_threadsafe(asked.set)
        return answer.wait(HANG_SECONDS)

    starting = asyncio.ensure_future(sandbox.start(a_command("touch ran", workspace, is_still_valid=still), Printed()))
    await asked.wait()
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    answer.set()

    assert not (workspace / "ran").exists()
    assert list_children(os.getpid()) == others


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)
