"""Gemini CLI: TOML policies with `[[rule]]` tables.

There the rule with the highest priority decides. Here the strictest does, so priorities are dropped: a rule that stood
above a stricter one gives way to it, and a note says so. One case is kept: the rule for all tools at the very bottom
becomes the policy's default.

Patterns there are regular expressions over the JSON of the arguments, of Gemini CLI's own tools. Only patterns of
commands are understood here, as far as they begin with plain words.
"""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, cast

from ...domain import json
from ...domain.errors import ConfigurationError
from .policy_draft import (
    MAX_RULES,
    STRICTNESS,
    Conditions,
    DraftEntry,
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

SOURCE = "Gemini CLI"
_SHELL = "run_shell_command"
_DECISIONS = {"allow": "allow", "ask_user": "ask", "deny": "deny"}
_MODES = {"default": "default", "autoEdit": "accept_edits", "plan": "read_only", "yolo": "trusted"}
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
#: A key has its dots in one line, and each costs the parser as much as all before it.
_MAX_DOTS_IN_LINE = 64
_MAX_PRIORITY = 999
_MAX_COMPARISONS = 300_000
_MAX_SPLITS = 16
_MAX_NAME_CHARS = 256
#: Gemini CLI does not take longer ones either.
_MAX_PATTERN_CHARS = 2_048


# Reading


def _are_all(value: Any, known: Callable[[Any], bool]) -> bool:
    return isinstance(value, list) and all(map(known, cast(list[Any], value)))


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


#: Kinds of values: how each is checked, and its description.
_Check = tuple[Callable[[Any], bool], str]
_TEXT: _Check = (_is_text, "a text")
_SOME_TEXT: _Check = (lambda value: isinstance(value, str) and bool(value), "a text, and not an empty one")
_TEXTS: _Check = (lambda value: _is_text(value) or _are_all(value, _is_text), "a text or a list of texts")
_BOOLEAN: _Check = (lambda value: isinstance(value, bool), "true or false")
_FIELDS: Mapping[str, _Check] = {
    "toolName": _TEXTS,
    "mcpName": _SOME_TEXT,
    "subagent": _SOME_TEXT,
    "argsPattern": _TEXT,
    "commandPrefix": _TEXTS,
    "commandRegex": _TEXT,
    "decision": (lambda value: _is_text(value) and value in _DECISIONS, f"one of {', '.join(_DECISIONS)}"),
    "priority": (
        lambda value: type(value) is int and 0 <= value <= _MAX_PRIORITY,
        f"a whole number from 0 to {_MAX_PRIORITY}",
    ),
    "modes": (
        lambda value: _are_all(value, lambda mode: _is_text(mode) and mode in _MODES),
        f"a list of {', '.join(_MODES)}",
    ),
    "interactive": _BOOLEAN,
    "toolAnnotations": (lambda value: isinstance(value, dict), "a table"),
    "allowRedirection": _BOOLEAN,
    "allow_redirection": _BOOLEAN,
    "denyMessage": _TEXT,
    "deny_message": _TEXT,
}


class _Rule(DraftEntry, frozen=True, kw_only=True):
    kind: str
    fields: Mapping[str, Any]

    @property
    def priority(self) -> int:
        return self.fields["priority"]

    @property
    def tool_names(self) -> list[str]:
        return as_list(self.fields.get("toolName", "*"))


def import_gemini(text: str) -> ImportResult:
    """Convert the text of a policy file to a policy."""
    draft = PolicyDraft(SOURCE, "gemini")
    rules = _read_rules(validate_text(text, SOURCE), draft)
    fallback = _find_fallback_rule(rules)
    for rule in rules:
        if rule is not fallback:
            _translate_rule(rule)
    _compare_priorities([rule for rule in rules if rule is not fallback and rule.kind == "rule"], draft)
    return draft.build("risk" if fallback is None else _translate_fallback(fallback))


def _read_rules(text: str, draft: PolicyDraft) -> list[_Rule]:
    for number, line in enumerate(text.split("\n"), start=1):
        if line.count(".") > _MAX_DOTS_IN_LINE:
            raise ConfigurationError(f"{SOURCE}, line {number}: more than {_MAX_DOTS_IN_LINE} dots in a line")
    try:
        tables = tomllib.loads(text)
        json.check_value(tables)
    except RecursionError:
        raise ConfigurationError(f"{SOURCE}: the file is nested too deeply") from None
    except ValueError as error:  # TOMLDecodeError and InvalidJsonError are.
        raise ConfigurationError(f"{SOURCE}: the file is no TOML that can be read: {error}") from None
    rules: list[_Rule] = []
    for kind in ("rule", "safety_checker"):
        for number, location, fields in _iterate_tables(tables.get(kind, []), kind, text):
            if kind == "safety_checker":
                kept = {name: value for name, value in fields.items() if name != "checker"}
                fields = {"priority": 0, **kept, "decision": "ask_user"}  # noqa: PLW2901 - what it comes to
            rules.append(_make_rule(draft, kind, number, location, fields))
            if kind == "safety_checker":
                draft.add_note(location, "the check cannot be run here; the calls that it looks at are asked")
    if others := sorted(tables.keys() - {"rule", "safety_checker"}):
        draft.add_note("file", f"not known, and left out: {', '.join(map(quote_entry, others[:20]))}")
    return rules


def _iterate_tables(given: Any, kind: str, text: str) -> Iterator[tuple[int, str, dict[str, Any]]]:
    """Yield the number of each table, where it is, and what it has."""
    if not isinstance(given, list) or len(cast(list[Any], given)) > MAX_RULES:
        raise ConfigurationError(f"{SOURCE}: {kind} is a list of at most {MAX_RULES:,} tables, [[{kind}]]")
    entries = cast(list[Any], given)
    headers = [line for line, words in enumerate(text.split("\n"), 1) if re.match(rf"\s*\[\[\s*{kind}\s*\]\]", words)]
    lines = headers if len(headers) == len(entries) else [0] * len(entries)
    for number, (line, fields) in enumerate(zip(lines, entries, strict=True), start=1):
        if not isinstance(fields, dict):
            raise ConfigurationError(f"{SOURCE}, {kind} {number}: a table, not {quote_entry(fields)}")
        yield number, f"{f'line {line}, ' if line else ''}{kind} {number}", cast(dict[str, Any], fields)


def _make_rule(draft: PolicyDraft, kind: str, number: int, location: str, fields: dict[str, Any]) -> _Rule:
    for name, (is_right, words) in _FIELDS.items():
        if name in fields and not is_right(fields[name]):
            raise _make_error(location, f"{name} is {words}, not {quote_entry(fields[name])}")
    if missing := [name for name in ("decision", "priority") if name not in fields]:
        raise _make_error(location, f"{' and '.join(missing)} must be there")
    tools = as_list(fields.get("toolName", "*"))
    if not fields.get("toolName") and "mcpName" not in fields:
        raise _make_error(location, "toolName must be there; * is every tool")
    if "" in tools or not tools:
        raise _make_error(location, "toolName is empty")
    shorthands = [name for name in ("argsPattern", "commandPrefix", "commandRegex") if name in fields]
    if len(shorthands) > 1:
        raise _make_error(location, f"{' and '.join(shorthands)} exclude each other")
    if shorthands not in ([], ["argsPattern"]) and fields.get("toolName") != _SHELL:
        raise _make_error(location, f"{shorthands[0]} is only for toolName = {_SHELL!r}")
    decision = _DECISIONS[fields["decision"]]
    return _Rule(
        draft=draft,
        decision=decision,
        location=location,
        place=f"{decision if kind == 'rule' else 'check'}-{number}",
        quoted=f"{location}, {', '.join(map(quote_entry, tools[:5]))}",
        kind=kind,
        fields=fields,
    )


def _make_error(location: str, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{SOURCE}, {location}: {reason}")


# Priorities


def _find_fallback_rule(rules: list[_Rule]) -> _Rule | None:
    """Return the rule for every call that stands below all others."""
    plain = {"toolName", "decision", "priority", "denyMessage", "deny_message"}
    ordered = sorted((rule for rule in rules if rule.kind == "rule"), key=lambda rule: rule.priority)
    if not ordered or (len(ordered) > 1 and ordered[0].priority == ordered[1].priority):
        return None
    return ordered[0] if "*" in ordered[0].tool_names and ordered[0].fields.keys() <= plain else None


def _translate_fallback(rule: _Rule) -> str:
    if rule.decision == "allow":
        rule.note("left out: no default allows everything; what no rule speaks about goes by its risk")
        return "risk"
    rule.note("it stands below all other rules and is about every tool, so it is the policy's default")
    if rule.decision == "ask":
        conditions = {"tools": "*", "mode": ["accept_edits", "trusted"]}
        rule.draft.add_rule("ask", rule.place, rule.location, conditions)
        rule.note("modes that would not ask are asked for everything")
    return rule.decision


def _compare_priorities(rules: list[_Rule], draft: PolicyDraft) -> None:
    """Note each rule that stood above a stricter one which may be about the same calls."""
    left = _MAX_COMPARISONS
    for mild in rules:
        rank = STRICTNESS.index(mild.decision)
        left -= len(rules) // 10
        for rule in rules:
            if STRICTNESS.index(rule.decision) <= rank or rule.priority > mild.priority:
                continue
            left -= len(rule.tool_names) * len(mild.tool_names)
            left -= len(_command_prefixes(rule)) * len(_command_prefixes(mild))
            if left < 0:
                note = "priorities are dropped: the stricter rule decides; not all of them were compared"
                return draft.add_note("file", note)
            if _can_rules_overlap(mild, rule):
                stood = f"{mild.decision} with priority {mild.priority} stands above {rule.location}, {rule.decision}"
                decides = "here the stricter one decides, whatever its priority"
                mild.note(f"{stood} with priority {rule.priority}; {decides}")
                break
    return None


def _can_rules_overlap(one: _Rule, other: _Rule) -> bool:
    return any(_can_names_overlap(a, b) for a in _qualified_names(one) for b in _qualified_names(other)) and any(
        a[: len(b)] == b or b[: len(a)] == a for a in _command_prefixes(one) for b in _command_prefixes(other)
    )


def _qualified_names(rule: _Rule) -> list[str]:
    server = rule.fields.get("mcpName")
    return rule.tool_names if server is None else [f"mcp_{server}_{name}" for name in rule.tool_names]


def _can_names_overlap(one: str, other: str) -> bool:
    """Return whether both may match a name, as far as the literal beginnings say."""
    first, second = one.partition("*"), other.partition("*")
    if not first[1] and not second[1]:
        return one == other
    return (first[0].startswith(second[0]) and bool(second[1])) or (second[0].startswith(first[0]) and bool(first[1]))


def _command_prefixes(rule: _Rule) -> list[list[str]]:
    return [prefix.split() for prefix in as_list(rule.fields.get("commandPrefix", ""))]


# Writing


def _translate_rule(rule: _Rule) -> None:
    conditions = _run_conditions(rule)
    content = None if conditions is None else _translate_arguments(rule)
    if conditions is None or content is None:
        return
    message = rule.fields.get("denyMessage") or rule.fields.get("deny_message") or ""
    words = {"reason": message, "message": message} if rule.decision == "deny" else {}
    for tools in _translate_tools(rule):
        rule.add_rule({**tools, **content, **conditions}, **words)


def _run_conditions(rule: _Rule) -> Conditions | None:
    """Return when the rule applies; None for an allow that would apply more often than it should."""
    fields = rule.fields
    conditions: dict[str, Any] = {}
    if modes := fields.get("modes"):
        conditions["mode"] = [_MODES[mode] for mode in dict.fromkeys(modes)]
    if "interactive" in fields:
        conditions["interactive"] = fields["interactive"]
    unsupported = sorted({"toolAnnotations", *(fields.keys() - _FIELDS.keys())} & fields.keys())
    if "subagent" in fields and not is_plain_name(fields["subagent"]):
        unsupported.append("subagent")
    elif "subagent" in fields:
        conditions["agent"] = fields["subagent"]
    if fields.get("allowRedirection") or fields.get("allow_redirection"):
        rule.note("files that a command is redirected to are judged on their own here")
    names = ", ".join(map(quote_entry, unsupported))
    if unsupported and not rule.is_wide:
        rule.note(f"left out: {names} cannot be said here")
        return None
    if unsupported:
        rule.note(f"{names} cannot be said here; the rule holds without it")
    return conditions


def _translate_arguments(rule: _Rule) -> Conditions | None:
    """Return what the rule says about arguments; None where there is nothing to write."""
    fields = rule.fields
    pattern: str = fields.get("argsPattern", "")
    if pattern.startswith(_COMMAND_JSON) and rule.tool_names == [_SHELL]:
        return _make_command_condition(rule, _commands_from_regex(rule, pattern.removeprefix(_COMMAND_JSON)))
    if fields.get("commandRegex"):
        return _make_command_condition(rule, _commands_from_regex(rule, fields["commandRegex"]))
    if fields.get("commandPrefix", "") != "":
        return _make_command_condition(rule, _commands_from_prefixes(rule))
    if not pattern and not {"commandPrefix", "commandRegex"} & fields.keys():
        return {}
    if rule.is_wide:
        rule.note("its pattern of arguments cannot be said here; the rule is about every call of the tool")
        return {}
    return rule.note("left out: its pattern of arguments cannot be said here")


def _make_command_condition(rule: _Rule, commands: list[str | None]) -> Conditions | None:
    known = [command for command in commands if command is not None]
    lost = len(known) < len(commands)
    if not commands:
        rule.note("left out: an empty list of prefixes is about no command")
    if rule.is_wide and lost:
        rule.note("not every command can be matched by its first words; the rule matches every command")
        return {}
    if lost:
        rule.note("left out: an allow rule must match whole words, without patterns")
    elif rule.is_wide and "commandPrefix" not in rule.fields:
        about = quote_entry(unwrap_single(known))
        rule.note(f"a pattern is matched by its first words; the rule matches {about}")
    return {"command": unwrap_single(known)} if known else None


def _commands_from_prefixes(rule: _Rule) -> list[str | None]:
    commands: list[str | None] = []
    for prefix in as_list(rule.fields["commandPrefix"]):
        read = split_plain_words(prefix)
        if rule.is_wide:
            commands.append(command := widen_prefix(read.words))
            if command and not read.complete:
                rule.note(f"of {quote_entry(prefix)} only the first words can be said: {quote_entry(command)}")
        else:
            is_whole = read.complete and prefix == prefix.strip()
            commands.append(narrow_prefix(read.words) if is_whole else None)
    return commands


def _commands_from_regex(rule: _Rule, pattern: str) -> list[str | None]:
    """Convert a regex that starts at the first character of a command, and ends anywhere."""
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


def _translate_tools(rule: _Rule) -> list[Conditions]:
    server = rule.fields.get("mcpName")
    if server is not None:
        return _translate_server_tools(rule, server, rule.tool_names)
    names: dict[str, None] = {}
    found: list[Conditions] = []
    for name in rule.tool_names:
        if name in _TOOLS:
            names.update(dict.fromkeys(_TOOLS[name][:1] if not rule.is_wide else _TOOLS[name]))
        elif name == "*":
            names["*"] = None
        elif name.startswith("mcp_") or "__" in name:
            found += _translate_full_name(rule, name)
        elif rule.is_wide:
            names |= {ours: None for theirs, several in _TOOLS.items() if fnmatchcase(theirs, name) for ours in several}
            names[widen_name(name)] = None
            rule.note(f"no tool of Interlock itself is called {quote_entry(name)}; it is about any that is")
        else:
            rule.note(f"{quote_entry(name)} left out: a tool of this name here may be another one")
    return [{"tools": unwrap_single(names)}, *found] if names else found


def _translate_server_tools(rule: _Rule, server: str, tools: list[str]) -> list[Conditions]:
    where: dict[str, Any] = {"origin": "mcp"}
    if server != "*":
        where["server"] = widen_name(server)
    if rule.is_wide:
        return [{"tools": unwrap_single(map(widen_name, tools)), **where}]
    plain = [name for name in tools if name == "*" or is_plain_name(name)]
    is_server = server == "*" or is_plain_name(server)
    if not is_server or len(plain) < len(tools):
        rule.note("left out: a server or a tool with such a name cannot be allowed")
    return [{"tools": unwrap_single(plain), **where}] if plain and is_server else []


def _translate_full_name(rule: _Rule, name: str) -> list[Conditions]:
    """Translate `mcp_server_tool`, or in older files `server__tool`. Both names may contain underscores."""
    rest, sign = (name.removeprefix("mcp_"), "_") if name.startswith("mcp_") else (name, "__")
    server = rest.removesuffix(f"{sign}*")
    if rest == "*":
        return [{"tools": "*", "origin": "mcp"}]
    if server != rest and "*" not in server:
        return _translate_server_tools(rule, server, ["*"])
    cuts = [match.start() for match in re.finditer(f"(?={sign})", rest)] if len(rest) <= _MAX_NAME_CHARS else []
    pairs = [(rest[:cut], rest[cut + len(sign) :]) for cut in cuts if 0 < cut < len(rest) - len(sign)]
    if not rule.is_wide:
        pairs = pairs[:1] if "*" not in rest else []
        if not pairs:
            rule.note(f"{quote_entry(name)} left out: give mcpName and toolName")
    elif rest.startswith("*_") and "*" not in rest[1:]:
        tool = rest[2:].lstrip("_")
        return [{"tools": [widen_name(tool), widen_name(f"*_{tool}")], "origin": "mcp"}]
    elif "*" in rest or not 0 < len(pairs) <= _MAX_SPLITS:
        rule.note(f"{quote_entry(rest)} cannot be split into server and tool; the rule matches every MCP tool")
        return [{"tools": "*", "origin": "mcp"}]
    return [each for server, tool in pairs for each in _translate_server_tools(rule, server, [tool])]
