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
from .claude_paths import narrow_glob, widen_glob
from .policy_draft import (
    CommandWords,
    Conditions,
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
_EFFECTIVE_TOOL = {
    "Write": "Edit",
    "MultiEdit": "Edit",
    "NotebookEdit": "Edit",
    "Glob": "Read",
    "Grep": "Read",
    "LS": "Read",
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


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    decision: str
    list_name: str
    number: int
    text: str
    tool: str
    #: None without parentheses, or with nothing in them.
    specifier: str | None

    @property
    def is_wide(self) -> bool:
        return self.decision != "allow"

    @property
    def location(self) -> str:
        return f"permissions.{self.list_name} entry {self.number}, {quote_entry(self.text)}"


def import_claude(text: str) -> ImportResult:
    """Convert the text of a `settings.json` to a policy."""
    permissions = _parse_permissions(text, draft := PolicyDraft(SOURCE, "claude"))
    mode = permissions.get("defaultMode", "default")
    if not isinstance(mode, str):
        raise ConfigurationError(f"{SOURCE}, permissions.defaultMode: a text, not {quote_entry(mode)}")
    for list_name in _LISTS:
        decision = "deny" if mode == "dontAsk" and list_name == "ask" else list_name
        for entry in _parse_entries(permissions.get(list_name, []), list_name, decision):
            _translate_entry(entry, draft)
    _note_other_keys(permissions, draft)
    return draft.build(_translate_default_mode(mode, draft))


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


def _parse_entries(given: Any, list_name: str, decision: str) -> list[_Entry]:
    if not isinstance(given, list):
        raise ConfigurationError(f"{SOURCE}, permissions.{list_name}: a list of texts, not {quote_entry(given)}")
    entries: list[_Entry] = []
    for number, text in enumerate(cast(list[Any], given), start=1):
        match = _ENTRY.fullmatch(text.strip()) if isinstance(text, str) else None
        if match is None:
            where = f"{SOURCE}, permissions.{list_name} entry {number}"
            raise ConfigurationError(f"{where}: {quote_entry(text)} is neither Tool nor Tool(specifier)")
        specifier = None if not match[2] or not match[2].strip() else match[2]
        entry = _Entry(
            decision=decision, list_name=list_name, number=number, text=text, tool=match[1], specifier=specifier
        )
        entries.append(entry)
    return entries


def _translate_default_mode(mode: str, draft: PolicyDraft) -> str:
    where = f"permissions.defaultMode {quote_entry(mode)}"
    default, note = _MODES.get(mode, ("ask", "not known; what no rule speaks about is asked"))
    if note:
        draft.add_note(where, note)
    if mode == "plan":
        draft.add_rule("deny", "plan-mode", where, {"tools": "*", "risk": ["write"]})
    return default


def _note_other_keys(permissions: Mapping[str, Any], draft: PolicyDraft) -> None:
    for key, value in permissions.items():
        if key in (*_LISTS, "defaultMode"):
            continue
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


def _translate_entry(entry: _Entry, draft: PolicyDraft) -> None:
    if entry.tool.startswith("mcp__"):
        _translate_mcp(entry, draft)
    elif entry.tool == "Cd":
        draft.add_note(entry.location, "left out: it is about a command of the person, and no call of a model")
    elif "*" in entry.tool:
        _translate_tool_glob(entry, draft)
    elif entry.specifier is None:
        _translate_tool(entry, draft)
    else:
        _SPECIFIER_TRANSLATORS.get(entry.tool, _translate_unknown_specifier)(entry, entry.specifier, draft)


def _add_rule(entry: _Entry, draft: PolicyDraft, conditions: Conditions, note: str = "") -> None:
    draft.add_rule(entry.decision, f"{entry.list_name}-{entry.number}", quote_entry(entry.text), conditions)
    if note:
        draft.add_note(entry.location, note)


def _translate_tool(entry: _Entry, draft: PolicyDraft, note: str = "") -> None:
    """The tool, or widely what comes nearest to it."""
    known = (_WIDER_TOOLS.get(entry.tool) if entry.is_wide else None) or _TOOLS.get(entry.tool)
    if known:
        _add_rule(entry, draft, known, note)
    elif entry.is_wide:
        note = note or "no tool of Interlock itself has this name; the rule is about any that has it"
        _add_rule(entry, draft, {"tools": widen_name(entry.tool)}, note)
    else:
        draft.add_note(entry.location, "left out: a tool of this name here may be another one")


def _translate_unknown_specifier(entry: _Entry, specifier: str, draft: PolicyDraft) -> None:
    if entry.is_wide:
        _translate_tool(entry, draft, "what stands in parentheses cannot be said here; the rule is about every call")
    else:
        draft.add_note(entry.location, "left out: what stands in parentheses cannot be said here")


def _translate_tool_glob(entry: _Entry, draft: PolicyDraft) -> None:
    if not entry.is_wide:
        draft.add_note(entry.location, "left out, as Claude Code does: an allow names its tool")
        return
    if entry.tool == "*":
        _add_rule(entry, draft, {"tools": "*"}, "" if entry.specifier is None else "the rule is about every call")
        return
    for name, conditions in {**_TOOLS, **_WIDER_TOOLS}.items():
        if fnmatchcase(name, entry.tool):
            _add_rule(entry, draft, conditions)
    is_ending = re.fullmatch(r"\*[^_*]+", entry.tool)
    if not is_ending and "mcp__".startswith(entry.tool.split("*", 1)[0]):
        _add_rule(entry, draft, {"tools": "*", "origin": "mcp"})
    _add_rule(entry, draft, {"tools": widen_name(entry.tool)}, "also what the tools with such names are called here")


# MCP


def _translate_mcp(entry: _Entry, draft: PolicyDraft) -> None:
    server, _, tool = entry.tool.removeprefix("mcp__").partition("__")
    if entry.is_wide:
        note = "" if entry.specifier is None else "the rule is about every call, whatever its arguments"
        _add_rule(entry, draft, _widen_mcp(server, tool), note)
    elif entry.specifier is not None or not is_plain_name(server):
        draft.add_note(entry.location, "left out, as Claude Code does: an allow names one server, and no arguments")
    elif widen_name(tool) != tool:
        draft.add_note(entry.location, "left out: no tool can have such a name here")
    else:
        _add_rule(entry, draft, {"tools": tool or "*", "origin": "mcp", "server": server})


def _widen_mcp(server: str, tool: str) -> Conditions:
    """`_` may stand for any character that Claude Code does not write in names, and `*` may reach over `__`."""
    if server == "*" and tool:
        return {"tools": [widen_name(tool), widen_name(f"*__{tool}")], "origin": "mcp"}
    if "*" in server or not server:
        start = server.split("*", 1)[0]
        return {"tools": "*", "origin": "mcp", **({"server": _widen_server(start) + "*"} if start else {})}
    return {"tools": widen_name(tool or "*"), "origin": "mcp", "server": _widen_server(server)}


def _widen_server(name: str) -> str:
    return widen_name(name).replace("_", "?")


# Bash


def _translate_bash(entry: _Entry, specifier: str, draft: PolicyDraft) -> None:
    body, is_prefix = _split_prefix(specifier)
    if body == "*":
        _translate_tool(entry, draft)
    elif entry.is_wide and not is_prefix and re.match(r"\w+\s*:", specifier):
        _translate_tool(entry, draft, "it may be about an argument of the tool, so the rule is about every command")
    elif "*" in body:
        _translate_wildcards(entry, specifier, draft)
    elif entry.is_wide:
        _translate_wide_command(entry, split_plain_words(body), is_prefix, draft)
    else:
        _translate_allowed_command(entry, split_plain_words(body), is_prefix, draft)


def _split_prefix(specifier: str) -> tuple[str, bool]:
    """`npm run *` and `npm run:*` are the words before, and whatever follows them."""
    for end in (":*", " *"):
        body = specifier.removesuffix(end)
        if body != specifier and body.strip() and "*" not in body:
            return body, True
    return specifier.strip(), False


def _translate_wide_command(entry: _Entry, read: CommandWords, is_prefix: bool, draft: PolicyDraft) -> None:
    command = widen_prefix(read.words)
    if command is None:
        _translate_tool(
            entry, draft, "it cannot be said by the first words of a command; the rule is about every command"
        )
    elif not read.complete:
        note = (
            f"only its first words can be said; the rule is about every command that begins with {quote_entry(command)}"
        )
        _add_rule(entry, draft, {"tools": "bash", "command": command}, note)
    else:
        _add_rule(entry, draft, {"tools": "bash", "command": command if is_prefix else {"is": command}})


def _translate_allowed_command(
    entry: _Entry, read: CommandWords, is_prefix: bool, draft: PolicyDraft, note: str = ""
) -> None:
    command = narrow_prefix(read.words) if read.complete else None
    if command is None:
        draft.add_note(entry.location, "left out: only plain words can be allowed, one command to a rule")
    else:
        _add_rule(entry, draft, {"tools": "bash", "command": command if is_prefix else {"is": command}}, note)


def _translate_wildcards(entry: _Entry, specifier: str, draft: PolicyDraft) -> None:
    if entry.is_wide:
        before = specifier.split("*", 1)[0]
        whole_words = before if before.endswith(" ") else before.rpartition(" ")[0]
        words = split_plain_words(whole_words).words
        _translate_wide_command(entry, CommandWords(words, complete=False), True, draft)
        return
    if specifier.endswith("*") and "*" not in specifier[:-1]:
        note = "narrower: a part of a word cannot be said; what is allowed has exactly these words"
        _translate_allowed_command(entry, split_plain_words(specifier[:-1]), True, draft, note)
        return
    words = specifier.split()
    literal = [word for word in words if word != "*"]
    read = split_plain_words(" ".join(literal))
    if words[0] == "*" or not read.complete or read.words != tuple(literal) or not narrow_prefix(literal):
        draft.add_note(entry.location, "left out: only whole words can be any word, and never the program")
        return
    command = {"words": words, "exact": words[-1] != "*"}
    _add_rule(entry, draft, {"tools": "bash", "command": command}, "narrower: each * is one word, and not several")


# Files


def _translate_file(entry: _Entry, specifier: str, draft: PolicyDraft) -> None:
    if entry.tool in _EFFECTIVE_TOOL and not entry.is_wide:
        draft.add_note(
            entry.location, f"left out: it allows nothing there; {_EFFECTIVE_TOOL[entry.tool]}(path) is what counts"
        )
        return
    if specifier.startswith("!"):
        _translate_exception(entry, specifier[1:], draft)
        return
    edits = _EFFECTIVE_TOOL.get(entry.tool, entry.tool) == "Edit"
    glob = (widen_glob if entry.is_wide else narrow_glob)(specifier)
    if glob is None:
        draft.add_note(entry.location, "left out: such a path cannot be said exactly here")
        return
    if not entry.is_wide:
        tools, access = (_EDITORS, "write") if edits else (_READERS, "read")
        _add_rule(entry, draft, {"tools": tools, "path": glob, "access": access})
    elif edits:
        _add_rule(entry, draft, {"tools": "*", "path": glob, "access": "write"})
    else:
        note = "it is about writing there, too: many commands read and write at once"
        _add_rule(entry, draft, {"tools": "*", "path": glob}, note)
    if specifier.startswith("/") and not specifier.startswith("//"):
        draft.add_note("paths", "one slash at the beginning is read as the project's folder, as in project settings")


def _translate_exception(entry: _Entry, specifier: str, draft: PolicyDraft) -> None:
    """`!path` takes back what the same list said. An allow that loses its exception would allow more."""
    if entry.is_wide:
        draft.add_note(entry.location, "left out: a rule has no exceptions, so this stays as the other rules say")
        return
    place = f"{entry.list_name}-{entry.number}"
    draft.add_rule("ask", place, quote_entry(entry.text), {"tools": "*", "path": widen_glob(specifier)})
    draft.add_note(entry.location, "a rule has no exceptions; what it excepts is asked")


# Hosts


def _translate_web_fetch(entry: _Entry, specifier: str, draft: PolicyDraft) -> None:
    kind, _, given = specifier.partition(":")
    host = given.strip().lower().rstrip(".")
    if kind.strip() != "domain" or not re.fullmatch(r"[a-z0-9*_.\-]+", host):
        _translate_unknown_specifier(entry, specifier, draft)
    elif host == "*":
        _translate_tool(entry, draft)
    elif entry.is_wide:
        wide = widen_host(host)
        _add_rule(
            entry, draft, {"tools": "*", "host": wide}, f"the rule is about {wide}, with that host" * ("*" in host)
        )
    elif "*" in host:
        draft.add_note(
            entry.location, "left out: here *.example.com is example.com, too, and no other wildcards can be said"
        )
    else:
        _add_rule(entry, draft, {"tools": "web_fetch", "host": host})


def widen_host(host: str) -> str:
    labels = host.split(".")
    starred = [index for index, label in enumerate(labels) if "*" in label]
    if not starred:
        return host
    rest = ".".join(labels[starred[-1] + 1 :])
    return f"*.{rest}" if rest else "*"


_SPECIFIER_TRANSLATORS: Mapping[str, Callable[[_Entry, str, PolicyDraft], None]] = {
    "Bash": _translate_bash,
    "WebFetch": _translate_web_fetch,
    **dict.fromkeys(("Read", "Edit", *_EFFECTIVE_TOOL), _translate_file),
}
