"""Codex: `.rules` files with `prefix_rule(...)`, `network_rule(...)` and `host_executable(...)`.

The files are Starlark, a language. Here they are data: calls of these three functions with texts and lists. The tokens
are looked at first, so that nothing else reaches the parser, and nothing is ever evaluated.

A pattern is the first words of a command there as here, forbidden beats prompt beats allow there as here. Here a rule
that refuses or asks also finds other spellings of a command, so that some of the `not_match` examples cannot hold.
"""

import ast
import io
import re
import shlex
import tokenize
import warnings
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple, TypeAlias, cast

import msgspec

from ...domain.errors import ConfigurationError
from ..shell.bash import parse_script
from ..shell.command_match import matches_narrowly, matches_widely
from .policy_draft import (
    Conditions,
    DraftEntry,
    ImportResult,
    PolicyDraft,
    as_list,
    narrow_prefix,
    quote_entry,
    unwrap_single,
    validate_text,
    widen_prefix,
)

SOURCE = "Codex"
_MAX_DEPTH = 8
_MAX_COMBINATIONS = 1_024
_MAX_COMMANDS = 20_000
_MAX_TEXT_CHARS = 2_000
_MAX_LIST = 200
_MAX_EXAMPLES = 10_000

RuleValue: TypeAlias = "str | list[RuleValue]"
RuleArguments: TypeAlias = dict[str, RuleValue]

_DECISIONS = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
_PROTOCOLS = ("http", "https", "https_connect", "http-connect", "socks5_tcp", "socks5_udp")


class _Function(NamedTuple):
    #: What it takes, in order, and what of that must be there.
    parameters: tuple[str, ...]
    required: tuple[str, ...]


_FUNCTIONS: Mapping[str, _Function] = {
    "prefix_rule": _Function(("pattern", "decision", "match", "not_match", "justification", "reviewer"), ("pattern",)),
    "network_rule": _Function(("host", "protocol", "decision", "justification"), ("host", "protocol", "decision")),
    "host_executable": _Function(("name", "paths"), ("name", "paths")),
}
_EXPECTED = "a rules file has only prefix_rule(...), network_rule(...) and host_executable(...), with texts and lists"
#: By the type of a token, what its text may be; None: anything.
_TOKENS: Mapping[int, re.Pattern[str] | None] = {
    tokenize.NAME: re.compile(
        "|".join({*_FUNCTIONS, *(name for each in _FUNCTIONS.values() for name in each.parameters)})
    ),
    tokenize.OP: re.compile(r"[()\[\],=]"),
    tokenize.STRING: re.compile(r"r?['\"].*", re.DOTALL),
    **dict.fromkeys((tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING)),
    **dict.fromkeys((tokenize.ENDMARKER, tokenize.DEDENT)),
}


class _RuleCall(msgspec.Struct, frozen=True):
    function: str
    line: int
    number: int
    arguments: RuleArguments

    @property
    def location(self) -> str:
        return f"line {self.line}, {self.function}"


def import_codex(text: str) -> ImportResult:
    """Convert the text of a `.rules` file to a policy."""
    translator = _Translator()
    for call in _parse_calls(validate_text(text, SOURCE)):
        translator.functions[call.function](call)
    return translator.draft.build()


# Reading


