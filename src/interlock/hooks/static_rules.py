"""Denials of the policy in the agents' own languages, for agents that run a tool when their hook fails.

A hook that cannot be started is no hook. What the policy denies in every case, by the first words of a command or by
the name of a tool, is therefore also written as rules that the agent itself enforces. They never deny more than the
policy does: what cannot be said exactly is left to the hook, and named.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

from ..policy.engine.rule import CONDITION_FIELDS, CommandPattern, Rule
from .foreign_tools import TOOLS

_HEADER = "Written by `interlock hooks install`. Denials of the policy that hold even when the hook cannot run."
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=@%+,-]+")
_PLAIN_NAME = re.compile(r"[A-Za-z0-9_.-]+")
_MAX_RULES = 500
_PRIORITY = 990
_GEMINI_FILE_TOOLS = ("read_file", "write_file", "replace")


class StaticRules(NamedTuple):
    """Rules for an agent, and the ids of the policy's rules that only the hook enforces."""

    text: str
    size: int
    left_to_hook: tuple[str, ...]


class _Denial(NamedTuple):
    rule_id: str
    reason: str
    #: The first words of a command; empty for a whole tool or a file.
    words: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    #: The name of a file, wherever it is.
    file: str = ""


def codex_rules(rules: Iterable[Rule]) -> StaticRules:
    """Return a `.rules` file for Codex: commands that the policy denies are forbidden."""
    denials, left = _find_denials(rules)
    said = [denial for denial in denials if denial.words]
    lines = [f"# {_HEADER}"]
    for denial in said:
        pattern = json.dumps(list(denial.words), ensure_ascii=False)
        reason = json.dumps(denial.reason, ensure_ascii=False)
        lines.append(f'prefix_rule(pattern = {pattern}, decision = "forbidden", justification = {reason})')
    others = tuple(denial.rule_id for denial in denials if not denial.words)
    return StaticRules("\n".join(lines) + "\n", len(said), tuple(dict.fromkeys((*left, *others))))


def gemini_policy(rules: Iterable[Rule], hook_files: Sequence[str] = ()) -> StaticRules:
    """Return a policy file for Gemini CLI: it denies commands, tools and files, and changes of the hooks' own files."""
    denials, left = _find_denials(rules)
    tables: list[str] = []
    others: list[str] = []
    for denial in denials:
        if denial.words:
            tables.append(_gemini_rule("run_shell_command", denial.reason, commandPrefix=" ".join(denial.words)))
        elif denial.file:
            pattern = _file_pattern(denial.file)
            tables += [_gemini_rule(tool, denial.reason, argsPattern=pattern) for tool in _GEMINI_FILE_TOOLS]
        elif names := [name for name, tool in TOOLS["gemini-cli"].items() if tool.name in denial.tools]:
            tables += [_gemini_rule(name, denial.reason) for name in names]
        else:
            others.append(denial.rule_id)
    for path in hook_files:
        reason = "An agent must not change the hooks that govern it."
        tables += [_gemini_rule(tool, reason, argsPattern=_file_pattern(path)) for tool in ("write_file", "replace")]
    text = f"# {_HEADER}\n" + "".join(tables)
    return StaticRules(text, len(tables), tuple(dict.fromkeys((*left, *others))))


def _gemini_rule(tool: str, reason: str, **conditions: str) -> str:
    fields = {"toolName": tool, **conditions, "decision": "deny", "denyMessage": reason}
    lines = [f"{name} = {json.dumps(value, ensure_ascii=True)}" for name, value in fields.items()]
    return "\n".join(["", "[[rule]]", *lines, f"priority = {_PRIORITY}", ""])


def _file_pattern(name: str) -> str:
    """Return a pattern for the arguments as JSON text: this file, in whatever folder.

    Gemini CLI drops rules whose pattern has a quantifier in a group with a quantifier.
    """
    return rf'"file_path":"(?:|[^"]*/){re.escape(name)}"'


def _find_denials(rules: Iterable[Rule]) -> tuple[list[_Denial], tuple[str, ...]]:
    """Return what can be said in the agents' languages, and the ids of the rules that cannot."""
    denials: list[_Denial] = []
    left: list[str] = []
    for rule in rules:
        if rule.verdict != "deny":
            continue
        found = list(_split_rule(rule))
        if not found or len(denials) + len(found) > _MAX_RULES:
            left.append(rule.id)
        else:
            denials += found
    return denials, tuple(left)


def _split_rule(rule: Rule) -> Iterator[_Denial]:
    reason = (rule.reason or f"Denied by the policy rule {rule.id}.").replace("\n", " ")[:300]
    tools = (rule.tools,) if isinstance(rule.tools, str) else tuple(rule.tools)
    named = {name for name in CONDITION_FIELDS if getattr(rule, name)}
    if rule.expires_at or rule.when is not None:
        return
    if named == {"command"} and any(fnmatchcase("bash", tool) for tool in tools):
        given = rule.command if not isinstance(rule.command, str) else [rule.command]
        patterns = [
            each if isinstance(each, CommandPattern) else CommandPattern(tuple(each.split())) for each in given or ()
        ]
        if all(not each.exact and all(map(_PLAIN_WORD.fullmatch, each.words)) for each in patterns):
            for each in patterns:
                yield _Denial(rule.id, reason, words=each.words)
    elif named == {"path"} and "*" in tools:
        paths = [rule.path] if isinstance(rule.path, str) else list(rule.path or ())
        if all(map(_PLAIN_NAME.fullmatch, paths)):
            for path in paths:
                yield _Denial(rule.id, reason, file=path)
    elif not named and all(map(_PLAIN_NAME.fullmatch, tools)):
        yield _Denial(rule.id, reason, tools=tools)
