"""The chat completions API as servers really speak it, over HTTP on this host."""

import openai
import pytest

from interlock.domain.errors import ConfigurationError, ModelError
from interlock.domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from interlock.domain.tool import ToolSpec
from interlock.models.interface import ModelRequest, StreamFinished, TextDelta
from interlock.models.openai_chat import OpenAIChat
from interlock.models.usage import Prices
from tests.models.loopback import Reply, serving
from tests.models.wire import (
    ASKED,
    HELLO,
    KEY,
    answer,
    answer_to,
    calls_of,
    end_of,
    openai_call,
    openai_chunks,
    openai_delta,
    talking,
    text_of,
)

READ = ToolSpec(name="read_file", description="Read a file.", parameters_schema={"type": "object"})
CLOSED = {
    "type": "object",
    "properties": {"size": {"type": "integer"}},
    "required": ["size"],
    "additionalProperties": False,
}


def call(call_id: str, tool: str, arguments: str) -> ProposedCall:
    return ProposedCall(call_id=call_id, tool=tool, arguments=arguments)


async def test_a_request_is_written_as_the_api_wants_it() -> None:
    request = ModelRequest(
        model="some-model",
        instructions="Be brief.",
        messages=(
            UserMessage("Read it."),
            AssistantMessage("I do.", (call("c1", "read_file", '{"path":"a"}'),)),
            ToolMessage("c1", "content"),
            UserMessage("And?"),
        ),
        tools=(READ,),
        tool_choice="read_file",
        output_schema=CLOSED,
        max_output_tokens=100,
        temperature=0.5,
    )
    async with talking("openai", Reply(HELLO["openai"])) as (provider, server):
        await answer(provider, request)

    (asked,) = server.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "some-model",
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Read it."},
            {
                "role": "assistant",
                "content": "I do.",
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "read_file", "arguments": '{"path":"a"}'}}
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "content"},
            {"role": "user", "content": "And?"},
        ],
        "tools": [
            {
                "type": "function",
                "function": {"name": "read_file", "description": "Read a file.", "parameters": {"type": "object"}},
            }
        ],
        "tool_choice": {"type": "function", "function": {"name": "read_file"}},
        "response_format": {"type": "json_schema", "json_schema": {"name": "answer", "schema": CLOSED, "strict": True}},
        "max_tokens": 100,
        "temperature": 0.5,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


async def test_a_schema_that_the_api_cannot_hold_a_model_to_is_sent_without_that_claim() -> None:
    inner = {"type": "object", "properties": {"size": {"type": "integer"}}}
    loose = {"type": "object", "properties": {"inner": inner}, "required": ["inner"], "additionalProperties": False}
    request = ModelRequest(model="m", messages=(UserMessage("Go."),), output_schema=loose)
    async with talking("openai", Reply(HELLO["openai"])) as (provider, server):
        await answer(provider, request)

    assert server.asked[0].body["response_format"]["json_schema"]["strict"] is False


async def test_without_tools_nothing_is_said_about_them() -> None:
    async with talking("openai", Reply(HELLO["openai"])) as (provider, server):
        await answer(provider)

    assert not {"tools", "tool_choice", "max_tokens", "temperature"} & set(server.asked[0].body)


async def test_calls_whose_index_begins_anywhere_are_put_together() -> None:
    events = await answer_to(
        "openai",
        *openai_chunks(
            openai_call(index=7, id="a", function={"name": "read", "arguments": '{"p"'}),
            openai_call(index=3, id="b", function={"name": "grep"}),
            openai_call(index=3, function={"arguments": '{"q":1}'}),
            openai_call(index=7, function={"arguments": ":2}"}),
            openai_delta(finish_reason="tool_calls"),
        ),
    )

    assert calls_of(events) == [call("a", "read", '{"p":2}'), call("b", "grep", '{"q":1}')]


async def test_calls_that_all_have_index_0_are_told_apart_by_their_ids() -> None:
    events = await answer_to(
        "openai",
        *openai_chunks(
            openai_call(index=0, id="a", function={"name": "read", "arguments": "{}"}),
            openai_call(index=0, id="b", function={"name": "grep", "arguments": "{}"}),
            openai_delta(finish_reason="stop"),
        ),
    )

    assert calls_of(events) == [call("a", "read", "{}"), call("b", "grep", "{}")]
    assert end_of(events).reason == "tool_calls"


async def test_calls_without_an_index_are_put_together_by_id() -> None:
    events = await answer_to(
        "openai",
        *openai_chunks(
            openai_call(id="a", function={"name": "read", "arguments": '{"p"'}),
            openai_call(id="a", function={"name": "read", "arguments": ":1}"}),
            openai_call(id="b", function={"name": "grep", "arguments": {"q": 2}}),
            openai_delta(finish_reason="tool_calls"),
        ),
    )

    assert calls_of(events) == [call("a", "read", '{"p":1}'), call("b", "grep", '{"q":2}')]


async def test_calls_without_ids_are_given_ids_that_the_conversation_does_not_have() -> None:
    earlier = AssistantMessage(calls=(call("call_1", "read", "{}"),))
    request = ModelRequest(model="m", messages=(UserMessage("Go."), earlier, ToolMessage("call_1", "done")))
    chunks = openai_chunks(
        openai_call(index=0, function={"name": "read", "arguments": "{}"}),
        openai_call(index=1, id="call_1", function={"name": "read", "arguments": "{}"}),
        openai_delta(finish_reason="tool_calls"),
    )

    events = await answer_to("openai", *chunks, request=request)

    assert [each.call_id for each in calls_of(events)] == ["call_2", "call_3"]


