"""What the README and the page of guarantees promise is so."""

import asyncio
import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from interlock import (
    ERROR_CODES,
    CallbackInteractionProvider,
    HeadlessInteractionProvider,
    Observation,
    Rule,
    RulePolicy,
    ToolRuntime,
    tool,
)
from interlock.domain.outcome import Phase
from tests.each import each
from tests.models.loopback import STREAM, Reply, serving
from tests.models.wire import openai_call, openai_chunks, openai_delta
from tests.patience import HANG_SECONDS
from tests.test_requirements import marks, proofs

from .pages import ROOT, section, table_rows, text_of, yaml_blocks

README, CONTRIBUTING, GUARANTEES = (text_of(page) for page in ("README.md", "CONTRIBUTING.md", "docs/guarantees.md"))


def test_the_readme_is_short_and_starts_with_the_two_commands() -> None:
    assert len(README.splitlines()) <= 150
    assert re.findall(r"^make (\w+) ", README, re.MULTILINE)[:2] == ["demo", "test"]


def test_make_help_and_the_contributing_page_agree() -> None:
    listed = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    shown = {name: words for name, words in table_rows(section(CONTRIBUTING, "Set-up")) if name.startswith("`make")}
    assert [line.split(maxsplit=2) for line in listed.splitlines()] == [
        [*name.strip("`").split(), words] for name, words in shown.items()
    ]


def test_the_picture_has_every_stage_in_order() -> None:
    picture = section(text_of("docs/architecture.md"), "The way of a call").partition("generated: stages")[0]
    drawn = " > ".join(line for line in picture.splitlines() if " > " in line)
    assert drawn.replace(" ", "").split(">") == [phase for phase in Phase if phase is not Phase.RECORD]
    assert f"{Phase.RECORD}: after every stage" in picture


async def test_the_first_agent_asks_a_real_server_and_the_person() -> None:
    order = openai_call(id="c1", function={"name": "order", "arguments": '{"item": "tea", "count": 50}'})
    replies = [(order, openai_delta(finish_reason="tool_calls")), (openai_delta({"content": "Ordered."}, "stop"),)]
    async with serving(
        *(Reply(openai_chunks(*chunks), headers={"content-type": STREAM}) for chunks in replies)
    ) as server:
        env = {**os.environ, "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test"}
        run = await asyncio.create_subprocess_exec(
            *(sys.executable, "examples/first_agent.py"),
            cwd=ROOT,
            env=env,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await asyncio.wait_for(run.communicate(b"y\n"), HANG_SECONDS)
    assert printed.decode().startswith("Run order?")
    assert printed.decode().endswith("Ordered.\n")
    assert "ordered 50 tea" in str(server.asked[1].body["messages"][-1])


def test_the_command_says_what_the_policy_page_shows() -> None:
    place = section(text_of("docs/policy.md"), "Explaining a decision")
    (shown,) = re.findall(r"^```console\n\$ (.+)\n((?:.*\n)*?)```$", place, re.MULTILINE)
    _, *words = shlex.split(shown[0])
    command = [str(Path(sys.executable).with_name("interlock")), *words]
    env = {**os.environ, "NO_COLOR": "1"}
    said = subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=False)
    assert (said.stdout, said.returncode) == (shown[1], 1)


def test_the_policy_of_the_readme_fits_in_eight_lines() -> None:
    (policy,) = yaml_blocks(section(README, "A policy you can read and test"))
    assert policy == text_of("examples/small_policy.yaml")
    assert len(policy.splitlines()) == 8


def test_the_extras_are_those_of_the_package() -> None:
    declared = tomllib.loads(text_of("pyproject.toml"))["project"]["optional-dependencies"]
    listed = re.findall(r"^\| `interlock\[(\w+)\]`", text_of("docs/quickstart.md"), re.MULTILINE)
    assert sorted(listed) == sorted(declared)
    install = section(README, "Install")
    assert [extra for extra in declared if f"`{extra}`" not in install] == []


def test_every_guarantee_names_lines_that_tests_prove() -> None:
    proved = proofs(marks())
    rows = table_rows(section(GUARANTEES, "Guarantees"))
    assert len(rows) > 5
    assert [id_ for _, ids in rows for id_ in ids.split() if id_ not in proved] == []


