"""Which everyday commands ask, by mode, without any rule: see the table beside this file."""

import tomllib
from pathlib import Path

import pytest

from interlock.domain.tool import CallContext, PermissionMode
from interlock.policy.engine.example_event import example_event
from interlock.policy.engine.rule import Rule
from interlock.policy.engine.rule_policy import RulePolicy
from tests.each import each

GROUPS: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("everyday_commands.toml").read_text("utf-8"))
COMMANDS = {command: answers.split() for group in GROUPS.values() for command, answers in group.items()}
MODES = (PermissionMode.DEFAULT, PermissionMode.CONTAINED, PermissionMode.READ_ONLY)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    for name in ("src/app.py", "README.md", ".git/config", "tests/test_app.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("1")
    return tmp_path


def decide(command: str, mode: PermissionMode, workspace: Path, *rules: Rule, contained: bool = True) -> str:
    situation = CallContext(run_id="run_1", mode=mode, workspace=str(workspace))
    event = example_event("bash", {"command": command}, situation, contained=contained)
    return str(RulePolicy(rules).evaluate(event).verdict)


def test_every_command_has_its_answer_in_each_mode(workspace: Path) -> None:
    found = {command: [decide(command, mode, workspace) for mode in MODES] for command in COMMANDS}

    assert {command: answers for command, answers in found.items() if answers != COMMANDS[command]} == {}
    assert len(COMMANDS) >= 100


def test_contained_asks_about_two_of_thirty(workspace: Path) -> None:
    asked = {mode: [c for c in GROUPS["everyday"] if decide(c, mode, workspace) == "ask"] for mode in MODES}

    assert len(GROUPS["everyday"]) == 30
    assert len(asked[PermissionMode.CONTAINED]) <= 2
    assert len(asked[PermissionMode.DEFAULT]) == 25


@each("command", COMMANDS)
def test_without_a_sandbox_contained_asks_as_default(command: str, workspace: Path) -> None:
    assert decide(command, PermissionMode.CONTAINED, workspace, contained=False) == COMMANDS[command][0]


@each("command", COMMANDS)
def test_rules_hold_in_contained(command: str, workspace: Path) -> None:
    ask, deny = Rule(id="r", verdict="ask", tools="bash"), Rule(id="r", verdict="deny", tools="bash")

    assert decide(command, PermissionMode.CONTAINED, workspace, ask) == "ask"
    assert decide(command, PermissionMode.CONTAINED, workspace, deny) == "deny"
