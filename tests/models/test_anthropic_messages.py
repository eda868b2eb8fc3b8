"""The messages API as servers really speak it, over HTTP on this host."""

import anthropic
import pytest

from interlock.domain.errors import ModelError
from interlock.domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from interlock.domain.tool import ToolSpec
from interlock.models.anthropic_messages import AnthropicMessages
from interlock.models.interface import ModelRequest, StreamFinished, TextDelta
from tests.models.loopback import Reply, serving
from tests.models.wire import (
    ANTHROPIC_START,
    ANTHROPIC_STOP,
    HELLO,
    KEY,
    answer,
    answer_to,
    anthropic_block,
    anthropic_end,
    anthropic_events,
    anthropic_piece,
    calls_of,
    end_of,
    talking,
    text_of,
)

READ = ToolSpec(name="read_file", description="Read a file.", parameters_schema={"type": "object"})


def call(call_id: str, tool: str, arguments: str) -> ProposedCall:
    return ProposedCall(call_id=call_id, tool=tool, arguments=arguments)


async def test_a_request_is_written_as_the_api_wants_it() -> None:
    request = ModelRequest(
        model="some-model",
        instructions="Be brief.",
        messages=(
            UserMessage("Read both."),
            UserMessage("Now."),
            AssistantMessage("I do.", (call("c1", "read_file", '{"path":"a"}'), call("c2", "read_file", "{"))),
            ToolMessage("c2", "not JSON"),
            ToolMessage("c1", "content"),
            UserMessage("And?"),
            AssistantMessage(""),
        ),
        tools=(READ,),
        tool_choice="required",
        temperature=0.5,
    )
    async with talking("anthropic", Reply(HELLO["anthropic"])) as (provider, server):
        await answer(provider, request)

    (asked,) = server.asked
    assert asked.path == "/v1/messages"
    assert asked.body == {
        "model": "some-model",
        "max_tokens": 16_384,
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Read both."}, {"type": "text", "text": "Now."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "text", "text": "I do."},
                    {"type": "tool_use", "id": "c1", "name": "read_file", "input": {"path": "a"}},
                    {"type": "tool_use", "id": "c2", "name": "read_file", "input": {"unreadable_arguments": "{"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c1", "content": "content"},
                    {"type": "tool_result", "tool_use_id": "c2", "content": "not JSON"},
                    {"type": "text", "text": "And?"},
                ],
            },
        ],
        "tools": [{"name": "read_file", "description": "Read a file.", "input_schema": {"type": "object"}}],
        "tool_choice": {"type": "any"},
        "cache_control": {"type": "ephemeral"},
        "stream": True,
    }


@pytest.mark.parametrize(
    ("choice", "written"),
    [("auto", {"type": "auto"}), ("none", {"type": "none"}), ("read_file", {"type": "tool", "name": "read_file"})],
)
async def test_the_choice_of_tools_is_written_as_the_api_wants_it(choice: str, written: dict[str, str]) -> None:
    request = ModelRequest(model="m", messages=(UserMessage("Go."),), tools=(READ,), tool_choice=choice)
    async with talking("anthropic", Reply(HELLO["anthropic"])) as (provider, server):
        await answer(provider, request)

    assert server.asked[0].body["tool_choice"] == written


async def test_a_schema_for_the_answer_is_made_one_that_the_api_can_hold_a_model_to() -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer", "minimum": 1}}, "required": ["size"]}
    request = ModelRequest(model="m", messages=(UserMessage("Go."),), output_schema=schema, max_output_tokens=9)
    async with talking("anthropic", Reply(HELLO["anthropic"])) as (provider, server):
        await answer(provider, request)

    body = server.asked[0].body
    assert body["max_tokens"] == 9
    assert body["output_config"]["format"]["schema"]["additionalProperties"] is False
    assert request.output_schema == schema


async def test_a_conversation_in_which_nobody_spoke_first_has_a_first_message() -> None:
    request = ModelRequest(model="m", messages=(AssistantMessage("I begin."),))
    async with talking("anthropic", Reply(HELLO["anthropic"])) as (provider, server):
        await answer(provider, request)

    assert [message["role"] for message in server.asked[0].body["messages"]] == ["user", "assistant"]


