"""A run as a pytest file: hermetic, the same wherever it runs, readable when it fails, and without anything private."""

import asyncio
import json
import os
import re
import subprocess
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock.agent.next_step import Budgets
from interlock.domain.errors import ConfigurationError
from interlock.domain.tool import CallContext
from interlock.models.scripted import ScriptedTurn, tool_call
from interlock.replay.export_test import export_test, make_portable
from interlock.replay.model import replay_recording
from interlock.replay.recording import from_json
from interlock.replay.recording_reader import read_recording
from tests.replay.replayed import agent, record
from tests.sandbox.ordinary_user import run_as_ordinary_user

#: An agent as a developer would declare it, in a module beside the exported test.
DECLARED = """
from interlock import Rule, RulePolicy, tool
from interlock.agent.agent import Agent
from interlock.models.scripted import ScriptedModel, tool_call

EXECUTED = []

@tool(risk="read")
def add(a: int, b: int = 1) -> int:
    "Add two numbers."
    EXECUTED.append("add")
    return a + b

@tool(risk="write")
def send(to: str) -> str:
    "Send."
    EXECUTED.append("send")
    return "sent"

def make() -> Agent:
    assert not EXECUTED
    turns = [
        [tool_call("add", a=1), tool_call("add", a="x"), tool_call("send", to="bob")],
        "Sent.",
    ]
    model = ScriptedModel(turns, by_position=True)
    return Agent(provider=model, tools=[add, send], instructions="Be good.", policy=RulePolicy([RULE]))

RULE = Rule(id="mail", verdict="ask", tools="send", reason="It leaves the house.")
"""


def run_pytest(files: dict[str, str]) -> "subprocess.CompletedProcess[str]":
    """By an ordinary user with an empty environment, in a folder where it may not write."""
    with TemporaryDirectory() as folder:
        for name, source in files.items():
            Path(folder, name).write_text(source)
        Path(folder).chmod(0o555)
        words = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", folder, folder)
        ended = run_as_ordinary_user(*words)
        assert sorted(os.listdir(folder)) == sorted(files)
        return ended


async def test_an_exported_run_passes_for_anybody_and_fails_in_words_when_the_policy_says_something_else() -> None:
    space: dict[str, Any] = {}
    exec(DECLARED, space)  # noqa: S102 - it is ours
    recorded = await record(space["make"]())
    same = await export_test(recorded.entries, recorded.artifacts, agent="declared:make", name="test_same")
    other = await export_test(recorded.entries, recorded.artifacts, agent="strict:make", name="test_other")

    ended = run_pytest(
        {
            "declared.py": DECLARED,
            "strict.py": DECLARED.replace('verdict="ask"', 'verdict="deny"'),
            "test_other.py": other,
            "test_same.py": same,
        }
    )

    assert "1 failed, 1 passed" in ended.stdout, ended.stdout + ended.stderr
    assert "decision of call_3: was ask (mail); now deny (mail)" in ended.stdout
    assert "test_other.py::test_other - AssertionError" in ended.stdout


async def test_an_exported_run_without_an_agent_tries_the_runtime_on_stubs() -> None:
    recorded = await record(agent())

    source = await export_test(recorded.entries, recorded.artifacts)
    space: dict[str, object] = {}
    exec(compile(source.replace("asyncio.run(", "("), "exported", "exec"), space)  # noqa: S102 - what was exported

    replay = await replay_recording(from_json(str(space["RECORDING"])))
    assert replay.same, replay.words
    assert space["DECISIONS"] == replay.decisions
    assert space["OUTCOMES"] == replay.outcomes


async def test_a_run_that_stubs_cannot_tell_needs_its_agent() -> None:
    recorded = await record(agent(budgets=Budgets(max_model_calls=2)))

    with pytest.raises(ConfigurationError, match="the test needs the agent"):
        await export_test(recorded.entries, recorded.artifacts)
    assert "from shop.agents import make" in await export_test(recorded.entries, agent="shop.agents:make")


