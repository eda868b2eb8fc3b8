"""What a rule speaks about, in one line, for lists of rules."""

import json
from collections.abc import Iterable
from typing import Any, cast

import msgspec

from ..engine.rule import CommandPattern, Rule


def about(rule: Rule) -> str:
    conditions: dict[str, Any] = {
        "tools": rule.tools,
        "risk": rule.risk,
        "origin": rule.origin,
        "server": rule.server,
        "path": rule.path,
        "access": rule.access,
        "command": _format_commands(rule),
        "host": rule.host,
        "arguments": msgspec.to_builtins(rule.arguments),
        "agent": rule.agent,
        "mode": rule.mode,
        "interactive": rule.interactive,
        "when": rule.when_source,
    }
    return ", ".join(
        f"{name} {_format_value(value)}" for name, value in conditions.items() if value not in (None, "", {})
    )


def _format_commands(rule: Rule) -> list[str] | None:
    if rule.command is None:
        return None
    given = [rule.command] if isinstance(rule.command, str) else rule.command
    return [_format_command(each) for each in given]


def _format_command(given: str | CommandPattern) -> str:
    return given if isinstance(given, str) else " ".join(given.words) + ("" if given.exact else " ...")


def _format_value(value: Any) -> str:
    if isinstance(value, str | bool):
        return str(value)
    if isinstance(value, list | tuple | set | frozenset):
        return " | ".join(map(str, cast(Iterable[object], value)))
    return json.dumps(value, ensure_ascii=False, default=str)
