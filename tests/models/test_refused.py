"""A model's broken call goes all the way: out of the stream, to the runtime, which refuses it in words."""

from typing import Any

import pytest

from interlock import ToolIntent, ToolRuntime, tool
from tests.models.wire import answer_to, calls_of, openai_chunks, openai_delta

BROKEN: dict[str, dict[str, Any]] = {
    "not JSON": {"id": "a", "function": {"name": "look", "arguments": '{"deep": '}},
    "no object": {"id": "a", "function": {"name": "look", "arguments": "[1]"}},
    "no name": {"id": "a", "function": {"name": "", "arguments": "{}"}},
    "no id and no such tool": {"function": {"name": "no_such_tool", "arguments": "{}"}},
    "wrong arguments": {"id": "a", "function": {"name": "look", "arguments": '{"deep": "very"}'}},
    "an object with half a character": {"id": "a", "function": {"name": "look", "arguments": {"deep": "\ud83d"}}},
    "half a character": {"id": "a", "function": {"name": "look\ud83d", "arguments": "{}"}},
}


async def executed(piece: dict[str, Any], finish_reason: str) -> tuple[list[bool], list[str]]:
    """What ran, and the codes of the outcomes."""
    ran: list[bool] = []

    @tool(read_only=True)
    def look(deep: bool = False) -> str:
        """Look."""
        ran.append(deep)
        return "seen"

    chunks = openai_chunks(openai_delta({"tool_calls": [piece]}), openai_delta(finish_reason=finish_reason))
    calls = calls_of(await answer_to("openai", *chunks))
    intents = [ToolIntent(call_id=call.call_id, tool_name=call.tool, arguments=call.arguments) for call in calls]
    async with ToolRuntime(tools=[look]) as runtime:
        result = await runtime.execute(intents)
    return ran, [observation.code for observation in result.observations]


async def test_a_sound_call_is_executed() -> None:
    assert await executed({"id": "a", "function": {"name": "look", "arguments": ""}}, "tool_calls") == ([False], ["ok"])


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_call_is_refused_and_nothing_is_executed(name: str) -> None:
    ran, (code,) = await executed(BROKEN[name], "tool_calls")

    assert ran == []
    assert code in {"arguments_malformed", "schema_invalid", "unknown_tool", "call_id_invalid"}


async def test_a_call_that_was_cut_before_its_arguments_is_refused_and_nothing_is_executed() -> None:
    cut = {"id": "a", "function": {"name": "look", "arguments": ""}}

    assert await executed(cut, "length") == ([], ["arguments_malformed"])
