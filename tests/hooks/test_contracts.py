"""The payloads of agents, as they are recorded, and the answers that they get."""

import json
from typing import Any

import pytest

from interlock.hooks.agents import AGENTS
from interlock.hooks.contract import (
    Confirmed,
    HookEvent,
    PayloadError,
    PermissionAsked,
    SessionEvent,
    ToolProposed,
    ToolReported,
    Verdict,
)
from interlock.hooks.foreign_tools import TOOLS, translate
from tests.hooks.support import read_payloads

_PATCH = read_payloads("codex")["PreToolUse apply_patch"]["tool_input"]["command"]

#: By agent and payload: our tool, its arguments, its risk, and where it comes from.
TRANSLATED: dict[tuple[str, str], tuple[str, dict[str, Any], str, str, str]] = {
    ("claude", "PreToolUse Bash"): (
        "bash",
        {"command": "touch made.txt", "description": "make", "cwd": "/work"},
        "execute",
        "local",
        "",
    ),
    ("claude", "PreToolUse Read"): ("read_file", {"path": "/work/a.py", "limit": 20}, "read", "local", ""),
    ("claude", "PreToolUse Edit"): (
        "edit_file",
        {"path": "/work/a.py", "old_string": "a", "new_string": "b", "replace_all": False},
        "write",
        "local",
        "",
    ),
    ("claude", "PreToolUse WebFetch"): (
        "web_fetch",
        {"url": "https://example.com/a", "prompt": "What is it?"},
        "network",
        "local",
        "",
    ),
    ("claude", "PreToolUse MCP"): (
        "gh_issues_create_issue",
        {"title": "x"},
        "write network",
        "mcp",
        "gh.issues",
    ),
    ("claude", "PreToolUse Grep"): (
        "grep",
        {"pattern": "TODO", "output_mode": "content", "path": "/work/src"},
        "read",
        "local",
        "",
    ),
    ("claude", "PreToolUse unknown"): ("claude_code_teleport", {"to": "mars"}, "execute", "extension", "claude-code"),
    ("codex", "PreToolUse Bash"): ("bash", {"command": "touch made.txt", "cwd": "/work"}, "execute", "local", ""),
    ("codex", "PreToolUse apply_patch"): (
        "edit_file",
        {"patch": _PATCH, "path": ["/work/src/a.py", "/etc/new", "/work/src/b.py", "/work/c.py"]},
        "write",
        "local",
        "",
    ),
    ("codex", "PreToolUse MCP"): ("fs_write_file", {"path": "a"}, "write network", "mcp", "fs"),
    ("gemini", "BeforeTool shell"): (
        "bash",
        {"command": "touch made.txt", "description": "x", "cwd": "sub"},
        "execute",
        "local",
        "",
    ),
    ("gemini", "BeforeTool MCP"): ("gw_fs_write_file", {"path": "a", "content": "b"}, "write network", "mcp", "gw"),
    ("gemini", "BeforeTool web_fetch"): (
        "web_fetch",
        {
            "prompt": "Summarise https://a.example/x and (http://b.example).",
            "url": ["https://a.example/x", "http://b.example"],
        },
        "network",
        "local",
        "",
    ),
    ("gemini", "BeforeTool read_many_files"): (
        "glob",
        {"pattern": [".env", "src/**/*.py", "../other/*"], "searched": ["/work/.env", "/work/src", "/other"]},
        "read",
        "local",
        "",
    ),
    ("opencode", "before bash"): (
        "bash",
        {"command": "touch made.txt", "description": "x", "cwd": "/work"},
        "execute",
        "local",
        "",
    ),
    ("opencode", "before edit"): (
        "edit_file",
        {"path": "/work/a.py", "old_string": "a", "new_string": "b"},
        "write",
        "local",
        "",
    ),
    ("cursor", "preToolUse Shell"): ("bash", {"command": "touch made.txt", "cwd": "/work"}, "execute", "local", ""),
    ("cursor", "beforeShellExecution"): ("bash", {"command": "touch made.txt", "cwd": "/work"}, "execute", "local", ""),
    ("cursor", "beforeMCPExecution"): (
        "cursor_database_query",
        {"query": "SELECT 1"},
        "write network",
        "mcp",
        "cursor",
    ),
    ("cursor", "beforeReadFile"): ("read_file", {"path": "/work/secrets.env"}, "read", "local", ""),
}

