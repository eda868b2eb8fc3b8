"""What the hooks of all coding agents have in common: events in, verdicts out.

Each agent has one module with two functions: `parse` makes an event of its payload, and `render` makes its answer of a
verdict. Nothing else in this package knows how an agent spells things.
"""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias, cast

import msgspec

from ..domain.json import JsonObject, encode

#: `headless`: the agent can give a call back and take it up again when it is resumed.
AskStyle: TypeAlias = Literal["hold", "defer"]


class PayloadError(Exception):
    """The payload of a hook is not what the agent's contract says."""


class ToolEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What every event about a tool call has."""

    session_id: str
    #: The agent's id of the call; empty when the agent has none.
    call_id: str = ""
    tool: str
    input: JsonObject
    #: The folder that the agent works in now.
    cwd: str = ""
    #: For a tool of an MCP server: the server's name, and the tool's name there.
    server: str = ""
    server_tool: str = ""


class ToolProposed(ToolEvent, frozen=True, kw_only=True):
    """The agent is about to execute a tool, and waits for a verdict."""

    asks: AskStyle = "hold"
    #: The agent can show a question to the person at it.
    can_ask: bool = False
    #: It names a call that another event of the agent names, too: the same call is not judged twice.
    repeats: bool = False


class ToolReported(ToolEvent, frozen=True, kw_only=True):
    """The agent executed a tool, and says what came of it."""

    ok: bool = True
    response: Any = None
    #: It did not run: the agent's own rules or its user refused it.
    refused: bool = False


class PermissionAsked(ToolEvent, frozen=True, kw_only=True):
    """The agent is about to ask its user about a call that Interlock has seen."""


class Confirmed(ToolEvent, frozen=True, kw_only=True):
    """A second hook asks whether the verdict about this call is one that the agent might ignore."""


class SessionEvent(msgspec.Struct, frozen=True, kw_only=True):
    """A session begins or ends."""

    session_id: str
    kind: Literal["start", "end"]
    cwd: str = ""


HookEvent: TypeAlias = ToolProposed | ToolReported | PermissionAsked | Confirmed | SessionEvent


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a hook."""

    #: `pass` says nothing; `ask` leaves it to the person at the agent; `defer` gives the call back for later.
    kind: Literal["allow", "deny", "defer", "ask", "pass"]
    reason: str = ""
    #: With `allow`: what to execute instead of what was proposed, in the agent's own words.
    input: JsonObject | None = None


class HookOutput(msgspec.Struct, frozen=True):
    """What the hook prints, and its exit code."""

    stdout: bytes = b""
    exit_code: Literal[0, 2] = 0


class AgentContract(msgspec.Struct, frozen=True, kw_only=True):
    """The hooks of one coding agent."""

    #: As in `interlock hooks install NAME`.
    name: str
    #: As recorded and as rules know it.
    client: str
    #: Takes the payload, the event that the hook was installed for, and how the agent was started.
    parse: Callable[[JsonObject, str, str], HookEvent]
    render: Callable[[HookEvent, Verdict], HookOutput]
    #: For how long a question is held open before it is answered as pending.
    hold_seconds: float
    #: True when it can execute other arguments than those that it proposed.
    takes_input: bool = True


def output(value: JsonObject, exit_code: Literal[0, 2] = 0) -> HookOutput:
    """Return JSON as the output of a hook."""
    return HookOutput(encode(value) + b"\n", exit_code)


def text_field(payload: JsonObject, name: str, *, required: bool = False) -> str:
    """Return a text of a payload; empty when it is missing. Raise `PayloadError` for anything else."""
    value = payload.get(name)
    if value is None and not required:
        return ""
    if type(value) is not str or (required and not value):
        raise PayloadError(f"`{name}` must be a text")
    return value


def as_object(value: Any) -> JsonObject | None:
    """Return the value if it is an object."""
    return cast(JsonObject, value) if type(value) is dict else None


def object_field(payload: JsonObject, name: str) -> JsonObject:
    """Return an object of a payload. Raise `PayloadError` for anything else."""
    value = as_object(payload.get(name))
    if value is None:
        raise PayloadError(f"`{name}` must be an object")
    return value


def unexpected_event(name: str) -> PayloadError:
    """Return the error for an event that Interlock does not install a hook for."""
    return PayloadError(f"the event {name[:40]!r} is not one that Interlock installs")


def split_mcp_name(name: str) -> tuple[str, str]:
    """Return server and tool of a name such as `mcp__server__tool`; two empty texts for any other."""
    if not name.startswith("mcp__"):
        return "", ""
    server, separator, tool = name.removeprefix("mcp__").partition("__")
    return (server, tool) if separator and server and tool else ("", "")
