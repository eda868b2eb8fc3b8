"""Whatever a server says that an answer took, what comes out can be added up, compared and written down."""

import json
from math import inf, isfinite, nan
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ModelError
from interlock.domain.messages import Usage
from interlock.models.anthropic_messages import AnthropicResponse
from interlock.models.interface import StreamFinished
from interlock.models.openai_chat import OpenAIResponse
from interlock.models.usage import MAX_COST, MAX_TOKENS, Prices, add_cost, clamp_usage
from tests.each import each

from .wire import ANTHROPIC_STOP, HELLO, answer_to, anthropic_end, anthropic_events, end_of

PRICES = Prices(input=3.0, output=15.0)
anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from([10**400, -(10**400)]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def is_sound(usage: Usage) -> bool:
    counts = (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    return (
        all(type(count) is int and 0 <= count <= MAX_TOKENS for count in counts)
        and isfinite(usage.cost)
        and 0 <= usage.cost <= MAX_COST
        and msgspec.json.decode(msgspec.json.encode(usage), type=Usage) == usage
    )


def ended(events: list[Any]) -> Usage:
    assert isinstance(events[-1], StreamFinished)
    return events[-1].usage


@given(st.tuples(anything, anything, anything, anything), st.sampled_from([None, PRICES]))
def test_what_a_chat_server_says_is_always_sound(said: tuple[Any, Any, Any, Any], prices: Prices | None) -> None:
    names = ("prompt_tokens", "completion_tokens", "prompt_tokens_details", "cost")
    for usage in (SimpleNamespace(**dict(zip(names, said, strict=True))), said[0]):
        answer = OpenAIResponse()
        answer.add(SimpleNamespace(choices=None, usage=usage))

        assert is_sound(ended(answer.finish(prices)))


@given(st.tuples(anything, anything, anything, anything), st.sampled_from([None, PRICES]))
def test_what_a_messages_server_says_is_always_sound(said: tuple[Any, Any, Any, Any], prices: Prices | None) -> None:
    names = ("input_tokens", "output_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    for usage in (SimpleNamespace(**dict(zip(names, said, strict=True))), said[0]):
        answer = AnthropicResponse()
        answer.add(SimpleNamespace(type="message_start", message=SimpleNamespace(usage=usage)))
        answer.add(SimpleNamespace(type="message_delta", delta=None, usage=usage))

        assert is_sound(ended(answer.finish(prices)))


@given(st.builds(Usage, input_tokens=anything, output_tokens=anything, cached_tokens=anything, cost=anything))
def test_usage_of_a_provider_of_ones_own_becomes_sound(usage: Usage) -> None:
    assert is_sound(clamp_usage(usage))
    assert is_sound(add_cost(usage, PRICES))
    assert clamp_usage(clamp_usage(usage)) == clamp_usage(usage)


def test_a_number_without_end_reaches_every_limit_and_what_is_none_counts_as_not_said() -> None:
    assert clamp_usage(Usage(cost=inf, input_tokens=10**400)) == Usage(cost=MAX_COST, input_tokens=MAX_TOKENS)
    assert clamp_usage(Usage(cost=nan, input_tokens=-5)) == Usage()
    assert add_cost(Usage(cost=nan, input_tokens=1_000_000), PRICES).cost == 3.0


def test_a_number_as_text_counts() -> None:
    answer = OpenAIResponse()
    answer.add(SimpleNamespace(usage={"prompt_tokens": "12", "completion_tokens": 3.0, "cost": "0.25"}))

    assert ended(answer.finish()) == Usage(input_tokens=12, output_tokens=3, cost=0.25)


@each("number", ["1e999", "Infinity", "NaN", "-5", '"many"', "null", "[]", "true", "1" * 4000])
async def test_an_answer_is_kept_whatever_it_is_said_to_cost(number: str) -> None:
    usage = f'data: {{"choices":[],"usage":{{"prompt_tokens":{number},"cost":{number}}}}}\n\n'.encode()
    openai = await answer_to("openai", *HELLO["openai"][:-1], usage, HELLO["openai"][-1])
    event = json.dumps({**anthropic_end("end_turn"), "usage": {"output_tokens": "N"}}).replace('"N"', number)
    last = f"event: message_delta\ndata: {event}\n\n".encode()
    anthropic = await answer_to("anthropic", *HELLO["anthropic"][:3], last, *anthropic_events(ANTHROPIC_STOP))

    assert is_sound(end_of(openai).usage)
    assert is_sound(end_of(anthropic).usage)


async def test_a_number_of_more_digits_than_can_be_read_is_an_answer_that_cannot_be_read() -> None:
    usage = b'data: {"choices":[],"usage":{"prompt_tokens":' + b"1" * 5000 + b"}}\n\n"

    with pytest.raises(ModelError, match="cannot be read"):
        await answer_to("openai", *HELLO["openai"][:-1], usage, HELLO["openai"][-1])