async def test_a_call_that_was_cut_never_looks_like_a_call_without_arguments() -> None:
    events = await answer_to(
        "openai",
        *openai_chunks(
            openai_call(index=0, id="a", function={"name": "write", "arguments": '{"path": "a'}),
            openai_call(index=1, id="b", function={"name": "clean", "arguments": ""}),
            openai_delta(finish_reason="length"),
        ),
    )

    assert calls_of(events) == [call("a", "write", '{"path": "a'), call("b", "clean", "{")]
    assert end_of(events).reason == "length"


async def test_a_call_without_arguments_has_an_empty_object() -> None:
    events = await answer_to(
        "openai",
        *openai_chunks(openai_call("tool_calls", index=0, id="a", function={"name": "", "arguments": None})),
    )

    assert calls_of(events) == [call("a", "", "{}")]


async def test_counts_are_taken_from_the_last_chunk_and_have_their_price() -> None:
    counted = {"prompt_tokens": 1000, "completion_tokens": 100, "prompt_tokens_details": {"cached_tokens": 600}}
    chunks = openai_chunks(openai_delta({"content": "Hi"}, "stop"), {"choices": [], "usage": counted})
    async with serving(Reply(chunks)) as server:
        prices = {"some-model": Prices(input=10.0, output=50.0, cached=1.0)}
        provider = OpenAIChat("some-model", base_url=server.url, api_key=KEY, prices=prices)
        events = await answer(provider)
        await provider.close()

    usage = Usage(input_tokens=1000, output_tokens=100, cached_tokens=600, cost=0.0096)
    assert events == [TextDelta("Hi"), StreamFinished(reason="stop", usage=usage)]


@pytest.mark.parametrize(
    ("said", "meant"), [("content_filter", "refused"), ("function_call", "tool_calls"), ("tired", "other")]
)
async def test_other_ends_have_their_meaning(said: str, meant: str) -> None:
    events = await answer_to("openai", *openai_chunks(openai_delta(finish_reason=said)))

    assert end_of(events).reason == meant


async def test_a_refusal_is_said_and_is_the_reason() -> None:
    chunks = openai_chunks(openai_delta({"refusal": "I will not."}), openai_delta(finish_reason="stop"))

    events = await answer_to("openai", *chunks)

    assert text_of(events) == "I will not."
    assert end_of(events).reason == "refused"


async def test_an_empty_answer_is_an_answer() -> None:
    events = await answer_to(
        "openai", *openai_chunks(openai_delta({"content": ""}), openai_delta(finish_reason="stop"))
    )

    assert events == [StreamFinished(reason="stop")]


async def test_what_is_not_known_is_passed_over() -> None:
    events = await answer_to(
        "openai",
        b": keep-alive\n\n",
        b"event: future\nretry: 5\nid: 9\ndata: {}\n\n",
        *openai_chunks(
            {"choices": None, "surprise": [1]},
            openai_delta({"content": "Hi", "reasoning_content": "hm", "audio": {"id": 1}}),
            {"choices": [{"index": 1, "delta": {"content": "another choice"}}]},
            openai_delta(finish_reason="stop"),
        ),
    )

    assert text_of(events) == "Hi"


async def test_a_character_that_was_cut_in_two_is_whole_again() -> None:
    halves = (
        b'data: {"choices":[{"delta":{"content":"a\\ud83d"}}]}\n\n',
        b'data: {"choices":[{"delta":{"content":"\\ude00b"}}]}\n\n',
    )

    events = await answer_to("openai", *halves, *openai_chunks(openai_delta({"content": "\\"}, "stop")))

    assert text_of(events) == "a😀b\\"


async def test_half_a_character_at_the_end_is_shown_as_an_escape() -> None:
    events = await answer_to(
        "openai", b'data: {"choices":[{"delta":{"content":"a\\ud83d"},"finish_reason":"stop"}]}\n\n'
    )

    assert text_of(events) == "a\\u{d83d}"


async def test_a_client_of_ones_own_is_used_once_and_stays_open() -> None:
    async with serving(Reply(status=500), Reply(HELLO["openai"])) as server:
        client = openai.AsyncOpenAI(base_url=server.url, api_key=KEY)
        provider = OpenAIChat(client=client)
        with pytest.raises(ModelError):
            await answer(provider)
        await provider.close()
        again = await answer(OpenAIChat(client=client))

        assert text_of(again) == "Hi"
        assert len(server.asked) == 2
        await client.close()


def test_a_client_and_an_address_are_too_much() -> None:
    with pytest.raises(ConfigurationError, match="not both"):
        OpenAIChat(client=openai.AsyncOpenAI(api_key=KEY), base_url="http://127.0.0.1:1")


async def test_more_can_be_added_to_every_request() -> None:
    async with serving(Reply(HELLO["openai"])) as server:
        provider = OpenAIChat(base_url=server.url, api_key=KEY, extra_body={"reasoning_effort": "low"})
        await answer(provider, ASKED)
        await provider.close()

    assert server.asked[0].body["reasoning_effort"] == "low"
