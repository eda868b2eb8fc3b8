"""The adapter for the Claude Agent SDK, with the real CLI and a fake API on loopback."""

import asyncio
import json
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import claude_agent_sdk
import pytest
from claude_agent_sdk import (
    AgentDefinition,
    AssistantMessage,
    ClaudeAgentOptions,
    ClaudeSDKClient,
    HookMatcher,
    TextBlock,
    create_sdk_mcp_server,
    query,
    tool,
)
from mcp.types import ToolAnnotations
from typer.testing import CliRunner

import interlock
from interlock import ConfigurationError, Gate, LocalTools, tool_call
from interlock.adapters.claude_agent_sdk import interlock_tools, interlocked, tools
from interlock.cli.main import app
from interlock.testing.adapters import (
    DONE,
    AdapterConformance,
    AdapterHarness,
    SampleTools,
    Script,
    ScriptedCall,
    Turn,
)
from interlock.testing.adapters.harness import open_gate
from tests.adapters.fake_anthropic import serve
from tests.patience import HANG_SECONDS, eventually, eventually_read

SESSION = "5f0c3a52-6f1e-4c89-9a39-0f7d2f6d4b10"


class ScriptedModel:
    """Makes the calls of a script, asks again where it is told to, and keeps what it was shown."""

    def __init__(self, script: Script, inner: Script = ()) -> None:
        self.script = script
        #: Of a sub-agent, which is told to pay.
        self.inner = inner
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
        for calls in self.inner if "Pay 5." in json.dumps(messages[0]) else self.script:
            if turns < len(calls):
                return [
                    {"type": "tool_use", "id": call.call_id, "name": _cli_name(call.tool), "input": _input(call)}
                    for call in calls
                ]
            turns -= len(calls)
        return [{"type": "text", "text": DONE}]


def _cli_name(name: str) -> str:
    return name if name[0].isupper() or "__" in name else f"mcp__shop__{name}"


def _input(call: ScriptedCall) -> dict[str, Any]:
    return call.amount if isinstance(call.amount, dict) else {"amount": call.amount}


def _server(tools: SampleTools) -> Any:
    reads = ToolAnnotations(readOnlyHint=True)

    @tool("look", "Look at an amount.", {"amount": int}, annotations=reads)
    async def look(args: dict[str, Any]) -> dict[str, Any]:
        return _text(tools.look(**args))

    @tool("pay", "Pay an amount.", {"amount": int})
    async def pay(args: dict[str, Any]) -> dict[str, Any]:
        if tools.dies:  # the CLI saves the session a moment later
            files = tools.folder / "home" / "projects"
            await eventually(lambda: any('"tool_use"' in file.read_text() for file in files.glob("*/*.jsonl")))
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
    not_applicable: Mapping[str, str] = {
        "test_a_nested_agent_asks_and_goes_on": "The CLI defers no call of a sub-agent: it waits where it is.",
        "test_control_flow_of_the_framework_passes": "A tool only returns content or an error; it cannot pause.",
        "test_tools_that_the_provider_runs_are_not_silent": "The CLI executes every tool, web search too, and asks.",
        "test_a_reused_call_id_is_another_call": "The API makes unique ids, and a hook does not name the message.",
    }

    async def start(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, script, tools, tools.folder / "home", "Go.", session_id=SESSION)

    async def resume(
        self, gate: Gate, script: Script, tools: SampleTools, saved: str, *, approve: bool = False
    ) -> Turn:
        allowed = ["mcp__shop__pay"] if approve else []
        return await self._run(gate, script, tools, _copy(saved), resume=SESSION, allowed_tools=allowed)

    async def recover(self, gate: Gate, script: Script, tools: SampleTools) -> Turn:
        return await self._run(gate, script, tools, tools.folder / "home", "Continue.", resume=SESSION)

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
        self,
        gate: Gate,
        script: Script,
        sample: SampleTools,
        home: Path,
        prompt: str = "",
        *,
        inner: Script = (),
        **options: Any,
    ) -> Turn:
        model = ScriptedModel(script, inner)
        with serve(model.respond) as url:
            text = await _talk(await interlocked(_options(url, home, sample, **options), gate), prompt)
        return Turn(text=text, saved=str(home), read=model.read)


def _options(url: str, home: Path, sample: SampleTools, **options: Any) -> ClaudeAgentOptions:
    given: dict[str, Any] = {
        "tools": [],
        "mcp_servers": {"shop": _server(sample)},
        "env": _environment(url, home),
        "cwd": sample.folder,
        "cli_path": _mortal_cli(sample.folder),
        "setting_sources": [],
        "model": "claude-sonnet-4-5",
    }
    return ClaudeAgentOptions(**given | options)


