"""Claude Code at a terminal: how a person sees the form of the gateway."""

import msgspec
import pytest

from tests.coding_agents.agents import AGENTS, find_command
from tests.coding_agents.terminal import Terminal, open_terminal
from tests.coding_agents.world import World

pytestmark = pytest.mark.timeout(300)

_KEY = "sk-ant-mock-0123456789-0123456789"
_ENTER, _ESCAPE, _DOWN = "\r", "\x1b", "\x1b[B"
_CURSOR = "\N{HEAVY RIGHT-POINTING ANGLE QUOTATION MARK ORNAMENT}"
#: Claude Code takes prompts before its MCP servers are connected.
_MAX_PROMPTS = 100


def _prompt(terminal: Terminal, text: str) -> None:
    terminal.press(text)
    terminal.wait_for(text)
    terminal.press(_ENTER)


@pytest.mark.requirement("P29")
def test_enter_alone_never_approves(world: World) -> None:
    agent = AGENTS["claude"]
    world.write_policy("ask: [{tools: notes_add, approver: client}]")
    world.serve_notes()
    config = world.interlock("gateway", "--hold", "0s", "--print-config", "claude").stdout
    (world.workspace / ".mcp.json").write_text(config)
    known = {
        "hasCompletedOnboarding": True,
        "theme": "dark",
        "customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []},
        "projects": {str(world.workspace): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
    }
    (world.home / ".claude.json").write_bytes(msgspec.json.encode(known))
    options = ("--mcp-config", ".mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__interlock")
    environment = {**world.environment, **agent.environment(world), "ANTHROPIC_API_KEY": _KEY, "TERM": "xterm-256color"}

    with open_terminal([*find_command("claude"), *options], world.workspace, environment) as terminal:
        terminal.wait_for(_CURSOR)
        for number in range(_MAX_PROMPTS):
            _prompt(terminal, f"Hello {number}.")
            terminal.wait_for("MODEL IS DONE")
            if any("notes_add" in str(body.get("tools")) for body in world.model.requests):
                break
        world.model.teach("Add a note", agent.mcp("notes_add", {"text": "one"}))
        _prompt(terminal, "Add a note")

        shown = terminal.wait_for("Decision", "not set", "Accept")
        assert 'notes_add {"text":"one"}' in shown
        terminal.press(_DOWN)
        terminal.wait_for(f"{_CURSOR} Accept")
        terminal.press(_ENTER)
        terminal.wait_for("This field is required")
        assert world.effects == []

        terminal.press_until_gone(_ESCAPE, "This field is required")
        terminal.wait_for("PENDING")
    assert world.effects == []
    assert [question.tool_name for question in world.questions] == ["notes_add"]