def _parse_calls(text: str) -> list[_RuleCall]:
    _check_tokens(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            body = ast.parse(text).body
    except SyntaxError as error:
        raise _make_error(error.lineno or 1, f"{error.msg}; {_EXPECTED}") from None
    except (ValueError, RecursionError, MemoryError):
        raise _make_error(1, _EXPECTED) from None
    return [_parse_call(statement, number) for number, statement in enumerate(body, start=1)]


def _check_tokens(text: str) -> None:
    depth, line = 0, 1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            line = token.start[0]
            depth += (token.string in ("(", "[")) - (token.string in (")", "]"))
            if depth > _MAX_DEPTH:
                raise _make_error(line, f"nested deeper than {_MAX_DEPTH} levels")
            allowed = _TOKENS.get(token.type)
            if token.type not in _TOKENS or (allowed and not allowed.fullmatch(token.string)):
                raise _make_error(line, f"{quote_entry(token.string)} cannot stand here; {_EXPECTED}")
    except (tokenize.TokenError, SyntaxError) as error:
        raise _make_error(line, f"{error.args[0]}; {_EXPECTED}") from None


def _parse_call(statement: ast.stmt, number: int) -> _RuleCall:
    line = statement.lineno
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _FUNCTIONS:
        raise _make_error(line, _EXPECTED)
    function = call.func.id
    parameters, required = _FUNCTIONS[function]
    if len(call.args) > len(parameters):
        raise _make_error(line, f"{function} takes at most {len(parameters)} arguments")
    arguments: RuleArguments = {}
    for name, value in (*zip(parameters, call.args, strict=False), *((word.arg, word.value) for word in call.keywords)):
        if name is None or name not in parameters or name in arguments:
            raise _make_error(value.lineno, f"{function} has no argument {name}, or has it already")
        arguments[name] = _parse_value(value)
    if missing := [name for name in required if name not in arguments]:
        raise _make_error(line, f"{function} needs {', '.join(missing)}")
    return _RuleCall(function, line, number, arguments)


def _parse_value(node: ast.expr) -> RuleValue:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if len(node.value) > _MAX_TEXT_CHARS:
            raise _make_error(node.lineno, f"a text has at most {_MAX_TEXT_CHARS:,} characters")
        if re.search("[\ud800-\udfff]", node.value):
            raise _make_error(node.lineno, "a text holds a lone surrogate")
        return node.value
    if isinstance(node, ast.List):
        if len(node.elts) > _MAX_LIST:
            raise _make_error(node.lineno, f"a list has at most {_MAX_LIST:,} elements")
        return [_parse_value(element) for element in node.elts]
    raise _make_error(node.lineno, f"only texts and lists are read; {_EXPECTED}")


def _make_error(line: int, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{SOURCE}, line {line}: {reason}")


def _text_argument(call: _RuleCall, name: str) -> str:
    value = call.arguments.get(name, "")
    if not isinstance(value, str) or (name in call.arguments and not value.strip()):
        raise _make_error(call.line, f"{name} is a text, and not an empty one")
    return value


def _text_list(call: _RuleCall, name: str, value: RuleValue) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise _make_error(call.line, f"{name} is a list of texts, and not an empty one")
    return cast(list[str], value)


# Writing


class _Translator:
    def __init__(self) -> None:
        self.draft = PolicyDraft(SOURCE, "codex")
        self._examples_left = _MAX_EXAMPLES
        self._commands_left = _MAX_COMMANDS
        self.functions: Mapping[str, Callable[[_RuleCall], None]] = {
            "prefix_rule": self._translate_prefix_rule,
            "network_rule": self._translate_network_rule,
            "host_executable": self._translate_host_executable,
        }

    def _make_entry(self, call: _RuleCall, decisions: Mapping[str, str] = _DECISIONS) -> DraftEntry:
        word = _text_argument(call, "decision") or "allow"
        if word not in decisions:
            raise _make_error(call.line, f"decision is one of {', '.join(decisions)}, not {quote_entry(word)}")
        where, place = call.location, f"{decisions[word]}-{call.number}"
        return DraftEntry(draft=self.draft, decision=decisions[word], location=where, place=place, quoted=where)

    def _translate_prefix_rule(self, call: _RuleCall) -> None:
        entry = self._make_entry(call)
        examples = {name: _parse_examples(call, name) for name in ("match", "not_match")}
        self._examples_left -= sum(map(len, examples.values()))
        if self._examples_left < 0:
            raise _make_error(call.line, f"more than {_MAX_EXAMPLES:,} examples")
        if _text_argument(call, "reviewer"):
            entry.note("a rule cannot name a reviewer; the person who answers reviews")
        patterns = self._expand_patterns(call, entry)
        make = widen_prefix if entry.is_wide else narrow_prefix
        commands = [command for words in patterns if (command := make(words)) is not None]
        conditions: dict[str, Any] = {"tools": "bash", "command": unwrap_single(commands)}
        if len(commands) < len(patterns) and entry.is_wide:
            conditions = {"tools": "bash"}
            entry.note("no word is left that identifies the command; the rule matches every command")
        elif len(commands) < len(patterns):
            entry.note("left out: a word * would be any word here, and a command begins with a program")
        if commands or entry.is_wide:
            _add_rule(entry, call, conditions, **_find_valid_examples(entry, conditions, examples))

    def _expand_patterns(self, call: _RuleCall, entry: DraftEntry) -> list[tuple[str, ...]]:
        pattern = call.arguments["pattern"]
        if not isinstance(pattern, list) or not pattern:
            raise _make_error(call.line, "pattern is a list of texts or of lists of texts, and not an empty one")
        words = [[word] if isinstance(word, str) else _text_list(call, "an alternative", word) for word in pattern]
        full = len(words)
        while len(words) > 1 and prod(map(len, words)) > _MAX_COMBINATIONS:
            words.pop()
        if len(words) < full and not entry.is_wide:
            entry.note("left out: too many combinations of words")
            return []
        if len(words) < full:
            entry.note("too many combinations of words; the rule is about the first words alone")
        self._commands_left -= prod(map(len, words))
        if self._commands_left < 0:
            raise _make_error(call.line, f"more than {_MAX_COMMANDS:,} commands, with all alternatives")
        return list(product(*words))

    def _translate_network_rule(self, call: _RuleCall) -> None:
        entry = self._make_entry(call, {**_DECISIONS, "deny": "deny"})
        protocol, host = _text_argument(call, "protocol"), _parse_host(call)
        if protocol not in _PROTOCOLS:
            raise _make_error(call.line, f"protocol is one of {', '.join(_PROTOCOLS)}, not {quote_entry(protocol)}")
        if entry.is_wide:
            entry.note(f"the protocol cannot be said; the rule is about every use of {host}")
            _add_rule(entry, call, {"tools": "*", "host": host})
        else:
            entry.note(f"left out: here no tool is allowed for the sake of a host ({host})")

    def _translate_host_executable(self, call: _RuleCall) -> None:
        name = _text_argument(call, "name")
        _text_list(call, "paths", call.arguments["paths"])
        text = "left out: an allow means the bare name and no path, and what refuses or asks means every path to it"
        self.draft.add_note(call.location, f"{quote_entry(name)}, {text}")


def _add_rule(entry: DraftEntry, call: _RuleCall, conditions: Conditions, **examples: Any) -> None:
    reason = _text_argument(call, "justification")
    message = {"message": reason} if entry.decision == "deny" else {}
    entry.add_rule(conditions, reason=reason, **message, **examples)


def _find_valid_examples(
    entry: DraftEntry, conditions: Conditions, examples: Mapping[str, list[list[str]]]
) -> dict[str, Any]:
    """Return the examples that hold here. Those that do not would keep the policy from loading."""
    kept: dict[str, Any] = {}
    for name, ours, should in (("match", "matches", True), ("not_match", "does_not_match", False)):
        held = [words for words in examples[name] if _is_rule_matched(entry, conditions, words) == should]
        kept[ours] = [{"tool": "bash", "command": shlex.join(words)} for words in held]
        if lost := len(examples[name]) - len(held):
            reason = "commands are found in other spellings, too, when they are refused or asked"
            allowed = "a program is allowed by the exact words of the rule alone"
            entry.note(f"{lost} of the {name} examples left out: {reason if entry.is_wide else allowed}")
    return kept


def _parse_examples(call: _RuleCall, name: str) -> list[list[str]]:
    given = call.arguments.get(name, [])
    if not isinstance(given, list):
        raise _make_error(call.line, f"{name} is a list of commands")
    examples: list[list[str]] = []
    for example in given:
        try:
            words = shlex.split(example) if isinstance(example, str) else _text_list(call, name, example)
        except ValueError as error:
            raise _make_error(call.line, f"{name}, {quote_entry(example)}: {error}") from None
        if not words:
            raise _make_error(call.line, f"{name} has an empty command")
        examples.append(words)
    return examples


def _is_rule_matched(entry: DraftEntry, conditions: Conditions, words: Sequence[str]) -> bool:
    """Return True if the rule would match this command."""
    if "command" not in conditions:
        return True
    patterns = [tuple(shlex.split(command)) for command in as_list(conditions["command"])]
    found = matches_widely if entry.is_wide else matches_narrowly
    return any(
        found(pattern, False, command) for command in parse_script(shlex.join(words)).commands for pattern in patterns
    )


def _parse_host(call: _RuleCall) -> str:
    host = _text_argument(call, "host").strip().lower().rstrip(".")
    if re.fullmatch(r"\[[0-9a-f:.]+\](:\d+)?", host):
        return host[1:].partition("]")[0]
    name = re.sub(r"(?<=[^:]):\d+$", "", host) if host.count(":") == 1 else host
    if not re.fullmatch(r"[a-z0-9_.:\-]+", name):
        raise _make_error(call.line, f"host is one name or address, without wildcards, not {quote_entry(host)}")
    return name