async def test_text_and_calls_are_put_together_by_block() -> None:
    events = await answer_to(
        "anthropic",
        *anthropic_events(
            ANTHROPIC_START,
            {"type": "ping"},
            anthropic_block(0, type="thinking", thinking="", signature=""),
            anthropic_piece(0, type="thinking_delta", thinking="hm"),
            anthropic_piece(0, type="signature_delta", signature="s"),
            anthropic_block(1, type="text", text="I "),
            anthropic_piece(1, type="text_delta", text="look."),
            {"type": "content_block_stop", "index": 1},
            anthropic_block(4, type="tool_use", id="a", name="read", input={}),
            anthropic_block(5, type="tool_use", id="b", name="grep", input={"q": 1}),
            anthropic_piece(4, type="input_json_delta", partial_json=""),
            anthropic_piece(4, type="input_json_delta", partial_json='{"p"'),
            anthropic_piece(4, type="input_json_delta", partial_json=":1}"),
            anthropic_block(6, type="tool_use", id="c", name="list", input={}),
            anthropic_block(7, type="server_tool_use", id="s", name="web_search", input={}),
            anthropic_piece(7, type="input_json_delta", partial_json='{"query":"x"}'),
            {"type": "content_block_of_the_future", "index": "x"},
            anthropic_end("tool_use"),
            ANTHROPIC_STOP,
        ),
    )

    assert text_of(events) == "I look."
    assert calls_of(events) == [call("a", "read", '{"p":1}'), call("b", "grep", '{"q":1}'), call("c", "list", "{}")]


async def test_half_a_character_in_arguments_is_written_as_an_escape() -> None:
    block = (
        b'{"type":"content_block_start","index":0,"content_block":{"type":"tool_use","id":"a","name":"r","input":%s}}'
    )
    events = await answer_to(
        "anthropic",
        *anthropic_events(ANTHROPIC_START),
        b"event: content_block_start\ndata: " + block % b'{"p":"\\ud83d"}' + b"\n\n",
        *anthropic_events(anthropic_end("tool_use"), ANTHROPIC_STOP),
    )

    assert calls_of(events) == [call("a", "r", '{"p":"\\\\u{d83d}"}')]


async def test_a_call_that_was_cut_never_looks_like_a_call_without_arguments() -> None:
    events = await answer_to(
        "anthropic",
        *anthropic_events(
            ANTHROPIC_START,
            anthropic_block(0, type="tool_use", id="a", name="write", input={}),
            anthropic_piece(0, type="input_json_delta", partial_json='{"path": "a'),
            anthropic_block(1, type="tool_use", id="b", name="clean", input={}),
            anthropic_end("max_tokens"),
            ANTHROPIC_STOP,
        ),
    )

    assert calls_of(events) == [call("a", "write", '{"path": "a'), call("b", "clean", "{")]
    assert end_of(events).reason == "length"


async def test_cached_input_is_counted_as_input() -> None:
    usage = {"input_tokens": 3, "cache_read_input_tokens": 40, "cache_creation_input_tokens": 7, "output_tokens": 1}
    events = await answer_to(
        "anthropic",
        *anthropic_events(
            {"type": "message_start", "message": {"usage": usage}}, anthropic_end("end_turn", 9), ANTHROPIC_STOP
        ),
    )

    assert events == [StreamFinished(reason="stop", usage=Usage(input_tokens=50, output_tokens=9, cached_tokens=40))]


@pytest.mark.parametrize(
    ("said", "meant"),
    [
        ("stop_sequence", "stop"),
        ("refusal", "refused"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "other"),
        ("tired", "other"),
    ],
)
async def test_other_ends_have_their_meaning(said: str, meant: str) -> None:
    events = await answer_to("anthropic", *anthropic_events(ANTHROPIC_START, anthropic_end(said), ANTHROPIC_STOP))

    assert end_of(events).reason == meant


@pytest.mark.parametrize(("kind", "again"), [("overloaded_error", True), ("invalid_request_error", False)])
async def test_an_error_in_the_middle_says_whether_asking_again_may_help(kind: str, again: bool) -> None:
    error = {"type": "error", "error": {"type": kind, "message": f"It is {KEY}"}}

    with pytest.raises(ModelError, match=r"It is \[key\]\. Nothing was executed") as told:
        await answer_to("anthropic", *anthropic_events(ANTHROPIC_START, error))

    assert told.value.retryable is again


async def test_a_client_of_ones_own_is_used_and_stays_open() -> None:
    async with serving(Reply(HELLO["anthropic"]), Reply(HELLO["anthropic"])) as server:
        client = anthropic.AsyncAnthropic(base_url=server.url, api_key=KEY)
        provider = AnthropicMessages("m", client=client, prompt_cache=False)
        assert (await answer(provider))[0] == TextDelta("Hi")
        await provider.close()

        assert text_of(await answer(provider)) == "Hi"
        assert "cache_control" not in server.asked[0].body
        await client.close()
