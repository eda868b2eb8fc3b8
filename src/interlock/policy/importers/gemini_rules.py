"""The rules of a Gemini CLI policy file, read and checked, before anything is translated."""

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import msgspec

from ...domain import json
from ...domain.errors import ConfigurationError
from .policy_draft import MAX_RULES, PolicyDraft, as_list, quote_entry

SOURCE = "Gemini CLI"
SHELL = "run_shell_command"
DECISIONS = {"allow": "allow", "ask_user": "ask", "deny": "deny"}
MODES = {"default": "default", "autoEdit": "accept_edits", "plan": "read_only", "yolo": "trusted"}
#: A key has its dots in one line, and each costs the parser as much as all before it.
_MAX_DOTS_IN_LINE = 64
_MAX_PRIORITY = 999


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_text_or_texts(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, list) and all(isinstance(text, str) for text in cast(list[Any], value))
    )


def _is_priority(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _MAX_PRIORITY


def _is_modes(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(mode, str) and mode in MODES for mode in cast(list[Any], value))


#: The keys of a rule: how each is checked, and its description.
FIELDS: Mapping[str, tuple[Callable[[Any], bool], str]] = {
    "toolName": (_is_text_or_texts, "a text or a list of texts"),
    "mcpName": (_is_text, "a text, and not an empty one"),
    "subagent": (_is_text, "a text, and not an empty one"),
    "argsPattern": (lambda value: isinstance(value, str), "a text"),
    "commandPrefix": (_is_text_or_texts, "a text or a list of texts"),
    "commandRegex": (lambda value: isinstance(value, str), "a text"),
    "decision": (lambda value: isinstance(value, str) and value in DECISIONS, f"one of {', '.join(DECISIONS)}"),
    "priority": (_is_priority, f"a whole number from 0 to {_MAX_PRIORITY}"),
    "modes": (_is_modes, f"a list of {', '.join(MODES)}"),
    "interactive": (lambda value: isinstance(value, bool), "true or false"),
    "toolAnnotations": (lambda value: isinstance(value, dict), "a table"),
    "allowRedirection": (lambda value: isinstance(value, bool), "true or false"),
    "allow_redirection": (lambda value: isinstance(value, bool), "true or false"),
    "denyMessage": (lambda value: isinstance(value, str), "a text"),
    "deny_message": (lambda value: isinstance(value, str), "a text"),
}


class GeminiRule(msgspec.Struct, frozen=True):
    """One rule of a Gemini CLI policy file."""

    number: int
    line: int
    kind: str
    fields: Mapping[str, Any]

    @property
    def decision(self) -> str:
        return DECISIONS[self.fields["decision"]]

    @property
    def is_wide(self) -> bool:
        return self.decision != "allow"

    @property
    def priority(self) -> int:
        return self.fields["priority"]

    @property
    def location(self) -> str:
        at = f"line {self.line}, " if self.line else ""
        return f"{at}{self.kind} {self.number}"

    @property
    def tool_names(self) -> list[str]:
        return as_list(self.fields.get("toolName", "*"))


def _parse_tables(text: str) -> dict[str, Any]:
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
    return tables


def read_rules(text: str, draft: PolicyDraft) -> list[GeminiRule]:
    tables = _parse_tables(text)
    rules = [_validate_rule(rule) for rule in _iterate_rules(tables, "rule", text)]
    for rule in _iterate_rules(tables, "safety_checker", text):
        fields = {name: value for name, value in rule.fields.items() if name != "checker"}
        rules.append(
            _validate_rule(msgspec.structs.replace(rule, fields={"priority": 0, **fields, "decision": "ask_user"}))
        )
        draft.add_note(rule.location, "the check cannot be run here; the calls that it looks at are asked")
    if others := sorted(tables.keys() - {"rule", "safety_checker"}):
        draft.add_note("file", f"not known, and left out: {', '.join(map(quote_entry, others[:20]))}")
    return rules


def _iterate_rules(tables: Mapping[str, Any], kind: str, text: str) -> Iterator[GeminiRule]:
    given = tables.get(kind, [])
    if not isinstance(given, list) or len(cast(list[Any], given)) > MAX_RULES:
        raise ConfigurationError(f"{SOURCE}: {kind} is a list of at most {MAX_RULES:,} tables, [[{kind}]]")
    entries = cast(list[Any], given)
    headers = [line for line, words in enumerate(text.split("\n"), 1) if re.match(rf"\s*\[\[\s*{kind}\s*\]\]", words)]
    lines = headers if len(headers) == len(entries) else [0] * len(entries)
    for number, (line, fields) in enumerate(zip(lines, entries, strict=True), start=1):
        if not isinstance(fields, dict):
            raise ConfigurationError(f"{SOURCE}, {kind} {number}: a table, not {quote_entry(fields)}")
        yield GeminiRule(number, line, kind, cast(dict[str, Any], fields))


def _validate_rule(rule: GeminiRule) -> GeminiRule:
    fields = rule.fields
    for name, (is_right, words) in FIELDS.items():
        if name in fields and not is_right(fields[name]):
            raise _make_error(rule, f"{name} is {words}, not {quote_entry(fields[name])}")
    if missing := [name for name in ("decision", "priority") if name not in fields]:
        raise _make_error(rule, f"{' and '.join(missing)} must be there")
    if not fields.get("toolName") and "mcpName" not in fields:
        raise _make_error(rule, "toolName must be there; * is every tool")
    if "" in rule.tool_names or not rule.tool_names:
        raise _make_error(rule, "toolName is empty")
    shorthands = [name for name in ("argsPattern", "commandPrefix", "commandRegex") if name in fields]
    if len(shorthands) > 1:
        raise _make_error(rule, f"{' and '.join(shorthands)} exclude each other")
    if shorthands not in ([], ["argsPattern"]) and fields.get("toolName") != SHELL:
        raise _make_error(rule, f"{shorthands[0]} is only for toolName = {SHELL!r}")
    return rule


def _make_error(rule: GeminiRule, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{SOURCE}, {rule.location}: {reason}")