#: By agent and payload: the type of the event, where it is not a proposal.
EVENTS: dict[tuple[str, str], type[HookEvent]] = {
    ("claude", "PostToolUse"): ToolReported,
    ("claude", "PostToolUseFailure"): ToolReported,
    ("claude", "PermissionDenied"): ToolReported,
    ("claude", "PermissionRequest"): PermissionAsked,
    ("claude", "SessionStart"): SessionEvent,
    ("claude", "SessionEnd"): SessionEvent,
    ("codex", "PostToolUse"): ToolReported,
    ("codex", "PermissionRequest"): PermissionAsked,
    ("codex", "SessionStart"): SessionEvent,
    ("codex", "SessionEnd"): SessionEvent,
    ("gemini", "AfterTool"): ToolReported,
    ("gemini", "SessionStart"): SessionEvent,
    ("gemini", "SessionEnd"): SessionEvent,
    ("opencode", "after"): ToolReported,
    ("opencode", "session.start"): SessionEvent,
    ("opencode", "session.end"): SessionEvent,
    ("cursor", "postToolUse"): ToolReported,
    ("cursor", "sessionEnd"): SessionEvent,
}


def _parse(agent: str, name: str, event: str = "-", entry: str = "-") -> HookEvent:
    return AGENTS[agent].parse(read_payloads(agent)[name], event, entry)


def test_every_recorded_payload_has_a_row() -> None:
    recorded = {(agent, name) for agent in AGENTS for name in read_payloads(agent)}

    assert recorded == {*TRANSLATED, *EVENTS}


@pytest.mark.parametrize(("agent", "name"), TRANSLATED)
def test_proposed_calls_are_translated(agent: str, name: str) -> None:
    event = _parse(agent, name)
    assert isinstance(event, ToolProposed)
    call = translate(AGENTS[agent].client, event)
    tool = call.tool

    assert (tool.name, call.arguments, " ".join(tool.risk), tool.origin, tool.source) == TRANSLATED[agent, name]
    assert call.restore(call.arguments) == event.input


@pytest.mark.parametrize(("agent", "name"), EVENTS)
def test_other_events_are_recognised(agent: str, name: str) -> None:
    assert type(_parse(agent, name)) is EVENTS[agent, name]


@pytest.mark.parametrize(
    ("entry", "event", "asks", "can_ask"),
    [
        ("sdk-cli", "-", "defer", False),
        ("sdk-py", "-", "defer", False),
        ("cli", "-", "hold", True),
        ("-", "-", "hold", False),
    ],
)
def test_claude_defers_only_without_a_person(entry: str, event: str, asks: str, can_ask: bool) -> None:
    proposed = _parse("claude", "PreToolUse Bash", event, entry)
    assert isinstance(proposed, ToolProposed)
    assert (proposed.asks, proposed.can_ask) == (asks, can_ask)


def test_call_of_a_sub_agent_is_not_deferred() -> None:
    payload = {**read_payloads("claude")["PreToolUse Bash"], "agent_id": "a1"}
    proposed = AGENTS["claude"].parse(payload, "-", "sdk-cli")
    assert isinstance(proposed, ToolProposed)
    assert proposed.asks == "hold"


def test_second_hook_of_claude_confirms() -> None:
    assert isinstance(_parse("claude", "PreToolUse Bash", "confirm"), Confirmed)


