"""Claude Code: the `permissions` of a `settings.json`.

An entry is `Tool` or `Tool(specifier)`. Deny beats ask beats allow there as here. What differs:

- `*` in a command spans words. Here a pattern is the first words of a command, or all of them.
- Paths follow `.gitignore`: `//` is absolute, `~/` the home folder, `/` and everything else the project. Rules that
  refuse or ask are written for every tool, so that they hold for commands, too.
- Claude Code's tools that have no counterpart here are refused by their name, and never allowed by it.
"""

import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from ...domain import json
from ...domain.errors import ConfigurationError
from .claude_paths import narrow_glob, wide_glob
from .imported import (
    Conditions,
    Draft,
    Imported,
    Words,
    checked_text,
    is_plain_name,
    narrow_prefix,
    quoted,
    read_words,
    wide_name,
    wide_prefix,
)

SOURCE = "Claude Code"
_LISTS = ("deny", "ask", "allow")
_ENTRY = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)

_READERS = ["read_file", "grep", "glob", "list_dir"]
_EDITORS = ["write_file", "edit_file"]
#: What a bare tool name means here, where there is a counterpart.
_TOOLS: Mapping[str, Conditions] = {
    "Bash": {"tools": "bash"},
    "Read": {"tools": _READERS},
    "Edit": {"tools": _EDITORS},
    "MultiEdit": {"tools": "edit_file"},
    "Write": {"tools": "write_file"},
    "Glob": {"tools": "glob"},
    "Grep": {"tools": "grep"},
    "LS": {"tools": "list_dir"},
    "WebFetch": {"tools": "web_fetch"},
}
#: What refuses or asks is about everything of that kind, whatever it is called here.
_WIDER_TOOLS: Mapping[str, Conditions] = {
    "Agent": {"tools": "*", "risk": ["delegate"]},
    "Task": {"tools": "*", "risk": ["delegate"]},
    "Skill": {"tools": "*", "origin": "skill"},
    "SlashCommand": {"tools": "*", "origin": "skill"},
}
#: File permission checks never look at these with a path; `Read(path)` and `Edit(path)` are meant.
_MEANT = {"Write": "Edit", "MultiEdit": "Edit", "NotebookEdit": "Edit", "Glob": "Read", "Grep": "Read", "LS": "Read"}

_MODES: Mapping[str, tuple[str, str]] = {
    "default": ("risk", ""),
    "manual": ("risk", ""),
    "acceptEdits": ("risk", "a policy has no mode; start runs in mode accept_edits for the same"),
    "plan": ("ask", "a rule refuses what writes; without it, start runs in mode read_only for the same"),
    "dontAsk": ("deny", "what no rule allows is refused, reading too, and every ask entry is a deny"),
    "auto": ("risk", "nothing is allowed for it; here no mode approves calls by itself"),
    "bypassPermissions": ("risk", "nothing is allowed for it; mode trusted is the nearest"),
}


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    decision: str
    list_name: str
    number: int
    text: str
    tool: str
    #: None without parentheses, or with nothing in them.
    specifier: str | None

    @property
    def wide(self) -> bool:
        return self.decision != "allow"

    @property
    def where(self) -> str:
        return f"permissions.{self.list_name} entry {self.number}, {quoted(self.text)}"


def import_claude(text: str) -> Imported:
    """The text of a `settings.json` as a policy."""
    permissions = _permissions(text, draft := Draft(SOURCE, "claude"))
    mode = permissions.get("defaultMode", "default")
    if not isinstance(mode, str):
        raise ConfigurationError(f"{SOURCE}, permissions.defaultMode: a text, not {quoted(mode)}")
    for list_name in _LISTS:
        decision = "deny" if mode == "dontAsk" and list_name == "ask" else list_name
        for entry in _entries(permissions.get(list_name, []), list_name, decision):
            _translate(entry, draft)
    _rest(permissions, draft)
    return draft.finish(_default(mode, draft))


