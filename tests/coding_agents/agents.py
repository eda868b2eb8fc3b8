"""The four agents: how each is told of its model, asked headless, and what it calls its tools.

Their switches for telemetry and updates are off; `test_agents.py` proves that they then call nothing but the model.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from tests.coding_agents.install import NotInstalled, find_program
from tests.coding_agents.world import Finished, World


@dataclass(frozen=True)
class Reply:
    """The last thing that an agent said, and the session to resume."""

    said: str
    session: str
    finished: Finished
    #: The fields of Claude Code's result.
    details: dict[str, Any]


class Agent(Protocol):
    """A coding agent from npm."""

    #: As `interlock hooks install NAME` and `interlock gateway --print-config NAME` know it.
    name: str
    #: Its tool for commands, as the model calls it.
    shell: str

    def shell_call(self, command: str) -> dict[str, str]:
        """Return the arguments of a call of that tool."""
        ...

    def mcp_tool(self, server: str, tool: str) -> str:
        """Return how the model calls a tool of an MCP server."""
        ...

    def configure(self, world: World) -> None:
        """Write the settings that lead to the model of this world."""
        ...

    def environment(self, world: World) -> dict[str, str]:
        """Return the variables that lead to the model of this world, and switch off all other traffic."""
        ...

    def ask(self, world: World, prompt: str, *, session: str = "", options: tuple[str, ...] = ()) -> Reply:
        """Ask headless, in a new session or in one to resume, and wait for the end."""
        ...


def find_command(agent: str) -> list[str]:
    """Return the command that starts this agent. Skip the test where it cannot be installed."""
    program = find_program(agent)
    if isinstance(program, NotInstalled):
        pytest.skip(program.reason)
    return program


class Claude:
    """Claude Code."""

    name = "claude"
    shell = "Bash"

    def shell_call(self, command: str) -> dict[str, str]:
        return {"command": command, "description": "append a line"}

    def mcp_tool(self, server: str, tool: str) -> str:
        return f"mcp__{server}__{tool}"

    def configure(self, world: World) -> None:
        pass

    def environment(self, world: World) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": world.model.url,
            "ANTHROPIC_API_KEY": "sk-ant-mock",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            # Tools of MCP servers are in the first request, and not behind a search.
            "ENABLE_TOOL_SEARCH": "false",
        }

    def ask(self, world: World, prompt: str, *, session: str = "", options: tuple[str, ...] = ()) -> Reply:
        words = ["-p", *([prompt] if prompt else []), *(["--resume", session] if session else [])]
        command = [*find_command("claude"), *words, "--output-format", "json", *options]
        finished = world.run(command, self.environment(world))
        assert finished.stdout.startswith("{"), finished.output
        result: dict[str, Any] = msgspec.json.decode(finished.stdout)
        return Reply(result.get("result", ""), result["session_id"], finished, result)


class Codex:
    """Codex."""

    name = "codex"
    shell = "exec_command"

    def shell_call(self, command: str) -> dict[str, str]:
        return {"cmd": command}

    def mcp_tool(self, server: str, tool: str) -> str:
        return tool

    def configure(self, world: World) -> None:
        folder = world.home / ".codex"
        folder.mkdir()
        (folder / "config.toml").write_text(
            f"""
model = "gpt-5.5"
model_provider = "mock"
approval_policy = "never"
sandbox_mode = "danger-full-access"
check_for_update_on_startup = false

[model_providers.mock]
name = "mock"
base_url = "{world.model.url}/v1"
wire_api = "responses"
env_key = "MOCK_KEY"

[analytics]
enabled = false

