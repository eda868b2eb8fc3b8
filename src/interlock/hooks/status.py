"""What is installed for each coding agent, whether it works, and what stays open."""

import os
import shlex
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from ..domain.errors import ConfigurationError
from .contract import as_object
from .daemon_status import AgentStatus, read_status
from .install import Places, Scope, expected_events, find_installed_events, hook_file
from .json_file import read_object

_EVERY_AGENT = (
    "A rule sees the paths and commands of a call, not what a program does that a command starts: only a sandbox does.",
    "A program that can change the agent's settings can remove its hooks; settings of an administrator prevent that.",
)
_FAILS_OPEN = (
    "It runs a tool when its hook cannot be started, crashes or takes too long: then only {rules} hold. "
    "The hook itself answers no before that, as long as its interpreter exists."
)
#: What no hook can close, by agent.
OPEN_POINTS: Mapping[str, tuple[str, ...]] = {
    "claude": ("A sub-agent's call cannot be deferred: it is held, and denied while no person answers.",),
    "codex": (
        _FAILS_OPEN.format(rules="the denials in rules/interlock.rules"),
        "A hook that is not trusted is skipped, without a word: trust it with /hooks in Codex.",
        "Reading files inside of Codex has no hook.",
    ),
    "gemini": (
        _FAILS_OPEN.format(rules="the denials in policies/interlock.toml"),
        "Hooks of a project run only when Gemini CLI trusts the folder, and policies of a project have no effect.",
    ),
    "opencode": (
        "Other plugins run in the same process, and may change what was decided about.",
        "A tool that fails reports no outcome: it is recorded as unknown when the session ends.",
    ),
    "cursor": (
        "Not tried with Cursor itself: written by its documentation.",
        "Completions (Tab) have hooks of their own, which are not installed.",
    ),
}


class InstalledHooks(msgspec.Struct, frozen=True):
    """The hooks of an agent in one place."""

    scope: Scope
    path: str
    #: Whether the agent runs them, as far as that can be read: `yes`, `no`, or `unknown`.
    trusted: str
    problems: tuple[str, ...] = ()


class AgentReport(msgspec.Struct, frozen=True):
    """What is known about the hooks of one agent."""

    agent: str
    installed: tuple[InstalledHooks, ...]
    seen: AgentStatus
    open_points: tuple[str, ...] = ()

    @property
    def is_working(self) -> bool:
        """True when hooks are installed and nothing is known to keep them from running."""
        return bool(self.installed) and not any(each.problems for each in self.installed)


def report_agent(agent: str, places: Places, state: Path) -> AgentReport:
    """Return what is known about the hooks of an agent."""
    found: list[InstalledHooks] = []
    scopes: tuple[Scope, ...] = ("user", "project")
    for scope in scopes:
        path = hook_file(agent, scope, places)
        try:
            content = path.read_bytes()
            events = find_installed_events(agent, content, str(path))
        except OSError:
            continue
        except ConfigurationError as error:
            found.append(InstalledHooks(scope, str(path), "no", (str(error),)))
            continue
        if events:
            problems = _find_problems(agent, content, events, path)
            trusted = _find_trust(agent, scope, places, path)
            if trusted == "no":
                problems.append("They are not trusted yet, so the agent skips them without a word.")
            found.append(InstalledHooks(scope, str(path), trusted, tuple(problems)))
    seen = read_status(state).agents.get(agent, AgentStatus())
    return AgentReport(agent, tuple(found), seen, (*OPEN_POINTS[agent], *_EVERY_AGENT))


def _find_problems(agent: str, content: bytes, events: Mapping[str, list[str]], path: Path) -> list[str]:
    problems: list[str] = []
    if missing := [event for event in expected_events(agent) if event not in events]:
        problems.append(f"Hooks are missing for {', '.join(missing)}: do `interlock hooks install {agent}` again.")
    if agent != "opencode":
        settings = read_object(content, str(path))
        if settings.get("disableAllHooks") is True:
            problems.append("`disableAllHooks` switches all hooks off.")
        if (as_object(settings.get("hooksConfig")) or {}).get("enabled") is False:
            problems.append("`hooksConfig.enabled` switches all hooks off.")
        for program in sorted({_program_of(command) for commands in events.values() for command in commands}):
            if not os.access(program, os.X_OK):
                problems.append(f"{program or 'its program'} is missing: the hook cannot be started. Install it again.")
    return problems


def _program_of(command: str) -> str:
    """Return the program of a hook, behind the condition of the second one."""
    try:
        words = shlex.split(command.rpartition("exec ")[2])
    except ValueError:
        return ""
    return words[0] if words else ""


def _find_trust(agent: str, scope: Scope, places: Places, path: Path) -> str:
    if agent == "codex":
        return _find_codex_trust(places, path)
    if agent == "gemini" and scope == "project":
        return "unknown"
    return "yes"


def _find_codex_trust(places: Places, path: Path) -> str:
    """Return whether Codex has a trusted hash for the hook. Whether it is the right one, only Codex knows."""
    try:
        config = tomllib.loads((places.find("codex", "user") / "config.toml").read_text())
    except FileNotFoundError:
        return "no"
    except (OSError, ValueError):
        return "unknown"
    state = as_object((as_object(config.get("hooks")) or {}).get("state")) or {}
    for key, entry in state.items():
        table = as_object(entry) or {}
        if str(path) in key and "pre_tool_use" in key and table.get("trusted_hash") and table.get("enabled", True):
            return "yes"
    return "no"
