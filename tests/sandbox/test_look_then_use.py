"""Between the look at a path and its use somebody exchanges it: nothing of the host is made, emptied, shown or run.

Each test makes the exchange exactly between the two, so that it fails every time when there is a window.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.domain.payload import ExecutionEnvironment
from interlock.sandbox.commands import bubblewrap, launch, probe
from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.host.programs import find_ripgrep
from interlock.sandbox.interface import CommandSandbox
from interlock.sandbox.workspace.file_operands import bind_files
from tests.patience import HANG_SECONDS

from .commands import Printed, a_command, run, usable
from .ordinary_user import pytest_as_ordinary_user

#: Of a file outside that must stay as it is.
CONTENT = "outside, and not to be touched"


@pytest.fixture(params=["bubblewrap", "landlock", "none"])
def sandbox(request: pytest.FixtureRequest) -> CommandSandbox:
    return usable(request.param)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "workspace"
    folder.mkdir()
    (folder / "inner").mkdir()
    for name in (".env", "config", "inner/.env"):
        (folder / name).write_text("mine")
    return folder


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "outside"
    folder.mkdir()
    (folder / "file").write_text(CONTENT)
    return folder


def is_untouched(outside: Path) -> bool:
    return sorted(os.listdir(outside)) == ["file"] and (outside / "file").read_text() == CONTENT


def exchange(path: Path, target: Path) -> None:
    path.rename(path.with_name(f"{path.name}.moved"))
    path.symlink_to(target)


def at_spawn(monkeypatch: pytest.MonkeyPatch, attack: Callable[[], None]) -> None:
    """After everything was planned, before the sandbox is made."""
    spawn = launch.spawn_program

    def attacked(*args: Any, **options: Any) -> int:
        attack()
        return spawn(*args, **options)

    monkeypatch.setattr(launch, "spawn_program", attacked)


def at_gate(monkeypatch: pytest.MonkeyPatch, attack: Callable[[], None]) -> None:
    """After the sandbox is made, before it is completed."""
    complete = bubblewrap._complete_sandbox  # pyright: ignore[reportPrivateUsage] the moment that the test is about

    def attacked(*args: Any, **options: Any) -> str:
        attack()
        return complete(*args, **options)

    monkeypatch.setattr(bubblewrap, "_complete_sandbox", attacked)


@pytest.fixture
def bwrap() -> BubblewrapSandbox:
    sandbox = probe.choose_sandbox("bubblewrap")
    assert isinstance(sandbox, BubblewrapSandbox)
    return sandbox


@pytest.mark.requirement("P19")
@pytest.mark.parametrize("moment", [at_spawn, at_gate])
@pytest.mark.parametrize("kind", ["hidden", "read_only"])
@pytest.mark.parametrize("name", [".env", "inner/.env", "inner"])
@pytest.mark.parametrize("target", ["file", "missing", "."])
async def test_covers_follow_no_link(  # noqa: PLR0917 - the matrix of an attack
    bwrap: BubblewrapSandbox,
    workspace: Path,
    outside: Path,
    monkeypatch: pytest.MonkeyPatch,
    moment: Callable[[pytest.MonkeyPatch, Callable[[], None]], None],
    kind: str,
    name: str,
    target: str,
) -> None:
    moment(monkeypatch, lambda: exchange(workspace / name, outside / target))
    options: dict[str, Any] = {kind: (str(workspace / name),)}

    with pytest.raises(SandboxSetupError, match=r"while it was being protected.*Nothing was executed"):
        await run(bwrap, "touch ran", workspace, **options)

    assert is_untouched(outside)
    assert not (workspace / "ran").exists()


@pytest.mark.requirement("P19")
@pytest.mark.parametrize("moment", [at_spawn, at_gate])
async def test_a_search_follows_no_link_either(
    bwrap: BubblewrapSandbox, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, moment: Any
) -> None:
    ripgrep = find_ripgrep()
    assert ripgrep is not None
    moment(monkeypatch, lambda: exchange(workspace / ".env", outside / "file"))
    options: dict[str, Any] = {"system": False, "writable": False, "readable": (ripgrep.path,)}

    running = await bwrap.start(
        a_command((ripgrep.path, "mine"), workspace, hidden=(str(workspace / ".env"),), **options), Printed()
    )
    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await running.wait(20)

    assert is_untouched(outside)


@pytest.mark.requirement("P19")
async def test_another_file_of_the_name_is_not_covered(
    bwrap: BubblewrapSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command would see the file that was looked at under its new name."""

    def attack() -> None:
        (workspace / ".env").rename(workspace / "harmless")
        (workspace / ".env").write_text("another")

    at_gate(monkeypatch, attack)

    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await run(bwrap, "cat harmless", workspace, hidden=(str(workspace / ".env"),))


@pytest.mark.requirement("P19")
@pytest.mark.parametrize("is_readable", [False, True])
async def test_an_exchanged_folder_is_not_shown(
    bwrap: BubblewrapSandbox, workspace: Path, outside: Path, monkeypatch: pytest.MonkeyPatch, is_readable: bool
) -> None:
    library = workspace.parent / "library"
    library.mkdir()
    at_spawn(monkeypatch, lambda: exchange(library if is_readable else workspace, outside))

    with pytest.raises(SandboxSetupError, match=r"exchanged.*Nothing was executed"):
        await run(bwrap, "touch ran", workspace, readable=(str(library),))

    assert is_untouched(outside)


