"""The adapter for the Claude Agent SDK, with the real CLI and a fake API on loopback."""

import json
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from claude_agent_sdk import ClaudeAgentOptions, ResultMessage, create_sdk_mcp_server, query, tool
from mcp.types import ToolAnnotations

from interlock import Gate
from interlock.adapters.claude_agent_sdk import interlocked
from interlock.testing.adapters import (
    DONE,
    AdapterConformance,
    AdapterHarness,
    SampleTools,
    Script,
    ScriptedCall,
    Turn,
)
from tests.adapters.fake_anthropic import serve

SESSION = "5f0c3a52-6f1e-4c89-9a39-0f7d2f6d4b10"


class ScriptedModel:
    """Makes the calls of a script, asks again where it is told to, and keeps what it was shown."""

    def __init__(self, script: Script) -> None:
        self.script = script
        self.read: dict[str, str] = {}

    def respond(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        blocks = [block for message in messages if isinstance(message["content"], list) for block in message["content"]]
        made = {block["id"]: block for block in blocks if block["type"] == "tool_use"}
        results = {block["tool_use_id"]: block for block in blocks if block["type"] == "tool_result"}
        for call_id, block in results.items():
            self.read[call_id.removesuffix("-again")] = json.dumps(block["content"])
        again = [
            block | {"id": f"{call_id}-again"}
            for call_id, block in made.items()
            if f"{call_id}-again" not in made and "Ask again" in json.dumps(results.get(call_id, {}))
        ]
        if again:
            return again
        turns = sum(not call_id.endswith("-again") for call_id in made)
        for calls in self.script:
            if turns < len(calls):
                return [
                    {"type": "tool_use", "id": call.call_id, "name": _cli_name(call.tool), "input": _input(call)}
                    for call in calls
                ]
            turns -= len(calls)
        return [{"type": "text", "text": DONE}]


def _cli_name(name: str) -> str:
    return name if name[0].isupper() else f"mcp__shop__{name}"


def _input(call: ScriptedCall) -> dict[str, Any]:
    return call.amount if isinstance(call.amount, dict) else {"amount": call.amount}


def _server(tools: SampleTools) -> Any:
    reads = ToolAnnotations(readOnlyHint=True)

    @tool("look", "Look at an amount.", {"amount": int}, annotations=reads)
    async def look(args: dict[str, Any]) -> dict[str, Any]:
        return _text(tools.look(**args))

    @tool("pay", "Pay an amount.", {"amount": int})
    async def pay(args: dict[str, Any]) -> dict[str, Any]:
        return _text(tools.pay(**args))

    @tool("meet", "Meet the others.", {"amount": int}, annotations=reads)
    async def meet(args: dict[str, Any]) -> dict[str, Any]:
        return _text(await tools.meet(**args))

    return create_sdk_mcp_server("shop", tools=[look, pay, meet])


def _text(text: str) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": text}]}


class ClaudeHarness:
    framework = "claude-agent-sdk"
    reference = "tests.adapters.suite_claude_agent_sdk:HARNESS"
    run_id = f"cc:{SESSION}"
    not_applicable: Mapping[str, str] = {}

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, script, tools, tools.folder / "home", session_id=SESSION)

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        return await self._run(gate, script, tools, _copy(saved), resume=SESSION)

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, script, tools, tools.folder / "home", resume=SESSION)

    def alter(self, saved: str, call_id: str, amount: int, tools: SampleTools) -> str:
        altered = _copy(saved)
        for file in altered.glob("projects/*/*.jsonl"):
            file.write_text(re.sub(r'("amount": ?)5', rf"\g<1>{amount}", file.read_text()))
        return str(altered)

    async def start_nested(self, gate: Gate, tools: SampleTools) -> Turn:
        raise NotImplementedError

    async def resume_nested(self, gate: Gate, tools: SampleTools, saved: str) -> Turn:
        raise NotImplementedError

    async def check_control_flow(self, gate: Gate, tools: SampleTools) -> None:
        raise NotImplementedError

    async def check_provider_tools(self, gate: Gate) -> None:
        raise NotImplementedError

    async def _run(
        self, gate: Gate, script: Script, tools: SampleTools, home: Path, **options: Any
    ) -> Turn:
        model = ScriptedModel(script)
        text = ""
        with serve(model.respond) as url:
            given = ClaudeAgentOptions(
                tools=[],
                mcp_servers={"shop": _server(tools)},
                env=_environment(url, home),
                cwd=tools.folder,
                setting_sources=[],
                model="claude-sonnet-4-5",
                **options,
            )

            async def prompt() -> Any:
                yield {"type": "user", "message": {"role": "user", "content": "Go."}}

            async for message in query(prompt=prompt(), options=interlocked(given, gate)):
                if isinstance(message, ResultMessage) and message.deferred_tool_use is None:
                    text = message.result or ""
        return Turn(text=text, saved=str(home), read=model.read)


def _environment(url: str, home: Path) -> dict[str, str]:
    home.mkdir(exist_ok=True)
    return {
        "ANTHROPIC_BASE_URL": url,
        "ANTHROPIC_API_KEY": "sk-none",
        "HOME": str(home),
        "CLAUDE_CONFIG_DIR": str(home),
        "DISABLE_TELEMETRY": "1",
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "CLAUDE_CODE_MAX_TOOL_USE_CONCURRENCY": "20",
    }


def _copy(saved: str) -> Path:
    home = Path(saved)
    copied = home.parent / f"home-{len(list(home.parent.glob('home*')))}"
    shutil.copytree(home, copied)
    return copied


HARNESS = ClaudeHarness()


class TestClaudeAgentSdk(AdapterConformance):
    @pytest.fixture
    def harness(self) -> AdapterHarness:
        return HARNESS
