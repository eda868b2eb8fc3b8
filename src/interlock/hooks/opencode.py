"""opencode: a plugin (`opencode_plugin.js`) sends what its hooks get, and throws what is denied.

The plugin waits without a limit, so a question is held until a person answers it or the agent leaves.
"""

from ..domain.json import JsonObject
from .contract import (
    AgentContract,
    HookEvent,
    HookOutput,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
    object_field,
    output,
    text_field,
    unexpected_event,
)


def parse(payload: JsonObject, event: str, entry: str) -> HookEvent:
    """Return the event of a payload."""
    name = text_field(payload, "hook", required=True)
    session_id = text_field(payload, "sessionID", required=True)
    cwd = text_field(payload, "directory")
    if name in ("session.start", "session.end"):
        return SessionEvent(session_id=session_id, kind="start" if name == "session.start" else "end", cwd=cwd)
    common: JsonObject = {
        "session_id": session_id,
        "call_id": text_field(payload, "callID", required=True),
        "tool": text_field(payload, "tool", required=True),
        "input": object_field(payload, "args"),
        "cwd": cwd,
    }
    match name:
        case "tool.execute.before":
            return ToolProposed(**common)
        case "tool.execute.after":
            return ToolReported(**common, response=payload.get("output"))
        case _:
            raise unexpected_event(name)


def render(event: HookEvent, verdict: Verdict) -> HookOutput:
    """Return the answer to an event."""
    match verdict.kind:
        case "pass":
            return output({"decision": "allow"})
        case "allow" if verdict.input is not None:
            return output({"decision": "allow", "args": verdict.input})
        case "allow":
            return output({"decision": "allow"})
        case "deny" | "defer" | "ask":
            return output({"decision": "deny", "reason": verdict.reason or "Interlock denied this call."})


OPENCODE = AgentContract(name="opencode", client="opencode", parse=parse, render=render, hold_seconds=86_000.0)
