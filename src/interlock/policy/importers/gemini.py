"""Gemini CLI: TOML policies with `[[rule]]` tables.

There the rule with the highest priority decides. Here the strictest does, so priorities are dropped: a rule that stood
above a stricter one gives way to it, and a note says so. One case is kept: the rule for all tools at the very bottom
becomes the policy's default.

Patterns there are regular expressions over the JSON of the arguments, of Gemini CLI's own tools. Only patterns of
commands are understood here, as far as they begin with plain words.
"""

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from .gemini_rules import FIELDS, MODES, SHELL, SOURCE, GeminiRule, read_rules
from .policy_draft import (
    STRICTNESS,
    Conditions,
    ImportResult,
    PolicyDraft,
    as_list,
    is_plain_name,
    narrow_prefix,
    quote_entry,
    split_plain_words,
    unwrap_single,
    validate_text,
    widen_name,
    widen_prefix,
)

_TOOLS: Mapping[str, tuple[str, ...]] = {
    "run_shell_command": ("bash",),
    "read_file": ("read_file",),
    "read_many_files": ("read_file", "read_many_files"),
    "write_file": ("write_file",),
    "replace": ("edit_file",),
    "glob": ("glob",),
    "grep_search": ("grep",),
    "search_file_content": ("grep",),
    "list_directory": ("list_dir",),
    "web_fetch": ("web_fetch",),
}
_COMMAND_JSON = '"command":"'
_MAX_COMPARISONS = 300_000
_MAX_SPLITS = 16
_MAX_NAME_CHARS = 256
#: Gemini CLI does not take longer ones either.
_MAX_PATTERN_CHARS = 2_048


def import_gemini(text: str) -> ImportResult:
    """Convert the text of a policy file to a policy."""
    draft = PolicyDraft(SOURCE, "gemini")
    rules = read_rules(validate_text(text, SOURCE), draft)
    fallback = _find_fallback_rule(rules)
    for rule in rules:
        if rule is not fallback:
            _translate_rule(rule, draft)
    _compare_priorities([rule for rule in rules if rule is not fallback and rule.kind == "rule"], draft)
    return draft.build(_translate_fallback(fallback, draft))


# Priorities


def _find_fallback_rule(rules: list[GeminiRule]) -> GeminiRule | None:
    """The rule for every call that stands below all others."""
    plain = {"toolName", "decision", "priority", "denyMessage", "deny_message"}
    ordered = sorted((rule for rule in rules if rule.kind == "rule"), key=lambda rule: rule.priority)
    if not ordered or (len(ordered) > 1 and ordered[0].priority == ordered[1].priority):
        return None
    return ordered[0] if "*" in ordered[0].tool_names and ordered[0].fields.keys() <= plain else None


def _translate_fallback(fallback: GeminiRule | None, draft: PolicyDraft) -> str:
    if fallback is None:
        return "risk"
    if fallback.decision == "allow":
        draft.add_note(
            fallback.location, "left out: no default allows everything; what no rule speaks about goes by its risk"
        )
        return "risk"
    draft.add_note(
        fallback.location, "it stands below all other rules and is about every tool, so it is the policy's default"
    )
    if fallback.decision == "ask":
        conditions = {"tools": "*", "mode": ["accept_edits", "trusted"]}
        draft.add_rule("ask", f"ask-{fallback.number}", fallback.location, conditions)
        draft.add_note(fallback.location, "modes that would not ask are asked for everything")
    return fallback.decision


def _compare_priorities(rules: list[GeminiRule], draft: PolicyDraft) -> None:
    """Note each rule that stood above a stricter one which may be about the same calls."""
    left = _MAX_COMPARISONS
    for mild in rules:
        rank = STRICTNESS.index(mild.decision)
        stricter = [rule for rule in rules if STRICTNESS.index(rule.decision) > rank and rule.priority <= mild.priority]
        left -= len(rules) // 10
        for rule in stricter:
            left -= len(rule.tool_names) * len(mild.tool_names) + len(_command_prefixes(rule)) * len(
                _command_prefixes(mild)
            )
            if left < 0:
                draft.add_note(
                    "file", "priorities are dropped: the stricter rule decides; not all of them were compared"
                )
                return
            if _can_rules_overlap(mild, rule):
                _note_priority(mild, rule, draft)
                break


