"""What the dialog of a question knows about rules and tools: rules as `bash(pytest *)`, their effect on recorded runs,
and whether edited arguments fit the tool.
"""

import asyncio
import json
import shlex
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from pydantic import ValidationError

from ...domain.errors import ConfigurationError, InterlockError
from ...domain.tool import JsonObject, ToolDefinition
from ...interaction.terminal_dialog import ChangedRule, DialogSupport
from ...policy.analysis.recorded_calls import RecordedCall, read_recorded_calls
from ...policy.analysis.suggestions import describe_coverage, measure_coverage
from ...policy.files.saved_rules import find_rule_problem, parse_rule
from ...policy.files.shorthand import parse_shorthand
from ...storage.sqlite.log import SqliteLog
from ..display.run_list import read_events

_MAX_RUNS, _MAX_CALLS = 20, 50
_EDIT_TOOLS = ["edit_file", "write_file"]


class LocalDialogSupport(DialogSupport):
    """Support for the runs in a log, with the tools that `find_tool` knows."""

    def __init__(self, log_path: Path, find_tool: Callable[[str], ToolDefinition | None]) -> None:
        self._log_path = log_path
        self._find_tool = find_tool

    def format_rule(self, rule: str) -> str:
        """Return a rule as `Tool(pattern)` where that says all of it beside the workspace; else as it is."""
        text = _to_shorthand(_load(rule))
        return text if text and self.parse_rule(text, rule) == ChangedRule(rule) else rule

    def parse_rule(self, text: str, suggested: str) -> ChangedRule:
        """Return the rule of a pattern, in the workspace of the suggested rule, or of a line of a policy file."""
        rule = text.strip()
        try:
            if not rule.startswith(("{", "-")):
                rule = _to_rule(rule, _load(suggested))
            return ChangedRule(rule, find_rule_problem(rule, suggested))
        except ConfigurationError as error:
            return ChangedRule(rule, str(error))

    def preview_rule(self, rule: str) -> str:
        """Return where the rule would hold, and what it would have allowed of the last recorded calls."""
        entry, found = _load(rule), None
        with suppress(InterlockError, OSError):
            found = measure_coverage(entry, asyncio.run(self._read_recent_calls()), _MAX_CALLS)
        return describe_coverage(entry, found)

    def check_arguments(self, tool_name: str, arguments: JsonObject) -> str:
        """Return why arguments do not fit the schema of a tool; empty when they do."""
        tool = self._find_tool(tool_name)
        if tool is None:
            return ""
        try:
            tool.args_model.model_validate_json(json.dumps(arguments))
        except ValidationError as error:
            found = error.errors(include_url=False, include_context=False, include_input=False)
            return "; ".join(f"{'.'.join(map(str, each['loc'])) or 'arguments'}: {each['msg']}" for each in found)
        return ""

    async def _read_recent_calls(self) -> list[RecordedCall]:
        """Read the newest runs until there are enough calls. The oldest call comes first."""
        calls: list[RecordedCall] = []
        async with SqliteLog(self._log_path) as log:
            for run in await log.list_runs(_MAX_RUNS):
                if len(calls) < _MAX_CALLS:
                    events = [event async for event in read_events(log, run.first.run_id)]
                    calls = read_recorded_calls(events) + calls
        return calls


def _load(rule: str) -> JsonObject:
    """Return the entry of a rule; empty for one of several lines, or in the words of another policy engine."""
    try:
        return parse_rule(rule)
    except ConfigurationError:
        return {}


def _to_shorthand(entry: JsonObject) -> str:
    if not entry.keys() <= {"id", "decision", "tools", "command", "path", "workspace"}:
        return ""
    match entry:
        case {"tools": str() as tool, "command": [{"words": [*words], **how}]} if "path" not in entry:
            return f"{tool}({shlex.join(cast(list[str], words))}{'' if how else ' *'})"
        case {"tools": tools, "path": str() as path} if tools == _EDIT_TOOLS and "command" not in entry:
            return f"edit({path})"
        case _:
            return ""


def _to_rule(text: str, suggested: JsonObject) -> str:
    """Return the rule of a `Tool(pattern)`, with the workspace of the suggested one."""
    short = parse_shorthand(text)
    rule: dict[str, Any] = {"decision": "allow"}
    rule["tools"] = short.tools[0] if len(short.tools) == 1 else list(short.tools)
    if short.command is not None:
        exact = {"exact": True} if short.command.exact else {}
        rule["command"] = [{"words": list(short.command.words), **exact}]
    rule |= {name: getattr(short, name) for name in ("path", "host", "origin", "server") if getattr(short, name)}
    rule |= {name: suggested[name] for name in ("workspace",) if name in suggested}
    return json.dumps(parse_rule(json.dumps(rule)), ensure_ascii=False, separators=(",", ":"))
