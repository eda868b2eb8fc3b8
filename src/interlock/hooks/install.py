"""Put hooks into the configuration of coding agents, and take them out again.

Settings that belong to an agent are changed in one key, as text; files of our own are written and removed. What a file
was before is kept: removing the hooks from a file that was not changed since restores it to the byte.
"""

import os
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.errors import ConfigurationError
from ..domain.json import JsonObject, encode
from ..policy.engine.rule import Rule
from ..policy.files.atomic_write import replace_file
from . import thin
from .claude import CONFIRM
from .contract import as_object
from .json_file import read_object, set_key
from .static_rules import codex_rules, gemini_policy

Scope: TypeAlias = Literal["user", "project"]
RECORD_NAME = "hooks-installed.json"
_TIMEOUT_SECONDS = 120
_CURSOR_TIMEOUT_SECONDS = 60
_CODEX_END_SECONDS = 3
#: How our commands are known in files that others write into, too.
_OWN_COMMANDS = (os.sep + os.path.join("interlock", "hooks", "thin.py"), "interlock-hook")
_PLUGIN_MARK = "// Interlock:"


class Places(msgspec.Struct, frozen=True):
    """Where agents look for their configuration."""

    home: Path
    project: Path
    environ: Mapping[str, str] = {}

    def find(self, agent: str, scope: Scope) -> Path:
        """Return the folder of an agent's configuration."""
        variable, in_home, in_project = _FOLDERS[agent]
        if scope == "project":
            return self.project / in_project
        named = self.environ.get(variable, "") if variable else ""
        if agent == "opencode":
            base = Path(named) if os.path.isabs(named) else self.home / ".config"
            return base / in_home
        return Path(named) if os.path.isabs(named) else self.home / in_home


#: The variable that names the folder, and the folder in a home and in a project.
_FOLDERS: Mapping[str, tuple[str, str, str]] = {
    "claude": ("CLAUDE_CONFIG_DIR", ".claude", ".claude"),
    "codex": ("CODEX_HOME", ".codex", ".codex"),
    "gemini": ("", ".gemini", ".gemini"),
    "opencode": ("XDG_CONFIG_HOME", "opencode", ".opencode"),
    "cursor": ("", ".cursor", ".cursor"),
}
#: The file with hooks in that folder.
_FILES: Mapping[str, str] = {
    "claude": "settings.json",
    "codex": "hooks.json",
    "gemini": "settings.json",
    "opencode": "plugin/interlock.js",
    "cursor": "hooks.json",
}


class FileChange(msgspec.Struct, frozen=True):
    """What becomes of a file. None: there is none."""

    path: str
    before: bytes | None
    after: bytes | None

    @property
    def summary(self) -> str:
        """One line for a person."""
        if self.before == self.after:
            return f"{self.path}: unchanged"
        verb = "created" if self.before is None else "removed" if self.after is None else "changed"
        return f"{self.path}: {verb}"


class _Kept(msgspec.Struct):
    """What a file was before, and the digest of what was written."""

    before: bytes | None
    after: str


def hook_command(agent: str, state: Path) -> list[str]:
    """Return the command of a hook: this interpreter, and nothing that the agent's variables could change."""
    return [sys.executable, "-I", "-S", thin.__file__, agent, str(state)]


def hook_file(agent: str, scope: Scope, places: Places) -> Path:
    """Return the file that an agent's hooks are in."""
    return places.find(agent, scope) / _FILES[agent]


def plan_install(agent: str, scope: Scope, places: Places, state: Path, rules: Iterable[Rule] = ()) -> list[FileChange]:
    """Return the changes that install the hooks of an agent. Nothing is written.

    Args:
        agent: Its name, such as `claude`.
        scope: The configuration of the user, or of the project.
        places: Where that is.
        state: The folder of the daemon's socket.
        rules: The policy, whose denials agents that fail open get as rules of their own.
    """
    path = hook_file(agent, scope, places)
    command = hook_command(agent, state)
    if agent == "opencode":
        source = Path(__file__).with_name("opencode_plugin.js").read_text()
        text = source.replace('["interlock-hook", "opencode"]', encode(command).decode(), 1)
        return [_own_change(path, text.encode())]
    before = _read(path)
    changes = [FileChange(str(path), before, _add_hooks(before or b"", agent, command, str(path)))]
    folder, listed = places.find(agent, scope), list(rules)
    if agent == "codex":
        changes.append(_own_change(folder / "rules" / "interlock.rules", codex_rules(listed).text.encode()))
    if agent == "gemini" and scope == "user":  # policies of a project have no effect there
        text = gemini_policy(listed, [".gemini/settings.json", ".gemini/policies/interlock.toml"]).text
        changes.append(_own_change(folder / "policies" / "interlock.toml", text.encode()))
    return changes