def _permissions(text: str, draft: Draft) -> dict[str, Any]:
    try:
        settings = json.parse(checked_text(text, SOURCE))
    except json.BadJson as error:
        raise ConfigurationError(f"{SOURCE}: the settings are no JSON that can be read: {error}") from None
    if not isinstance(settings, dict):
        raise ConfigurationError(f"{SOURCE}: the settings are an object, not {quoted(settings)}")
    permissions = cast(dict[str, Any], settings).get("permissions", {})
    if not isinstance(permissions, dict):
        raise ConfigurationError(f"{SOURCE}: permissions are an object, not {quoted(permissions)}")
    if others := sorted(key for key in cast(dict[str, Any], settings) if key not in ("permissions", "$schema")):
        draft.note("settings", f"only permissions are imported, not {', '.join(map(quoted, others[:20]))}")
    return cast(dict[str, Any], permissions)


def _entries(given: Any, list_name: str, decision: str) -> list[_Entry]:
    if not isinstance(given, list):
        raise ConfigurationError(f"{SOURCE}, permissions.{list_name}: a list of texts, not {quoted(given)}")
    entries: list[_Entry] = []
    for number, text in enumerate(cast(list[Any], given), start=1):
        match = _ENTRY.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            where = f"{SOURCE}, permissions.{list_name} entry {number}"
            raise ConfigurationError(f"{where}: {quoted(text)} is neither Tool nor Tool(specifier)")
        specifier = None if not match[2] or not match[2].strip() else match[2]
        entry = _Entry(
            decision=decision, list_name=list_name, number=number, text=text, tool=match[1], specifier=specifier
        )
        entries.append(entry)
    return entries


def _default(mode: str, draft: Draft) -> str:
    where = f"permissions.defaultMode {quoted(mode)}"
    default, note = _MODES.get(mode, ("ask", "not known; what no rule speaks about is asked"))
    if note:
        draft.note(where, note)
    if mode == "plan":
        draft.add("deny", "plan-mode", where, {"tools": "*", "risk": ["write"]})
    return default


def _rest(permissions: Mapping[str, Any], draft: Draft) -> None:
    for key, value in permissions.items():
        if key in (*_LISTS, "defaultMode"):
            continue
        where = f"permissions.{key}"
        if key == "additionalDirectories":
            draft.note(where, "left out: a policy does not make the workspace larger")
        elif key == "disableBypassPermissionsMode" and value == "disable":
            draft.add("deny", "no-trusted-mode", where, {"tools": "*", "mode": ["trusted"]})
            draft.note(where, "nothing may run in mode trusted")
        elif key == "disableAutoMode" and value == "disable":
            draft.note(where, "there is no such mode here, and so nothing to switch off")
        else:
            draft.note(f"permissions {quoted(key)}", "not known, and left out")


def _translate(entry: _Entry, draft: Draft) -> None:
    if entry.tool.startswith("mcp__"):
        _mcp(entry, draft)
    elif entry.tool == "Cd":
        draft.note(entry.where, "left out: it is about a command of the person, and no call of a model")
    elif "*" in entry.tool:
        _tool_glob(entry, draft)
    elif entry.specifier is None:
        _whole_tool(entry, draft)
    else:
        _SPECIFIERS.get(entry.tool, _unknown_specifier)(entry, entry.specifier, draft)


def _add(entry: _Entry, draft: Draft, conditions: Conditions, note: str = "") -> None:
    draft.add(entry.decision, f"{entry.list_name}-{entry.number}", quoted(entry.text), conditions)
    if note:
        draft.note(entry.where, note)


def _whole_tool(entry: _Entry, draft: Draft, note: str = "") -> None:
    """The tool, or widely what comes nearest to it."""
    known = (_WIDER_TOOLS.get(entry.tool) if entry.wide else None) or _TOOLS.get(entry.tool)
    if known:
        _add(entry, draft, known, note)
    elif entry.wide:
        note = note or "no tool of Interlock itself has this name; the rule is about any that has it"
        _add(entry, draft, {"tools": wide_name(entry.tool)}, note)
    else:
        draft.note(entry.where, "left out: a tool of this name here may be another one")


def _unknown_specifier(entry: _Entry, specifier: str, draft: Draft) -> None:
    if entry.wide:
        _whole_tool(entry, draft, "what stands in parentheses cannot be said here; the rule is about every call")
    else:
        draft.note(entry.where, "left out: what stands in parentheses cannot be said here")