@pytest.mark.parametrize("where", ["shop", "shop:make()", "os;import sys:x", "a:b\nimport os", "../x:y"])
async def test_where_an_agent_comes_from_is_a_name_and_nothing_else(where: str) -> None:
    recorded = await record(agent())

    with pytest.raises(ConfigurationError, match="does not say where the agent comes from"):
        await export_test(recorded.entries, agent=where)
    with pytest.raises(ConfigurationError, match="cannot be the name of a test"):
        await export_test(recorded.entries, name=where)


def _instructions(situation: CallContext) -> str:
    return f"Work in {situation.workspace}."


async def test_an_exported_run_names_no_machine_no_person_and_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/mallory")
    workspace = tmp_path / "secret-project"
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    turns = (
        ScriptedTurn(calls=(tool_call("send", to="bob", text=f"{workspace}/a /home/mallory/b {key}"),)),
        ScriptedTurn(calls=(tool_call("send", to="eve"), tool_call("broken", why=f"no {workspace}"))),
        ScriptedTurn(text=f"Done in {workspace}."),
    )
    told = agent(turns=turns, instructions=_instructions)
    recorded = await record(told, workspace=workspace, requester="mallory@example.org")

    source = await export_test(recorded.entries, recorded.artifacts, agent="shop:make")

    for private in (str(workspace), "mallory", "ann", recorded.run_id, key, "act_", "payload_hash"):
        assert not re.search(rf"\b{re.escape(private)}", source), private
    assert "/workspace/a /home/person/b" in source
    recording = make_portable(read_recording(recorded.entries, recorded.artifacts), recorded.artifacts)
    replay = await replay_recording(recording, agent(instructions=_instructions))
    assert replay.same, replay.words
    assert replay.unchecked.keys() == {"call_1"}


HOSTILE = st.text() | st.sampled_from(["'''", "\\", "\\'''", '"""', "\x00\r\n\u2028\x7f", "{x}", "%s", "\ud800", "# x"])


CALL = st.tuples(HOSTILE | st.sampled_from(["add", "broken", "ghp_" + "a1b2c3" * 6, "x" * 300]), HOSTILE, HOSTILE)


@given(st.lists(CALL, min_size=1, max_size=4))
@settings(max_examples=25, deadline=None)
async def test_an_export_of_malformed_calls_passes(proposals: list[tuple[str, str, str]]) -> None:
    """Whatever tool, arguments and id the model wrote."""
    turns = (
        ScriptedTurn(
            calls=tuple(tool_call(name, raw=written, call_id=call_id) for name, written, call_id in proposals)
        ),
        ScriptedTurn(text="Done."),
    )
    recorded = await record(agent(turns=turns))

    for where in ("", "declared:make"):
        source = await export_test(recorded.entries, recorded.artifacts, agent=where)
        space: dict[str, Any] = {}
        code = source.replace("from declared import make", "make = None")
        exec(compile(code.encode("ascii"), "exported", "exec"), space)  # noqa: S102 - what was exported
        space["make"] = lambda: agent(turns=turns)
        await asyncio.to_thread(space["test_recorded_run"])


@given(st.lists(HOSTILE, min_size=3, max_size=3))
@settings(max_examples=15, deadline=None)
async def test_whatever_was_said_the_source_is_python_that_holds_it(said: list[str]) -> None:
    turns = (
        ScriptedTurn(
            text=said[0], calls=(tool_call("broken", raw=json.dumps({"why": said[1]})), tool_call("add", raw=said[2]))
        ),
        ScriptedTurn(text=said[1] or "x"),
    )
    recorded = await record(agent(turns=turns), said[2] or "x")

    source = await export_test(recorded.entries, recorded.artifacts)

    space: dict[str, object] = {}
    exec(compile(source.encode("ascii"), "exported", "exec"), space)  # noqa: S102 - what was exported
    assert from_json(str(space["RECORDING"])).opening == make_portable(read_recording(recorded.entries)).opening