def plan_uninstall(agent: str, scope: Scope, places: Places, state: Path) -> list[FileChange]:
    """Return the changes that remove the hooks of an agent. Nothing is written."""
    record = _read_record(state)
    folder = places.find(agent, scope)
    changes: list[FileChange] = []
    own = [folder / "rules" / "interlock.rules", folder / "policies" / "interlock.toml"]
    for path in [hook_file(agent, scope, places), *own]:
        before = _read(path)
        if before is None:
            continue
        kept = record.get(str(path))
        if kept is not None and kept.after == sha256(before).hexdigest():
            changes.append(FileChange(str(path), before, kept.before))
        elif path in own or agent == "opencode":
            is_ours = b"Written by `interlock hooks install" in before
            changes.append(FileChange(str(path), before, None if is_ours else before))
        else:
            changes.append(FileChange(str(path), before, _remove_hooks(before, str(path))))
    return changes


def apply_changes(changes: Iterable[FileChange], state: Path, *, keep: bool) -> None:
    """Write the changes. With `keep`, remember what was there before; else forget it."""
    record = _read_record(state)
    for change in changes:
        if change.before != change.after:
            _write(Path(change.path), change.after)
        known = record.get(change.path)
        if not keep:
            record.pop(change.path, None)
        elif change.after is not None:
            digest = sha256(change.after).hexdigest()
            is_ours = (
                known is not None and change.before is not None and known.after == sha256(change.before).hexdigest()
            )
            if change.before != change.after or known is None:
                before = known.before if known is not None and is_ours else change.before
                record[change.path] = _Kept(before, digest)
    path = state / RECORD_NAME
    replace_file(str(path), msgspec.json.encode(record))


def write_start_file(state: Path, environ: Mapping[str, str]) -> None:
    """Record the variables that the daemon is started with: an agent's own do not count."""
    kept = {
        name: value
        for name, value in environ.items()
        if name in ("HOME", "PATH", "LANG", "LC_ALL", "USER", "LOGNAME", "TZ", "XDG_CONFIG_HOME", "XDG_STATE_HOME")
        or (name.startswith("INTERLOCK_") and "KEY" not in name and "TOKEN" not in name)
    }
    content = "\0".join(f"{name}={value}" for name, value in sorted(kept.items()))
    replace_file(str(state / thin.START_FILE), content.encode(errors="surrogateescape"))


def find_installed_events(agent: str, content: bytes, path: str) -> dict[str, list[str]]:
    """Return the commands of our hooks in a file, by event."""
    if agent == "opencode":
        text = content.decode(errors="replace")
        return {"tool.execute.before": [text]} if text.startswith(_PLUGIN_MARK) else {}
    found: dict[str, list[str]] = {}
    for event, groups in _hooks_of(read_object(content, path), path).items():
        commands = [command for group in groups for command in _commands_of(group) if _is_own(command)]
        if commands:
            found[event] = commands
    return found


def expected_events(agent: str) -> tuple[str, ...]:
    """Return the events that the hooks of an agent are installed for."""
    if agent == "opencode":
        return ("tool.execute.before",)
    return tuple(_make_entries(agent, ["-"]))


# Entries


def _make_entries(agent: str, command: list[str]) -> dict[str, list[JsonObject]]:
    """Return the hooks of an agent, by event."""
    return _ENTRIES[agent](shlex.join(command))


def _claude_entries(command: str) -> dict[str, list[JsonObject]]:
    gate = {"type": "command", "command": command, "timeout": _TIMEOUT_SECONDS, "onFailure": "block"}
    # Only without a person at it does Claude Code defer calls: then the second hook says what holds otherwise.
    second = f'[ "$CLAUDE_CODE_ENTRYPOINT" = cli ] && exit 0; exec {command} {CONFIRM}'
    entries: dict[str, list[JsonObject]] = {
        "PreToolUse": [{"matcher": "*", "hooks": [gate, {**gate, "command": second}]}],
    }
    plain: JsonObject = {"type": "command", "command": command, "timeout": _TIMEOUT_SECONDS}
    for event in ("PermissionRequest", "PostToolUse", "PostToolUseFailure", "PermissionDenied"):
        entries[event] = [{"matcher": "*", "hooks": [plain]}]
    for event in ("SessionStart", "SessionEnd"):
        entries[event] = [{"hooks": [plain]}]
    return entries


def _codex_entries(command: str) -> dict[str, list[JsonObject]]:
    hook: JsonObject = {"type": "command", "command": command, "timeout": _TIMEOUT_SECONDS}
    entries: dict[str, list[JsonObject]] = {
        event: [{"matcher": "*", "hooks": [hook]}] for event in ("PreToolUse", "PermissionRequest", "PostToolUse")
    }
    # Codex warns of a longer one at the end of a session.
    last: JsonObject = {**hook, "timeout": _CODEX_END_SECONDS}
    return entries | {"SessionStart": [{"hooks": [hook]}], "SessionEnd": [{"hooks": [last]}]}


