"""Cursor: `hooks.json`.

Its newer versions have one event for all tools (`preToolUse`), and the older ones an event each for commands, MCP tools
and reading. All are installed: the second event about a call that runs already is answered alike, and not recorded.
"""

from typing import cast

from ..domain.json import InvalidJsonError, JsonObject
from ..domain.json import parse as parse_json
from .contract import (
    AgentContract,
    HookEvent,
    HookOutput,
    PayloadError,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
    object_field,
    output,
    text_field,
    unexpected_event,
)

_MCP = "MCP:"
_EVENTS = ("preToolUse", "beforeShellExecution", "beforeMCPExecution", "beforeReadFile")


def parse(payload: JsonObject, event: str, entry: str) -> HookEvent:
    """Return the event of a payload."""
    name = text_field(payload, "hook_event_name", required=True)
    session_id = text_field(payload, "conversation_id") or text_field(payload, "session_id", required=True)
    cwd = text_field(payload, "cwd") or _find_root(payload)
    if name in ("sessionStart", "sessionEnd"):
        return SessionEvent(session_id=session_id, kind="start" if name == "sessionStart" else "end", cwd=cwd)
    call: JsonObject = {"session_id": session_id, "cwd": cwd, "call_id": text_field(payload, "tool_use_id")}
    match name:
        case "preToolUse" | "postToolUse" | "postToolUseFailure":
            tool = text_field(payload, "tool_name", required=True)
            call |= {"tool": tool, "input": object_field(payload, "tool_input")}
            if tool.startswith(_MCP):
                call |= {"server": "cursor", "server_tool": tool.removeprefix(_MCP)}
        case "beforeShellExecution" | "afterShellExecution":
            call |= {"tool": "Shell", "input": {"command": text_field(payload, "command", required=True)}}
        case "beforeMCPExecution" | "afterMCPExecution":
            tool = text_field(payload, "tool_name", required=True)
            call |= {"tool": _MCP + tool, "input": _read_input(payload), "server": "cursor", "server_tool": tool}
        case "beforeReadFile":
            call |= {"tool": "Read", "input": {"file_path": text_field(payload, "file_path", required=True)}}
        case _:
            raise unexpected_event(name)
    if name in _EVENTS:
        return ToolProposed(**call, repeats=name != "preToolUse")
    response = payload.get("tool_output", payload.get("output", payload.get("result_json")))
    if name == "postToolUseFailure":
        return ToolReported(**call, ok=False, response=payload.get("error_message", payload.get("error")))
    return ToolReported(**call, response=response)


def _find_root(payload: JsonObject) -> str:
    roots = payload.get("workspace_roots")
    first: object = cast(list[object], roots)[0] if isinstance(roots, list) and roots else ""
    return first if isinstance(first, str) else ""


def _read_input(payload: JsonObject) -> JsonObject:
    """Return the arguments of an MCP tool, which some versions send as a text."""
    given = payload.get("tool_input")
    if isinstance(given, str):
        try:
            given = parse_json(given)
        except InvalidJsonError as error:
            raise PayloadError(f"`tool_input` is not JSON: {error}") from None
    return object_field({"tool_input": given}, "tool_input")


def render(event: HookEvent, verdict: Verdict) -> HookOutput:
    """Return the answer to an event: always JSON, since none counts as a denial in the IDE."""
    if not isinstance(event, ToolProposed):
        return output({})
    if verdict.kind in ("allow", "pass"):
        answer: JsonObject = {"permission": "allow"}
        if verdict.input is not None:
            answer["updated_input"] = verdict.input
        return output(answer)
    reason = verdict.reason or "Interlock denied this call."
    return output({"permission": "deny", "user_message": reason, "agent_message": reason}, 2)


CURSOR = AgentContract(name="cursor", client="cursor", parse=parse, render=render, hold_seconds=40.0)
