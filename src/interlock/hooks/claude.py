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
    PermissionAsked,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
    as_object,
    object_field,
    output,
    split_mcp_name,
    text_field,
    unexpected_event,
)

#: The event argument of the second hook.
CONFIRM = "confirm"
#: How Claude Code was started when no person is at it.
_HEADLESS = ("sdk-cli", "sdk-py", "sdk-ts")
_INTERACTIVE = ("cli",)
#: The events after a call, and what says what came of it.
_REPORTS = {"PostToolUse": "tool_response", "PostToolUseFailure": "error", "PermissionDenied": "reason"}


def parse(payload: JsonObject, event: str, entry: str) -> HookEvent:
    """Return the event of a payload."""
    name = text_field(payload, "hook_event_name", required=True)
    session_id = text_field(payload, "session_id", required=True)
    cwd = text_field(payload, "cwd")
    if name in ("SessionStart", "SessionEnd"):
        return SessionEvent(session_id=session_id, kind="start" if name == "SessionStart" else "end", cwd=cwd)
    tool = text_field(payload, "tool_name", required=True)
    server, server_tool = split_mcp_name(tool)
    if server:
        server = text_field(as_object(payload.get("mcp_server")) or {}, "name") or server
    common: JsonObject = {
        "session_id": session_id,
        "call_id": text_field(payload, "tool_use_id", required=name != "PermissionRequest"),
        "tool": tool,
        "input": object_field(payload, "tool_input"),
        "cwd": cwd,
        "server": server,
        "server_tool": server_tool,
    }
    if name == "PreToolUse" and event != CONFIRM:
        asks: AskStyle = "defer" if entry in _HEADLESS and not payload.get("agent_id") else "hold"
        return ToolProposed(**common, asks=asks, can_ask=entry in _INTERACTIVE)
    if name in _REPORTS:
        field = _REPORTS[name]
        is_refused = name == "PermissionDenied"
        return ToolReported(**common, ok=name == "PostToolUse", refused=is_refused, response=payload.get(field))
    if name in ("PreToolUse", "PermissionRequest"):
        return Confirmed(**common) if name == "PreToolUse" else PermissionAsked(**common)
    raise unexpected_event(name)


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
