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
from typing import Any, TypeAlias, cast

import msgspec

from ...domain.errors import ConfigurationError
from ..shell.bash import read_script
from ..shell.match import concerns, covers
from .imported import Conditions, Draft, Imported, checked_text, narrow_prefix, one_or_list, quoted, wide_prefix

SOURCE = "Codex"
_MAX_DEPTH = 8
_MAX_COMBINATIONS = 1_024
_MAX_COMMANDS = 20_000
_MAX_TEXT_CHARS = 2_000
_MAX_LIST = 200
_MAX_EXAMPLES = 10_000

Value: TypeAlias = "str | list[Value]"
Arguments: TypeAlias = dict[str, Value]

_DECISIONS = {"allow": "allow", "prompt": "ask", "forbidden": "deny"}
_PROTOCOLS = ("http", "https", "https_connect", "http-connect", "socks5_tcp", "socks5_udp")
#: What each function takes, in order.
_PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "prefix_rule": ("pattern", "decision", "match", "not_match", "justification", "reviewer"),
    "network_rule": ("host", "protocol", "decision", "justification"),
    "host_executable": ("name", "paths"),
}
_REQUIRED: Mapping[str, tuple[str, ...]] = {
    "prefix_rule": ("pattern",),
    "network_rule": ("host", "protocol", "decision"),
    "host_executable": ("name", "paths"),
}
_NAMES = frozenset({*_PARAMETERS, *(name for names in _PARAMETERS.values() for name in names)})
_SIGNS = frozenset("()[],=")
_ONLY = "a rules file has only prefix_rule(...), network_rule(...) and host_executable(...), with texts and lists"
_QUIET = frozenset(
    {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.ENCODING, tokenize.ENDMARKER, tokenize.DEDENT}
)


class _Call(msgspec.Struct, frozen=True):
    function: str
    line: int
    number: int
    arguments: Arguments

    @property
    def where(self) -> str:
        return f"line {self.line}, {self.function}"


def import_codex(text: str) -> Imported:
    """The text of a `.rules` file as a policy."""
    draft = Draft(SOURCE, "codex")
    translate = _Translation(draft)
    for call in _calls(checked_text(text, SOURCE)):
        translate.functions[call.function](call)
    return draft.finish()


# Reading


def _calls(text: str) -> list[_Call]:
    _check_tokens(text)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            body = ast.parse(text).body
    except SyntaxError as error:
        raise _refused(error.lineno or 1, f"{error.msg}; {_ONLY}") from None
    except (ValueError, RecursionError, MemoryError):
        raise _refused(1, _ONLY) from None
    return [_call(statement, number) for number, statement in enumerate(body, start=1)]


def _check_tokens(text: str) -> None:
    depth, line = 0, 1
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            line = token.start[0]
            depth += (token.string in ("(", "[")) - (token.string in (")", "]"))
            if depth > _MAX_DEPTH:
                raise _refused(line, f"nested deeper than {_MAX_DEPTH} levels")
            if token.type not in _QUIET and not _may_stand(token):
                raise _refused(line, f"{quoted(token.string)} cannot stand here; {_ONLY}")
    except (tokenize.TokenError, SyntaxError) as error:
        raise _refused(line, f"{error.args[0]}; {_ONLY}") from None


def _may_stand(token: tokenize.TokenInfo) -> bool:
    match token.type:
        case tokenize.NAME:
            return token.string in _NAMES
        case tokenize.OP:
            return token.string in _SIGNS
        case tokenize.STRING:
            return token.string[0] in "'\"" or token.string[:2] in ("r'", 'r"')
        case _:
            return False


