"""Claude Code: the `permissions` of a `settings.json`.

An entry is `Tool` or `Tool(specifier)`. Deny beats ask beats allow there as here. What differs:

- `*` in a command spans words. Here a pattern is the first words of a command, or all of them.
- Paths follow `.gitignore` there as here. There `//` is absolute, `~/` the home folder, one `/` the project's folder,
  and a pattern that matches a folder matches all that is in it. Here `/` is absolute, a pattern with a slash in it
  starts at the workspace, and only a rule that refuses or asks takes a folder for all that is in it. Such rules are
  written for every tool, so that they hold for commands, too.
- Claude Code's tools that have no counterpart here are refused by their name, and never allowed by it.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

import msgspec

from ...domain import json
from ...domain.errors import ConfigurationError
from .policy_draft import (
    CommandWords,
    Conditions,
    DraftEntry,
    ImportResult,
    PolicyDraft,
    is_plain_name,
    narrow_prefix,
    quote_entry,
    split_plain_words,
    validate_text,
    widen_name,
    widen_prefix,
)

SOURCE = "Claude Code"
_LISTS = ("deny", "ask", "allow")
_ENTRY = re.compile(r"([^()\s]+)(?:\((.*)\))?", re.DOTALL)
_MAX_GLOB_CHARS = 1_500

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
    **{name: {"tools": "*", "risk": ["delegate"]} for name in ("Agent", "Task")},
    **{name: {"tools": "*", "origin": "skill"} for name in ("Skill", "SlashCommand")},
}
#: File permission checks never look at these with a path; `Read(path)` and `Edit(path)` are meant.
_EFFECTIVE_TOOL = {
    **dict.fromkeys(("Write", "MultiEdit", "NotebookEdit"), "Edit"),
    **dict.fromkeys(("Glob", "Grep", "LS"), "Read"),
}
_MODES: Mapping[str, tuple[str, str]] = {
    "default": ("risk", ""),
    "manual": ("risk", ""),
    "acceptEdits": ("risk", "a policy has no mode; start runs in mode accept_edits for the same"),
    "plan": ("ask", "a rule refuses what writes; without it, start runs in mode read_only for the same"),
    "dontAsk": ("deny", "what no rule allows is refused, reading too, and every ask entry is a deny"),
    "auto": ("risk", "nothing is allowed for it; here no mode approves calls by itself"),
    "bypassPermissions": ("risk", "nothing is allowed for it; mode trusted is the nearest"),
}


class _Entry(DraftEntry, frozen=True, kw_only=True):
    tool: str
    #: None without parentheses, or with nothing in them.
    specifier: str | None


def import_claude(text: str) -> ImportResult:
    """Convert the text of a `settings.json` to a policy."""
    permissions = _parse_permissions(text, draft := PolicyDraft(SOURCE, "claude"))
    mode = permissions.get("defaultMode", "default")
    if not isinstance(mode, str):
        raise ConfigurationError(f"{SOURCE}, permissions.defaultMode: a text, not {quote_entry(mode)}")
    for list_name in _LISTS:
        decision = "deny" if mode == "dontAsk" and list_name == "ask" else list_name
        for entry in _parse_entries(permissions.get(list_name, []), list_name, decision, draft):
            _translate_entry(entry)
    for key, value in permissions.items():
        if key not in (*_LISTS, "defaultMode"):
            _translate_other_key(key, value, draft)
    where = f"permissions.defaultMode {quote_entry(mode)}"
    default, note = _MODES.get(mode, ("ask", "not known; what no rule speaks about is asked"))
    if note:
        draft.add_note(where, note)
    if mode == "plan":
        draft.add_rule("deny", "plan-mode", where, {"tools": "*", "risk": ["write"]})
    return draft.build(default)


def _parse_permissions(text: str, draft: PolicyDraft) -> dict[str, Any]:
    try:
        settings = json.parse(validate_text(text, SOURCE))
    except json.InvalidJsonError as error:
        raise ConfigurationError(f"{SOURCE}: the settings are no JSON that can be read: {error}") from None
    if not isinstance(settings, dict):
        raise ConfigurationError(f"{SOURCE}: the settings are an object, not {quote_entry(settings)}")
    permissions = cast(dict[str, Any], settings).get("permissions", {})
    if not isinstance(permissions, dict):
        raise ConfigurationError(f"{SOURCE}: permissions are an object, not {quote_entry(permissions)}")
    if others := sorted(key for key in cast(dict[str, Any], settings) if key not in ("permissions", "$schema")):
        draft.add_note("settings", f"only permissions are imported, not {', '.join(map(quote_entry, others[:20]))}")
    return cast(dict[str, Any], permissions)


def _parse_entries(given: Any, list_name: str, decision: str, draft: PolicyDraft) -> list[_Entry]:
    if not isinstance(given, list):
        raise ConfigurationError(f"{SOURCE}, permissions.{list_name}: a list of texts, not {quote_entry(given)}")
    entries: list[_Entry] = []
    for number, text in enumerate(cast(list[Any], given), start=1):
        where = f"permissions.{list_name} entry {number}"
        match = _ENTRY.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            raise ConfigurationError(f"{SOURCE}, {where}: {quote_entry(text)} is neither Tool nor Tool(specifier)")
        entries.append(
            _Entry(
                draft=draft,
                decision=decision,
                location=f"{where}, {quote_entry(text)}",
                place=f"{list_name}-{number}",
                quoted=quote_entry(text),
                tool=match[1],
                specifier=match[2] if match[2] and match[2].strip() else None,
            )
        )
    return entries


def _translate_other_key(key: str, value: Any, draft: PolicyDraft) -> None:
    where = f"permissions.{key}"
    if key == "additionalDirectories":
        draft.add_note(where, "left out: a policy does not make the workspace larger")
    elif key == "disableBypassPermissionsMode" and value == "disable":
        draft.add_rule("deny", "no-trusted-mode", where, {"tools": "*", "mode": ["trusted"]})
        draft.add_note(where, "nothing may run in mode trusted")
    elif key == "disableAutoMode" and value == "disable":
        draft.add_note(where, "there is no such mode here, and so nothing to switch off")
    else:
        draft.add_note(f"permissions {quote_entry(key)}", "not known, and left out")


def _translate_entry(entry: _Entry) -> None:
    if entry.tool.startswith("mcp__"):
        _translate_mcp(entry)
    elif entry.tool == "Cd":
        entry.note("left out: it is about a command of the person, and no call of a model")
    elif "*" in entry.tool:
        _translate_tool_glob(entry)
    elif entry.specifier is None:
        _translate_tool(entry)
    elif entry.tool == "Bash":
        _translate_bash(entry, entry.specifier)
    elif entry.tool == "WebFetch":
        _translate_web_fetch(entry, entry.specifier)
    elif entry.tool in ("Read", "Edit", *_EFFECTIVE_TOOL):
        _translate_file(entry, entry.specifier)
    else:
        _translate_unknown_specifier(entry)


def _translate_tool(entry: _Entry, note: str = "") -> None:
    """Translate the tool, or widely what comes nearest to it."""
    known = (_WIDER_TOOLS.get(entry.tool) if entry.is_wide else None) or _TOOLS.get(entry.tool)
    if known:
        entry.add_rule(known, note)
    elif entry.is_wide:
        note = note or "no tool of Interlock itself has this name; the rule is about any that has it"
        entry.add_rule({"tools": widen_name(entry.tool)}, note)
    else:
        entry.note("left out: a tool of this name here may be another one")


def _translate_unknown_specifier(entry: _Entry) -> None:
    if entry.is_wide:
        _translate_tool(entry, "what stands in parentheses cannot be said here; the rule is about every call")
    else:
        entry.note("left out: what stands in parentheses cannot be said here")


def _translate_tool_glob(entry: _Entry) -> None:
    if not entry.is_wide:
        entry.note("left out, as Claude Code does: an allow names its tool")
        return
    if entry.tool == "*":
        entry.add_rule({"tools": "*"}, "" if entry.specifier is None else "the rule is about every call")
        return
    for name, conditions in {**_TOOLS, **_WIDER_TOOLS}.items():
        if fnmatchcase(name, entry.tool):
            entry.add_rule(conditions)
    is_ending = re.fullmatch(r"\*[^_*]+", entry.tool)
    if not is_ending and "mcp__".startswith(entry.tool.split("*", 1)[0]):
        entry.add_rule({"tools": "*", "origin": "mcp"})
    entry.add_rule({"tools": widen_name(entry.tool)}, "also what the tools with such names are called here")


def _translate_mcp(entry: _Entry) -> None:
    server, _, tool = entry.tool.removeprefix("mcp__").partition("__")
    if entry.is_wide:
        note = "" if entry.specifier is None else "the rule is about every call, whatever its arguments"
        entry.add_rule(_widen_mcp(server, tool), note)
    elif entry.specifier is not None or not is_plain_name(server):
        entry.note("left out, as Claude Code does: an allow names one server, and no arguments")
    elif widen_name(tool) != tool:
        entry.note("left out: no tool can have such a name here")
    else:
        entry.add_rule({"tools": tool or "*", "origin": "mcp", "server": server})


def _widen_mcp(server: str, tool: str) -> Conditions:
    """Widen an MCP pattern: `_` may stand for a character that Claude Code replaces, and `*` may span `__`."""
    if server == "*" and tool:
        return {"tools": [widen_name(tool), widen_name(f"*__{tool}")], "origin": "mcp"}
    start, star, _ = server.partition("*")
    wide = widen_name(start).replace("_", "?") + star
    if star or not server:
        return {"tools": "*", "origin": "mcp", **({"server": wide} if start else {})}
    return {"tools": widen_name(tool or "*"), "origin": "mcp", "server": wide}


# Commands


def _translate_bash(entry: _Entry, specifier: str) -> None:
    body, is_prefix = specifier.strip(), False
    # `npm run *` and `npm run:*` are the words before, and whatever follows them.
    for end in (":*", " *"):
        before = specifier.removesuffix(end)
        if not is_prefix and before != specifier and before.strip() and "*" not in before:
            body, is_prefix = before, True
    if body == "*":
        _translate_tool(entry)
    elif entry.is_wide and not is_prefix and re.match(r"\w+\s*:", specifier):
        _translate_tool(entry, "it may be about an argument of the tool, so the rule is about every command")
    elif "*" in body:
        _translate_wildcards(entry, specifier)
    elif entry.is_wide:
        _translate_wide_command(entry, split_plain_words(body), is_prefix)
    else:
        _translate_allowed_command(entry, split_plain_words(body), is_prefix)


def _translate_wide_command(entry: _Entry, read: CommandWords, is_prefix: bool) -> None:
    command = widen_prefix(read.words)
    if command is None:
        _translate_tool(entry, "it cannot be said by the first words of a command; the rule is about every command")
    elif not read.complete:
        about = f"the rule is about every command that begins with {quote_entry(command)}"
        entry.add_rule({"tools": "bash", "command": command}, f"only its first words can be said; {about}")
    else:
        entry.add_rule({"tools": "bash", "command": command if is_prefix else {"is": command}})


def _translate_allowed_command(entry: _Entry, read: CommandWords, is_prefix: bool, note: str = "") -> None:
    command = narrow_prefix(read.words) if read.complete else None
    if command is None:
        entry.note("left out: only plain words can be allowed, one command to a rule")
    else:
        entry.add_rule({"tools": "bash", "command": command if is_prefix else {"is": command}}, note)


def _translate_wildcards(entry: _Entry, specifier: str) -> None:
    if entry.is_wide:
        before = specifier.split("*", 1)[0]
        whole_words = before if before.endswith(" ") else before.rpartition(" ")[0]
        words = split_plain_words(whole_words).words
        _translate_wide_command(entry, CommandWords(words, complete=False), True)
        return
    if specifier.endswith("*") and "*" not in specifier[:-1]:
        note = "narrower: a part of a word cannot be said; what is allowed has exactly these words"
        _translate_allowed_command(entry, split_plain_words(specifier[:-1]), True, note)
        return
    words = specifier.split()
    literal = [word for word in words if word != "*"]
    read = split_plain_words(" ".join(literal))
    if words[0] == "*" or not read.complete or read.words != tuple(literal) or not narrow_prefix(literal):
        entry.note("left out: only whole words can be any word, and never the program")
        return
    command = {"words": words, "exact": words[-1] != "*"}
    entry.add_rule({"tools": "bash", "command": command}, "narrower: each * is one word, and not several")


# Hosts


def _translate_web_fetch(entry: _Entry, specifier: str) -> None:
    kind, _, given = specifier.partition(":")
    host = given.strip().lower().rstrip(".")
    if kind.strip() != "domain" or not re.fullmatch(r"[a-z0-9*_.\-]+", host):
        _translate_unknown_specifier(entry)
    elif host == "*":
        _translate_tool(entry)
    elif "*" not in host:
        entry.add_rule({"tools": "*" if entry.is_wide else "web_fetch", "host": host})
    elif entry.is_wide:
        # What follows the last label with a star, and all hosts under it.
        rest = host.rpartition("*")[2].partition(".")[2]
        wide = f"*.{rest}" if rest else "*"
        entry.add_rule({"tools": "*", "host": wide}, f"the rule is about {wide}, with that host")
    else:
        entry.note("left out: here *.example.com is example.com, too, and no other wildcards can be said")


# Files


def _translate_file(entry: _Entry, specifier: str) -> None:
    if entry.tool in _EFFECTIVE_TOOL and not entry.is_wide:
        entry.note(f"left out: it allows nothing there; {_EFFECTIVE_TOOL[entry.tool]}(path) is what counts")
        return
    if specifier.startswith("!"):
        # An exception from the same list. An allow that loses its exception would allow more.
        if entry.is_wide:
            entry.note("left out: a rule has no exceptions, so this stays as the other rules say")
        else:
            exception = {"tools": "*", "path": widen_glob(specifier[1:])}
            asked = msgspec.structs.replace(entry, decision="ask")
            asked.add_rule(exception, "a rule has no exceptions; what it excepts is asked")
        return
    edits = _EFFECTIVE_TOOL.get(entry.tool, entry.tool) == "Edit"
    glob = (widen_glob if entry.is_wide else narrow_glob)(specifier)
    if glob is None:
        entry.note("left out: such a path cannot be said exactly here")
        return
    if not entry.is_wide:
        tools, access = (_EDITORS, "write") if edits else (_READERS, "read")
        entry.add_rule({"tools": tools, "path": glob, "access": access})
    elif edits:
        entry.add_rule({"tools": "*", "path": glob, "access": "write"})
    else:
        note = "it is about writing there, too: many commands read and write at once"
        entry.add_rule({"tools": "*", "path": glob}, note)
    if specifier.startswith("/") and not specifier.startswith("//"):
        note = "one slash at the beginning is read as the project's folder, as in project settings"
        entry.draft.add_note("paths", note)


class _PathPattern(msgspec.Struct, frozen=True):
    #: `/`, `~/`, or nothing for the workspace.
    start: str
    parts: list[str]
    #: Only from the start on, and not at any depth.
    anchored: bool
    is_folder: bool


def _parse_path(pattern: str) -> _PathPattern:
    start = next((start for start in ("//", "~/", "/", "./") if pattern.startswith(start)), "")
    rest = pattern.removeprefix(start)
    parts: list[str] = []
    for part in rest.split("/"):
        plain = part if part == "**" else re.sub(r"\*\*+", "*", part)
        if plain not in ("", ".") and not (plain == "**" and parts[-1:] == ["**"]):
            parts.append(plain)
    return _PathPattern({"//": "/", "~/": "~/"}.get(start, ""), parts, start not in ("", "./"), rest.endswith("/"))


def widen_glob(pattern: str) -> str:
    """Return a path pattern of ours that matches at least what this one does."""
    if len(pattern) > _MAX_GLOB_CHARS:
        return "/**"
    plain = re.sub(r"\\.?|\0", "?", re.sub(r"(?<!\\)\[(?:[^/]*\])?", "*", pattern.strip()), flags=re.DOTALL)
    path = _parse_path(plain)
    if ".." in path.parts or (not path.start and plain.startswith("~")):
        at = max(index for index, part in enumerate(path.parts) if part == ".." or index == 0)
        return "/" + "/".join(["**", *path.parts[at + 1 :]])
    if not path.parts or path.parts in (["*"], ["**"]):
        return f"{path.start}**" if path.start else "**/*"
    first, *more = path.parts
    if path.anchored and not path.start and not more:
        return f"{first}/**"
    # A folder and all that is in it means that folder at any depth, when it refuses.
    if not path.anchored and more == ["**"] and first != "**":
        return f"**/{first}/**"
    return path.start + "/".join(path.parts)


def narrow_glob(pattern: str) -> str | None:
    """Return a path pattern of ours that matches nothing that this one does not."""
    if pattern != pattern.strip() or set(pattern) & set("\\[]\0") or pattern.startswith("#"):
        return None
    path = _parse_path(pattern)
    anchored = path.anchored or pattern.startswith("./")
    if ".." in path.parts or len(pattern) > _MAX_GLOB_CHARS or (pattern.startswith("~") and path.start != "~/"):
        return None
    if path.is_folder and path.parts[-1:] == ["**"]:
        return None  # Every folder, and no file beside them: we have no pattern for that.
    if path.is_folder or path.parts[-1:] == ["**"] or not path.parts:
        # What is in a folder, without the folder itself.
        inside = path.parts[:-1] if path.parts[-1:] == ["**"] else path.parts
        at_any_depth = ["**"] if len(inside) == 1 and path.is_folder and not anchored else []
        return path.start + "/".join([*at_any_depth, *inside, "**", "*"])
    if len(path.parts) == 1 and not path.start and anchored:
        return f"{path.parts[0]}/**"
    return path.start + "/".join(path.parts)
