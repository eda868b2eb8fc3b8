"""A script is played in its order, says where it ends, and survives being written down."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.domain.errors import ConfigurationError, ModelError
from interlock.domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from interlock.models.interface import ModelRequest, StreamFinished, StreamRestarted, TextDelta, ToolCallDelta
from interlock.models.provider_factory import with_retries
from interlock.models.scripted import (
    ModelRecorder,
    ScriptedFault,
    ScriptedModel,
    ScriptedTurn,
    from_script,
    to_script,
    tool_call,
)
from tests.models.wire import ASKED, answer, calls_of, text_of


async def test_turns_are_given_in_their_order() -> None:
    call = tool_call("read_file", path="a", call_id="c1")
    provider = ScriptedModel(
        [ScriptedTurn(text="First.", calls=(call,), usage=Usage(input_tokens=2)), ScriptedTurn(text="Second.")]
    )

    assert await answer(provider) == [
        TextDelta("First."),
        ToolCallDelta(call),
        StreamFinished(reason="tool_calls", usage=Usage(input_tokens=2)),
    ]
    assert await answer(provider) == [TextDelta("Second."), StreamFinished(reason="stop")]


async def test_a_script_that_is_over_says_so() -> None:
    provider = ScriptedModel([ScriptedTurn(text="Only this.")])
    await answer(provider)

    with pytest.raises(ModelError, match=r"has 1 turns and was asked for turn 2\. Nothing was executed") as error:
        await answer(provider)

    assert not error.value.retryable


async def test_a_turn_may_depend_on_the_request() -> None:
    provider = ScriptedModel([lambda request: ScriptedTurn(text=f"You asked {len(request.messages)} things.")])

    assert text_of(await answer(provider)) == "You asked 1 things."


async def test_a_call_without_an_id_is_given_one_that_is_free() -> None:
    earlier = AssistantMessage(calls=(ProposedCall(call_id="call_1", tool="a", arguments="{}"),))
    request = ModelRequest(model="", messages=(earlier, ToolMessage("call_1", "done")))
    provider = ScriptedModel(
        [ScriptedTurn(calls=(tool_call("a"), tool_call("b", raw="{", call_id="mine"), tool_call("a")))]
    )

    events = await answer(provider, request)

    assert [(call.call_id, call.arguments) for call in calls_of(events)] == [
        ("call_2", "{}"),
        ("mine", "{"),
        ("call_3", "{}"),
    ]


async def test_what_a_turn_says_before_its_fault_is_said() -> None:
    provider = ScriptedModel(
        [ScriptedTurn(text="Half a", fault=ScriptedFault(message="Cut.", retryable=True)), ScriptedTurn(text="Whole.")]
    )

    events = await answer(with_retries(provider, first_wait_seconds=0))

    assert events == [TextDelta("Half a"), StreamRestarted("Cut."), TextDelta("Whole."), StreamFinished(reason="stop")]


async def test_by_position_a_new_provider_goes_on_where_the_last_one_stopped() -> None:
    turns = [ScriptedTurn(text="One."), ScriptedTurn(text="Two.")]
    later = ModelRequest(model="", messages=(UserMessage("Go."), AssistantMessage("One."), UserMessage("On.")))

    assert text_of(await answer(ScriptedModel(turns, by_position=True), later)) == "Two."


async def test_a_recorded_run_is_a_script_that_says_the_same() -> None:
    turns = [
        ScriptedTurn(
            text="Let me look.",
            calls=(tool_call("read_file", raw='{"path": "a', call_id="c1"),),
            reason="length",
            usage=Usage(cost=0.5),
        ),
        ScriptedTurn(text="Done."),
    ]
    recorder = ModelRecorder(ScriptedModel(turns))
    first = [await answer(recorder), await answer(recorder)]

    replayed = ScriptedModel(from_script(to_script(recorder.turns)), strict=True)

    assert [await answer(replayed), await answer(replayed)] == first
    assert recorder.name == "scripted"


async def test_a_fault_is_recorded_and_what_did_not_count_is_not() -> None:
    script = [
        ScriptedTurn(text="Ha", fault=ScriptedFault(message="Cut.", retryable=True)),
        ScriptedTurn(fault=ScriptedFault(message="Over.")),
    ]
    recorder = ModelRecorder(with_retries(ScriptedModel(script), first_wait_seconds=0))

    with pytest.raises(ModelError, match="Over"):
        await answer(recorder)

    (turn,) = recorder.turns
    assert (turn.text, turn.fault) == ("", ScriptedFault(message="Over."))


async def test_a_strict_script_answers_only_what_was_asked_then() -> None:
    recorder = ModelRecorder(ScriptedModel([ScriptedTurn(text="Yes.")]))
    await answer(recorder)
    other = msgspec.structs.replace(ASKED, instructions="Be somebody else.")

    assert text_of(await answer(ScriptedModel(recorder.turns), other)) == "Yes."
    with pytest.raises(ModelError, match="Turn 1 of the script answers another request"):
        await answer(ScriptedModel(recorder.turns, strict=True), other)


async def test_a_recording_has_no_request_in_it() -> None:
    recorder = ModelRecorder(ScriptedModel([ScriptedTurn(text="Yes.")]))
    await answer(recorder, ModelRequest(model="m", instructions="A secret.", messages=(UserMessage("\ud800 secret"),)))

    assert b"secret" not in to_script(recorder.turns)


texts = st.text(st.characters(codec=None), max_size=20)
calls = st.builds(ProposedCall, call_id=texts, tool=texts, arguments=texts)
counts = st.integers(0, 2**40)
usages = st.builds(Usage, input_tokens=counts, output_tokens=counts, cached_tokens=counts, cost=st.floats(0, 1e6))
faults = st.none() | st.builds(ScriptedFault, message=texts, retryable=st.booleans())
turns = st.builds(ScriptedTurn, text=texts, calls=st.lists(calls, max_size=3).map(tuple), usage=usages, fault=faults)


@given(st.lists(turns, max_size=4))
def test_a_script_that_was_written_down_is_the_same_script(script: list[ScriptedTurn]) -> None:
    written = to_script(script)

    assert to_script(from_script(written)) == written


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not JSON"),
        ("[]", "its form is"),
        ('{"form": "interlock/script/v9", "turns": []}', "its form is"),
        ('{"form": "interlock/script/v1", "turns": [{"text": 3}]}', "is not as"),
        ('{"form": "interlock/script/v1", "turns": [], "more": 1}', "is not as"),
        ('{"form": "interlock/script/v1", "form": "interlock/script/v1", "turns": []}', "not JSON"),
        ("[" * 5000, "not JSON"),
    ],
)
def test_a_script_that_cannot_be_read_is_refused_in_words(text: str, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        from_script(text)


async def test_turns_may_be_text_calls_or_lists_of_calls() -> None:
    read, write = tool_call("read", path="a", call_id="r"), tool_call("write", path="b", call_id="w")
    model = ScriptedModel(["Hello.", read, [read, write], ScriptedTurn(text="Bye."), lambda _: "From a function."])
    said = [await answer(model) for _ in range(5)]
    assert [(text_of(events), calls_of(events)) for events in said] == [
        ("Hello.", []),
        ("", [read]),
        ("", [read, write]),
        ("Bye.", []),
        ("From a function.", []),
    ]


def test_tool_call_takes_keywords_or_raw_text() -> None:
    assert tool_call("read", path="a", deep={"x": 1}).arguments == '{"path":"a","deep":{"x":1}}'
    assert tool_call("read").arguments == "{}"
    assert tool_call("read", raw='{"x": 1', call_id="c") == ProposedCall(call_id="c", tool="read", arguments='{"x": 1')
    with pytest.raises(ConfigurationError, match="both `raw` and arguments"):
        tool_call("read", raw="{}", path="a")


@pytest.mark.parametrize("turn", [7, None, {"text": "x"}, ["text"]])
def test_what_is_no_turn_is_refused(turn: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Turn 2 of the script is of type \w+\. Give text, tool_call"):
        ScriptedModel(["Hello.", turn])
