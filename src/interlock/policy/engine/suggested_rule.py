"""The rule that a person is offered with a question: it allows calls of the same kind, in the same workspace.

A command is of a kind by its leading words, where a table says so: `pytest` whatever follows, `npm run lint`. An edit
is of a kind by the folder and the ending of its file. Everything else is allowed exactly as it was asked, or not at
all.
"""

import re
from collections.abc import Collection, Sequence
from hashlib import sha256
from posixpath import basename, dirname, splitext
from typing import Any

from ...domain import json
from ..interface import PolicyEvent
from ..shell.command import SimpleCommand
from ..shell.command_facts import RUNS_ANY_CODE, find_command_kind
from .call_parts import CallPart

_MAX_RULE_CHARS = 4_000
_EDIT_TOOLS = ("edit_file", "write_file")
_GLOB = re.compile(r"[*?\[\]!\\]")


def suggest_rule(event: PolicyEvent, parts: Sequence[CallPart]) -> str:
    """Return the rule as JSON, which is also YAML; empty when no rule can express it, or when it depends on a file's
    content.

    Args:
        parts: Those that a person is asked about.
    """
    if any(part.opaque or (RUNS_ANY_CODE in part.risk_descriptions and not _has_kind(part)) for part in parts):
        return ""
    commands = [part.command for part in parts if part.command is not None]
    rule: dict[str, Any] | None
    if commands:
        rule = _allow_commands(event, commands) if len(commands) == len(parts) else None
    elif (
        event.tool.name in _EDIT_TOOLS
        and event.tool.origin == "local"
        and (glob := find_file_kind(_list_places(parts)))
    ):
        rule = {"tools": list(_EDIT_TOOLS), "path": glob, **_workspace(event)}
    else:
        rule = {"tools": event.tool.name, **_match_arguments(event)}
    if rule is None:
        return ""
    rule = {"decision": "allow", **rule}
    text = json.encode({"id": f"kept-{sha256(json.encode_sorted(rule)).hexdigest()[:8]}", **rule}).decode()
    return text if len(text) <= _MAX_RULE_CHARS else ""


def find_file_kind(places: Collection[str | None]) -> str:
    """Return the glob of files like these, which are relative to the workspace; None is outside. Empty when they are
    hidden, outside, or of no kind.
    """
    kinds = {
        f"{dirname(place)}/*{ending}".removeprefix("/")
        for place in places
        if place is not None
        and (ending := splitext(basename(place))[1])
        and not _GLOB.search(place)
        and not any(name.startswith(".") for name in place.split("/"))
    }
    return kinds.pop() if len(kinds) == len(places) == 1 else ""


def _has_kind(part: CallPart) -> bool:
    return part.command is not None and bool(find_command_kind(part.command.argv))


def _list_places(parts: Sequence[CallPart]) -> set[str | None]:
    return {place.relative for part in parts for path in part.paths for place in path.targets}


def _allow_commands(event: PolicyEvent, commands: Sequence[SimpleCommand]) -> dict[str, Any] | None:
    if not all(map(_is_literal, commands)):
        return None
    patterns: list[dict[str, Any]] = []
    for command in commands:
        kind = find_command_kind(command.argv)
        pattern: dict[str, Any] = {"words": list(kind)} if kind else {"words": list(command.argv), "exact": True}
        patterns += [pattern] if pattern not in patterns else []
    is_exact = all("exact" in pattern for pattern in patterns)
    return {"tools": event.tool.name, "command": patterns, **({} if is_exact else _workspace(event))}


def _is_literal(command: SimpleCommand) -> bool:
    """Return True if its words say all of it: not in another folder, not through another program, no expansions."""
    return command.bases == ("",) and not (
        command.wrappers or command.assignments or command.globs or "*" in command.argv
    )


def _match_arguments(event: PolicyEvent) -> dict[str, Any]:
    arguments = event.arguments
    conditions: dict[str, Any] = (
        {"arguments": {name: {"is": value} for name, value in arguments.items()}} if arguments else {}
    )
    if event.tool.args_model.model_config.get("extra") == "allow":
        conditions["when"] = f"size(arguments) == {len(arguments)}"
    return conditions


def _workspace(event: PolicyEvent) -> dict[str, Any]:
    return {"workspace": event.situation.workspace} if event.situation.workspace else {}
