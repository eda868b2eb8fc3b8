"""Claude Code: `hooks` of a `settings.json`.

A question waits for its answer while the hook runs. Started with `-p` or by an SDK, the call is deferred instead: the
process ends, and `claude -p --resume` brings the same call back. Claude Code ignores a deferral where it cannot resume
(a person is there, or the model made several calls at once), and then its own rules alone would decide. So a second
hook asks the daemon, and says `ask` for every call that was deferred: ignored deferrals are refused, or shown to the
person.
"""

from ..domain.json import JsonObject
from .contract import (
    AgentContract,
    AskStyle,
    Confirmed,
    HookEvent,
    HookOutput,
    PayloadError,
    PermissionAsked,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
    object_field,
    output,
    split_mcp_name,
    text_field,
)

#: The event argument of the second hook.
CONFIRM = "confirm"
#: How Claude Code was started when no person is at it.
_HEADLESS = ("sdk-cli", "sdk-py", "sdk-ts")
_INTERACTIVE = ("cli",)


def parse(payload: JsonObject, event: str, entry: str) -> HookEvent:
    """Return the event of a payload."""
    name = text_field(payload, "hook_event_name", required=True)
    session_id = text_field(payload, "session_id", required=True)
    cwd = text_field(payload, "cwd")
    if name in ("SessionStart", "SessionEnd"):
        return SessionEvent(session_id=session_id, kind="start" if name == "SessionStart" else "end", cwd=cwd)
    tool = text_field(payload, "tool_name", required=True)
    server, server_tool = split_mcp_name(tool)
    provenance = payload.get("mcp_server")
    if server and isinstance(provenance, dict):
        server = text_field(provenance, "name") or server
    common = {
        "session_id": session_id,
        "call_id": text_field(payload, "tool_use_id", required=name != "PermissionRequest"),
        "tool": tool,
        "input": object_field(payload, "tool_input"),
        "cwd": cwd,
        "server": server,
        "server_tool": server_tool,
    }
    match name:
        case "PreToolUse" if event == CONFIRM:
            return Confirmed(**common)
        case "PreToolUse":
            asks: AskStyle = "defer" if entry in _HEADLESS and not payload.get("agent_id") else "hold"
            return ToolProposed(**common, asks=asks, can_ask=entry in _INTERACTIVE)
        case "PostToolUse":
            return ToolReported(**common, response=payload.get("tool_response"))
        case "PostToolUseFailure":
            return ToolReported(**common, ok=False, response=payload.get("error"))
        case "PermissionDenied":
            return ToolReported(**common, ok=False, refused=True, response=payload.get("reason"))
        case "PermissionRequest":
            return PermissionAsked(**common)
        case _:
            raise PayloadError(f"`hook_event_name` {name[:40]!r} is not an event that Interlock installs")


def render(event: HookEvent, verdict: Verdict) -> HookOutput:
    """Return the answer to an event."""
    if verdict.kind == "pass":
        return HookOutput()
    if isinstance(event, PermissionAsked):
        allowed = {"hookEventName": "PermissionRequest", "decision": {"behavior": "allow"}}
        return output({"hookSpecificOutput": allowed}) if verdict.kind == "allow" else HookOutput()
    answer: JsonObject = {"hookEventName": "PreToolUse", "permissionDecision": verdict.kind}
    if verdict.reason:
        answer["permissionDecisionReason"] = verdict.reason
    if verdict.input is not None:
        answer["updatedInput"] = verdict.input
    return output({"hookSpecificOutput": answer})


CLAUDE = AgentContract(name="claude", client="claude-code", parse=parse, render=render, hold_seconds=90.0)
