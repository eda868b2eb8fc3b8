"""What the daemon does with the peculiarities of each agent."""

import asyncio
from typing import Any

import pytest

from interlock.domain.event import CallObserved, InvocationStarted
from tests.hooks.support import Hooked, Office, open_office

MAKE: dict[str, Any] = {"tool_input": {"command": "touch made.txt"}}
PRINTED = {"stdout": "", "stderr": "", "interrupted": False}


async def _observed(office: Office) -> list[tuple[str, bool, str]]:
    """Return call, success and error code of everything that ended."""
    facts = [event.fact for event in await office.events()]
    return [
        (
            each.observation.call_id,
            each.observation.ok,
            each.observation.failure.code if each.observation.failure else "",
        )
        for each in facts
        if isinstance(each, CallObserved)
    ]


async def test_same_call_of_another_session_attaches_and_runs_once() -> None:
    async with open_office(hold_seconds=0.0) as office:
        first = await office.claude("PreToolUse", "Bash", "t1", "cli", **MAKE)
        await office.answer()
        other = office.payload("PreToolUse", session_id="s-2", tool_name="Bash", tool_use_id="t9", **MAKE)
        second = await office.hook("claude", other, entry="cli")
        ended = await office.hook("claude", {**other, "hook_event_name": "PostToolUse", "tool_response": PRINTED})
        third = await office.claude("PreToolUse", "Bash", "t2", "cli", **MAKE)
        observed = await _observed(office)

    assert [first.decision, second.decision, third.decision] == ["deny", "allow", "deny"]
    assert ended == Hooked(0, b"", b"")
    assert observed == [("t1", True, "")]
    assert "PENDING" in third.reason


@pytest.mark.parametrize("sessions", [("s-1", "s-1"), ("s-1", "s-2")])
async def test_same_call_at_the_same_moment_asks_once(sessions: tuple[str, str]) -> None:
    """Two hook processes ask about it, and one of them may execute it after the approval."""
    async with open_office() as office:
        hooks = [
            office.payload("PreToolUse", session_id=session, tool_name="Bash", tool_use_id=f"t{number}", **MAKE)
            for number, session in enumerate(sessions)
        ]
        asking = [asyncio.create_task(office.hook("claude", hook, entry="cli")) for hook in hooks]
        await asyncio.wait(asking, return_when=asyncio.FIRST_COMPLETED)  # one is refused while the other is held
        await office.answer()
        decided = await asyncio.gather(*asking)
        kinds = await office.kinds()

    assert sorted(hooked.decision for hooked in decided) == ["allow", "deny"]
    assert kinds.count("ApprovalRequested") == 1
    assert kinds.count("InvocationStarted") == 1


async def test_session_end_leaves_unknown_outcomes() -> None:
    async with open_office() as office:
        office.write_policy("allow: ['bash(touch:*)']\n")
        await office.claude("PreToolUse", "Bash", "t1", "cli", **MAKE)
        await office.hook("claude", office.payload("SessionEnd"))
        observed = await _observed(office)
        kinds = await office.kinds()

    assert observed == [("t1", False, "outcome_unknown")]
    assert "RunCompleted" not in kinds  # somebody has to look at it


async def test_refusal_of_the_agent_itself_is_recorded_as_not_executed() -> None:
    async with open_office() as office:
        office.write_policy("allow: ['bash(touch:*)']\n")
        await office.claude("PreToolUse", "Bash", "t1", "cli", **MAKE)
        await office.claude("PermissionDenied", "Bash", "t1", **MAKE, reason="its classifier")
        failed = await office.claude("PreToolUse", "Bash", "t2", "cli", tool_input={"command": "touch b"})
        await office.claude("PostToolUseFailure", "Bash", "t2", tool_input={"command": "touch b"}, error="Exit code 1")
        observed = await _observed(office)

    assert failed.decision == "allow"
    assert observed == [("t1", False, "runtime_precondition_failed"), ("t2", False, "tool_failed")]


async def test_permission_request_is_allowed_only_for_a_recorded_approval() -> None:
    async with open_office() as office:
        office.write_policy("allow: ['bash(ls:*)']\n")
        listing = {"tool_input": {"command": "ls"}}
        await office.claude("PreToolUse", "Bash", "t1", "cli", **listing)
        by_policy = await office.hook("claude", office.payload("PermissionRequest", tool_name="Bash", **listing))
        asking = asyncio.create_task(office.claude("PreToolUse", "Bash", "t2", "cli", **MAKE))
        await office.until_asked()
        await office.answer()
        await asking
        approved = await office.hook("claude", office.payload("PermissionRequest", tool_name="Bash", **MAKE))
        unknown = await office.hook(
            "claude", office.payload("PermissionRequest", tool_name="Bash", tool_input={"command": "rm x"})
        )
        for call_id, given in (("t1", listing), ("t2", MAKE)):
            await office.claude("PostToolUse", "Bash", call_id, **given, tool_response=PRINTED)

    assert (by_policy, unknown) == (Hooked(0, b"", b""), Hooked(0, b"", b""))
    assert approved.answer["hookSpecificOutput"]["decision"] == {"behavior": "allow"}