def _gemini_entries(command: str) -> dict[str, list[JsonObject]]:
    hook: JsonObject = {
        "name": "interlock",
        "type": "command",
        "command": command,
        "timeout": _TIMEOUT_SECONDS * 1000,
        "description": "Interlock decides about tool calls, and records them.",
    }
    entries: dict[str, list[JsonObject]] = {
        event: [{"matcher": ".*", "hooks": [hook]}] for event in ("BeforeTool", "AfterTool")
    }
    return entries | {event: [{"hooks": [hook]}] for event in ("SessionStart", "SessionEnd")}


def _cursor_entries(command: str) -> dict[str, list[JsonObject]]:
    gate: JsonObject = {"command": command, "timeout": _CURSOR_TIMEOUT_SECONDS, "failClosed": True}
    after: JsonObject = {"command": command, "timeout": _CURSOR_TIMEOUT_SECONDS}
    gates = ("preToolUse", "beforeShellExecution", "beforeMCPExecution", "beforeReadFile")
    others = ("postToolUse", "postToolUseFailure", "afterShellExecution", "afterMCPExecution")
    return {event: [gate] for event in gates} | {event: [after] for event in (*others, "sessionStart", "sessionEnd")}


_ENTRIES: Mapping[str, Callable[[str], dict[str, list[JsonObject]]]] = {
    "claude": _claude_entries,
    "codex": _codex_entries,
    "gemini": _gemini_entries,
    "cursor": _cursor_entries,
}


def _add_hooks(content: bytes, agent: str, command: list[str], path: str) -> bytes:
    settings = read_object(content, path)
    hooks = {event: list(map(_without_own, groups)) for event, groups in _hooks_of(settings, path).items()}
    added = {event: [group for group in groups if group] for event, groups in hooks.items()}
    for event, groups in _make_entries(agent, command).items():
        added[event] = [*added.get(event, []), *groups]
    changed = content if settings.get("hooks") == added else set_key(content, "hooks", added, path)
    if agent == "cursor" and "version" not in settings:
        changed = set_key(changed, "version", 1, path)
    return changed


def _remove_hooks(content: bytes, path: str) -> bytes:
    settings = read_object(content, path)
    before = _hooks_of(settings, path)
    left: dict[str, list[Any]] = {}
    for event, groups in before.items():
        kept = [changed for changed in map(_without_own, groups) if changed]
        if kept or not groups:
            left[event] = kept
    if left == before:
        return content
    return set_key(content, "hooks", left or None, path)


def _hooks_of(settings: JsonObject, path: str) -> dict[str, list[Any]]:
    hooks = settings.get("hooks", {})
    table = as_object(hooks)
    if table is None or not all(isinstance(groups, list) for groups in table.values()):
        raise ConfigurationError(f"{path}: `hooks` must be an object of lists. Nothing was changed.")
    return cast(dict[str, list[Any]], table)


def _without_own(group: Any) -> Any:
    """Return a group of hooks without ours; None when there is no other."""
    table = as_object(group)
    if table is None:
        return group
    if _is_own(table.get("command")):
        return None
    inner: Any = table.get("hooks")
    if not isinstance(inner, list):
        return group
    hooks = cast(list[Any], inner)
    kept = [hook for hook in hooks if not _is_own((as_object(hook) or {}).get("command"))]
    if len(kept) == len(hooks):
        return group
    return {**table, "hooks": kept} if kept else None


def _commands_of(group: Any) -> list[str]:
    table = as_object(group) or {}
    inner: Any = table.get("hooks", [])
    hooks = cast(list[Any], inner) if isinstance(inner, list) else []
    given = [table.get("command"), *((as_object(hook) or {}).get("command") for hook in hooks)]
    return [command for command in given if isinstance(command, str)]


def _is_own(command: Any) -> bool:
    return isinstance(command, str) and any(mark in command for mark in _OWN_COMMANDS)


# Files


def _own_change(path: Path, content: bytes) -> FileChange:
    before = _read(path)
    if before is not None and b"Written by `interlock hooks install" not in before:
        raise ConfigurationError(f"{path} is there already, and not from Interlock. Nothing was changed.")
    return FileChange(str(path), before, content)


def _read(path: Path) -> bytes | None:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}. Nothing was changed.") from None


def _write(path: Path, content: bytes | None) -> None:
    try:
        if content is None:
            path.unlink(missing_ok=True)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_file(str(path), content)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}.") from None


def _read_record(state: Path) -> dict[str, _Kept]:
    content = _read(state / RECORD_NAME)
    if content is None:
        return {}
    try:
        return msgspec.json.decode(content, type=dict[str, _Kept])
    except msgspec.MsgspecError:
        return {}
