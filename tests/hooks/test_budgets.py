"""Calls of coding agents count to budgets, also those of a policy file that changed meanwhile."""

from tests.hooks.support import open_office


async def test_calls_of_a_coding_agent_are_limited() -> None:
    async with open_office() as office:
        office.write_policy("default: allow\nbudgets: [{id: commands, tools: bash, max: 1}]\n")
        decided = [
            await office.claude(
                "PreToolUse", "Bash", f"t{number}", "cli", tool_input={"command": f"touch {number}.txt"}
            )
            for number in range(2)
        ]
        office.write_policy("default: allow\nbudgets: [{id: commands, tools: bash, max: 2}]\n")
        again = await office.claude("PreToolUse", "Bash", "t3", "cli", tool_input={"command": "touch 3.txt"})

    assert [each.decision for each in decided] == ["allow", "deny"]
    assert "Budget commands: 1 of 1 calls a day are used, and this needs 1." in decided[1].reason
    assert again.decision == "allow"