def test_the_layout_names_what_is_there() -> None:
    for row in table_rows(section(CONTRIBUTING, "Layout")):
        for path in re.findall(r"`([\w/.]+[/y])`", row[0]):
            assert any((ROOT / place / path).exists() for place in ("", "src/interlock")), path


def test_questions_of_newcomers_are_answered_within_three_opens() -> None:
    """`folder/` > `file.py` (`name`): what to open, one after the other, and what to search there."""
    rows = table_rows(section(CONTRIBUTING, "Where to look"))

    assert len(rows) == 9
    for question, answer in rows:
        ways = re.findall(r"((?:`[\w/]+/` > )+`[\w/.]+`)(?: \(([^)]*)\))?", answer)
        assert ways, question
        for way, searched in ways:
            opens = re.findall(r"`([\w/.]+)`", way)
            file = ROOT / "src" / "interlock" / "".join(opens)
            assert (len(opens) <= 3, file.exists()) == (True, True), way
            for name in re.findall(r"`(?:\w+\.)?(\w+)`", searched):
                assert name in file.read_text(), (question, name)


@tool(visible=lambda situation: "It is closed today.")
def closed() -> str:
    """Is never there."""
    return "open"


@tool(risk="write")
def order(count: int) -> str:
    """Order something."""
    return f"ordered {count}"


@tool(timeout_seconds=0.01)
async def hang() -> None:
    """Never ends."""
    await asyncio.Event().wait()


@tool
def fail() -> None:
    """Never works."""
    raise ValueError("no such table")


POLICY = RulePolicy(
    [
        Rule(
            id="many",
            verdict="deny",
            tools="order",
            when=lambda event: event.arguments["count"] > 9,
            reason="Too many.",
            advice="Order fewer.",
        )
    ]
)


def _call(name: str, arguments: str = "{}") -> dict[str, Any]:
    return {"id": "call", "type": "function", "function": {"name": name, "arguments": arguments}}


#: The calls of a model, by the code that the first of them gets, and what the model must be able to read.
BAD_CALLS: dict[str, tuple[list[dict[str, Any]], list[str]]] = {
    "unknown_tool": ([_call("oder")], ["fail, hang, order, read_artifact"]),
    "tool_not_visible": ([_call("closed")], ["It is closed today."]),
    "arguments_malformed": ([_call("order", '{"count": 1, "count": 2}')], ["count", "line 1 column"]),
    "schema_invalid": ([_call("order", '{"count": "1", "cuont": 2}')], ["input.count:", "input.cuont is not a known"]),
    "call_id_conflict": ([_call("order", '{"count": 1}'), _call("order", '{"count": 2}')], ["Nothing was executed"]),
    "policy_denied": ([_call("order", '{"count": 99}')], ["many", "Too many.", "Order fewer."]),
    "user_denied": ([_call("order", '{"count": 1}')], ["declined"]),
    "approval_unavailable": ([_call("order", '{"count": 1}')], ["no person"]),
    "timed_out": ([_call("hang")], ['"sideEffects":"unknown"']),
    "tool_failed": ([_call("fail")], ["ValueError: no such table"]),
}


def test_every_bad_call_of_the_page_is_tried_here() -> None:
    rows = table_rows(section(GUARANTEES, "What happens to a bad call"))
    assert [row[1].strip("`") for row in rows] == list(BAD_CALLS)
    assert set(BAD_CALLS) | {"outcome_unknown"} <= set(ERROR_CODES)


@each("code", BAD_CALLS)
async def test_a_bad_call_gets_the_code_and_the_words_of_the_page(code: str) -> None:
    calls, words = BAD_CALLS[code]
    person = CallbackInteractionProvider(lambda question: False)
    interaction = HeadlessInteractionProvider() if code == "approval_unavailable" else person
    async with ToolRuntime(tools=[closed, order, hang, fail], policy=POLICY, interaction=interaction) as runtime:
        result = await runtime.execute(calls)
    observation: Observation = result.observations[0]
    assert observation.code == code
    assert [word for word in words if word not in result.messages[0]["content"]] == []


async def test_the_same_call_twice_runs_once_and_is_answered_twice() -> None:
    ran: list[int] = []

    @tool
    def count() -> int:
        """Count."""
        ran.append(1)
        return len(ran)

    async with ToolRuntime(tools=[count]) as runtime:
        result = await runtime.execute([_call("count"), _call("count")])
    assert [record.output for record in result.tool_executions] == [1, 1]
    assert len(ran) == 1
