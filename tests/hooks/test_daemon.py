"""The daemon over its socket: decisions, approvals and what is recorded."""

import asyncio
from typing import Any

from interlock import verify
from interlock.domain.event import InvocationCompleted, InvocationStarted
from tests.hooks.support import Hooked, open_office

LIST: dict[str, Any] = {"tool_input": {"command": "ls"}}
MAKE: dict[str, Any] = {"tool_input": {"command": "touch made.txt"}}
PRINTED = {"stdout": "a b", "stderr": "", "interrupted": False}


async def test_allowed_call_is_recorded_from_start_to_end() -> None:
    async with open_office() as office:
        before = await office.claude("PreToolUse", "Bash", "t1", **LIST)
        started = await office.kinds()
        after = await office.claude("PostToolUse", "Bash", "t1", **LIST, tool_response=PRINTED)
        await office.hook("claude", office.payload("SessionEnd", reason="other"))
        facts = [event.fact for event in await office.events()]
        (run_id,) = await office.log.run_ids()
        chain = verify(await office.log.read(run_id), run_id)

    assert (before.decision, before.code, after) == ("allow", 0, Hooked(0, b"", b""))
    assert started[-1] == "InvocationStarted"  # durable before the hook was answered
    (begun,) = [fact for fact in facts if isinstance(fact, InvocationStarted)]
    (ended,) = [fact for fact in facts if isinstance(fact, InvocationCompleted)]
    assert (begun.executor, ended.exit) == ("external/claude-code", "ok")
    assert chain.ok
    assert type(facts[-1]).__name__ == "RunCompleted"


async def test_headless_claude_defers_and_runs_once_after_approval() -> None:
    async with open_office() as office:
        first = await office.claude("PreToolUse", "Bash", "t1", "sdk-cli", **MAKE)
        second = await office.claude("PreToolUse", "Bash", "t1", "sdk-cli", "confirm", **MAKE)
        still = await office.claude("PreToolUse", "Bash", "t1", "sdk-cli", **MAKE)
        await office.answer()
        allowed = await office.claude("PreToolUse", "Bash", "t1", "sdk-cli", **MAKE)
        confirmed = await office.claude("PreToolUse", "Bash", "t1", "sdk-cli", "confirm", **MAKE)
        again = await office.claude("PreToolUse", "Bash", "t1", "sdk-cli", **MAKE)
        await office.claude("PostToolUse", "Bash", "t1", **MAKE, tool_response=PRINTED)
        late = await office.claude("PreToolUse", "Bash", "t1", "sdk-cli", **MAKE)
        kinds = await office.kinds()

    assert [first.decision, second.decision, still.decision, allowed.decision] == ["defer", "ask", "defer", "allow"]
    assert "PENDING" in first.reason
    assert confirmed == Hooked(0, b"", b"")
    assert (again.decision, late.decision) == ("deny", "deny")
    assert kinds.count("InvocationStarted") == 1


async def test_held_question_runs_when_a_person_approves() -> None:
    async with open_office() as office:
        asking = asyncio.create_task(office.claude("PreToolUse", "Bash", "t1", "cli", **MAKE))
        await office.until_asked()
        await office.answer()
        held = await asking

    assert held.decision == "allow"


async def test_rejected_call_is_denied_with_the_reason() -> None:
    async with open_office() as office:
        asking = asyncio.create_task(office.claude("PreToolUse", "Bash", "t1", "cli", **MAKE))
        await office.until_asked()
        await office.answer(approved=False, reason="not on Fridays")
        held = await asking

    assert held.decision == "deny"
    assert "not on Fridays" in held.reason


async def test_user_of_the_agent_approves_where_the_rule_says_so() -> None:
    async with open_office(hold_seconds=0.0) as office:
        office.write_policy("ask:\n  - {id: mine, tools: bash, command: touch, approver: client}\n")
        asked = await office.claude("PreToolUse", "Bash", "t1", "cli", **MAKE)
        headless = await office.claude("PreToolUse", "Bash", "t2", "-", tool_input={"command": "touch b"})
        await office.claude("PostToolUse", "Bash", "t1", **MAKE, tool_response=PRINTED)
        answers = [event.fact for event in await office.events() if type(event.fact).__name__ == "ApprovalGranted"]
        kinds = await office.kinds()

    assert (asked.decision, headless.decision) == ("ask", "deny")
    assert kinds.count("InvocationStarted") == 1
    assert answers


async def test_executed_without_approval_is_reported() -> None:
    async with open_office(hold_seconds=0.0) as office:
        pending = await office.claude("PreToolUse", "Bash", "t1", "cli", **MAKE)
        reported = await office.claude("PostToolUse", "Bash", "t1", **MAKE, tool_response=PRINTED)

    assert pending.decision == "deny"
    assert "PENDING" in pending.reason
    assert reported.code == 2
    assert b"waits for approval" in reported.stderr


async def test_credentials_are_denied_to_agents() -> None:
    """The names that our own file tools refuse, in the project and elsewhere, for tools and commands."""
    async with open_office() as office:
        denied = [
            await office.claude("PreToolUse", "Read", "t1", tool_input={"file_path": "/home/me/.ssh/id_ed25519"}),
            await office.claude("PreToolUse", "Read", "t2", tool_input={"file_path": ".env"}),
            await office.claude("PreToolUse", "Read", "t3", tool_input={"file_path": "/root/.config/gh/hosts.yml"}),
            await office.claude("PreToolUse", "Bash", "t4", tool_input={"command": "cat ~/.aws/credentials"}),
        ]
        allowed = await office.claude("PreToolUse", "Read", "t5", tool_input={"file_path": ".env.example"})

    assert [hooked.decision for hooked in denied] == ["deny"] * 4
    assert "kept for credentials" in denied[0].reason
    assert allowed.decision == "allow"
