"""Where rules and calls lead: through links, from the home folder, and from what a call names beside a command."""

from pathlib import Path
from typing import Any

import pytest

from interlock.domain.decision import Decision
from interlock.domain.tool import CallContext, PermissionMode, ResourceKind
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import Rule
from interlock.policy.engine.rule_policy import RulePolicy

BOTH: dict[str, ResourceKind] = {"command": "command", "url": "host", "cwd": "path"}


@pytest.fixture
def linked(tmp_path: Path) -> Path:
    """`link` is `real`, which has a file in a folder."""
    folder = tmp_path / "real" / "deep"
    folder.mkdir(parents=True)
    (folder / "key.pem").write_text("secret")
    (tmp_path / "link").symlink_to(tmp_path / "real")
    return tmp_path


def decide(
    rules: list[Rule], tool: str, mode: PermissionMode = PermissionMode.DEFAULT, workspace: str = "", **options: Any
) -> Decision:
    declared = {key: options.pop(key) for key in ("risk", "resources") if key in options}
    situation = CallContext(run_id="run_1", workspace=workspace or "/nowhere/project", mode=mode)
    return RulePolicy(rules).evaluate(example_event(tool, options, situation, **declared))


@pytest.mark.parametrize("glob", ["link/deep/key.pem", "link/deep/*.pem", "link/deep", "link/*/key.pem", "link", "li*"])
@pytest.mark.parametrize("path", ["link/deep/key.pem", "real/../link/deep/key.pem"])
def test_a_refusal_of_a_link_holds_for_what_is_reached_through_it(linked: Path, glob: str, path: str) -> None:
    rule = Rule(id="key", verdict="deny", path=f"{linked}/{glob}")

    assert decide([rule], "read_file", path=f"{linked}/{path}").verdict == "deny"


@pytest.mark.parametrize(
    "glob", ["link/deep/key.pem", "link/deep/*.pem", "link/deep/k??.pem", "link/*/key.pem", "link/"]
)
def test_a_refusal_of_a_link_holds_for_where_it_leads(linked: Path, glob: str) -> None:
    rule = Rule(id="key", verdict="deny", path=f"{linked}/{glob}")

    assert decide([rule], "read_file", path=f"{linked}/real/deep/key.pem").verdict == "deny"
    assert decide([rule], "read_file", path=f"{linked}/other/deep/key.pem").verdict == "allow"


@pytest.mark.parametrize(
    ("glob", "path", "verdict"),
    [
        ("~", "~/a", "deny"),
        ("~", "/homes/ada/a", "deny"),
        ("~", "/homes/bob/a", "allow"),
        ("~/keys", "/homes/ada/keys/a", "deny"),
        ("~/keys", "~/keys/a", "deny"),
        ("~/keys", "~/other/a", "allow"),
        ("~keys", "~keys", "deny"),
        ("~keys", "/homes/ada/keys", "allow"),
        ("keys~", "deep/keys~", "deny"),
    ],
)
def test_home_is_the_home_folder_and_a_name_with_a_tilde_a_name(
    glob: str, path: str, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/homes/ada")

    assert decide([Rule(id="home", verdict="deny", path=glob)], "read_file", path=path).verdict == verdict


@pytest.mark.parametrize(
    ("named", "verdict"),
    [
        ({"url": "https://evil.example/"}, "deny"),
        ({"cwd": "secrets"}, "deny"),
        ({"url": "https://docs.example/", "cwd": "src"}, "allow"),
    ],
)
def test_what_a_call_names_beside_its_command_is_refused_whatever_the_command(
    named: dict[str, str], verdict: str
) -> None:
    rules = [
        Rule(id="host", verdict="deny", host="evil.example"),
        Rule(id="path", verdict="deny", path="secrets"),
    ]
    call: dict[str, Any] = {"risk": ("execute",), "resources": BOTH, "command": "ls", **named}

    assert decide(rules, "run_in", **call).verdict == verdict


@pytest.mark.parametrize("named", [{"cwd": "a\0b"}, {"cwd": 7}, {"url": "http://0x7f.1"}], ids=repr)
def test_what_is_not_known_beside_a_command_that_reads_is_asked_about(named: dict[str, Any]) -> None:
    call: dict[str, Any] = {"risk": ("execute",), "resources": BOTH, "command": "ls", **named}

    assert decide([], "run_in", **call).verdict == "ask"


def test_without_a_workspace_paths_start_where_the_process_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    here = CallContext(run_id="run_1", mode=PermissionMode.ACCEPT_EDITS)
    verdicts = [
        RulePolicy().evaluate(example_event("edit_file", {"path": path}, here)).verdict
        for path in ("a.py", str(tmp_path / "a.py"), str(tmp_path.parent / "a.py"))
    ]

    assert verdicts == ["allow", "allow", "ask"]


def test_a_file_that_is_only_read_is_not_said_to_be_written() -> None:
    read, written = (decide([], "bash", command=f"make {sign} /etc/motd").risk for sign in "<>")

    assert not any(fact.startswith("writes") for fact in read)
    assert "writes /etc/motd" in written
