"""Landlock: what a command reaches under a ruleset, and what not, whatever is hidden or read-only inside."""

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from interlock.domain.errors import SandboxSetupError
from interlock.sandbox.commands import landlock, supervisor
from interlock.sandbox.commands.landlock import AccessLevel, PathRestrictions
from interlock.sandbox.host.landlock import Ruleset, get_abi

from .ordinary_user import pytest_as_ordinary_user

pytestmark = pytest.mark.skipif(get_abi() < 3, reason="this kernel has no Landlock that is new enough")


def run(
    script: str, workspace: Path, level: AccessLevel, hidden: Iterable[Path] = (), read_only: Iterable[Path] = ()
) -> str:
    """What the script prints, one line for each word that worked. Programs are beyond question here."""
    limits = PathRestrictions(map(str, hidden), map(str, read_only))
    with Ruleset(network=False) as ruleset, open(os.devnull, "w", encoding="ascii") as status:
        for folder in ("/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache"):
            if os.path.exists(folder):
                limits.allow(ruleset, folder, AccessLevel.READABLE)
        limits.allow(ruleset, "/dev/null", AccessLevel.WRITABLE)
        limits.allow(ruleset, str(workspace), level)
        words = [f"parent={os.getpid()}", f"status={status.fileno()}", f"cwd={workspace}", f"ruleset={ruleset.fd}"]
        return subprocess.run(
            [sys.executable, "-I", "-S", supervisor.__file__, *words, "--", "/bin/bash", "-c", script],
            pass_fds=[status.fileno(), ruleset.fd],
            capture_output=True,
            text=True,
            check=True,
        ).stdout


def works(attempts: Iterable[str], *arguments: object, **options: object) -> list[str]:
    """Those of the attempts that did not fail."""
    listed = list(attempts)
    script = "\n".join(f"( {attempt} ) >/dev/null 2>&1 && echo {number}" for number, attempt in enumerate(listed))
    printed = run(f"{script}\ntrue", *arguments, **options)  # type: ignore[arg-type]
    return [listed[int(number)] for number in printed.split()]


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    for name in ("a/deep/er", "b", ".git/hooks"):
        (folder / name).mkdir(parents=True)
    for name in ("a/deep/er/file", "a/file", "b/secret", "b/file", ".env", "top", ".git/config", ".git/hooks/run"):
        (folder / name).write_text("text")
    (folder / "link").symlink_to("/etc")
    (tmp_path / "outside").write_text("text")
    return folder


CHANGES = [
    "echo x > a/file",
    "rm a/deep/er/file",
    "mv b/file a/new",
    "mkdir made",
    "ln -s top linked",
    "truncate -s0 top",
]


def test_a_writable_workspace_can_be_changed_in_all_ways(workspace: Path) -> None:
    assert works(CHANGES, workspace, AccessLevel.WRITABLE) == CHANGES


def test_a_read_only_workspace_can_be_read_and_listed_only(workspace: Path) -> None:
    reads = ["cat a/deep/er/file .env", "ls -R .", "find . -type f"]

    assert works([*reads, *CHANGES, "touch new", ": > .env", "cp top copy"], workspace, AccessLevel.READABLE) == reads


def test_nothing_outside_can_be_read_written_or_emptied(workspace: Path) -> None:
    attempts = [
        "cat ../outside",
        "echo x > ../outside",
        "truncate -s0 ../outside",
        "python3 -c 'import os; os.open(\"../outside\", os.O_RDONLY | os.O_TRUNC)'",
        "ls ..",
        "cat /etc/passwd",
        "cat link/passwd",
        "cp -l ../outside here",
        "mv ../outside here",
        "mv a ../moved",
        "ls /proc/$PPID",
        "cat /proc/$PPID/environ",
        "touch /tmp/interlock-was-here",
        "kill -0 $PPID",
    ]

    assert works(attempts, workspace, AccessLevel.WRITABLE) == []
    assert (workspace.parent / "outside").read_text() == "text"


def test_what_is_hidden_can_neither_be_read_nor_changed_nor_moved(workspace: Path) -> None:
    attempts = [
        "cat .env",
        "cat b/secret",
        "cat a/../.env",
        "echo x > .env",
        "mv .env a/env && cat a/env",
        "ln .env a/env && cat a/env",
        "ln .env hard && cat hard",
        "mv b c && cat c/secret",
        "cat ./*env",
        "truncate -s0 b/secret",
        "rm .env",
        "ln -s ../.env a/soft && cat a/soft",
    ]

    hidden = [workspace / ".env", workspace / "b/secret"]
    assert works(attempts, workspace, AccessLevel.WRITABLE, hidden) == []
    assert (workspace / ".env").read_text() == "text"


