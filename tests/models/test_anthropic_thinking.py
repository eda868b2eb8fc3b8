"""What a model thought goes back to it as it was, and to nobody else."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.messages import AssistantMessage, Message, ToolMessage, UserMessage
from interlock.models.anthropic_messages import messages_body
from interlock.models.anthropic_thinking import MAX_PRIVATE_BYTES, ThinkingBlocks
from interlock.models.interface import ModelEvent, ModelRequest
from interlock.models.openai_chat import chat_body
from interlock.models.scripted import ModelRecorder, ScriptedModel
from tests.models.loopback import Reply
from tests.models.wire import (
    ANTHROPIC_START,
    ANTHROPIC_STOP,
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

MODEL = "some-model"
THOUGHTFUL = anthropic_events(
    ANTHROPIC_START,
    anthropic_block(0, type="thinking", thinking="", signature=""),
    anthropic_piece(0, type="thinking_delta", thinking="Which "),
    anthropic_piece(0, type="thinking_delta", thinking="file?"),
    anthropic_piece(0, type="signature_delta", signature="c2ln"),
    anthropic_block(1, type="text", text=""),
    anthropic_piece(1, type="text_delta", text="I look."),
    anthropic_block(2, type="redacted_thinking", data="c2VjcmV0"),
    anthropic_block(3, type="tool_use", id="a", name="read", input={"path": "x"}),
    anthropic_block(4, type="thinking", thinking="", signature="bm90aGluZyBzaG93bg=="),
    anthropic_block(5, type="text", text=" Twice."),
    anthropic_block(6, type="tool_use", id="b", name="read", input={"path": "y"}),
    anthropic_end("tool_use"),
    ANTHROPIC_STOP,
)
WRITTEN = [
    {"type": "thinking", "thinking": "Which file?", "signature": "c2ln"},
    {"type": "text", "text": "I look."},
    {"type": "redacted_thinking", "data": "c2VjcmV0"},
    {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
    {"type": "thinking", "thinking": "", "signature": "bm90aGluZyBzaG93bg=="},
    {"type": "text", "text": " Twice."},
    {"type": "tool_use", "id": "b", "name": "read", "input": {"path": "y"}},
]


def remembered(events: list[ModelEvent]) -> AssistantMessage:
    return AssistantMessage(text_of(events), tuple(calls_of(events)), end_of(events).private)


def sent(message: AssistantMessage, model: str = MODEL) -> list[Any]:
    """The blocks in which an answer goes back."""
    messages: tuple[Message, ...] = (
        UserMessage("Look."),
        message,
        *(ToolMessage(c.call_id, "") for c in message.calls),
    )
    body = messages_body(ModelRequest(model=model, messages=messages), model, 100)
    return [block for said in body["messages"] if said["role"] == "assistant" for block in said["content"]]


async def test_thoughts_go_back_unchanged_and_in_their_place() -> None:
    events = await answer_to("anthropic", *THOUGHTFUL)

    assert text_of(events) == "I look. Twice."
    assert sent(remembered(events)) == WRITTEN


async def test_thoughts_do_not_go_to_another_model_or_provider() -> None:
    message = remembered(await answer_to("anthropic", *THOUGHTFUL))
    plain = AssistantMessage(message.text, message.calls)

    assert sent(message, "another-model") == sent(plain, "another-model")
    request = ModelRequest(model=MODEL, messages=(message,))
    assert chat_body(request, MODEL, "") == chat_body(msgspec.structs.replace(request, messages=(plain,)), MODEL, "")


async def test_a_text_that_was_changed_meanwhile_changes_no_thought() -> None:
    message = remembered(await answer_to("anthropic", *THOUGHTFUL))

    blocks = sent(msgspec.structs.replace(message, text="[secret]", calls=message.calls[:1]))

    first, *rest = [block for block in WRITTEN if block["type"] != "text" and block.get("id") != "b"]
    # The thought at the end led to the call that is gone: nothing may end with a thought.
    assert blocks == [first, {"type": "text", "text": "[secret]"}, *rest[:-1]]


async def test_an_answer_that_was_cut_while_thinking_goes_back_without_the_thought() -> None:
    events = await answer_to(
        "anthropic",
        *anthropic_events(
            ANTHROPIC_START,
            anthropic_block(0, type="thinking", thinking="Hm", signature=""),
            anthropic_end("max_tokens"),
            ANTHROPIC_STOP,
        ),
    )

    assert end_of(events).private == ""
    assert sent(remembered(events)) == []


def test_thoughts_that_are_too_long_to_keep_are_not_kept() -> None:
    thoughts = ThinkingBlocks()
    thoughts.begin(0)
    for _ in range(3):
        thoughts.add(0, "x" * (MAX_PRIVATE_BYTES // 2), "s")

    assert thoughts.encode_private(MODEL) == ""


@pytest.mark.parametrize("text", ["half \ud800 a character", "\udfff"])
def test_a_thought_that_cannot_be_written_down_is_not_kept(text: str) -> None:
    thoughts = ThinkingBlocks()
    thoughts.begin(0)
    thoughts.add(0, text, "s")

    assert thoughts.encode_private(MODEL) == ""


async def test_a_recorded_answer_has_its_thoughts_when_it_is_given_again() -> None:
    async with talking("anthropic", Reply(THOUGHTFUL)) as (provider, _):
        recorder = ModelRecorder(provider)
        first = await answer(recorder)

    again = await answer(ScriptedModel(recorder.turns))

    assert remembered(again) == remembered(first)


def kept(blocks: list[Any]) -> str:
    return msgspec.json.encode({"model": MODEL, "blocks": blocks}).decode()


any_block = st.none() | st.integers(-5, 20) | st.sampled_from(WRITTEN) | st.dictionaries(st.text(), st.text())


@given(st.text() | st.lists(any_block, max_size=8).map(kept), st.text(max_size=20))
def test_whatever_was_kept_the_text_goes_back_whole_and_nothing_raises(private: str, text: str) -> None:
    blocks = sent(AssistantMessage(text, (), private))

    said = "".join(block["text"] for block in blocks if block["type"] == "text")
    assert "".join(said.split()) == "".join(text.split())  # the API refuses a block of nothing but spaces
    assert not blocks or blocks[-1]["type"] == "text"
