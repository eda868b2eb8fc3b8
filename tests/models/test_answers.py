"""Whatever a server sends and a model wrote: nothing but `ModelError` or a sound answer comes out."""

from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ModelError
from interlock.domain.ids import is_valid_name
from interlock.domain.json import parse
from interlock.domain.messages import AssistantMessage, Message, ProposedCall, ToolMessage, UserMessage
from interlock.models.anthropic_messages import AnthropicResponse, messages_body
from interlock.models.conversation import NO_RESULT, sanitize_messages
from interlock.models.interface import ModelRequest, StreamFinished
from interlock.models.openai_chat import OpenAIResponse, chat_body
from interlock.models.response_assembly import CallAssembler, TextAssembler

texts = st.text(st.characters(codec=None), max_size=12)
few_ids = st.sampled_from(["", "a", "b", "call_1", "call_2", "no good id \ud800", "x" * 300])
pieces = st.tuples(st.none() | st.integers(-1, 3), few_ids, st.sampled_from(["", "read", "\ud83d"]), texts)


def call(call_id: str, tool: str = "read", arguments: str = "{}") -> ProposedCall:
    return ProposedCall(call_id=call_id, tool=tool, arguments=arguments)


@given(st.lists(pieces, max_size=12), st.sets(few_ids), st.booleans())
def test_calls_always_have_ids_that_can_be_used_and_that_are_new(
    written: list[tuple[int | None, str, str, str]], earlier: set[str], cut: bool
) -> None:
    calls = CallAssembler([AssistantMessage(calls=tuple(map(call, earlier)))])
    for piece in written:
        calls.add_delta(*piece)

    done = calls.finish(cut=cut)

    assert all(is_valid_name(each.call_id) and each.call_id not in earlier for each in done)
    assert all(each.arguments for each in done)
    msgspec.json.encode(done)


@given(st.text(max_size=60), st.lists(st.integers(0, 130), max_size=8))
def test_text_that_was_cut_anywhere_is_the_same_text(text: str, cuts: list[int]) -> None:
    """Servers in some languages cut text between the halves of a character."""
    units = text.encode("utf-16-le")
    edges = [0, *sorted(min(2 * cut, len(units)) for cut in cuts), len(units)]
    parts = [units[start:end] for start, end in pairwise(edges)]
    spoken = TextAssembler()

    heard = [spoken.add_delta(part.decode("utf-16-le", "surrogatepass")) for part in parts]

    assert "".join(heard) + spoken.finish() == text


@given(st.lists(texts, max_size=6))
def test_any_text_can_be_stored(parts: list[str]) -> None:
    spoken = TextAssembler()

    "".join([*(spoken.add_delta(part) for part in parts), spoken.finish()]).encode()


proposed_calls = st.builds(ProposedCall, call_id=few_ids | texts, tool=texts, arguments=texts | st.just('{"a": 1}'))
messages = st.one_of(
    st.builds(UserMessage, texts),
    st.builds(AssistantMessage, texts, st.lists(proposed_calls, max_size=4).map(tuple)),
    st.builds(ToolMessage, few_ids | texts, texts),
)
conversations = st.lists(messages, max_size=8)


@given(conversations)
def test_a_tidy_conversation_has_every_call_once_with_its_result_directly_after_it(told: list[Message]) -> None:
    tidied = sanitize_messages(told)

    owed: list[str] = []
    for message in tidied:
        match message:
            case ToolMessage(call_id, text):
                assert call_id == owed.pop(0)
                text.encode()
            case AssistantMessage(_, calls):
                assert owed == []
                owed = [each.call_id for each in calls]
                assert len(set(owed)) == len(owed)
                assert all(each.tool and isinstance(parse(each.arguments), dict) for each in calls)
            case UserMessage():
                assert owed == []
    assert owed == []
    assert [type(each) for each in tidied if not isinstance(each, ToolMessage)].count(UserMessage) == sum(
        isinstance(each, UserMessage) for each in told
    )


@given(conversations, texts)
def test_any_conversation_can_be_sent(told: list[Message], instructions: str) -> None:
    request = ModelRequest(model="m", instructions=instructions, messages=tuple(told))

    msgspec.json.encode(chat_body(request, "m", "max_tokens"))
    body = messages_body(request, "m", 9)

    msgspec.json.encode(body)
    roles = [message["role"] for message in body["messages"]]
    assert roles[0] == "user"
    assert all(one != other for one, other in pairwise(roles))
    assert all(message["content"] for message in body["messages"])


def test_results_go_to_their_calls_and_a_result_for_nobody_goes_to_a_call_without_one() -> None:
    told = [
        AssistantMessage(calls=(call("a"), call(""), call("c"), call("a", arguments='{"b": 1}'))),
        UserMessage("Meanwhile."),
        ToolMessage("invalid_77", "A call needs a name."),
        ToolMessage("a", "done"),
        ToolMessage("a", "That id was used before."),
        ToolMessage("a", "done"),
    ]

    _, first, second, third, last = sanitize_messages(told)

    assert first == ToolMessage("a", "done\n\nThat id was used before.")
    assert isinstance(second, ToolMessage)
    assert second.text == "A call needs a name."
    assert third == ToolMessage("c", NO_RESULT)
    assert last == UserMessage("Meanwhile.")


@pytest.mark.parametrize(
    ("tool", "sent"), [("read_file", "read_file"), ("", "unnamed"), ("a b/ü", "a_b__"), ("x" * 99, "x" * 64)]
)
def test_a_name_that_no_provider_takes_is_sent_as_one_that_they_take(tool: str, sent: str) -> None:
    (message, _) = sanitize_messages([AssistantMessage(calls=(call("a", tool),))])

    assert isinstance(message, AssistantMessage)
    assert message.calls[0].tool == sent


# fmt: off
NAMES = [
    "type", "index", "id", "name", "text", "input", "delta", "choices",
    "usage", "message", "content", "content_block", "partial_json", "tool_calls", "function", "arguments",
    "finish_reason", "stop_reason", "refusal", "prompt_tokens", "input_tokens", "output_tokens", "cost",
    "thinking", "signature", "data",
]
BLOCKS = ["text", "tool_use", "thinking", "redacted_thinking", "text_delta"]
# fmt: on
names = st.sampled_from(NAMES)
scalars = st.none() | st.booleans() | st.integers(-9, 9) | st.floats() | texts | st.sampled_from(BLOCKS)
kinds = st.sampled_from(
    ["message_start", "content_block_start", "content_block_delta", "message_delta", "message_stop"]
)
documents = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=5), max_leaves=20
)
events = st.dictionaries(names, documents, max_size=6)


def as_objects(document: Any) -> Any:
    """As an SDK hands it on: what is an object in JSON has attributes, but for the arguments of calls."""
    if isinstance(document, list):
        return [as_objects(inner) for inner in document]  # pyright: ignore[reportUnknownVariableType]
    if isinstance(document, dict):
        items = cast(dict[str, Any], document).items()
        plain = {"input", "arguments"}
        return SimpleNamespace(**{name: inner if name in plain else as_objects(inner) for name, inner in items})
    return document


@given(st.lists(st.tuples(events, kinds), max_size=6))
def test_no_event_of_any_shape_does_more_than_be_refused(heard: list[tuple[dict[str, Any], str]]) -> None:
    for answer in (OpenAIResponse(), AnthropicResponse()):
        for event, kind in heard:
            try:
                answer.add(as_objects({**event, "type": kind}))
            except (msgspec.ValidationError, ModelError):
                continue
        ended = answer.finish()
        assert isinstance(ended[-1], StreamFinished)
        msgspec.json.encode(ended)
