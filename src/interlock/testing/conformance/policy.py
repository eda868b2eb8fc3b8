"""What every policy promises."""

import asyncio
from collections.abc import Awaitable

import pytest

from ...domain.decision import Decision, Verdict
from ...domain.tool import CallContext, PermissionMode, ToolDefinition
from ...policy.interface import PolicyEngine, PolicyEvent
from ...registry.decorator import tool
from .suite import ConformanceSuite


@tool(risk="read", resources={"path": "path"})
def read_file(path: str) -> str:
    """Read a file."""
    return path


@tool(risk="write", resources={"path": "path"})
def write_file(path: str, content: str) -> str:
    """Write a file."""
    return path + content


@tool(risk="execute", resources={"command": "command"})
def bash(command: str) -> str:
    """Run a command."""
    return command


@tool(risk="network", origin="mcp", source="web")
def fetch(pages: list[dict[str, str]]) -> str:
    """Fetch pages."""
    return str(pages)


#: Ordinary calls, and some that try to escape notice.
CALLS: dict[str, tuple[ToolDefinition, dict[str, object]]] = {
    "read": (read_file, {"path": "src/app.py"}),
    "read outside": (read_file, {"path": "../../etc/passwd"}),
    "read empty": (read_file, {"path": ""}),
    "write": (write_file, {"path": "notes.md", "content": "x" * 100_000}),
    "write nul": (write_file, {"path": "a\0b", "content": ""}),
    "command": (bash, {"command": "git status && rm -rf build"}),
    "command unreadable": (bash, {"command": "$(echo 'cm0gLXJm' | base64 -d"}),
    "command unicode": (bash, {"command": "ls \u202etxt.exe"}),
    "fetch": (fetch, {"pages": [{"url": "https://example.org"}, {}]}),
}


def make_policy_event(name: str, mode: PermissionMode = PermissionMode.DEFAULT) -> PolicyEvent:
    """Return the event of one of `CALLS`."""
    definition, arguments = CALLS[name]
    situation = CallContext(run_id="run_1", workspace="/work", mode=mode)
    return PolicyEvent("call_1", definition, definition.args_model.model_validate(arguments), situation)


async def evaluate(policy: PolicyEngine, event: PolicyEvent) -> Decision:
    """Return the decision, of a policy that is synchronous or not."""
    decision = policy.evaluate(event)
    return await decision if isinstance(decision, Awaitable) else decision


class PolicyConformance(ConformanceSuite):
    """Define the fixture `policy`. An error in a policy is a deny, so a policy that raises denies by accident."""

    @pytest.mark.parametrize("name", CALLS)
    async def test_every_call_gets_a_decision(self, policy: PolicyEngine, name: str) -> None:
        for mode in PermissionMode:
            event = make_policy_event(name, mode)
            decision = await evaluate(policy, event)

            assert type(decision) is Decision
            assert decision.reason
            if decision.verdict is Verdict.REQUEST_INPUT:
                assert decision.target_arg in event.tool.args_model.model_fields

    @pytest.mark.parametrize("name", CALLS)
    async def test_same_call_gets_the_same_decision(self, policy: PolicyEngine, name: str) -> None:
        first = await evaluate(policy, make_policy_event(name))

        assert await evaluate(policy, make_policy_event(name)) == first

    @pytest.mark.parametrize("name", CALLS)
    async def test_evaluation_leaves_the_call_unchanged(self, policy: PolicyEngine, name: str) -> None:
        event = make_policy_event(name)

        await evaluate(policy, event)

        assert event.arguments == make_policy_event(name).arguments

    async def test_concurrent_decisions_are_independent(self, policy: PolicyEngine) -> None:
        alone = [await evaluate(policy, make_policy_event(name)) for name in CALLS]

        together = await asyncio.gather(*(evaluate(policy, make_policy_event(name)) for name in CALLS))

        assert together == alone