async def test_edited_arguments_reach_agents_that_take_them() -> None:
    patch = {"tool_name": "Edit", "tool_input": {"file_path": "a.py", "old_string": "a", "new_string": "b"}}
    edited = {"path": "a.py", "old_string": "a", "new_string": "c"}
    async with open_office() as office:
        payload = office.payload("PreToolUse", tool_use_id="t1", **patch)
        asking = asyncio.create_task(office.hook("claude", payload, entry="cli"))
        await office.until_asked()
        await office.answer(arguments=edited)
        claude = await asking
        await office.hook("claude", {**payload, "hook_event_name": "PostToolUse", "tool_response": {}})
        command = office.payload("PreToolUse", tool_name="Bash", tool_use_id="c1", session_id="s-9", **MAKE)
        asking = asyncio.create_task(office.hook("codex", command))
        await office.until_asked()
        await office.answer(arguments={"command": "touch other.txt", "cwd": str(office.workspace)})
        codex = await asking
        observed = await _observed(office)

    changed = claude.answer["hookSpecificOutput"]["updatedInput"]
    assert changed == {"file_path": "a.py", "old_string": "a", "new_string": "c"}
    assert codex.decision == "deny"
    assert "touch other.txt" in codex.reason
    assert observed[-1] == ("c1", False, "runtime_precondition_failed")


async def test_calls_without_ids_are_counted() -> None:
    before = {"tool_name": "run_shell_command", "tool_input": {"command": "ls"}}
    async with open_office() as office:
        answers: list[Any] = []
        for _ in range(2):
            answers.append((await office.hook("gemini", office.payload("BeforeTool", **before))).answer)
            response = {"llmContent": "a", "returnDisplay": "a"}
            await office.hook("gemini", office.payload("AfterTool", **before, tool_response=response))
        observed = await _observed(office)

    assert answers == [{"decision": "allow"}] * 2
    assert [(call_id.rpartition("-")[2], ok) for call_id, ok, _ in observed] == [("1", True), ("2", True)]


async def test_second_event_of_cursor_about_a_call_is_answered_alike() -> None:
    common = {"conversation_id": "c", "generation_id": "g"}
    async with open_office() as office:
        office.write_policy("allow: ['bash(touch:*)']\n")
        common["cwd"] = str(office.workspace)
        tool = {"tool_name": "Shell", "tool_input": {"command": "touch a"}, "tool_use_id": "t1"}
        first = await office.hook("cursor", {**common, "hook_event_name": "preToolUse", **tool})
        shell = {**common, "hook_event_name": "beforeShellExecution", "command": "touch a"}
        second = await office.hook("cursor", shell)
        await office.hook("cursor", {**common, "hook_event_name": "postToolUse", **tool, "tool_output": "done"})
        await office.hook("cursor", {**common, "hook_event_name": "afterShellExecution", "command": "touch a"})
        started = [event.fact for event in await office.events() if isinstance(event.fact, InvocationStarted)]

    assert (first.answer, second.answer) == ({"permission": "allow"}, {"permission": "allow"})
    assert len(started) == 1


async def test_agents_cannot_change_their_hooks_whatever_the_policy_allows() -> None:
    async with open_office() as office:
        office.write_policy("default: allow\n")
        work = str(office.workspace)
        calls = [
            ("Write", {"file_path": f"{work}/.claude/settings.json", "content": "{}"}),
            ("Edit", {"file_path": f"{work}/.interlock/policy.yaml", "old_string": "a", "new_string": "b"}),
            ("Bash", {"command": "echo '{}' > .codex/hooks.json"}),
            ("Bash", {"command": f"cat {office.state}/hooks.start"}),
            ("Read", {"file_path": f"{office.config}/policy.yaml"}),
        ]
        denied = [
            await office.claude("PreToolUse", tool, f"t{number}", "cli", tool_input=given)
            for number, (tool, given) in enumerate(calls)
        ]
        fine = await office.claude(
            "PreToolUse", "Read", "t9", "cli", tool_input={"file_path": f"{work}/.claude/settings.json"}
        )
        await office.claude("PostToolUse", "Read", "t9", tool_input={"file_path": f"{work}/.claude/settings.json"})

    assert [each.decision for each in denied] == ["deny"] * len(calls)
    assert fine.decision == "allow"


async def test_policy_is_read_again_and_a_broken_one_denies() -> None:
    listing = {"tool_input": {"command": "ls"}}
    async with open_office(hold_seconds=0.0) as office:
        decisions: list[str] = []
        for number, policy in enumerate(["allow: [bash]\n", "deny: [bash]\n", "nonsense: 1\n", "allow: [bash]\n"]):
            office.write_policy(policy + "#" * number + "\n")
            hooked = await office.claude("PreToolUse", "Bash", f"t{number}", "cli", **listing)
            decisions.append(hooked.decision)
            await office.claude("PostToolUse", "Bash", f"t{number}", **listing, tool_response=PRINTED)

    assert decisions == ["allow", "deny", "deny", "allow"]


async def test_secrets_in_responses_are_not_stored() -> None:
    secret = "ghp_" + "a1B2" * 9
    async with open_office() as office:
        listing = {"tool_input": {"command": "ls"}}
        await office.claude("PreToolUse", "Bash", "t1", "cli", **listing)
        await office.claude("PostToolUse", "Bash", "t1", **listing, tool_response={"stdout": secret})
        stored = [entry.body for run_id in await office.log.run_ids() for entry in await office.log.read(run_id)]

    assert all(secret.encode() not in body for body in stored)


async def test_idle_daemon_ends_itself() -> None:
    async with open_office(idle_seconds=0.01) as office:
        socket_path = office.state / "hooks.sock"
        async with asyncio.timeout(30):
            while socket_path.exists():
                await asyncio.to_thread(socket_path.exists)

    assert not socket_path.exists()