def _note_priority(mild: GeminiRule, rule: GeminiRule, draft: PolicyDraft) -> None:
    text = f"{mild.decision} with priority {mild.priority} stands above {rule.location}, {rule.decision} with priority"
    draft.add_note(mild.location, f"{text} {rule.priority}; here the stricter one decides, whatever its priority")


def _can_rules_overlap(one: GeminiRule, other: GeminiRule) -> bool:
    return any(_can_names_overlap(a, b) for a in _qualified_names(one) for b in _qualified_names(other)) and any(
        a[: len(b)] == b or b[: len(a)] == a for a in _command_prefixes(one) for b in _command_prefixes(other)
    )


def _qualified_names(rule: GeminiRule) -> list[str]:
    server = rule.fields.get("mcpName")
    return rule.tool_names if server is None else [f"mcp_{server}_{name}" for name in rule.tool_names]


def _can_names_overlap(one: str, other: str) -> bool:
    """As far as the literal beginnings say."""
    first, second = one.partition("*"), other.partition("*")
    if not first[1] and not second[1]:
        return one == other
    return (first[0].startswith(second[0]) and bool(second[1])) or (second[0].startswith(first[0]) and bool(first[1]))


def _command_prefixes(rule: GeminiRule) -> list[list[str]]:
    return [prefix.split() for prefix in as_list(rule.fields.get("commandPrefix", ""))]


# Writing


def _translate_rule(rule: GeminiRule, draft: PolicyDraft) -> None:
    conditions = _run_conditions(rule, draft)
    if conditions is None:
        return
    content = _translate_arguments(rule, draft)
    if content is None:
        return
    message = rule.fields.get("denyMessage") or rule.fields.get("deny_message") or ""
    words = {"reason": message, "message": message} if rule.decision == "deny" else {}
    entry = f"{rule.location}, {', '.join(map(quote_entry, rule.tool_names[:5]))}"
    for tools in _translate_tools(rule, draft):
        place = f"{rule.decision}-{rule.number}" if rule.kind == "rule" else f"check-{rule.number}"
        draft.add_rule(rule.decision, place, entry, {**tools, **content, **conditions}, **words)


def _run_conditions(rule: GeminiRule, draft: PolicyDraft) -> Conditions | None:
    """When the rule applies; None for an allow that would apply more often than it should."""
    fields = rule.fields
    conditions: dict[str, Any] = {}
    if modes := fields.get("modes"):
        conditions["mode"] = [MODES[mode] for mode in dict.fromkeys(modes)]
    if "interactive" in fields:
        conditions["interactive"] = fields["interactive"]
    unsupported = sorted({"toolAnnotations", *(fields.keys() - FIELDS.keys())} & fields.keys())
    if "subagent" in fields and not is_plain_name(fields["subagent"]):
        unsupported.append("subagent")
    elif "subagent" in fields:
        conditions["agent"] = fields["subagent"]
    if fields.get("allowRedirection") or fields.get("allow_redirection"):
        draft.add_note(rule.location, "files that a command is redirected to are judged on their own here")
    if unsupported and not rule.is_wide:
        draft.add_note(rule.location, f"left out: {', '.join(map(quote_entry, unsupported))} cannot be said here")
        return None
    if unsupported:
        draft.add_note(
            rule.location, f"{', '.join(map(quote_entry, unsupported))} cannot be said here; the rule holds without it"
        )
    return conditions


