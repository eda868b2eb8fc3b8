"""What a command sees in bubblewrap, and what is refused before anything is executed."""

import asyncio
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands import bubblewrap, filesystem_view
from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.commands.filesystem_view import SandboxView, build_view
from interlock.sandbox.host.programs import find_bash, find_bwrap, find_ripgrep, python_folders
from interlock.sandbox.interface import CAPABILITIES, CommandSpec, SandboxProfile
from tests.patience import HANG_SECONDS

from .commands import Printed, a_command, run, works
from .ordinary_user import pytest_as_ordinary_user


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    bwrap = find_bwrap()
    assert bwrap is not None
    return BubblewrapSandbox(bwrap.path)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work space"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub/.env").write_text("secret")
    (folder / "keys").mkdir()
    (folder / "keys/id").write_text("secret")
    (folder / "config").write_text("mode = safe\n")
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "id").write_text("secret of the host")
    return folder


def test_its_confinement_is_whole(sandbox: BubblewrapSandbox) -> None:
    confinement = sandbox.confinement

    assert (confinement.backend, confinement.degraded) == ("bubblewrap", False)
    assert confinement.capabilities == tuple(CAPABILITIES)
    assert bool(confinement.notes) == (os.geteuid() == 0)


async def test_a_writable_workspace_is_the_only_place_of_the_host_that_can_be_written(
    sandbox: BubblewrapSandbox, workspace: Path
) -> None:
    outcome = await run(sandbox, "pwd; echo new > file; echo gone > /tmp/x; echo gone > ~/x", workspace)

    assert outcome.stdout == f"{workspace}\n"
    assert (workspace / "file").read_text() == "new\n"
    assert (await run(sandbox, "ls /tmp/x ~/x", workspace)).stdout == ""
    assert (workspace / "file").stat().st_uid == os.geteuid()


