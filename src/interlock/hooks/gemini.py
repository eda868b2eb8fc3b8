"""Gemini CLI: `hooks` of a `settings.json`. Its calls have no ids."""

from typing import cast

from ..domain.json import JsonObject
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
)


def parse(payload: JsonObject, event: str, entry: str) -> HookEvent:
    """Return the event of a payload."""
    name = text_field(payload, "hook_event_name", required=True)
    session_id = text_field(payload, "session_id", required=True)
    cwd = text_field(payload, "cwd")
    if name in ("SessionStart", "SessionEnd"):
        return SessionEvent(session_id=session_id, kind="start" if name == "SessionStart" else "end", cwd=cwd)
    tool = text_field(payload, "tool_name", required=True)
    context = payload.get("mcp_context")
    mcp = cast(JsonObject, context) if isinstance(context, dict) else {}
    common = {
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
            response = cast(JsonObject, given) if isinstance(given, dict) else {"llmContent": given}
            failed = response.get("error") is not None
            return ToolReported(**common, ok=not failed, response=response.get("llmContent", given))
        case _:
            raise PayloadError(f"`hook_event_name` {name[:40]!r} is not an event that Interlock installs")


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
