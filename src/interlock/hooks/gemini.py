"""Gemini CLI: `hooks` of a `settings.json`. Its calls have no ids."""

from ..domain.json import JsonObject
from .contract import (
    AgentContract,
    HookEvent,
    HookOutput,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
    as_object,
    object_field,
    output,
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
    mcp = as_object(payload.get("mcp_context")) or {}
    common: JsonObject = {
        "session_id": session_id,
        "tool": tool,
        "input": object_field(payload, "tool_input"),
        "cwd": cwd,
        "server": text_field(mcp, "server_name"),
        "server_tool": text_field(mcp, "tool_name"),
    }
    match name:
        case "BeforeTool":
            return ToolProposed(**common)
        case "AfterTool":
            given = payload.get("tool_response")
            response = as_object(given) or {"llmContent": given}
            return ToolReported(**common, ok=response.get("error") is None, response=response.get("llmContent"))
        case _:
            raise unexpected_event(name)


def render(event: HookEvent, verdict: Verdict) -> HookOutput:
    """Return the answer to an event."""
    match verdict.kind:
        case "pass":
            return HookOutput()
        case "allow" if verdict.input is not None:
            changed = {"hookEventName": "BeforeTool", "tool_input": verdict.input}
            return output({"decision": "allow", "hookSpecificOutput": changed})
        case "allow":
            return output({"decision": "allow"})
        case "deny" | "defer" | "ask":
            return output({"decision": "deny", "reason": verdict.reason or "Interlock denied this call."})


GEMINI = AgentContract(name="gemini", client="gemini-cli", parse=parse, render=render, hold_seconds=90.0)