def _translate_arguments(rule: GeminiRule, draft: PolicyDraft) -> Conditions | None:
    """What the rule says about arguments; None where there is nothing to write."""
    fields = rule.fields
    pattern: str = fields.get("argsPattern", "")
    if pattern.startswith(_COMMAND_JSON) and rule.tool_names == [SHELL]:
        return _make_command_condition(rule, _commands_from_regex(rule, pattern.removeprefix(_COMMAND_JSON)), draft)
    if fields.get("commandRegex"):
        return _make_command_condition(rule, _commands_from_regex(rule, fields["commandRegex"]), draft)
    if fields.get("commandPrefix", "") != "":
        return _make_command_condition(rule, _commands_from_prefixes(rule, draft), draft)
    if not pattern and not {"commandPrefix", "commandRegex"} & fields.keys():
        return {}
    if rule.is_wide:
        draft.add_note(
            rule.location, "its pattern of arguments cannot be said here; the rule is about every call of the tool"
        )
        return {}
    draft.add_note(rule.location, "left out: its pattern of arguments cannot be said here")
    return None


def _make_command_condition(rule: GeminiRule, commands: list[str | None], draft: PolicyDraft) -> Conditions | None:
    if not commands:
        draft.add_note(rule.location, "left out: an empty list of prefixes is about no command")
    known = [command for command in commands if command is not None]
    lost = len(known) < len(commands)
    if rule.is_wide and lost:
        draft.add_note(
            rule.location, "not every command can be told by its first words; the rule is about every command"
        )
        return {}
    if lost:
        draft.add_note(rule.location, "left out: what is allowed must be told by whole words, without patterns")
    elif rule.is_wide and "commandPrefix" not in rule.fields:
        draft.add_note(
            rule.location,
            f"a pattern is told by its first words; the rule is about {quote_entry(unwrap_single(known))}",
        )
    return {"command": unwrap_single(known)} if known else None


def _commands_from_prefixes(rule: GeminiRule, draft: PolicyDraft) -> list[str | None]:
    commands: list[str | None] = []
    for prefix in as_list(rule.fields["commandPrefix"]):
        read = split_plain_words(prefix)
        if rule.is_wide:
            commands.append(command := widen_prefix(read.words))
            if command and not read.complete:
                draft.add_note(
                    rule.location, f"of {quote_entry(prefix)} only the first words can be said: {quote_entry(command)}"
                )
        else:
            is_whole = read.complete and prefix == prefix.strip()
            commands.append(narrow_prefix(read.words) if is_whole else None)
    return commands


def _commands_from_regex(rule: GeminiRule, pattern: str) -> list[str | None]:
    """Begins at the command's first character, and ends anywhere."""
    if len(pattern) > _MAX_PATTERN_CHARS:
        return [None]
    spaced = re.sub(r"\\s\+?(?![*?{+])", " ", pattern)
    if rule.is_wide:
        if _has_top_level_alternatives(spaced):
            return [None]
        literal = re.match(r"[\w ,/:=@%-]*", spaced, re.ASCII)
        run = literal[0] if literal else ""
        if spaced[len(run) :][:1] in ("*", "?", "{", "+"):
            run = run[:-1]
        return [widen_prefix(run.rpartition(" ")[0].split())]
    match = re.fullmatch(r"([\w ,/:=@%-]*)(?:\((?:\?:)?([\w ,/:=@%|-]+)\))?([\w ,/:=@%-]*)(?:\.\*)?", spaced, re.ASCII)
    if match is None:
        return [None]
    texts = [f"{match[1]}{middle}{match[3]}" for middle in (match[2] or "").split("|")]
    # Words at the end of a pattern may continue, which is more than is allowed then; a space there could not be said.
    return [narrow_prefix(text.split()) if text == text.strip() else None for text in texts]


def _has_top_level_alternatives(pattern: str) -> bool:
    """Return True if a `|` belongs to no group. Conservative: classes and escapes only make True more likely."""
    depth = 0
    for char in re.sub(r"\\.|\[[^\]]*\]", "", pattern, flags=re.DOTALL):
        depth += (char == "(") - (char == ")")
        if char == "|" and depth <= 0:
            return True
    return False


