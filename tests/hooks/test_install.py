"""Installing hooks and removing them again: nothing else in the files of an agent changes."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError
from interlock.hooks import thin
from interlock.hooks.agents import AGENTS
from interlock.hooks.install import (
    FileChange,
    Places,
    Scope,
    apply_changes,
    find_installed_events,
    hook_file,
    plan_install,
    plan_uninstall,
    write_start_file,
)
from interlock.hooks.status import report_agent
from interlock.policy import Rule, RulePolicy
from interlock.policy.importers.codex import import_codex
from interlock.policy.importers.gemini import import_gemini

SCOPES: tuple[Scope, ...] = ("user", "project")
_OTHER_HOOK = {"hooks": [{"type": "command", "command": "echo mine", "timeout": 3}]}
_HOOKS = st.dictionaries(
    st.sampled_from(["PreToolUse", "Stop", "BeforeTool", "preToolUse", "SessionStart"]),
    st.lists(st.sampled_from([_OTHER_HOOK, {"matcher": "Bash", **_OTHER_HOOK}, {"command": "./own.sh"}]), max_size=2),
    max_size=3,
)
_SETTINGS = st.fixed_dictionaries(
    {}, optional={"hooks": _HOOKS, "model": st.text(max_size=5), "env": st.just({"A": "1"}), "x": st.floats(0, 9)}
)


class User:
    """The files of a user, and what is done to them."""

    def __init__(self, folder: Path) -> None:
        self.home, self.project, self.state = folder / "home", folder / "project", folder / "state"
        for each in (self.home, self.project, self.state):
            each.mkdir(parents=True, exist_ok=True)
        self.places = Places(self.home, self.project)

    def install(self, agent: str, scope: Scope = "user", *rules: Rule) -> list[FileChange]:
        changes = plan_install(agent, scope, self.places, self.state, rules)
        apply_changes(changes, self.state, keep=True)
        return changes

    def uninstall(self, agent: str, scope: Scope = "user") -> list[FileChange]:
        changes = plan_uninstall(agent, scope, self.places, self.state)
        apply_changes(changes, self.state, keep=False)
        return changes

    def file(self, agent: str, scope: Scope = "user") -> Path:
        return hook_file(agent, scope, self.places)

    @property
    def files(self) -> dict[str, bytes]:
        return {
            str(path): path.read_bytes() for path in (*self.home.rglob("*"), *self.project.rglob("*")) if path.is_file()
        }


@pytest.fixture
def user(tmp_path: Path) -> User:
    return User(tmp_path)


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("scope", SCOPES)
def test_installed_hooks_are_removed_without_a_trace(user: User, agent: str, scope: Scope) -> None:
    user.install(agent, scope)
    report = report_agent(agent, user.places, user.state)
    again = user.install(agent, scope)
    user.uninstall(agent, scope)

    assert [place.scope for place in report.installed] == [scope]
    assert all(change.before == change.after for change in again)
    assert user.files == {}


@pytest.mark.parametrize("agent", ["claude", "codex", "gemini", "cursor"])
@given(settings=_SETTINGS, indent=st.sampled_from([None, 2, 4, "\t"]), edited=st.booleans())
def test_everything_else_in_a_file_stays(
    tmp_path_factory: pytest.TempPathFactory, agent: str, settings: dict[str, Any], indent: Any, edited: bool
) -> None:
    user = User(tmp_path_factory.mktemp("u"))
    path = user.file(agent)
    path.parent.mkdir()
    content = json.dumps(settings, indent=indent).encode()
    path.write_bytes(content)

    user.install(agent)
    installed = json.loads(path.read_bytes())
    once = path.read_bytes()
    user.install(agent)
    twice = path.read_bytes()
    if edited:  # a person changed it meanwhile
        path.write_bytes(json.dumps({**installed, "later": 1}).encode())
    user.uninstall(agent)
    left = json.loads(path.read_bytes())

    assert once == twice
    for key, value in settings.items():
        assert key == "hooks" or installed[key] == value
    for event, groups in settings.get("hooks", {}).items():
        assert [group for group in installed["hooks"][event] if group in groups] == groups
    if edited:
        ours = {} if agent != "cursor" or "version" in settings else {"version": 1}
        assert _without_empty(left) == _without_empty({**settings, "later": 1, **ours})
    else:
        assert path.read_bytes() == content


def _without_empty(settings: dict[str, Any]) -> dict[str, Any]:
    hooks = {event: groups for event, groups in settings.get("hooks", {}).items() if groups}
    return {**{key: value for key, value in settings.items() if key != "hooks"}, **({"hooks": hooks} if hooks else {})}


def test_gates_are_closed_where_the_agent_allows_it(user: User) -> None:
    for agent in ("claude", "cursor"):
        user.install(agent)
    claude = json.loads(user.file("claude").read_bytes())["hooks"]["PreToolUse"][0]["hooks"]
    cursor = json.loads(user.file("cursor").read_bytes())["hooks"]

    assert [hook["onFailure"] for hook in claude] == ["block", "block"]
    assert cursor["preToolUse"][0]["failClosed"] is True
    assert thin.DEADLINE_SECONDS["claude"] < claude[0]["timeout"]
    assert thin.DEADLINE_SECONDS["cursor"] < cursor["preToolUse"][0]["timeout"]


def test_hook_starts_without_the_variables_of_the_agent(user: User) -> None:
    user.install("codex")
    (commands,) = {*map(tuple, find_installed_events("codex", user.file("codex").read_bytes(), "f").values())}

    assert "-I -S" in commands[0]
    assert commands[0].endswith(f"thin.py codex {user.state}")


def test_start_file_keeps_no_keys(user: User) -> None:
    write_start_file(user.state, {"HOME": "/h", "INTERLOCK_LOG": "/l", "INTERLOCK_API_KEY": "k", "OPENAI_API_KEY": "k"})

    assert (user.state / thin.START_FILE).read_bytes() == b"HOME=/h\0INTERLOCK_LOG=/l"


@pytest.mark.parametrize("content", [b"// mine\n{}", b"[]", b'{"hooks": []}', b'{"hooks": {"PreToolUse": 1}}'])
def test_file_that_cannot_be_changed_is_left(user: User, content: bytes) -> None:
    path = user.file("claude")
    path.parent.mkdir()
    path.write_bytes(content)

    with pytest.raises(ConfigurationError):
        user.install("claude")

    assert path.read_bytes() == content


def test_foreign_plugin_is_not_overwritten(user: User) -> None:
    path = user.file("opencode")
    path.parent.mkdir(parents=True)
    path.write_text("export const mine = 1;\n")

    with pytest.raises(ConfigurationError, match="not from Interlock"):
        user.install("opencode")


RULES = [
    Rule(id="no-reset", verdict="deny", tools="bash", command="git reset", reason='Never "reset".'),
    Rule(id="no-env", verdict="deny", path=".env"),
    Rule(id="no-search", verdict="deny", tools="web_search"),
    Rule(id="only-mondays", verdict="deny", tools="bash", command="deploy", agent="x"),
    Rule(id="wild", verdict="deny", tools="bash", command="rm *"),
    Rule(id="fine", verdict="allow", tools="bash", command="ls"),
]


@pytest.mark.parametrize("agent", ["codex", "gemini"])
def test_denials_hold_without_the_hook(user: User, agent: str) -> None:
    """The written rules are read back with our own importers of these languages."""
    user.install(agent, "user", *RULES)
    name = "rules/interlock.rules" if agent == "codex" else "policies/interlock.toml"
    text = (user.places.find(agent, "user") / name).read_text()
    imported = (import_codex if agent == "codex" else import_gemini)(text)

    assert "git reset" in str(imported.document)
    assert "deploy" not in text
    assert '"rm"' not in text
    assert ("web_search" in text) == (agent == "gemini")
    assert RulePolicy(RULES).rules


def test_status_says_what_keeps_hooks_from_running(user: User) -> None:
    user.install("codex")
    untrusted = report_agent("codex", user.places, user.state)
    key = f"{user.file('codex')}:pre_tool_use:0:0"
    (user.home / ".codex" / "config.toml").write_text(f'[hooks.state."{key}"]\ntrusted_hash = "sha256:00"\n')
    trusted = report_agent("codex", user.places, user.state)
    user.install("claude")
    path = user.file("claude")
    settings = json.loads(path.read_bytes())
    del settings["hooks"]["PreToolUse"]
    settings["hooks"]["PostToolUse"][0]["hooks"][0]["command"] = f"/gone/python {thin.__file__} claude"
    path.write_text(json.dumps({**settings, "disableAllHooks": True}))
    broken = report_agent("claude", user.places, user.state)

    assert (untrusted.is_working, trusted.is_working, broken.is_working) == (False, True, False)
    problems = " ".join(broken.installed[0].problems)
    assert "missing for PreToolUse" in problems
    assert "/gone/python is missing" in problems
    assert "disableAllHooks" in problems
