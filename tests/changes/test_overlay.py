"""Commands in an overlay: what they change is kept apart, and read without following or believing anything."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest

from interlock.changes.change_set import ChangeSet
from interlock.changes.commit import Committed
from interlock.changes.contents import ChangeLimits
from interlock.changes.store import ChangeStore
from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands import bubblewrap
from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox, can_overlay, find_overlay_bwrap
from interlock.sandbox.commands.filesystem_view import find_mount_below
from interlock.sandbox.commands.unconfined import UnconfinedSandbox
from interlock.sandbox.host.programs import find_bwrap
from interlock.sandbox.interface import CommandSandbox
from interlock.sandbox.workspace.workspace import Workspace
from tests.patience import HANG_SECONDS
from tests.sandbox.commands import Outcome, Printed, a_command, run

from .trees import copy, snapshot


class Trial:
    """A workspace, a store, and a sandbox that keeps changes apart."""

    def __init__(self, folder: Path, store: Path, limits: ChangeLimits | None = None) -> None:
        bwrap = find_bwrap()
        if bwrap is None or not can_overlay(bwrap.path):
            pytest.skip("bubblewrap can mount no overlay here")
        self.sandbox: CommandSandbox = BubblewrapSandbox(bwrap.path)
        self.folder = folder
        self.store = ChangeStore(store, limits)
        self.workspace = Workspace(folder)
        self.outcome: Outcome | None = None

    async def run(self, script: str, **options: Any) -> ChangeSet:
        """Run a script in a new overlay, and read it. The workspace must stay as it is."""
        before = snapshot(self.folder)
        with self.store.open_overlay(self.workspace) as overlay:
            options = {"exclusive_until": "end", "overlay": overlay, **options}
            self.outcome = await run(self.sandbox, script, self.folder, **options)
            assert snapshot(self.folder) == before
            change_set = self.store.read_overlay(overlay, self.workspace)
        assert not os.listdir(os.path.join(self.store.folder, "overlays"))
        change_set.check()
        return change_set

    def write(self, **files: str) -> None:
        for name, text in files.items():
            (self.folder / name).write_text(text)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path.resolve() / "work, :space\\"
    (folder / "sub/inner").mkdir(parents=True)
    (folder / "a").write_text("a")
    (folder / "sub/b").write_text("b")
    (folder / "sub/inner/c").write_text("c")
    (folder / "link").symlink_to("a")
    return folder


@pytest.fixture
def trial(folder: Path, tmp_path: Path) -> Trial:
    return Trial(folder, tmp_path / "store")


def summary(change_set: ChangeSet) -> dict[str, str]:
    return {one.path: f"{one.before.kind} {one.after.kind}" for one in change_set.changes}


SCRIPTS = {
    "edits": "echo new > a; echo more >> sub/b; echo x > new; mkdir -p n/e/w && echo y > n/e/w/f",
    "deletes": "rm a link; rm -r sub",
    "replaces a folder by a file": "rm -r sub; echo file > sub",
    "replaces a file by a folder": "rm a; mkdir a; echo x > a/x",
    "replaces a folder by a new one": "rm -r sub; mkdir sub; echo x > sub/b; mkdir sub/inner; echo y > sub/inner/y",
    "exchanges links": "ln -sfn sub/b link; ln -s nowhere dangling; rm a; ln -s sub a; rm -r sub; ln -s / sub",
    "moves": "mv sub other; mv a sub; mv other/inner .",
    "modes": "chmod 600 a; chmod 700 sub/inner; chmod 000 sub/b; mkdir -m 000 closed",
    "hard links": "ln a hard; echo more >> hard; ln sub/b c; chmod 000 c",
    "odd names": r"touch $'\xff\xfe' $'e\xcc\x81' $'\xc3\xa9' A $'new\nline' -- -rf; mkdir ' '; echo > ' /*'",
    "many": "mkdir many; for n in {1..300}; do echo $n > many/$n; done; rm many/7",
    "sparse": "truncate -s 50M sparse; printf end >> sparse",
    "touches only": "touch a sub/b; echo b > sub/n; rm sub/n; chmod 755 .; mv sub . ; mv a .. ; rmdir .",
}


@pytest.mark.requirement("P27")
@pytest.mark.parametrize("name", SCRIPTS)
async def test_committed_effect_is_the_effect(name: str, trial: Trial) -> None:
    """The same script, once in the workspace of a copy and once by way of an overlay."""
    plain = trial.folder.parent / "plain"
    copy(trial.folder, plain)
    before = snapshot(trial.folder)
    await run(trial.sandbox, SCRIPTS[name], plain)

    change_set = await trial.run(SCRIPTS[name])
    done = trial.store.commit(change_set, trial.workspace)

    assert isinstance(done, Committed)
    assert _without_times(snapshot(trial.folder)) == _without_times(snapshot(plain))
    assert isinstance(trial.store.commit(change_set.invert(), trial.workspace), Committed)
    assert snapshot(trial.folder) == before


def _without_times(found: dict[str, Any]) -> dict[str, Any]:
    return {path: entry[:4] for path, entry in found.items()}


async def test_change_set_names_each_path_once(trial: Trial) -> None:
    change_set = await trial.run("rm -r sub; mkdir sub; echo x > sub/b; rm link; echo > link")

    assert summary(change_set) == {
        "link": "link file",
        "sub/b": "file file",
        "sub/inner": "folder absent",
        "sub/inner/c": "file absent",
    }


@pytest.fixture(params=["one file system", "two file systems"])
def anywhere(request: pytest.FixtureRequest, folder: Path, tmp_path: Path) -> Iterator[Trial]:
    """A store on the file system of the workspace, and one elsewhere: inode numbers differ in the second overlay."""
    if request.param == "one file system":
        yield Trial(folder, tmp_path / "store")
        return
    if os.stat("/dev/shm").st_dev == folder.stat().st_dev:
        pytest.skip("there is no second file system")
    store = mkdtemp(dir="/dev/shm")
    yield Trial(folder, Path(store))
    shutil.rmtree(store)


async def test_covers_hold_in_an_overlay(anywhere: Trial) -> None:
    trial = anywhere
    trial.write(**{".env": "secret", "sub/.env": "secret", "settings": "safe"})
    (trial.folder / "keys").mkdir()
    (trial.folder / "keys/id").write_text("secret")
    hidden = tuple(str(trial.folder / name) for name in (".env", "sub/.env", "keys"))
    script = """cat .env sub/.env keys/*; ls keys; echo x > .env; echo x > keys/x; rm -rf keys sub; mv sub moved;
        echo evil > settings; rm settings; mv settings x; chmod 777 settings; echo fine > new; cat settings"""

    change_set = await trial.run(script, hidden=hidden, read_only=(str(trial.folder / "settings"),))

    assert trial.outcome is not None
    assert "secret" not in trial.outcome.stdout
    assert trial.outcome.stdout == "safe"
    assert summary(change_set) == {
        "new": "absent file",
        "sub/b": "file absent",
        "sub/inner": "folder absent",
        "sub/inner/c": "file absent",
    }


async def test_the_store_is_not_visible(trial: Trial) -> None:
    secret = Path(trial.store.folder, "secret")
    script = f'ls -A {str(secret.parent)!r}; cat /proc/self/root{str(secret)!r}; echo "$?"'
    await trial.run(f"mkdir -p x; {script}")

    assert trial.outcome is not None
    assert trial.outcome.stdout == "1\n"


async def test_special_files_are_reported(trial: Trial) -> None:
    script = (
        "mkfifo pipe; rm a; mkfifo a; mknod device c 1 3; mknod white c 0 0;"
        "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"socket\")'"
    )
    change_set = await trial.run(script)

    assert summary(change_set) == {}
    assert {one.path: one.reason for one in change_set.skipped} == {
        "a": "it is or was a pipe",
        "pipe": "it is or was a pipe",
        "socket": "it is or was a socket",
    }


async def test_overlay_attributes_of_a_command_mean_nothing(trial: Trial) -> None:
    script = """python3 - <<'END'
import os
for path, name, value in (("sub", "opaque", b"y"), ("a", "whiteout", b"y"), ("sub", "redirect", b"/etc")):
    try: os.setxattr(path, "user.overlay." + name, value)
    except OSError: pass
os.setxattr("a", "user.mine", b"1")
END"""
    change_set = await trial.run(script)

    assert summary(change_set) == {"a": "file file"}
    assert change_set.changes[0].after.xattrs == {"user.mine": "31"}
    assert {one.path for one in change_set.skipped} <= {"a", "sub"}


def test_special_mode_bits_are_not_gained(trial: Trial) -> None:
    """The sandbox refuses to set them, so they are set in its place."""
    (trial.folder / "kept").write_text("x")
    (trial.folder / "kept").chmod(0o4755)
    with trial.store.open_overlay(trial.workspace) as overlay:
        for name, mode in (("a", 0o4755), ("new", 0o2711), ("kept", 0o4711)):
            path = Path(overlay.upper, name)
            path.write_text("x" if name == "kept" else "program")
            path.chmod(mode)
        change_set = trial.store.read_overlay(overlay, trial.workspace)

    assert {one.path: one.after.mode for one in change_set.changes} == {"a": 0o755, "new": 0o711, "kept": 0o4711}
    assert {one.path for one in change_set.skipped} == {"a", "new"}


async def test_limits_are_said(folder: Path, tmp_path: Path) -> None:
    trial = Trial(folder, tmp_path / "store", ChangeLimits(max_file_bytes=100, max_total_bytes=250, max_files=6))
    (folder / "large").write_bytes(bytes(101))
    script = (
        "rm large; truncate -s 1M huge; head -c 100 /dev/zero > 1; head -c 100 /dev/zero > 2; head -c 100 /dev/zero > 3"
    )
    change_set = await trial.run(script)

    assert summary(change_set) == {"1": "absent file", "2": "absent file", "large": "file absent"}
    assert [one.path for one in change_set.changes if one.before.size and not one.before.digest] == ["large"]
    assert {one.path: one.reason for one in change_set.skipped} == {
        "3": "all changed files together are larger than 250 bytes",
        "huge": "it is larger than 100 bytes",
    }
    assert isinstance(trial.store.commit(change_set, trial.workspace), Committed)
    assert trial.store.find_missing(change_set.invert()) == ("large",)


async def test_deep_folders_are_skipped_and_removed(trial: Trial) -> None:
    program = "import os\nfor _ in range(1200): os.mkdir('d'); os.chdir('d')"
    change_set = await trial.run(f'python3 -c "{program}"')

    assert len(change_set.changes) == 100
    [skipped] = change_set.skipped
    assert "deeper" in skipped.reason


def test_only_the_overlay_is_walked(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    """The workspace is never listed, however large it is."""
    with trial.store.open_overlay(trial.workspace) as overlay:
        Path(overlay.upper, "sub").mkdir()
        Path(overlay.upper, "sub/new").write_text("x")
        listed: list[int] = []
        list_folder = os.listdir

        def spy(folder: int) -> list[str]:
            listed.append(os.fstat(folder).st_ino)
            return list_folder(folder)

        monkeypatch.setattr(os, "listdir", spy)
        change_set = trial.store.read_overlay(overlay, trial.workspace)
        monkeypatch.undo()
        expected = [os.stat(overlay.upper).st_ino, os.stat(f"{overlay.upper}/sub").st_ino]
    assert listed == expected
    assert summary(change_set) == {"sub/new": "absent file"}


async def test_the_mode_of_the_workspace_stays(trial: Trial) -> None:
    change_set = await trial.run("echo x > new; chmod 000 .")

    assert summary(change_set) == {"new": "absent file"}
    [skipped] = change_set.skipped
    assert (skipped.path, "mode of the workspace" in skipped.reason) == (".", True)


def test_whiteouts_of_both_kinds_are_deletions(trial: Trial) -> None:
    with trial.store.open_overlay(trial.workspace) as overlay:
        Path(overlay.upper, "a").touch()
        os.setxattr(f"{overlay.upper}/a", "user.overlay.whiteout", b"y")
        Path(overlay.upper, "sub").mkdir()
        os.setxattr(f"{overlay.upper}/sub", "user.overlay.opaque", b"y")
        change_set = trial.store.read_overlay(overlay, trial.workspace)

    assert summary(change_set) == {
        "a": "file absent",
        "sub/b": "file absent",
        "sub/inner": "folder absent",
        "sub/inner/c": "file absent",
    }


@pytest.mark.parametrize(
    ("options", "problem"), [({"exclusive_until": "start"}, "alone"), ({"writable": False}, "write")]
)
async def test_unsafe_overlays_are_refused(trial: Trial, options: dict[str, Any], problem: str) -> None:
    with pytest.raises(SandboxSetupError, match=problem):
        await trial.run("touch x", **options)


async def test_other_sandboxes_refuse_overlays(trial: Trial) -> None:
    trial.sandbox = UnconfinedSandbox()
    with pytest.raises(SandboxSetupError, match="apart"):
        await trial.run("touch x")


async def test_an_old_bubblewrap_leaves_overlays_to_the_bundled_one(trial: Trial, tmp_path: Path) -> None:
    """A script stands for an older version: it has everything but the option."""
    bundled = find_bwrap()
    assert bundled is not None
    old = tmp_path / "bwrap"
    old.write_text(
        f'#!/bin/bash\n[[ " $* " != *" --overlay"* ]] && exec {bundled.path} "$@"\necho no such option; exit 1\n'
    )
    old.chmod(0o755)
    sandbox = BubblewrapSandbox(str(old))

    assert not can_overlay(str(old))
    assert find_overlay_bwrap(str(old)) == bundled.path
    assert "overlay" in sandbox.confinement.capabilities
    trial.sandbox = sandbox
    assert summary(await trial.run("touch new")) == {"new": "absent file"}


async def test_no_overlay_is_no_capability(trial: Trial, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bubblewrap, "find_overlay_bwrap", lambda bwrap: "")  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]

    assert "overlay" not in trial.sandbox.confinement.capabilities
    with pytest.raises(SandboxSetupError, match="no overlay on this host"):
        await trial.run("touch x")


async def test_secrets_that_appear_are_hidden_in_a_running_overlay(trial: Trial) -> None:
    """Another command that starts meanwhile finds them: searches run beside a trial."""
    signals = trial.folder.parent / "signals"
    signals.mkdir()
    os.mkfifo(signals / "go")
    with trial.store.open_overlay(trial.workspace) as overlay, (signals / "go").open("r+b", buffering=0) as go:
        script = f"echo begun; read -r _ < {str(signals)!r}/go; cat late; cat sub/late"
        printed = Printed()
        options = {"exclusive_until": "end", "overlay": overlay, "readable": (str(signals),)}
        running = await trial.sandbox.start(a_command(script, trial.folder, **options), printed)
        await printed.has("begun")
        trial.write(**{"late": "secret", "sub/late": "secret"})
        hidden = tuple(str(trial.folder / name) for name in ("late", "sub/late"))
        await run(trial.sandbox, "true", trial.folder, writable=False, hidden=hidden)
        go.write(b"go\n")
        await running.wait(HANG_SECONDS)

    assert printed.text() == "begun\n"
    assert printed.text("stderr") == ""


def test_the_store_is_never_in_the_workspace(folder: Path) -> None:
    for place in (folder / "store", folder.parent):
        with Workspace(folder) as workspace, pytest.raises(SandboxSetupError, match="in the workspace"):
            ChangeStore(place).open_overlay(workspace)


def test_mounts_in_a_workspace_are_found() -> None:
    assert find_mount_below("/") in ("/proc", "/dev", "/sys") or find_mount_below("/")
    assert find_mount_below("/nowhere") == ""


async def test_a_killed_process_leaves_no_overlay(trial: Trial) -> None:
    overlay = trial.store.open_overlay(trial.workspace)
    await run(trial.sandbox, "mkdir -m 000 x", trial.folder, exclusive_until="end", overlay=overlay)
    other = ChangeStore(trial.store.folder)
    other.recover()
    assert len(os.listdir(Path(other.folder, "overlays"))) == 1

    os.close(overlay._lock)  # what the end of a process does  # pyright: ignore[reportPrivateUsage]
    other.recover()
    assert os.listdir(Path(other.folder, "overlays")) == []


async def test_the_start_folder_is_the_given_one(trial: Trial) -> None:
    folder = os.open(trial.folder / "sub", os.O_PATH)
    try:
        await trial.run("pwd; cat b", cwd=str(trial.folder / "sub/../sub"), folder_fd=folder)
        assert trial.outcome is not None
        assert trial.outcome.stdout == f"{trial.folder}/sub\nb"
        with pytest.raises(SandboxSetupError, match="exchanged"):
            await trial.run("touch x", cwd=str(trial.folder), folder_fd=folder)
    finally:
        os.close(folder)


def test_the_store_is_private(trial: Trial) -> None:
    trial.store.open_overlay(trial.workspace).close()

    for path in (
        trial.store.folder,
        *(os.path.join(trial.store.folder, name) for name in os.listdir(trial.store.folder)),
    ):
        assert stat.S_IMODE(os.stat(path).st_mode) == 0o700