async def test_a_read_only_workspace_is_held_by_the_kernel(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    tries = ["echo x > file", "rm config", "chmod 600 config", "touch config", "ln config link", "mv sub other"]

    assert await works(sandbox, tries, workspace, writable=False) == []
    assert (await run(sandbox, "cat config", workspace, writable=False)).stdout == "mode = safe\n"


async def test_hidden_files_and_folders_are_shown_empty(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    hidden = (str(workspace / "sub/.env"), str(workspace / "keys"), str(workspace / "missing"), "/no/such/place")

    outcome = await run(sandbox, "cat sub/.env; ls -A keys; ls", workspace, hidden=hidden)
    tries = ["echo x > sub/.env", "rm sub/.env", "touch keys/x", "rmdir keys", "mv sub/.env x", "mv keys x"]

    assert outcome.stdout == "config\nkeys\nsub\n"
    assert await works(sandbox, tries, workspace, hidden=hidden) == []
    assert (workspace / "sub/.env").read_text() == "secret"


async def test_what_is_inside_of_something_protected_is_protected_with_it(
    sandbox: BubblewrapSandbox, workspace: Path
) -> None:
    names = ("keys", "keys/id", "sub", "sub/.env", "config")
    hidden, read_only = ("keys", "keys/id", "sub/.env"), names
    options: dict[str, Any] = {"hidden": tuple(map(str, map(workspace.joinpath, hidden)))}
    options["read_only"] = tuple(map(str, map(workspace.joinpath, read_only)))

    outcome = await run(sandbox, "ls -A keys; cat sub/.env config", workspace, **options)

    assert (outcome.stdout, outcome.stderr) == ("mode = safe\n", "")
    assert await works(sandbox, ["touch sub/x", "touch keys/x", "echo x >> config"], workspace, **options) == []


async def test_many_files_can_be_hidden_but_not_any_number(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    paths = [workspace / str(number) for number in range(1001)]
    for path in paths:
        path.write_text("secret")

    outcome = await run(sandbox, "cat [0-9]* | wc -c", workspace, hidden=tuple(map(str, paths[:150])))

    assert int(outcome.stdout) == len("secret") * (1001 - 150)
    deeper = str(workspace / "keys/id")
    with pytest.raises(SandboxSetupError, match=r"1,002 files .* 1,001, are in the workspace itself.*a person has to"):
        await run(sandbox, "true", workspace, hidden=(deeper, *map(str, paths)))


async def test_where_there_are_too_many_files_to_hide_the_folder_with_most_is_named(
    sandbox: BubblewrapSandbox, workspace: Path
) -> None:
    paths = [workspace / "sub" / f".env.{number}" for number in range(1000)]
    for path in paths:
        path.write_text("secret")

    with pytest.raises(SandboxSetupError, match=r"1,001 files .* 1,000, are in sub\. No command can fix"):
        await run(sandbox, "true", workspace, hidden=(str(workspace / "keys"), *map(str, paths)))


async def test_a_hidden_link_hides_what_it_points_to(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    (workspace / "link").symlink_to("sub/.env")
    (workspace / "away").symlink_to("/etc/shadow")
    hidden = (str(workspace / "link"), str(workspace / "away"))

    outcome = await run(sandbox, "cat sub/.env link; cat away", workspace, hidden=hidden)

    assert outcome.stdout == ""


@pytest.mark.parametrize("kind", ["hidden", "read_only"])
async def test_no_folder_above_something_protected_can_be_moved(
    sandbox: BubblewrapSandbox, workspace: Path, kind: str
) -> None:
    """A later command would find it where no rule knows it."""
    (workspace / "a/b/c").mkdir(parents=True)
    (workspace / "a/b/c/key").write_text("secret")
    moves = ["mv -T a x", "mv -T a/b x", "mv -T a/b/c x", "mv -T a/b a/x", "mv a sub/", "mv --exchange a sub"]
    exchange = "import ctypes; exit(ctypes.CDLL(None).renameat2(-100, b'a', -100, b'sub', 2))"
    others = [f'{sys.executable} -c "{exchange}"', "rm -rf a", "rmdir a/b/c"]
    options: dict[str, Any] = {kind: (str(workspace / "a/b/c/key"),), "readable": python_folders()}

    assert await works(sandbox, [*moves, *others], workspace, **options) == []
    assert (workspace / "a/b/c/key").read_text() == "secret"


async def test_folders_above_something_protected_can_be_used(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    (workspace / "a/b").mkdir(parents=True)
    (workspace / "a/b/key").write_text("secret")
    uses = ["echo 1 > a/b/x", "mv a/b/x a/b/y", "mv a/b/y z", "mkdir a/c", "mv a/c a/d", "rm -r a/d", "chmod 700 a"]

    assert await works(sandbox, uses, workspace, hidden=(str(workspace / "a/b/key"),)) == uses
    assert (workspace / "z").read_text() == "1\n"


async def test_folders_above_something_hidden_stay_read_only_in_a_read_only_workspace(
    sandbox: BubblewrapSandbox, workspace: Path
) -> None:
    tries = ["touch sub/x", "mv sub x", "rm -rf sub"]

    assert await works(sandbox, tries, workspace, hidden=(str(workspace / "sub/.env"),), writable=False) == []


async def test_the_runtimes_code_below_a_folder_cannot_be_moved_with_it(
    sandbox: BubblewrapSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem_view, "runtime_folders", lambda: (str(workspace / "sub/venv/lib"),))
    (workspace / "sub/venv/lib").mkdir(parents=True)

    assert await works(sandbox, ["mv sub x", "mv sub/venv x", "touch sub/venv/lib/x"], workspace) == []


async def test_read_only_parts_of_a_writable_workspace_cannot_be_changed(
    sandbox: BubblewrapSandbox, workspace: Path
) -> None:
    protected = (str(workspace / "config"), str(workspace / "keys"))
    tries = ["echo x > config", "rm config", "mv config x", "chmod 600 config", "touch keys/x", "rm keys/id"]

    assert await works(sandbox, tries, workspace, read_only=protected) == []
    assert await works(sandbox, ["echo x > sub/new", "cat config", "cat keys/id"], workspace, read_only=protected) != []


async def test_what_is_readable_is_read_only_and_nothing_around_it_is_seen(
    sandbox: BubblewrapSandbox, workspace: Path
) -> None:
    outside = workspace.parent / "outside"
    tries = [f"echo x > {outside}/id", f"ls {workspace.parent} | grep -v -e outside -e work"]

    outcome = await run(sandbox, f"cat {outside}/id", workspace, readable=(str(outside),))

    assert outcome.stdout == "secret of the host"
    assert await works(sandbox, tries, workspace, readable=(str(outside),)) == []
    assert await works(sandbox, [f"cat {outside}/id"], workspace) == []


HOLDERS = ["/", "/home", "/root", "/etc", "/run", "/var", "/proc", "/dev", "{home}", "relative"]


@pytest.mark.parametrize("path", HOLDERS)
async def test_nothing_that_holds_secrets_as_a_whole_is_readable(
    sandbox: BubblewrapSandbox, workspace: Path, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = str(workspace.parent / "outside")
    monkeypatch.setenv("HOME", home)

    with pytest.raises(SandboxSetupError):
        await run(sandbox, "true", workspace, readable=(path.format(home=home),))


@pytest.mark.parametrize(
    "path", ["/", "/usr", "/etc", "/tmp", "/home", "/proc/self", "/dev/shm", "/no/such", "relative"]
)
async def test_a_folder_of_the_system_is_no_workspace(sandbox: BubblewrapSandbox, path: str) -> None:
    with pytest.raises(SandboxSetupError, match=r"cannot be a workspace|is not an absolute|is gone or cannot be read"):
        await run(sandbox, "true", Path(path))


async def test_a_workspace_behind_a_link_is_refused(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    link = workspace.parent / "link"
    link.symlink_to(workspace)

    with pytest.raises(SandboxSetupError, match="real path"):
        await run(sandbox, "true", link)


async def test_the_code_of_this_process_cannot_be_written_from_a_workspace_around_it(
    sandbox: BubblewrapSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem_view, "runtime_folders", lambda: (str(workspace / "keys"), "/usr/lib"))

    assert await works(sandbox, ["touch keys/x", "rm keys/id", "mv keys x"], workspace) == []


async def test_a_workspace_in_the_code_of_this_process_is_refused(
    sandbox: BubblewrapSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem_view, "runtime_folders", lambda: (str(workspace.parent),))

    with pytest.raises(SandboxSetupError, match="runtime itself"):
        await run(sandbox, "true", workspace)


@pytest.mark.parametrize("cwd", ["/", "/tmp", "..", "sub/../..", "missing", "config", "a\0b", "\ud800"])
async def test_a_start_outside_of_the_workspace_or_nowhere_is_refused(
    sandbox: BubblewrapSandbox, workspace: Path, cwd: str
) -> None:
    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await run(sandbox, "true", workspace, cwd=os.path.join(workspace, cwd))


async def test_it_starts_where_it_is_told_to(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    assert (await run(sandbox, "pwd", workspace, cwd=str(workspace / "sub"))).stdout == f"{workspace}/sub\n"


@pytest.mark.requirement("R234")
async def test_variables_are_few_and_the_callers(
    sandbox: BubblewrapSandbox, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FROM_OUTSIDE", "1")

    outcome = await run(
        sandbox, "env | cut -d= -f1 | sort", workspace, environment={"MINE": "a\nb", "PATH": "/usr/bin"}
    )

    names = set(outcome.stdout.split()) - {"b"}
    assert names == {
        *("GIT_EDITOR", "GIT_OPTIONAL_LOCKS", "GIT_PAGER", "GIT_TERMINAL_PROMPT", "HOME", "LANG", "LOGNAME", "MINE"),
        *("PAGER", "PATH", "PWD", "SHELL", "SHLVL", "TERM", "TMPDIR", "USER", "_"),
    }


NAMES = [
    "LD_PRELOAD",
    "BASH_ENV",
    "ENV",
    "CDPATH",
    "SHELLOPTS",
    "PYTHONPATH",
    "NODE_OPTIONS",
    "A=B",
    "",
    "a b",
    "1A",
    "\0",
]


@pytest.mark.parametrize("name", NAMES)
async def test_variables_that_make_programs_load_things_are_refused(
    sandbox: BubblewrapSandbox, workspace: Path, name: str
) -> None:
    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await run(sandbox, "true", workspace, environment={name: "x"})


@pytest.mark.parametrize(
    "command",
    [
        {"script": "x" * 100_001},
        {"script": "echo \0"},
        {"script": "echo \ud800"},
        {"script": "true", "argv": ("true",)},
        {"argv": ("echo", "a\0b")},
        {"argv": ("echo", "x" * 1_000_001)},
        {"argv": ("echo", "x" * 200_000)},
        {"script": "true", "environment": {"A": "\0"}},
        {"script": "true", "environment": {"A": "x" * 100_001}},
    ],
    ids=lambda command: repr(command)[:40],
)
async def test_what_cannot_be_given_to_a_shell_is_refused(
    sandbox: BubblewrapSandbox, workspace: Path, command: dict[str, Any]
) -> None:
    profile = SandboxProfile(workspace=str(workspace), writable=True)

    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await sandbox.start(CommandSpec(profile=profile, **command), Printed())


async def test_the_longest_script_runs(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    script = "echo up #"

    assert (await run(sandbox, script.ljust(100_000, "x"), workspace)).stdout == "up\n"


@pytest.mark.parametrize("words", [("no_such_program",), ("/no/such",), ("./config",), ("/usr",)])
async def test_a_program_that_cannot_be_executed_was_not_started(
    sandbox: BubblewrapSandbox, workspace: Path, words: tuple[str, ...]
) -> None:
    with pytest.raises(SandboxSetupError, match="no such program"):
        await run(sandbox, words, workspace)


@pytest.mark.parametrize("bwrap", ["/no/such/bwrap", "/bin/false"])
async def test_a_bubblewrap_that_does_not_work_is_a_set_up_that_failed(bwrap: str, workspace: Path) -> None:
    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await run(BubblewrapSandbox(bwrap), "true", workspace, hidden=(str(workspace / "config"),))


async def test_without_the_system_there_is_only_what_was_named(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    ripgrep = find_ripgrep()
    assert ripgrep is not None
    options: dict[str, Any] = {"system": False, "writable": False, "readable": (ripgrep.path,)}
    words = (ripgrep.path, "--no-config", "-uu", "--files", "/")

    outcome = await run(sandbox, words, workspace, hidden=(str(workspace / "keys"),), **options)

    shown = {line for line in outcome.stdout.splitlines() if not line.startswith(("/proc/", "/dev/"))}
    own = {"/.sandbox-empty", "/.sandbox-gate"}
    assert shown == {f"{workspace}/config", f"{workspace}/sub/.env", ripgrep.path, *own}
    with pytest.raises(SandboxSetupError, match="execvp"):
        await run(sandbox, ("/bin/true",), workspace, **options)


async def test_this_interpreter_runs_inside_with_its_own_folders(sandbox: BubblewrapSandbox, workspace: Path) -> None:
    words = (sys.executable, "-c", "import sys, json, ssl; print(sys.version)")

    outcome = await run(sandbox, words, workspace, readable=python_folders())

    assert outcome.stdout == f"{sys.version}\n"


def test_programs_are_found_at_fixed_places(monkeypatch: pytest.MonkeyPatch, workspace: Path) -> None:
    monkeypatch.setenv("PATH", f".:{workspace}")
    monkeypatch.chdir(workspace)
    (workspace / "bash").write_text("#!/bin/true")
    (workspace / "bash").chmod(0o755)
    find_bash.cache_clear()

    assert find_bash() in ("/usr/bin/bash", "/bin/bash", "/usr/local/bin/bash")


Swap = Callable[[Path], None]


def link_out(workspace: Path) -> None:
    """What was to be read-only is now a way out, which works in the sandbox as well as on the host."""
    (workspace / "keys").rename(workspace / "old")
    (workspace / "keys").symlink_to("../outside")


def link_parent(workspace: Path) -> None:
    (workspace / "sub").rename(workspace / "old")
    (workspace / "sub").symlink_to("keys")


def other_folder(workspace: Path) -> None:
    """In the place of one above: it looks the same."""
    (workspace / "sub").rename(workspace / "old")
    (workspace / "sub").mkdir()
    (workspace / "old/.env").rename(workspace / "sub/.env")


def link_absolute(workspace: Path) -> None:
    (workspace / "keys").rename(workspace / "old")
    (workspace / "keys").symlink_to(workspace.parent / "outside")


def remove(workspace: Path) -> None:
    (workspace / "keys").rename(workspace / "old")


def other_file(workspace: Path) -> None:
    (workspace / "config").unlink()
    (workspace / "config").symlink_to("keys/id")


@pytest.mark.parametrize("swap", [link_out, link_parent, other_folder, link_absolute, remove, other_file])
@pytest.mark.parametrize("kind", ["hidden", "read_only"])
async def test_a_path_that_is_swapped_between_the_look_and_the_mount_exposes_nothing(
    sandbox: BubblewrapSandbox, workspace: Path, swap: Swap, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped(profile: SandboxProfile, overlay: None) -> SandboxView:
        seen = build_view(profile, overlay)
        swap(workspace)
        return seen

    monkeypatch.setattr(bubblewrap, "build_view", swapped)
    paths = tuple(str(workspace / name) for name in ("sub/.env", "keys", "config"))
    printed = Printed()

    script = "cat ../outside/id old/id old/.env; touch ran"
    with pytest.raises(SandboxSetupError, match="Nothing was executed"):
        await sandbox.start(a_command(script, workspace, **{kind: paths}), printed)

    assert "secret" not in printed.text()
    assert not (workspace / "ran").exists()


async def test_a_folder_that_is_swapped_all_the_time_exposes_nothing(
    sandbox: BubblewrapSandbox, workspace: Path
) -> None:
    flip = "while :; do mv keys old; ln -s ../outside keys; rm keys; mv old keys; done 2>/dev/null"
    flipper = await sandbox.start(a_command(flip, workspace), Printed())
    printed = Printed()

    async def start() -> None:
        try:
            command = a_command("cat ../outside/id", workspace, read_only=(str(workspace / "keys"),))
            await (await sandbox.start(command, printed)).wait(HANG_SECONDS)
        except SandboxSetupError:
            pass

    for _ in range(10):
        await asyncio.gather(*(start() for _ in range(4)))
    await flipper.stop()

    assert "secret" not in printed.text()


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)


async def test_a_command_does_not_start_in_a_folder_that_is_hidden_from_it(
    sandbox: BubblewrapSandbox, tmp_path: Path
) -> None:
    (tmp_path / "closed" / "below").mkdir(parents=True)

    for cwd in ("closed", "closed/below"):
        with pytest.raises(SandboxSetupError, match="closed to commands"):
            await run(sandbox, "echo ran", tmp_path, cwd=str(tmp_path / cwd), hidden=(str(tmp_path / "closed"),))