def _tool_glob(entry: _Entry, draft: Draft) -> None:
    if not entry.wide:
        draft.note(entry.where, "left out, as Claude Code does: an allow names its tool")
        return
    if entry.tool == "*":
        _add(entry, draft, {"tools": "*"}, "" if entry.specifier is None else "the rule is about every call")
        return
    for name, conditions in {**_TOOLS, **_WIDER_TOOLS}.items():
        if fnmatchcase(name, entry.tool):
            _add(entry, draft, conditions)
    is_ending = re.fullmatch(r"\*[^_*]+", entry.tool)
    if not is_ending and "mcp__".startswith(entry.tool.split("*", 1)[0]):
        _add(entry, draft, {"tools": "*", "origin": "mcp"})
    _add(entry, draft, {"tools": wide_name(entry.tool)}, "also what the tools with such names are called here")


# MCP


def _mcp(entry: _Entry, draft: Draft) -> None:
    server, _, tool = entry.tool.removeprefix("mcp__").partition("__")
    if entry.wide:
        note = "" if entry.specifier is None else "the rule is about every call, whatever its arguments"
        _add(entry, draft, _wide_mcp(server, tool), note)
    elif entry.specifier is not None or not is_plain_name(server):
        draft.note(entry.where, "left out, as Claude Code does: an allow names one server, and no arguments")
    elif wide_name(tool) != tool:
        draft.note(entry.where, "left out: no tool can have such a name here")
    else:
        _add(entry, draft, {"tools": tool or "*", "origin": "mcp", "server": server})


def _wide_mcp(server: str, tool: str) -> Conditions:
    """`_` may stand for any character that Claude Code does not write in names, and `*` may reach over `__`."""
    if server == "*" and tool:
        return {"tools": [wide_name(tool), wide_name(f"*__{tool}")], "origin": "mcp"}
    if "*" in server or not server:
        start = server.split("*", 1)[0]
        return {"tools": "*", "origin": "mcp", **({"server": _wide_server(start) + "*"} if start else {})}
    return {"tools": wide_name(tool or "*"), "origin": "mcp", "server": _wide_server(server)}


def _wide_server(name: str) -> str:
    return wide_name(name).replace("_", "?")


# Bash


def _bash(entry: _Entry, specifier: str, draft: Draft) -> None:
    body, is_prefix = _body(specifier)
    if body == "*":
        _whole_tool(entry, draft)
    elif entry.wide and not is_prefix and re.match(r"\w+\s*:", specifier):
        _whole_tool(entry, draft, "it may be about an argument of the tool, so the rule is about every command")
    elif "*" in body:
        _wildcards(entry, specifier, draft)
    elif entry.wide:
        _refused_command(entry, read_words(body), is_prefix, draft)
    else:
        _allowed_command(entry, read_words(body), is_prefix, draft)


def _body(specifier: str) -> tuple[str, bool]:
    """`npm run *` and `npm run:*` are the words before, and whatever follows them."""
    for end in (":*", " *"):
        body = specifier.removesuffix(end)
        if body != specifier and body.strip() and "*" not in body:
            return body, True
    return specifier.strip(), False


def _refused_command(entry: _Entry, read: Words, is_prefix: bool, draft: Draft) -> None:
    command = wide_prefix(read.words)
    if command is None:
        _whole_tool(entry, draft, "it cannot be said by the first words of a command; the rule is about every command")
    elif not read.complete:
        note = f"only its first words can be said; the rule is about every command that begins with {quoted(command)}"
        _add(entry, draft, {"tools": "bash", "command": command}, note)
    else:
        _add(entry, draft, {"tools": "bash", "command": command if is_prefix else {"is": command}})


def _allowed_command(entry: _Entry, read: Words, is_prefix: bool, draft: Draft, note: str = "") -> None:
    command = narrow_prefix(read.words) if read.complete else None
    if command is None:
        draft.note(entry.where, "left out: only plain words can be allowed, one command to a rule")
    else:
        _add(entry, draft, {"tools": "bash", "command": command if is_prefix else {"is": command}}, note)