@pytest.mark.parametrize("kind", ["hidden", "read_only"])
def test_no_folder_above_something_protected_can_be_moved(workspace: Path, kind: str) -> None:
    protected = {kind: [workspace / "a/deep/er/file"]}
    attempts = ["mv -T a c", "mv -T a/deep a/c", "mv -T a/deep/er b/c", "mv a b/", "rm -rf a", "mv -T b a/deep/c"]

    assert works(attempts, workspace, AccessLevel.WRITABLE, **protected) == []
    assert (workspace / "a/deep/er/file").read_text() == "text"


def test_what_is_beside_hidden_files_can_be_listed_and_changed(workspace: Path) -> None:
    changes = ["echo x > a/file", "mkdir -p a/made/deep", "mv a/deep a/made", "echo x > b/file", "echo x > top"]

    hidden = [workspace / ".env", workspace / "b/secret"]
    assert works(["ls .", "ls b", *changes], workspace, AccessLevel.WRITABLE, hidden) == ["ls .", "ls b", *changes]


def test_names_in_a_hidden_folder_cannot_be_listed(workspace: Path) -> None:
    attempts = ["ls b", "ls .", "cat b/file", "cat a/file", "ls a"]

    assert works(attempts, workspace, AccessLevel.WRITABLE, [workspace / "b"]) == ["cat a/file", "ls a"]


def test_what_is_read_only_can_be_read_and_nothing_else(workspace: Path) -> None:
    attempts = [
        "cat .git/config .git/hooks/run",
        "ls .git",
        "cat .env",
        "echo x > a/file",
        "echo x > .git/config",
        "echo x > .git/hooks/new",
        "rm .git/hooks/run",
        "mv .git old",
        "mv .git/hooks a/hooks",
        "mv a .git/hooks/a",
        "chmod +x .git/hooks/run && false",
    ]

    read_only = [workspace / ".git"]
    assert works(attempts, workspace, AccessLevel.WRITABLE, read_only=read_only) == attempts[:4]


def test_a_hidden_part_of_a_read_only_part_stays_hidden(workspace: Path) -> None:
    attempts = ["cat .git/config", "cat .git/hooks/run", "echo x > .git/config"]

    hidden, read_only = [workspace / ".git/config"], [workspace / ".git"]
    assert works(attempts, workspace, AccessLevel.WRITABLE, hidden, read_only) == ["cat .git/hooks/run"]


def test_a_missing_path_costs_nothing(workspace: Path) -> None:
    hidden, read_only = [workspace / "none"], [workspace / ".agent"]

    assert works(CHANGES, workspace, AccessLevel.WRITABLE, hidden, read_only) == CHANGES
    assert not (workspace / ".agent").exists()


def test_a_hidden_link_hides_what_it_leads_to(workspace: Path) -> None:
    (workspace / "soft").symlink_to("b/secret")

    assert works(["cat soft", "cat b/secret", "cat b/file"], workspace, AccessLevel.READABLE, [workspace / "soft"]) == [
        "cat b/file"
    ]


def test_too_many_entries_are_refused(workspace: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "MAX_ENTRIES", 3)

    with pytest.raises(SandboxSetupError, match=r"Nothing was executed\. Hide whole folders"):
        run("true", workspace, AccessLevel.WRITABLE, [workspace / ".env"])


def test_a_path_that_is_too_deep_is_refused(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d"] * 201)
    deep.mkdir(parents=True)

    with pytest.raises(SandboxSetupError, match=r"Nothing was executed\."):
        PathRestrictions([str(deep)], ())


NAMES = [
    "a",
    "a/deep",
    "a/deep/er",
    "a/deep/er/file",
    "a/file",
    "b",
    "b/secret",
    "b/file",
    ".env",
    "top",
    ".git/hooks/run",
]


@settings(max_examples=25, deadline=None, database=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hidden=st.sets(st.sampled_from(NAMES), max_size=4), read_only=st.sets(st.sampled_from(NAMES), max_size=4))
def test_nothing_is_ever_reached_that_is_hidden_and_nothing_else_is_lost(
    workspace: Path, hidden: set[str], read_only: set[str]
) -> None:
    files = [name for name in NAMES if (workspace / name).is_file()]
    attempts = [f"exec {sign} {name}" for name in files for sign in ("<", ">>")]

    worked = works(
        attempts, workspace, AccessLevel.WRITABLE, [workspace / n for n in hidden], [workspace / n for n in read_only]
    )

    def under(name: str, places: set[str]) -> bool:
        return any(name == place or name.startswith(f"{place}/") for place in places)

    readable = {f"exec < {name}" for name in files if not under(name, hidden)}
    writable = {f"exec >> {name}" for name in files if not under(name, hidden | read_only)}
    assert set(worked) == readable | writable


@pytest.mark.skipif(os.geteuid() != 0, reason="this is an ordinary user already")
def test_all_of_this_holds_for_an_ordinary_user() -> None:
    pytest_as_ordinary_user(__file__)