async def _talk(options: ClaudeAgentOptions, prompt: str = "") -> str:
    """Return what the model answered; empty when a call was deferred."""
    text = ""
    async with ClaudeSDKClient(options) as client:
        if prompt:
            await client.query(prompt)
        async for message in client.receive_response():
            if isinstance(message, AssistantMessage):
                text = "".join(block.text for block in message.content if isinstance(block, TextBlock))
    return text


def _mortal_cli(folder: Path) -> Path | None:
    """Return a CLI that ends with this process, also when that is killed."""
    setpriv = shutil.which("setpriv")
    if setpriv is None:
        return None
    program = folder / "claude"
    bundled = Path(claude_agent_sdk.__file__).parent / "_bundled" / "claude"
    program.write_text(f'#!/bin/sh\nexec {setpriv} --pdeathsig KILL {bundled} "$@"\n')
    program.chmod(0o755)
    return program


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
        "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",  # the agent waits for its sub-agents
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


@pytest.fixture
def sample(tmp_path: Path) -> SampleTools:
    return SampleTools(tmp_path)


async def _run_once(gate: Gate, script: Script, sample: SampleTools, **options: Any) -> Turn:
    return await HARNESS._run(gate, script, sample, sample.folder / "home", "Go.", session_id=SESSION, **options)


async def test_a_prompt_while_a_call_waits_is_refused(tmp_path: Path, sample: SampleTools) -> None:
    """The CLI would drop the call, and say to the model that it failed."""
    script = ((ScriptedCall("c1", "pay", 5),),)
    async with open_gate(tmp_path) as gate:
        turn = await _run_once(gate, script, sample)
        with serve(ScriptedModel(script).respond) as url:
            given = _options(url, Path(turn.saved), sample, resume=SESSION)
            messages = [message async for message in query(prompt="Go on.", options=await interlocked(given, gate))]
        (question,) = await gate.questions(HARNESS.run_id)
        await gate.inbox.approve(question, by="ada")
        last = await HARNESS._run(gate, script, sample, Path(turn.saved), resume=SESSION)

    assert [message for message in messages if isinstance(message, AssistantMessage)] == []
    assert (last.text, sample.paid) == (DONE, [5])


async def test_tools_of_the_cli_are_governed(tmp_path: Path, sample: SampleTools) -> None:
    (tmp_path / "note.txt").write_text("tea")
    script = (
        (
            ScriptedCall("c1", "Read", {"file_path": str(tmp_path / "note.txt")}),
            ScriptedCall("c2", "Bash", {"command": "touch made", "description": "Make a file."}),
        ),
    )
    async with Gate(tmp_path / "state", risk={"Read": "read"}) as gate:
        turn = await _run_once(gate, script, sample, tools=["Read", "Bash"])
        (question,) = await gate.questions(HARNESS.run_id)

    assert (turn.text, question.tool_name, (tmp_path / "made").exists()) == ("", "Bash", False)


async def test_no_call_of_a_turn_runs_where_the_cli_allows_it(tmp_path: Path, sample: SampleTools) -> None:
    """The CLI may not defer one of several calls: then its own rules decide, which allow everything here."""
    calls = [ScriptedCall(f"c{at}", "Bash", {"command": f"touch made{at}", "description": "x"}) for at in range(3)]
    async with Gate(tmp_path / "state") as gate:
        settings = json.dumps({"permissions": {"allow": ["Bash"]}})
        await _run_once(gate, (tuple(calls),), sample, tools=["Bash"], settings=settings)
        asked = await gate.questions(HARNESS.run_id)

    assert [question.tool_name for question in asked] == ["Bash"]
    assert [name for name in os.listdir(tmp_path) if name.startswith("made")] == []


async def test_the_model_reads_what_was_recorded(tmp_path: Path, sample: SampleTools) -> None:
    script = ((ScriptedCall("c1", "look", 4711),),)
    async with Gate(tmp_path / "state", risk={"look": "read"}, secrets={"PIN": "saw 4711"}) as gate:
        turn = await _run_once(gate, script, sample)

    assert (turn.text, sample.effects) == (DONE, ["look 4711"])
    assert "4711" not in turn.read["c1"]