def _wildcards(entry: _Entry, specifier: str, draft: Draft) -> None:
    if entry.wide:
        before = specifier.split("*", 1)[0]
        whole_words = before if before.endswith(" ") else before.rpartition(" ")[0]
        words = read_words(whole_words).words
        _refused_command(entry, Words(words, complete=False), True, draft)
        return
    if specifier.endswith("*") and "*" not in specifier[:-1]:
        note = "narrower: a part of a word cannot be said; what is allowed has exactly these words"
        _allowed_command(entry, read_words(specifier[:-1]), True, draft, note)
        return
    words = specifier.split()
    literal = [word for word in words if word != "*"]
    read = read_words(" ".join(literal))
    if words[0] == "*" or not read.complete or read.words != tuple(literal) or not narrow_prefix(literal):
        draft.note(entry.where, "left out: only whole words can be any word, and never the program")
        return
    command = {"words": words, "exact": words[-1] != "*"}
    _add(entry, draft, {"tools": "bash", "command": command}, "narrower: each * is one word, and not several")


# Files


def _file(entry: _Entry, specifier: str, draft: Draft) -> None:
    if entry.tool in _MEANT and not entry.wide:
        draft.note(entry.where, f"left out: it allows nothing there; {_MEANT[entry.tool]}(path) is what counts")
        return
    if specifier.startswith("!"):
        _exception(entry, specifier[1:], draft)
        return
    edits = _MEANT.get(entry.tool, entry.tool) == "Edit"
    glob = (wide_glob if entry.wide else narrow_glob)(specifier)
    if glob is None:
        draft.note(entry.where, "left out: such a path cannot be said exactly here")
        return
    if not entry.wide:
        tools, access = (_EDITORS, "write") if edits else (_READERS, "read")
        _add(entry, draft, {"tools": tools, "path": glob, "access": access})
    elif edits:
        _add(entry, draft, {"tools": "*", "path": glob, "access": "write"})
    else:
        note = "it is about writing there, too: many commands read and write at once"
        _add(entry, draft, {"tools": "*", "path": glob}, note)
    if specifier.startswith("/") and not specifier.startswith("//"):
        draft.note("paths", "one slash at the beginning is read as the project's folder, as in project settings")


def _exception(entry: _Entry, specifier: str, draft: Draft) -> None:
    """`!path` takes back what the same list said. An allow that loses its exception would allow more."""
    if entry.wide:
        draft.note(entry.where, "left out: a rule has no exceptions, so this stays as the other rules say")
        return
    place = f"{entry.list_name}-{entry.number}"
    draft.add("ask", place, quoted(entry.text), {"tools": "*", "path": wide_glob(specifier)})
    draft.note(entry.where, "a rule has no exceptions; what it excepts is asked")


# Hosts


def _web_fetch(entry: _Entry, specifier: str, draft: Draft) -> None:
    kind, _, given = specifier.partition(":")
    host = given.strip().lower().rstrip(".")
    if kind.strip() != "domain" or not re.fullmatch(r"[a-z0-9*_.\-]+", host):
        _unknown_specifier(entry, specifier, draft)
    elif host == "*":
        _whole_tool(entry, draft)
    elif entry.wide:
        wide = wide_host(host)
        _add(entry, draft, {"tools": "*", "host": wide}, f"the rule is about {wide}, with that host" * ("*" in host))
    elif "*" in host:
        draft.note(entry.where, "left out: here *.example.com is example.com, too, and no other wildcards can be said")
    else:
        _add(entry, draft, {"tools": "web_fetch", "host": host})


def wide_host(host: str) -> str:
    labels = host.split(".")
    starred = [index for index, label in enumerate(labels) if "*" in label]
    if not starred:
        return host
    rest = ".".join(labels[starred[-1] + 1 :])
    return f"*.{rest}" if rest else "*"


_SPECIFIERS: Mapping[str, Callable[[_Entry, str, Draft], None]] = {
    "Bash": _bash,
    "WebFetch": _web_fetch,
    **dict.fromkeys(("Read", "Edit", *_MEANT), _file),
}