@pytest.mark.requirement("P19")
async def test_another_folder_of_the_name_is_no_workspace(sandbox: CommandSandbox, workspace: Path) -> None:
    found = os.stat(workspace)
    os.rename(workspace, workspace.with_name("away"))
    os.mkdir(workspace)

    with pytest.raises(SandboxSetupError, match="another folder"):
        await run(sandbox, "touch ran", workspace, identity=(found.st_dev, found.st_ino))

    assert os.listdir(workspace) == []


@pytest.mark.requirement("P19")
async def test_a_command_starts_in_the_folder_decided_on(
    sandbox: CommandSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = workspace / "other"
    other.mkdir()
    folder = os.open(workspace / "inner", os.O_RDONLY | os.O_DIRECTORY)
    at_spawn(monkeypatch, lambda: exchange(workspace / "inner", other))
    try:
        await run(sandbox, "touch ran", workspace, cwd=str(workspace / "inner"), folder_fd=folder)
    except SandboxSetupError as error:
        assert "was moved. Nothing was executed" in str(error)  # noqa: PT017 - a backend may also start there
    finally:
        os.close(folder)

    assert list(other.iterdir()) == []


async def test_no_descriptor_of_the_folder_stays_open(sandbox: CommandSandbox, workspace: Path) -> None:
    """It leads to the files of the host, around every cover."""
    folder = os.open(workspace / "inner", os.O_RDONLY | os.O_DIRECTORY)
    script = "for fd in /proc/1/fd/* /proc/2/fd/* /proc/$$/fd/*; do readlink $fd; done 2>/dev/null; true"

    outcome = await run(sandbox, script, workspace, cwd=str(workspace / "inner"), folder_fd=folder)
    os.close(folder)

    assert [line for line in outcome.stdout.splitlines() if line.startswith(str(workspace.parent))] == []


async def test_covers_hold_in_the_folder_it_starts_in(bwrap: BubblewrapSandbox, workspace: Path) -> None:
    """A folder that is entered before something is mounted in it shows what is below."""
    covered: dict[str, Any] = {"hidden": (str(workspace / "inner/.env"),), "read_only": (str(workspace / "config"),)}

    outcome = await run(bwrap, "cat .env; echo x > ../config", workspace, cwd=str(workspace / "inner"), **covered)

    assert outcome.stdout == ""
    assert "Read-only file system" in outcome.stderr


async def test_a_secret_that_appears_is_hidden_at_the_next_look(bwrap: BubblewrapSandbox, workspace: Path) -> None:
    """A command that runs since before the secret sees it until another command starts."""
    secret, printed = workspace / "late.env", Printed()
    os.mkfifo(workspace / "go")
    running = await bwrap.start(a_command("echo up; read < go; cat late.env; echo done", workspace), printed)
    await printed.has("up")
    secret.write_text("swordfish")

    await run(bwrap, "true", workspace, hidden=(str(secret),))
    go = await asyncio.to_thread(os.open, workspace / "go", os.O_WRONLY)
    os.write(go, b"\n")
    os.close(go)
    await running.wait(HANG_SECONDS)

    assert printed.text() == "up\ndone\n"


@pytest.mark.requirement("P20")
@pytest.mark.parametrize("moment", ["planned", "spawned"])
@pytest.mark.parametrize("change", ["rewritten", "replaced", "removed", "linked", "made"])
async def test_a_changed_file_stops_what_was_approved(
    sandbox: CommandSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch, moment: str, change: str
) -> None:
    script = workspace / "script"
    script.write_text("touch approved")
    if change == "made":
        script.unlink()
    bound = ExecutionEnvironment(cwd=str(workspace), files=bind_files(["script"], str(workspace)))

    def attack() -> None:
        if change == "removed":
            script.unlink()
            return
        if change == "linked":
            (workspace / "evil").write_text("touch ran")
            exchange(script, workspace / "evil")
            return
        if change == "replaced":
            script.unlink()
        script.write_text("touch ran")

    if moment == "planned":
        attack()
    elif sandbox.confinement.backend == "bubblewrap":
        at_spawn(monkeypatch, attack)
    else:
        pytest.skip("it is looked at before the spawn, and nothing else runs then")

    with pytest.raises(SandboxSetupError, match=r"script changed after a person approved.*Nothing was executed"):
        await run(sandbox, "bash script", workspace, expected_environment=bound, exclusive_until="end")

    assert not (workspace / "ran").exists()


async def test_unchanged_files_let_it_run(sandbox: CommandSandbox, workspace: Path) -> None:
    (workspace / "script").write_text("echo approved")
    bound = ExecutionEnvironment(cwd=str(workspace), files=bind_files(["script", "missing", "inner"], str(workspace)))

    outcome = await run(sandbox, "bash script", workspace, expected_environment=bound, exclusive_until="end")

    assert outcome.stdout == "approved\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="it is one already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
