"""Accepting edits is for plain files of the workspace, and not for what other programs obey."""

from pathlib import Path
from typing import Any

import pytest

from interlock.domain.decision import Decision
from interlock.domain.tool import CallContext, PermissionMode, ResourceKind
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule_policy import RulePolicy

PATHS: dict[str, ResourceKind] = {"path": "path"}


def decide(workspace: Path, path: Any, risk: tuple[str, ...] = ("write",), **options: Any) -> Decision:
    situation = CallContext(run_id="run_1", workspace=str(workspace), mode=PermissionMode.ACCEPT_EDITS)
    event = example_event("put", {"path": path, **options}, situation, risk=risk, resources=PATHS)
    return RulePolicy().evaluate(event)


@pytest.mark.parametrize(
    "path",
    [
        ".git/config",
        ".git",
        "sub/.git/hooks/pre-commit",
        ".GIT/config",
        "\uff0egit/config",
        "src/../.git/config",
        ".github/workflows/ci.yml",
        ".gitattributes",
        ".env",
        ".envrc",
        ".npmrc",
        ".vscode/tasks.json",
        ".claude/settings.json",
        ".mcp.json",
        ".interlock/policy.yaml",
        ".ssh/authorized_keys",
        "src/sitecustomize.py",
    ],
)
def test_an_edit_of_what_other_programs_obey_is_asked_about(tmp_path: Path, path: str) -> None:
    assert decide(tmp_path, path).verdict == "ask"


@pytest.mark.parametrize("path", ["a.py", "src/a.py", "git/config", ".gitignored", "src/env", ".", "environment/.keep"])
def test_an_edit_of_any_other_file_of_the_workspace_is_accepted(tmp_path: Path, path: str) -> None:
    decision = decide(tmp_path, path)

    assert (decision.verdict, decision.rule_ids) == ("allow", ("mode:accept_edits",))


def test_an_edit_through_a_link_to_what_other_programs_obey_is_asked_about(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "plain").symlink_to(tmp_path / ".git")

    assert decide(tmp_path, "plain/config").verdict == "ask"


@pytest.mark.parametrize(
    "paths",
    [["a.py", ".git/config"], ["a.py", "/etc/motd"], ["a.py", "a\0b"], ["a.py", 7], [], "/proc/self/cwd/a.py"],
    ids=["protected", "outside", "no path", "no text", "none", "another for everybody"],
)
def test_every_path_of_an_edit_must_be_known_and_plain(tmp_path: Path, paths: Any) -> None:
    assert decide(tmp_path, paths).verdict == "ask"


@pytest.mark.parametrize(
    ("risk", "verdict"),
    [
        (("write",), "allow"),
        (("read", "write"), "allow"),
        (("write", "network"), "ask"),
        (("write", "execute"), "ask"),
        (("write", "delegate"), "ask"),
        (("network",), "ask"),
    ],
)
def test_only_what_reads_and_writes_is_an_edit(tmp_path: Path, risk: tuple[str, ...], verdict: str) -> None:
    assert decide(tmp_path, "a.py", risk).verdict == verdict
