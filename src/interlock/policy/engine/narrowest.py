"""The narrowest rule that would let a call through next time: one line for a policy file, exactly this call."""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any

from ...domain import json
from ..interface import PolicyEvent
from ..shell.command import SimpleCommand
from ..shell.risks import RUNS_ANY_CODE
from .plan import PartEvaluation

_MAX_RULE_CHARS = 4_000


def suggest_exact_rule(event: PolicyEvent, parts: Sequence[PartEvaluation]) -> str:
    """As JSON, which is YAML too. Empty when no rule could say it: what is not known cannot be allowed for good, and
    neither can what a file says that may say something else tomorrow."""
    if any(part.part.opaque or RUNS_ANY_CODE in part.part.risk_descriptions for part in parts):
        return ""
    commands = [part.part.command for part in parts]
    conditions: dict[str, Any]
    if commands and all(command is not None and not command.wrappers for command in commands):
        if not all(_is_literal(command) for command in commands if command):
            return ""
        conditions = {"command": [{"words": list(command.argv), "exact": True} for command in commands if command]}
    elif any(command is not None for command in commands):
        return ""
    else:
        arguments = event.arguments
        conditions = {"arguments": {name: {"is": value} for name, value in arguments.items()}} if arguments else {}
        if event.tool.args_model.model_config.get("extra") == "allow":
            conditions["when"] = f"size(arguments) == {len(arguments)}"
    rule = {"decision": "allow", "tools": event.tool.name, **conditions}
    text = json.encode({"id": f"kept-{sha256(json.encode_sorted(rule)).hexdigest()[:8]}", **rule}).decode()
    return text if len(text) <= _MAX_RULE_CHARS else ""


def _is_literal(command: SimpleCommand) -> bool:
    """Do its words say all of it? Not where it starts in another folder, or where words stand for other words."""
    return command.bases == ("",) and not (command.assignments or command.globs or "*" in command.argv)
