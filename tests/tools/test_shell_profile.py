"""What a command can reach comes from the mode and the script; what must not be changed is held, or told."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.decision import Verdict
from interlock.domain.errors import SandboxSetupError
from interlock.domain.tool import CallContext, PermissionMode, SandboxScope
from interlock.sandbox.interface import CAPABILITIES, CommandLimits, Confinement
from interlock.sandbox.workspace.hidden_files import HiddenFileScanner, WorkspaceScan
from interlock.sandbox.workspace.protected_names import is_secret
from interlock.sandbox.workspace.workspace import Workspace
from interlock.tools.shell.profile import (
    MAX_READ_ONLY_PATHS,
    CommandTimeout,
    GuardedFiles,
    ProfileName,
    ShellConfig,
    authorize_backend,
    build_profile,
    choose_profile,
    choose_timeout,
    describe_scope,
    read_recorded_profile,
)

FULL = Confinement(backend="bubblewrap", capabilities=tuple(CAPABILITIES), degraded=False)
NOTHING = WorkspaceScan((), ())
NONE = Confinement(backend="none", capabilities=("kill_tree",), degraded=True, notes=("Nothing holds them back.",))


def rules(root: Path, protected: WorkspaceScan = NOTHING, **options: object) -> ShellConfig:
    fields = {"limits": CommandLimits(memory_bytes=1 << 20), **options}
    return ShellConfig(
        workspace=Workspace(root),
        is_read_only=lambda script, cwd: script == "ls",
        hidden=lambda: protected,
        **fields,  # pyright: ignore[reportArgumentType] - whatever the test wants
    )


@contextmanager
def found_in(root: Path) -> Generator[ShellConfig]:
    """Rules with what is really there."""
    with Workspace(root) as workspace, workspace.open_root() as opened:
        files = HiddenFileScanner(opened.fd, is_secret, lambda path: False)
        yield ShellConfig(workspace=workspace, is_read_only=lambda script, cwd: False, hidden=files.scan)


def situation(mode: PermissionMode = PermissionMode.DEFAULT) -> CallContext:
    return CallContext(run_id="run_1", mode=mode)


def make(root: Path, *names: str) -> None:
    for name in names:
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def relative(root: Path, paths: tuple[str, ...]) -> list[str]:
    return [os.path.relpath(path, root) for path in paths]


@pytest.mark.parametrize(
    ("script", "mode", "expected"),
    [
        ("ls", PermissionMode.DEFAULT, "read-only"),
        ("ls", PermissionMode.TRUSTED, "read-only"),
        ("npm test", PermissionMode.DEFAULT, "workspace-write"),
        ("npm test", PermissionMode.TRUSTED, "workspace-write"),
        ("npm test", PermissionMode.READ_ONLY, "read-only"),
    ],
)
def test_what_only_reads_and_what_runs_in_a_read_only_run_cannot_write(
    tmp_path: Path, script: str, mode: PermissionMode, expected: str
) -> None:
    given_rules = rules(tmp_path)

    name = choose_profile(given_rules, FULL, script, str(tmp_path), mode)

    assert name == expected
    assert build_profile(given_rules, FULL, name).writable == (expected == "workspace-write")


def test_secrets_are_hidden_from_commands_that_read_and_from_those_that_write(tmp_path: Path) -> None:
    make(tmp_path, ".env", ".vscode/settings.json")
    given_rules = rules(tmp_path, WorkspaceScan((".env",), (".vscode", ".vscode/settings.json")))

    reads, writes = (build_profile(given_rules, FULL, name) for name in ("read-only", "workspace-write"))

    assert reads.hidden == writes.hidden == (f"{tmp_path}/.env",)
    assert (reads.read_only, writes.read_only) == ((), (f"{tmp_path}/.vscode",))
    assert writes.limits.memory_bytes == 1 << 20


def test_a_repository_stays_writable_but_for_what_git_executes(tmp_path: Path) -> None:
    make(
        tmp_path,
        *(".git/HEAD", ".git/config", ".git/hooks/pre-commit", ".git/modules/libs/x/config", ".git/worktrees/w/HEAD"),
        *(".git/worktrees/w/config.worktree", "vendor/x/.git/config", "submodule/.git"),
    )

    with found_in(tmp_path) as given_rules:
        held = build_profile(given_rules, FULL, "workspace-write").read_only

    assert relative(tmp_path, held) == [
        ".git/config",
        ".git/hooks",
        ".git/modules/libs/x/config",
        ".git/worktrees/w/config.worktree",
        "submodule/.git",
        "vendor/x/.git/config",
    ]


@pytest.mark.parametrize("instead", ["folder", "link", "nothing"])
def test_another_folder_in_the_place_of_the_workspace_is_no_place_for_commands(tmp_path: Path, instead: str) -> None:
    root = tmp_path / "workspace"
    root.mkdir()
    given_rules = rules(root)
    root.rename(tmp_path / "moved")
    if instead == "folder":
        root.mkdir()
    elif instead == "link":
        root.symlink_to(tmp_path / "moved")

    for name in ("read-only", "workspace-write", "unconfined"):
        with pytest.raises(SandboxSetupError, match="folder of this run"):
            build_profile(given_rules, FULL, name)


def test_more_files_to_hold_than_can_be_held_are_no_command(tmp_path: Path) -> None:
    many = tuple(f"{number}/.envrc" for number in range(MAX_READ_ONLY_PATHS + 1))

    with pytest.raises(SandboxSetupError, match="more than 1,000 files"):
        build_profile(rules(tmp_path, WorkspaceScan((), many)), FULL, "workspace-write")


def test_what_came_or_was_exchanged_meanwhile_is_told(tmp_path: Path) -> None:
    make(tmp_path, ".git/config", ".envrc")
    with found_in(tmp_path) as given_rules:
        before = GuardedFiles(given_rules)
        assert GuardedFiles(given_rules).changed_since(before) == []

        make(tmp_path, ".mcp.json", ".git/commondir", ".git/x/HEAD", "a/.git")
        came = [".git/commondir", ".git/x/HEAD", ".mcp.json", "a/.git"]
        assert GuardedFiles(given_rules).changed_since(before) == came

        (tmp_path / ".git").rename(tmp_path / "old")
        make(tmp_path, ".git/config")
        assert GuardedFiles(given_rules).changed_since(before) == [".git/config", ".mcp.json", "a/.git", "old/x/HEAD"]


def test_a_repository_that_a_link_leads_to_stays_writable_and_another_link_is_told(tmp_path: Path) -> None:
    make(tmp_path, "store/config", ".git/config")
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".git").symlink_to("../.git")
    with found_in(tmp_path) as given_rules:
        before = GuardedFiles(given_rules)
        held = build_profile(given_rules, FULL, "workspace-write").read_only
        (tmp_path / "work" / ".git").unlink()
        (tmp_path / "work" / ".git").symlink_to("../store")

        assert relative(tmp_path, held) == [".git/config"]
        assert GuardedFiles(given_rules).changed_since(before) == ["work/.git"]


def test_a_repository_that_is_used_is_no_change_of_settings(tmp_path: Path) -> None:
    make(tmp_path, ".git/config", ".git/HEAD", ".git/hooks/pre-commit", ".git/refs/heads/config")
    with found_in(tmp_path) as given_rules:
        before = GuardedFiles(given_rules)

        make(
            tmp_path,
            ".git/index",
            ".git/refs/heads/main",
            ".git/logs/HEAD",
            ".git/refs/remotes/origin/HEAD",
            "HEAD.new",
        )
        for name in (".git/HEAD", ".git/refs/heads/config"):
            (tmp_path / "HEAD.new").write_text("ref: refs/heads/other")
            (tmp_path / "HEAD.new").rename(tmp_path / name)

        assert GuardedFiles(given_rules).changed_since(before) == []


def test_a_backend_that_holds_all_has_no_opinion() -> None:
    assert authorize_backend(FULL, situation()) is None
    assert authorize_backend(FULL, situation(PermissionMode.READ_ONLY)) is None


@pytest.mark.parametrize("mode", [PermissionMode.DEFAULT, PermissionMode.ACCEPT_EDITS, PermissionMode.TRUSTED])
def test_a_degraded_backend_asks_about_every_command_and_says_why(mode: PermissionMode) -> None:
    opinion = authorize_backend(NONE, situation(mode))

    assert opinion is not None
    assert (opinion.verdict, opinion.scope, opinion.layer) == (Verdict.ASK, "once", "sandbox")
    assert opinion.reason.endswith("(no sandbox). Nothing holds them back.")


def test_a_read_only_run_needs_a_backend_that_can_hold_that() -> None:
    opinion = authorize_backend(NONE, situation(PermissionMode.READ_ONLY))

    assert opinion is not None
    assert (opinion.verdict, opinion.layer) == (Verdict.DENY, "sandbox")


def test_a_degraded_backend_is_not_asked_for_what_it_cannot_do(tmp_path: Path) -> None:
    make(tmp_path, ".env", ".git/config")
    given_rules = rules(tmp_path, WorkspaceScan((".env",), ()))

    assert choose_profile(given_rules, NONE, "ls", str(tmp_path), PermissionMode.DEFAULT) == "workspace-write"
    profile = build_profile(given_rules, NONE, "workspace-write")
    assert (profile.hidden, profile.read_only) == ((), ())


def test_the_record_says_what_the_command_can_reach(tmp_path: Path) -> None:
    given_rules = rules(tmp_path, environment={"CI": "1"})

    assert describe_scope(given_rules, FULL, "read-only", str(tmp_path)) == SandboxScope(
        sandbox="bubblewrap",
        profile="read-only",
        capabilities=tuple(CAPABILITIES),
        cwd=str(tmp_path),
        environment={"CI": "sha256:6b86b273ff34fce1"},
    )


@pytest.mark.requirement("R239")
def test_a_value_for_commands_is_in_the_record_as_a_digest_of_it(tmp_path: Path) -> None:
    one, other = (
        describe_scope(rules(tmp_path, environment={"PASSWORD": value}), FULL, "read-only", "/w").environment[
            "PASSWORD"
        ]
        for value in ("hunter2", "hunter3")
    )

    assert "hunter" not in one
    assert one != other


@pytest.mark.parametrize("name", ["read-only", "workspace-write"])
def test_a_record_with_the_network_does_not_say_that_it_is_off(tmp_path: Path, name: ProfileName) -> None:
    reach = describe_scope(rules(tmp_path, network=True), FULL, name, "/w")

    assert reach.profile == f"{name}+network"
    assert "network_off" not in reach.capabilities
    assert read_recorded_profile(reach) == name


@pytest.mark.parametrize(
    "reach", [None, SandboxScope(sandbox="unknown", profile="it failed"), SandboxScope(sandbox="none")]
)
def test_a_record_that_names_no_profile_is_none(reach: SandboxScope | None) -> None:
    assert read_recorded_profile(reach) is None


def test_time_is_what_was_asked_for_within_the_maximum() -> None:
    assert choose_timeout(None, 120, 600) == CommandTimeout(120, False)
    assert choose_timeout(None, 120, 60) == CommandTimeout(60, False)
    assert choose_timeout(5, 120, 600) == CommandTimeout(5, False)
    assert choose_timeout(601, 120, 600) == CommandTimeout(600, True)
    assert choose_timeout(float("inf"), 120, 600) == CommandTimeout(600, True)


@given(st.none() | st.floats(), st.floats(1, 1e6), st.floats(1, 1e6))
def test_time_never_goes_beyond_the_maximum(asked: float | None, default: float, most: float) -> None:
    assert choose_timeout(asked, default, most).seconds <= most