REASON = "Not today."
ANSWERS: dict[tuple[str, str], tuple[int, Any]] = {
    ("claude", "allow"): (0, {"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "allow"}}),
    ("claude", "deny"): (
        0,
        {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": REASON,
            }
        },
    ),
    ("claude", "defer"): (
        0,
        {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "defer",
                "permissionDecisionReason": REASON,
            }
        },
    ),
    ("claude", "pass"): (0, None),
    ("codex", "allow"): (0, None),
    ("codex", "pass"): (0, None),
    ("codex", "deny"): (
        0,
        {
            "hookSpecificOutput": {
                "hookEventName": "PreToolUse",
                "permissionDecision": "deny",
                "permissionDecisionReason": REASON,
            }
        },
    ),
    ("gemini", "allow"): (0, {"decision": "allow"}),
    ("gemini", "deny"): (0, {"decision": "deny", "reason": REASON}),
    ("opencode", "allow"): (0, {"decision": "allow"}),
    ("opencode", "deny"): (0, {"decision": "deny", "reason": REASON}),
    ("cursor", "allow"): (0, {"permission": "allow"}),
    ("cursor", "deny"): (2, {"permission": "deny", "user_message": REASON, "agent_message": REASON}),
}


@pytest.mark.parametrize(("agent", "kind"), ANSWERS)
def test_verdicts_are_rendered(agent: str, kind: Any) -> None:
    name = next(name for each, name in TRANSLATED if each == agent)
    rendered = AGENTS[agent].render(_parse(agent, name), Verdict(kind=kind, reason="" if kind == "allow" else REASON))

    assert (rendered.exit_code, json.loads(rendered.stdout) if rendered.stdout else None) == ANSWERS[agent, kind]


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("kind", ["deny", "defer", "ask"])
def test_nothing_but_allow_lets_a_call_run(agent: str, kind: Any) -> None:
    """Only Claude Code knows `defer` and `ask`; every other agent would run the tool."""
    name = next(name for each, name in TRANSLATED if each == agent)
    rendered = AGENTS[agent].render(_parse(agent, name), Verdict(kind=kind))

    assert b"allow" not in rendered.stdout
    assert agent == "claude" or b"deny" in rendered.stdout


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("payload", [{}, {"hook_event_name": "Nonsense", "session_id": "s"}, {"hook_event_name": 7}])
def test_other_payloads_are_refused(agent: str, payload: dict[str, Any]) -> None:
    with pytest.raises(PayloadError):
        AGENTS[agent].parse(payload, "-", "-")


@pytest.mark.parametrize("client", TOOLS)
def test_names_of_tools_are_usable(client: str) -> None:
    for tool in TOOLS[client].values():
        assert tool.name == tool.name.lower()
        assert set(tool.resources.values()) <= {"path", "host", "command", "folder"}


def test_command_in_the_workspace_has_no_folder_of_its_own() -> None:
    plain = ToolProposed(session_id="s", tool="Shell", input={"command": "ls"}, cwd="/")
    named = ToolProposed(session_id="s", tool="Shell", input={"command": "ls", "working_directory": "/"}, cwd="/")
    inside = ToolProposed(session_id="s", tool="Shell", input={"command": "ls"}, cwd="/usr")
    calls = [translate("cursor", event, "/") for event in (plain, named, inside)]

    assert [call.arguments.get("cwd") for call in calls] == [None, ".", "/usr"]
    assert calls[1].restore({"command": "pwd", "cwd": "."}) == {"command": "pwd", "working_directory": "/"}


def test_unknown_tool_is_never_called_like_one_of_ours() -> None:
    event = ToolProposed(session_id="s", call_id="c", tool="read_file", input={"x": 1}, cwd="/work")
    call = translate("opencode", event)

    assert (call.tool.name, call.tool.risk) == ("opencode_read_file", ("execute",))


def test_unreadable_patch_may_change_anything() -> None:
    event = ToolProposed(session_id="s", call_id="c", tool="apply_patch", input={"command": "rm -rf /"}, cwd="/work")
    call = translate("codex", event)

    assert (call.tool.name, call.tool.risk) == ("apply_patch", ("execute",))


def test_two_names_for_one_path_are_both_judged() -> None:
    given = {"file_path": "/work/a", "absolute_path": "/etc/passwd"}
    event = ToolProposed(session_id="s", tool="read_file", input=given, cwd="/work")

    assert translate("gemini-cli", event).arguments == {"path": ["/work/a", "/etc/passwd"]}
