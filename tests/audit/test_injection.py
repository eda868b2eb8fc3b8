"""Injected text changes no decision: as output, as arguments, as exception text, as a name or as a reason."""

import json
from typing import Any

import pytest

from interlock import Rule, RulePolicy, ToolIntent, ToolRuntime, read_export, render_for_user, tool
from interlock.domain.event import PolicyEvaluated, event_type
from tests.corpora.injection import MORE, load
from tests.each import each
from tests.support import call, facts

PAYLOADS = (*(attack.payload for attack in load()), *MORE)
RULES = [
    Rule(id="no-bash", verdict="deny", tools="bash", reason="Never."),
    Rule(id="fetches", verdict="allow", tools="fetch"),
]


def runtime_saying(words: str) -> tuple[ToolRuntime, list[str]]:
    ran: list[str] = []

    @tool
    async def fetch(url: str) -> str:
        ran.append("fetch")
        if url == "broken":
            raise OSError(words)
        return words

    @tool
    async def bash(command: str) -> None:
        ran.append("bash")

    return ToolRuntime(tools=[fetch, bash], policy=RulePolicy(RULES)), ran


async def story(words: str, argument: str, reason: str = "") -> tuple[list[Any], list[str], bytes, list[str]]:
    """One run of six calls in which the words come from everywhere. Its structure, what ran, export and messages."""
    runtime, ran = runtime_saying(words)
    first = await runtime.execute(
        [
            call("c1", "fetch", url="ok"),
            call("c2", "fetch", url="broken"),
            ToolIntent(call_id="c3", tool_name="bash", arguments={"command": argument}, reason=reason),
        ]
    )
    second = await runtime.execute([call("c4", "bash", command=argument), call("c5", "fetch", link=argument)])
    recorded = await facts(runtime)
    structure = [
        (event_type(fact), getattr(fact, "call_id", ""), fact.decision if isinstance(fact, PolicyEvaluated) else None)
        for fact in recorded
    ]
    audit = await runtime.verify()
    assert audit.ok
    messages = [message["content"] for message in (*first.messages, *second.messages)]
    for observation in (*first.observations, *second.observations):
        assert render_for_user(observation).isprintable()
    return structure, ran, await runtime.export(), messages


@pytest.mark.requirement("R259", "R258")
@each("payload", PAYLOADS)
async def test_injected_text_changes_no_decision_event_or_line(payload: str) -> None:
    harmless = await story("plain text", "ls", "why not")
    hostile = await story(payload, payload.encode(errors="replace").decode(), payload)

    assert hostile[:2] == harmless[:2]
    lines = hostile[2].splitlines()
    assert len(lines) == len(hostile[2].split(b"\n")) - 1 == len(harmless[2].splitlines())
    assert len(read_export(lines)) == len(lines)


@pytest.mark.requirement("R258", "R259")
@each("payload", PAYLOADS)
async def test_injected_text_stays_in_its_place_in_every_message(payload: str) -> None:
    _, _, _, messages = await story(payload, payload.encode(errors="replace").decode(), payload)

    for message in messages:
        header, *rest = message.split("\n")
        assert isinstance(json.loads(header), dict)
        assert message.splitlines() == message.split("\n")
        if rest:
            assert rest[0] == '<untrusted_tool_output trust="tool_output_untrusted" format="text">'
            assert rest[-1] == "</untrusted_tool_output>"
            assert all(line.startswith("| ") for line in rest[1:-1])


@pytest.mark.requirement("R259")
@each("payload", PAYLOADS)
async def test_injected_text_is_no_tool_and_no_call_id(payload: str) -> None:
    runtime, ran = runtime_saying("text")
    result = await runtime.execute(
        [
            ToolIntent(call_id="c1", tool_name=payload, arguments={"command": "x"}),
            ToolIntent(call_id=payload, tool_name="bash", arguments={"command": "x"}),
        ]
    )

    assert [observation.ok for observation in result.observations] == [False, False]
    assert result.observations[0].code in {"unknown_tool", "call_id_invalid"}
    assert result.observations[1].code in {"policy_denied", "call_id_invalid"}
    assert ran == []
    assert (await runtime.verify()).ok