def _translate_tools(rule: GeminiRule, draft: PolicyDraft) -> list[Conditions]:
    server = rule.fields.get("mcpName")
    if server is not None:
        return _translate_server_tools(rule, server, rule.tool_names, draft)
    names: dict[str, None] = {}
    found: list[Conditions] = []
    for name in rule.tool_names:
        if name in _TOOLS:
            names.update(dict.fromkeys(_TOOLS[name][:1] if not rule.is_wide else _TOOLS[name]))
        elif name == "*":
            names["*"] = None
        elif name.startswith("mcp_") or "__" in name:
            found += _translate_full_name(rule, name, draft)
        elif rule.is_wide:
            names |= {ours: None for theirs, several in _TOOLS.items() if fnmatchcase(theirs, name) for ours in several}
            names[widen_name(name)] = None
            draft.add_note(
                rule.location, f"no tool of Interlock itself is called {quote_entry(name)}; it is about any that is"
            )
        else:
            draft.add_note(rule.location, f"{quote_entry(name)} left out: a tool of this name here may be another one")
    return [{"tools": unwrap_single(names)}, *found] if names else found


def _translate_server_tools(rule: GeminiRule, server: str, tools: list[str], draft: PolicyDraft) -> list[Conditions]:
    where: dict[str, Any] = {"origin": "mcp"}
    if server != "*":
        where["server"] = widen_name(server)
    if rule.is_wide:
        return [{"tools": unwrap_single(map(widen_name, tools)), **where}]
    plain = [name for name in tools if name == "*" or is_plain_name(name)]
    if (server != "*" and not is_plain_name(server)) or len(plain) < len(tools):
        draft.add_note(rule.location, "left out: a server or a tool with such a name cannot be allowed")
    return [{"tools": unwrap_single(plain), **where}] if plain and (server == "*" or is_plain_name(server)) else []


def _translate_full_name(rule: GeminiRule, name: str, draft: PolicyDraft) -> list[Conditions]:
    """`mcp_server_tool`, or in older files `server__tool`. Both names may have underscores in them."""
    rest, sign = (name.removeprefix("mcp_"), "_") if name.startswith("mcp_") else (name, "__")
    server = rest.removesuffix(f"{sign}*")
    if rest == "*":
        return [{"tools": "*", "origin": "mcp"}]
    if server != rest and "*" not in server:
        return _translate_server_tools(rule, server, ["*"], draft)
    cuts = [match.start() for match in re.finditer(f"(?={sign})", rest)] if len(rest) <= _MAX_NAME_CHARS else []
    pairs = [(rest[:cut], rest[cut + len(sign) :]) for cut in cuts if 0 < cut < len(rest) - len(sign)]
    if rule.is_wide:
        return _widen_full_name(rule, rest, pairs, draft)
    if pairs and "*" not in rest:
        return _translate_server_tools(rule, pairs[0][0], [pairs[0][1]], draft)
    draft.add_note(rule.location, f"{quote_entry(name)} left out: give mcpName and toolName")
    return []


def _widen_full_name(rule: GeminiRule, rest: str, pairs: list[tuple[str, str]], draft: PolicyDraft) -> list[Conditions]:
    if rest.startswith("*_") and "*" not in rest[1:]:
        tool = rest[2:].lstrip("_")
        return [{"tools": [widen_name(tool), widen_name(f"*_{tool}")], "origin": "mcp"}]
    if "*" in rest or not 0 < len(pairs) <= _MAX_SPLITS:
        draft.add_note(
            rule.location, f"{quote_entry(rest)} cannot be told by server and tool; it is about every MCP tool"
        )
        return [{"tools": "*", "origin": "mcp"}]
    return [each for server, tool in pairs for each in _translate_server_tools(rule, server, [tool], draft)]