def _call(statement: ast.stmt, number: int) -> _Call:
    line = statement.lineno
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name) or call.func.id not in _PARAMETERS:
        raise _refused(line, _ONLY)
    function = call.func.id
    if len(call.args) > len(_PARAMETERS[function]):
        raise _refused(line, f"{function} takes at most {len(_PARAMETERS[function])} arguments")
    given = [*zip(_PARAMETERS[function], call.args, strict=False), *((word.arg, word.value) for word in call.keywords)]
    arguments: Arguments = {}
    for name, value in given:
        if name is None or name not in _PARAMETERS[function] or name in arguments:
            raise _refused(value.lineno, f"{function} has no argument {name}, or has it already")
        arguments[name] = _value(value)
    if missing := [name for name in _REQUIRED[function] if name not in arguments]:
        raise _refused(line, f"{function} needs {', '.join(missing)}")
    return _Call(function, line, number, arguments)


def _value(node: ast.expr) -> Value:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if len(node.value) > _MAX_TEXT_CHARS:
            raise _refused(node.lineno, f"a text has at most {_MAX_TEXT_CHARS:,} characters")
        if re.search("[\ud800-\udfff]", node.value):
            raise _refused(node.lineno, "a text holds a lone surrogate")
        return node.value
    if isinstance(node, ast.List):
        if len(node.elts) > _MAX_LIST:
            raise _refused(node.lineno, f"a list has at most {_MAX_LIST:,} elements")
        return [_value(element) for element in node.elts]
    raise _refused(node.lineno, f"only texts and lists are read; {_ONLY}")


