"""Codex: `hooks.json`.

Codex runs the tool when a hook says `ask` or `allow` or nothing, and when it fails. So an allowed call is answered with
nothing, and everything else with a denial and its reason. It does not take other arguments than those it proposed.
"""

from ..domain.json import JsonObject
from .contract import (
    AgentContract,
    HookEvent,
    HookOutput,
    PermissionAsked,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
    as_object,
    output,
    split_mcp_name,
    text_field,
    unexpected_event,
)


def parse(payload: JsonObject, event: str, entry: str) -> HookEvent:
    """Return the event of a payload."""
    name = text_field(payload, "hook_event_name", required=True)
    session_id = text_field(payload, "session_id", required=True)
    cwd = text_field(payload, "cwd")
    if name in ("SessionStart", "SessionEnd"):
        return SessionEvent(session_id=session_id, kind="start" if name == "SessionStart" else "end", cwd=cwd)
    tool = text_field(payload, "tool_name", required=True)
    server, server_tool = split_mcp_name(tool)
    common: JsonObject = {
        "session_id": session_id,
        "call_id": text_field(payload, "tool_use_id", required=name != "PermissionRequest"),
        "tool": tool,
        # The contract says "any value": one that is no object is still judged.
        "input": as_object(payload.get("tool_input")) or {"input": payload.get("tool_input")},
        "cwd": cwd,
        "server": server,
        "server_tool": server_tool,
    }
    match name:
        case "PreToolUse":
            return ToolProposed(**common)
        case "PostToolUse":
            return ToolReported(**common, response=payload.get("tool_response"))
        case "PermissionRequest":
            return PermissionAsked(**common)
        case _:
            raise unexpected_event(name)


def render(event: HookEvent, verdict: Verdict) -> HookOutput:
    """Return the answer to an event."""
    if isinstance(event, PermissionAsked):
        allowed = {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
        return output({"hookSpecificOutput": allowed}) if verdict.kind == "allow" else HookOutput()
    if verdict.kind in ("allow", "pass"):
        return HookOutput()
    reason = verdict.reason or "Interlock denied this call."
    denied = {"hookEventName": "PreToolUse", "permissionDecision": "deny", "permissionDecisionReason": reason}
    return output({"hookSpecificOutput": denied})


CODEX = AgentContract(name="codex", client="codex", parse=parse, render=render, hold_seconds=90.0, takes_input=False)