[features]
plugins = false
remote_plugin = false
"""
        )

    def environment(self, world: World) -> dict[str, str]:
        return {"MOCK_KEY": "x"}

    def ask(self, world: World, prompt: str, *, session: str = "", options: tuple[str, ...] = ()) -> Reply:
        words = ["exec", *options, "--skip-git-repo-check", "--json", *(["resume", session] if session else []), prompt]
        finished = world.run([*find_command("codex"), *words], self.environment(world))
        events = [msgspec.json.decode(line) for line in finished.stdout.splitlines() if line.startswith("{")]
        started = [event["thread_id"] for event in events if event["type"] == "thread.started"]
        items = [event["item"] for event in events if event["type"] == "item.completed"]
        said = [item["text"] for item in items if item["type"] == "agent_message"]
        assert started, finished.output
        assert said, finished.output
        return Reply(said[-1], started[0], finished, {})


class Gemini:
    """Gemini CLI."""

    name = "gemini"
    shell = "run_shell_command"

    def shell_call(self, command: str) -> dict[str, str]:
        return {"command": command, "description": "append a line"}

    def mcp_tool(self, server: str, tool: str) -> str:
        return f"mcp_{server}_{tool}"

    def configure(self, world: World) -> None:
        folder = world.home / ".gemini"
        folder.mkdir()
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "model": {"name": "gemini-2.5-pro"},
            "telemetry": {"enabled": False},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
        }
        (folder / "settings.json").write_bytes(msgspec.json.encode(settings))

    def environment(self, world: World) -> dict[str, str]:
        return {
            "GOOGLE_GEMINI_BASE_URL": world.model.url,
            "GEMINI_API_KEY": "x",
            "GEMINI_CLI_TRUST_WORKSPACE": "true",
            "GEMINI_TELEMETRY_ENABLED": "false",
        }

    def ask(self, world: World, prompt: str, *, session: str = "", options: tuple[str, ...] = ()) -> Reply:
        words = ["-p", prompt, "--approval-mode", "yolo", "--output-format", "json"]
        command = [*find_command("gemini"), *words, *(["--resume", session] if session else []), *options]
        finished = world.run(command, self.environment(world))
        start = finished.stdout.find("{\n")
        assert start >= 0, finished.output
        result: dict[str, Any] = msgspec.json.decode(finished.stdout[start:])
        return Reply(result.get("response", ""), result["session_id"], finished, result)


def keep_from_registry(folder: Path) -> None:
    """Make a folder of opencode's configuration look complete: else it installs the types of plugins from npm."""
    (folder / "node_modules").mkdir(parents=True)
    types = {"packages": {"": {"dependencies": {"@opencode-ai/plugin": "1.18.33"}}}}
    (folder / "package-lock.json").write_bytes(msgspec.json.encode(types))


class Opencode:
    """opencode."""

    name = "opencode"
    shell = "bash"

    def shell_call(self, command: str) -> dict[str, str]:
        return {"command": command, "description": "append a line"}

    def mcp_tool(self, server: str, tool: str) -> str:
        return f"{server}_{tool}"

    def configure(self, world: World) -> None:
        keep_from_registry(world.home / ".config" / "opencode")
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "name": "mock",
            "options": {"baseURL": f"{world.model.url}/v1", "apiKey": "x"},
            "models": {"m": {"name": "m", "tool_call": True}},
        }
        settings = {
            "model": "mock/m",
            "share": "disabled",
            "provider": {"mock": provider},
            "permission": {"*": "allow"},
        }
        (world.home / ".config" / "opencode" / "opencode.json").write_bytes(msgspec.json.encode(settings))

    def environment(self, world: World) -> dict[str, str]:
        return {
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_DISABLE_AUTOUPDATE": "1",
            "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        }

    def ask(self, world: World, prompt: str, *, session: str = "", options: tuple[str, ...] = ()) -> Reply:
        words = ["run", "--format", "json", *(["--session", session] if session else []), *options, prompt]
        finished = world.run([*find_command("opencode"), *words], self.environment(world))
        events = [msgspec.json.decode(line) for line in finished.stdout.splitlines() if line.startswith("{")]
        said = [event["part"]["text"] for event in events if event["type"] == "text"]
        assert said, finished.output
        return Reply(said[-1], events[0]["sessionID"], finished, {})


AGENTS: dict[str, Agent] = {agent.name: agent for agent in (Claude(), Codex(), Gemini(), Opencode())}


def choose_agents(*quick: str) -> list[Any]:
    """Return all agents as parameters of a test. Those that are not named are left to `make test-agents`."""
    return [
        pytest.param(agent, id=name, marks=[] if name in quick else [pytest.mark.agents])
        for name, agent in AGENTS.items()
    ]
