"""The four agents: how each is told of its model, asked headless, and what it calls its tools.

Their switches for telemetry and updates are off. Every test proves that they then call nothing but the model.
"""

import subprocess
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest

from tests.coding_agents.install import COMPILED, NotInstalled, find_program
from tests.coding_agents.model import Chat
from tests.coding_agents.wire import Call
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

    def shell(self, command: str) -> Call:
        """Return a call of its tool for commands."""
        ...

    def read(self, path: str) -> Call:
        """Return a call that reads a file."""
        ...

    def write(self, path: str, content: str) -> Call:
        """Return a call that makes a file."""
        ...

    def fetch(self, url: str) -> Call | None:
        """Return a call that fetches a page; None: it has no such tool."""
        ...

    def mcp(self, tool: str, arguments: Mapping[str, object]) -> Call:
        """Return a call of a tool of the MCP server `interlock`."""
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

    def shell(self, command: str) -> Call:
        return Call("Bash", {"command": command, "description": "append a line"})

    def read(self, path: str) -> Call:
        return Call("Read", {"file_path": path})

    def write(self, path: str, content: str) -> Call:
        return Call("Write", {"file_path": path, "content": content})

    def fetch(self, url: str) -> Call | None:
        return Call("WebFetch", {"url": url, "prompt": "What is it?"})

    def mcp(self, tool: str, arguments: Mapping[str, object]) -> Call:
        return Call(f"mcp__interlock__{tool}", arguments)

    def configure(self, world: World) -> None:
        pass

    def environment(self, world: World) -> dict[str, str]:
        return {
            "ANTHROPIC_BASE_URL": world.model.url,
            "ANTHROPIC_API_KEY": "sk-ant-mock",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
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

    def shell(self, command: str) -> Call:
        return Call("exec_command", {"cmd": command})

    def read(self, path: str) -> Call:
        return self.shell(f"cat {path}")

    def write(self, path: str, content: str) -> Call:
        patch = f"*** Begin Patch\n*** Add File: {path}\n+{content}\n*** End Patch"
        return Call("apply_patch", {"input": patch})

    def fetch(self, url: str) -> Call | None:
        return None

    def mcp(self, tool: str, arguments: Mapping[str, object]) -> Call:
        return Call(tool, arguments, namespace="mcp__interlock")

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


class CodexServer(Codex):
    """Codex as a server for editors, with a person there who accepts every form of an MCP server."""

    def ask(self, world: World, prompt: str, *, session: str = "", options: tuple[str, ...] = ()) -> Reply:
        with world.running([*find_command("codex"), "app-server"], self.environment(world)) as server:
            rpc = _JsonRpc(server)
            client = {"name": "tests", "title": "tests", "version": "1"}
            rpc.request("initialize", {"clientInfo": client, "capabilities": {"experimentalApi": True}})
            rpc.send({"method": "initialized"})
            # With `never`, as in the settings, it declines forms by itself.
            place = {"cwd": str(world.workspace), "approvalPolicy": "on-request"}
            thread = rpc.request("thread/start", place)["thread"]["id"]
            rpc.request("turn/start", {"threadId": thread, "input": [{"type": "text", "text": prompt}]})
            rpc.read(lambda message: message.get("method") == "turn/completed")
        return Reply("", thread, Finished("codex app-server", 0, "", ""), {"forms": rpc.forms})


class _JsonRpc:
    """The client of a Codex server."""

    def __init__(self, server: "subprocess.Popen[bytes]") -> None:
        self._server = server
        self._count = 0
        #: The forms that were accepted.
        self.forms: list[dict[str, Any]] = []

    def send(self, message: dict[str, Any]) -> None:
        """Send a message."""
        assert self._server.stdin
        self._server.stdin.write(msgspec.json.encode(message) + b"\n")
        self._server.stdin.flush()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        """Send a request, and return its result."""
        self._count += 1
        number = self._count
        self.send({"id": number, "method": method, "params": params})
        answer = self.read(lambda message: "method" not in message and message.get("id") == number)
        assert "result" in answer, answer
        return answer["result"]

    def read(self, is_wanted: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """Return the first such message. What the server asks until then is answered."""
        assert self._server.stdout
        for line in self._server.stdout:
            message: dict[str, Any] = msgspec.json.decode(line)
            if message.get("method") == "mcpServer/elicitation/request":
                self.forms.append(message["params"])
                self.send({"id": message["id"], "result": {"action": "accept", "content": {"decision": "approve"}}})
            if is_wanted(message):
                return message
        raise AssertionError("the server ended")


class Gemini:
    """Gemini CLI."""

    name = "gemini"

    def shell(self, command: str) -> Call:
        return Call("run_shell_command", {"command": command, "description": "append a line"})

    def read(self, path: str) -> Call:
        return Call("read_file", {"file_path": path})

    def write(self, path: str, content: str) -> Call:
        return Call("write_file", {"file_path": path, "content": content})

    def fetch(self, url: str) -> Call | None:
        return Call("web_fetch", {"prompt": f"Summarise {url}"})

    def mcp(self, tool: str, arguments: Mapping[str, object]) -> Call:
        return Call(f"mcp_interlock_{tool}", arguments)

    def configure(self, world: World) -> None:
        folder = world.home / ".gemini"
        folder.mkdir()
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            # A call is made again on purpose when it was approved.
            "model": {"name": "gemini-2.5-pro", "disableLoopDetection": True},
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
            "NODE_COMPILE_CACHE": str(COMPILED),
            # Else it starts itself again, with more memory.
            "GEMINI_CLI_NO_RELAUNCH": "true",
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

    def shell(self, command: str) -> Call:
        return Call("bash", {"command": command, "description": "append a line"})

    def read(self, path: str) -> Call:
        return Call("read", {"filePath": path})

    def write(self, path: str, content: str) -> Call:
        return Call("write", {"filePath": path, "content": content})

    def fetch(self, url: str) -> Call | None:
        return Call("webfetch", {"url": url, "format": "text"})

    def mcp(self, tool: str, arguments: Mapping[str, object]) -> Call:
        return Call(f"interlock_{tool}", arguments)

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
        # Its own list of models takes a third of the time of its start.
        (world.home / "models.json").write_text("{}")

    def environment(self, world: World) -> dict[str, str]:
        return {
            "OPENCODE_DISABLE_MODELS_FETCH": "1",
            "OPENCODE_MODELS_PATH": str(world.home / "models.json"),
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


class Talk:
    """A conversation with a running agent: the test speaks for its model."""

    #: What the agent said at its end.
    reply: Reply

    def __init__(self, chat: Chat, running: "Future[Reply]") -> None:
        self.running = running
        self.call = chat.call
        self.result = chat.result


@contextmanager
def talk(
    world: World, agent: Agent, prompt: str = "Do it.", *, session: str = "", options: tuple[str, ...] = ()
) -> Generator[Talk]:
    """Start an agent headless, speak for its model, and wait for its end."""
    chat = world.model.chat = Chat()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(agent.ask, world, prompt, session=session, options=options)
        talking = Talk(chat, running)
        chat.follow(running)
        try:
            yield talking
        finally:
            chat.end()
    world.model.chat = None
    talking.reply = running.result()