def _refused(line: int, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{SOURCE}, line {line}: {reason}")


def _text(call: _Call, name: str) -> str:
    value = call.arguments.get(name, "")
    if not isinstance(value, str) or (name in call.arguments and not value.strip()):
        raise _refused(call.line, f"{name} is a text, and not an empty one")
    return value


def _texts(call: _Call, name: str, value: Value) -> list[str]:
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise _refused(call.line, f"{name} is a list of texts, and not an empty one")
    return cast(list[str], value)


def _decision(call: _Call, words: Mapping[str, str]) -> str:
    word = _text(call, "decision") or "allow"
    if word not in words:
        raise _refused(call.line, f"decision is one of {', '.join(words)}, not {quoted(word)}")
    return words[word]


# Writing


class _Translation:
    def __init__(self, draft: Draft) -> None:
        self._draft = draft
        self._examples_left = _MAX_EXAMPLES
        self._commands_left = _MAX_COMMANDS
        self.functions: Mapping[str, Callable[[_Call], None]] = {
            "prefix_rule": self._prefix_rule,
            "network_rule": self._network_rule,
            "host_executable": self._host_executable,
        }

    def _prefix_rule(self, call: _Call) -> None:
        decision = _decision(call, _DECISIONS)
        examples = {name: _examples(call, name) for name in ("match", "not_match")}
        self._examples_left -= sum(map(len, examples.values()))
        if self._examples_left < 0:
            raise _refused(call.line, f"more than {_MAX_EXAMPLES:,} examples")
        if _text(call, "reviewer"):
            self._draft.note(call.where, "who reviews cannot be said in a rule; whoever answers does")
        patterns = self._patterns(call, decision)
        make = narrow_prefix if decision == "allow" else wide_prefix
        commands = [command for words in patterns if (command := make(words)) is not None]
        if decision == "allow" and len(commands) < len(patterns):
            self._draft.note(
                call.where, "left out: a word * would be any word here, and a command begins with a program"
            )
        if decision == "allow" and not commands:
            return
        conditions: dict[str, Any] = {"tools": "bash", "command": one_or_list(commands)}
        if len(commands) < len(patterns) and decision != "allow":
            conditions = {"tools": "bash"}
            self._draft.note(call.where, "no word is left to tell the command by; the rule is about every command")
        self._add(call, decision, conditions, **self._kept(call, decision, conditions, examples))

    def _patterns(self, call: _Call, decision: str) -> list[tuple[str, ...]]:
        pattern = call.arguments["pattern"]
        if not isinstance(pattern, list) or not pattern:
            raise _refused(call.line, "pattern is a list of texts or of lists of texts, and not an empty one")
        words = [[word] if isinstance(word, str) else _texts(call, "an alternative", word) for word in pattern]
        full = len(words)
        while len(words) > 1 and prod(map(len, words)) > _MAX_COMBINATIONS:
            words.pop()
        if len(words) < full and decision == "allow":
            self._draft.note(call.where, "left out: too many combinations of words")
            return []
        if len(words) < full:
            self._draft.note(call.where, "too many combinations of words; the rule is about the first words alone")
        self._commands_left -= prod(map(len, words))
        if self._commands_left < 0:
            raise _refused(call.line, f"more than {_MAX_COMMANDS:,} commands, with all alternatives")
        return list(product(*words))

    def _kept(
        self, call: _Call, decision: str, conditions: Conditions, examples: Mapping[str, list[list[str]]]
    ) -> dict[str, Any]:
        """The examples that hold here. Those that do not would keep the policy from loading."""
        kept: dict[str, Any] = {}
        for name, ours, should in (("match", "matches", True), ("not_match", "does_not_match", False)):
            held = [words for words in examples[name] if _speaks(decision, conditions, words) == should]
            kept[ours] = [{"tool": "bash", "command": shlex.join(words)} for words in held]
            if lost := len(examples[name]) - len(held):
                reason = "commands are found in other spellings, too, when they are refused or asked"
                allowed = "a program is allowed by the exact words of the rule alone"
                text = f"{lost} of the {name} examples left out: {allowed if decision == 'allow' else reason}"
                self._draft.note(call.where, text)
        return kept

    def _network_rule(self, call: _Call) -> None:
        decision = _decision(call, {**_DECISIONS, "deny": "deny"})
        protocol, host = _text(call, "protocol"), _host(call)
        if protocol not in _PROTOCOLS:
            raise _refused(call.line, f"protocol is one of {', '.join(_PROTOCOLS)}, not {quoted(protocol)}")
        if decision == "allow":
            self._draft.note(call.where, f"left out: here no tool is allowed for the sake of a host ({host})")
            return
        self._draft.note(call.where, f"the protocol cannot be said; the rule is about every use of {host}")
        self._add(call, decision, {"tools": "*", "host": host})

    def _host_executable(self, call: _Call) -> None:
        name = _text(call, "name")
        _texts(call, "paths", call.arguments["paths"])
        text = "left out: an allow means the bare name and no path, and what refuses or asks means every path to it"
        self._draft.note(call.where, f"{quoted(name)}, {text}")

    def _add(self, call: _Call, decision: str, conditions: Conditions, **examples: Any) -> None:
        reason = _text(call, "justification")
        message = {"message": reason} if decision == "deny" else {}
        self._draft.add(
            decision, f"{decision}-{call.number}", call.where, conditions, reason=reason, **message, **examples
        )


def _examples(call: _Call, name: str) -> list[list[str]]:
    given = call.arguments.get(name, [])
    if not isinstance(given, list):
        raise _refused(call.line, f"{name} is a list of commands")
    examples: list[list[str]] = []
    for example in given:
        try:
            words = shlex.split(example) if isinstance(example, str) else _texts(call, name, example)
        except ValueError as error:
            raise _refused(call.line, f"{name}, {quoted(example)}: {error}") from None
        if not words:
            raise _refused(call.line, f"{name} has an empty command")
        examples.append(words)
    return examples


def _speaks(decision: str, conditions: Conditions, words: Sequence[str]) -> bool:
    """Would the rule speak about this command, as rules read commands?"""
    if "command" not in conditions:
        return True
    given = conditions["command"]
    patterns = [tuple(shlex.split(command)) for command in ([given] if isinstance(given, str) else given)]
    found = covers if decision == "allow" else concerns
    return any(
        found(pattern, False, command) for command in read_script(shlex.join(words)).commands for pattern in patterns
    )


def _host(call: _Call) -> str:
    host = _text(call, "host").strip().lower().rstrip(".")
    if re.fullmatch(r"\[[0-9a-f:.]+\](:\d+)?", host):
        return host[1:].partition("]")[0]
    name = re.sub(r"(?<=[^:]):\d+$", "", host) if host.count(":") == 1 else host
    if not re.fullmatch(r"[a-z0-9_.:\-]+", name):
        raise _refused(call.line, f"host is one name or address, without wildcards, not {quoted(host)}")
    return name