async def test_a_question_of_a_sub_agent_waits_there(tmp_path: Path, sample: SampleTools) -> None:
    task = {"description": "Pay.", "prompt": "Pay 5.", "subagent_type": "clerk"}
    script = ((ScriptedCall("outer", "Agent", task),),)
    inner = ((ScriptedCall("inner", "pay", 5),),)
    clerk = AgentDefinition(description="Pays.", prompt="You are the clerk.", tools=["mcp__shop__pay"])
    async with open_gate(tmp_path, risk={"Agent": "read"}) as gate:
        run = asyncio.create_task(
            _run_once(gate, script, sample, inner=inner, tools=["Agent"], agents={"clerk": clerk})
        )

        async def has_asked() -> bool:
            assert not run.done(), run.result()
            return bool(await gate.questions(HARNESS.run_id))

        await eventually_read(has_asked)
        (asked,) = await gate.questions(HARNESS.run_id)
        await gate.inbox.approve(asked, by="ada")
        turn = await asyncio.wait_for(run, HANG_SECONDS)

    assert (turn.text, sample.paid, asked.agent) == (DONE, [5], "clerk"), turn.read


async def test_a_call_that_the_cli_denies_itself_ends(tmp_path: Path, sample: SampleTools) -> None:
    settings = json.dumps({"permissions": {"deny": ["mcp__shop__look"]}})
    async with open_gate(tmp_path) as gate:
        turn = await _run_once(gate, ((ScriptedCall("c1", "look", 1),),), sample, settings=settings)

    assert (turn.text, sample.effects) == (DONE, [])


async def test_interlock_tools_run_in_an_agent_of_the_sdk(tmp_path: Path, sample: SampleTools) -> None:
    (tmp_path / "note.txt").write_text("tea")
    path = tmp_path / "new.txt"
    script = (
        (
            ScriptedCall("c1", "mcp__local__read_file", {"path": "note.txt"}),
            ScriptedCall("c2", "mcp__local__write_file", {"path": "new.txt", "content": "x"}),
        ),
    )
    async with Gate(tmp_path / "state", workspace=tmp_path) as gate:
        given = {"mcp_servers": {"local": interlock_tools(gate, LocalTools(tmp_path))}}
        turn = await _run_once(gate, script, sample, **given)
        assert (turn.text, path.exists()) == ("", False)
        (question,) = await gate.questions(HARNESS.run_id)
        await gate.inbox.approve(question, by="ada")
        turn = await HARNESS._run(gate, script, sample, Path(turn.saved), resume=SESSION, **given)

    assert (turn.text, path.read_text()) == (DONE, "x")
    assert "tea" in turn.read["c1"]


async def test_tools_of_the_sdk_run_in_an_agent_of_interlock() -> None:
    @tool("double", "Double it.", {"number": int})
    async def double(args: dict[str, Any]) -> dict[str, Any]:
        return _text(str(2 * args["number"]))

    model = interlock.ScriptedModel([[tool_call("double", number=2), tool_call("double", number="x")], DONE])
    agent = interlock.Agent(provider=model, tools=await tools([double], risk="read"))
    async with interlock.Runner(agent) as runner:
        result = await runner.run("Go.")

    assert [one.output for one in result.tool_executions][:1] == ["4"]


@pytest.mark.parametrize("second", ["PreToolUse", "can_use_tool", "Two servers"])
async def test_a_second_approval_system_is_refused(tmp_path: Path, sample: SampleTools, second: str) -> None:
    async def allow(*_: Any) -> Any:
        raise NotImplementedError

    options = ClaudeAgentOptions()
    match second:
        case "PreToolUse":
            options.hooks = {"PreToolUse": [HookMatcher(hooks=[allow])]}
        case "can_use_tool":
            options.can_use_tool = allow
        case _:
            options.mcp_servers = {"shop": _server(sample), "other": _server(sample)}
    async with open_gate(tmp_path) as gate:
        with pytest.raises(ConfigurationError, match=second):
            await interlocked(options, gate)


def test_the_page_works_as_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = Path(__file__).parents[2] / "docs" / "adapters" / "claude_agent_sdk.md"
    start, resume = re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    calls = (ScriptedCall("c1", "find_order", {"number": 7}), ScriptedCall("c2", "refund", {"number": 7}))
    names: dict[str, Any] = {}
    with serve(ScriptedModel((calls,)).respond) as url:
        for name, value in _environment(url, tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        exec(start, names)  # noqa: S102 - the page
        log = ("--log", "state/runs.db")
        listed = CliRunner().invoke(app, ["approvals", "list", "--json", *log])
        answered = CliRunner().invoke(app, ["approvals", "approve", json.loads(listed.stdout)[0]["action_id"], *log])
        assert answered.exit_code == 0, answered.output
        exec(resume, names)  # noqa: S102

    assert capsys.readouterr().out == f"paused\nrefunded 7\n{DONE}\n"
