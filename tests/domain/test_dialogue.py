"""What the model sees next, folded from what the log says was said."""

from interlock.domain.event import CallProposed, ModelResponded
from interlock.domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from interlock.domain.observation import Observation
from interlock.domain.rendering import render_for_model
from interlock.domain.state.conversation import Dialogue
from interlock.domain.state.ledger import CallEntry
from interlock.domain.state.lifecycle import CallState


def answered(call_count: int, text: str = "") -> Dialogue:
    """A person spoke, and the model answered with so many calls."""
    dialogue = Dialogue()
    dialogue.add_user_message("Do it.", 0)
    dialogue.record_request(0)
    dialogue.record_response(ModelResponded(text=text, call_count=call_count), "agent", 0)
    return dialogue


def propose(dialogue: Dialogue, call_id: str, raw_input: object = None, **about: object) -> None:
    entry = about.pop("known", None)
    assert entry is None or isinstance(entry, CallEntry)
    fact = CallProposed(call_id=call_id, tool="t", raw_input=raw_input, **about)  # pyright: ignore[reportArgumentType]
    dialogue.add_call(fact, entry, 0)


def seen(call_id: str) -> Observation:
    return Observation(call_id=call_id, tool="t", ok=True, summary=f"{call_id} is done.")


def call(call_id: str, arguments: str = "{}") -> ProposedCall:
    return ProposedCall(call_id=call_id, tool="t", arguments=arguments)


def known(digest: str) -> CallEntry:
    return CallEntry("t", digest, CallState.OBSERVED, 0, 0, observed_seq=5)


def test_an_answer_becomes_a_message_when_all_its_calls_are_known_in_the_order_of_the_model() -> None:
    dialogue = answered(2, "Both.")
    propose(dialogue, "a", {"n": 1})
    propose(dialogue, "b")

    dialogue.add_observation(seen("b"), 0)
    assert dialogue.messages == [UserMessage("Do it.")]
    dialogue.add_observation(seen("a"), 0)

    assert dialogue.messages[1:] == [
        AssistantMessage("Both.", (call("a", '{"n":1}'), call("b"))),
        ToolMessage("a", render_for_model(seen("a"))),
        ToolMessage("b", render_for_model(seen("b"))),
    ]
    assert dialogue.last == "tools"


def test_a_call_that_is_observed_while_its_siblings_are_still_to_come_does_not_close_the_answer() -> None:
    dialogue = answered(2)
    propose(dialogue, "a")
    dialogue.add_observation(seen("a"), 0)
    assert dialogue.open

    propose(dialogue, "b")
    dialogue.add_observation(seen("b"), 0)

    assert [type(message) for message in dialogue.messages[1:]] == [AssistantMessage, ToolMessage, ToolMessage]


def test_calls_that_were_lost_before_they_were_written_down_are_not_in_the_conversation() -> None:
    dialogue = answered(3, "Three.")
    propose(dialogue, "a")
    dialogue.add_observation(seen("a"), 0)

    dialogue.record_request(0)

    assert dialogue.messages[1:] == [
        AssistantMessage("Three.", (call("a"),)),
        ToolMessage("a", render_for_model(seen("a"))),
    ]


def test_an_answer_of_which_nothing_is_left_leaves_no_message() -> None:
    dialogue = answered(1)

    dialogue.record_request(0)

    assert dialogue.messages == [UserMessage("Do it.")]


def test_the_same_id_twice_in_one_answer_is_one_call() -> None:
    dialogue = answered(2)
    propose(dialogue, "a")
    propose(dialogue, "a", duplicate=True, known=CallEntry("t", "x", CallState.PROPOSED, 0, 0))
    dialogue.add_observation(seen("a"), 0)

    assert dialogue.messages[1:] == [
        AssistantMessage("", (call("a"),)),
        ToolMessage("a", render_for_model(seen("a"))),
    ]
    assert dialogue.tool_calls == 1


def test_a_call_that_was_refused_before_it_came_again_closes_the_answer_all_the_same() -> None:
    dialogue = answered(2)
    propose(dialogue, "a")
    dialogue.add_observation(seen("a"), 0)
    propose(dialogue, "a", duplicate=True, known=known("x"))

    assert not dialogue.open
    assert len(dialogue.messages) == 3


def test_an_answer_that_lost_some_of_its_calls_is_shown_as_far_as_it_is_known() -> None:
    dialogue = answered(2, "Both.")
    propose(dialogue, "a")
    dialogue.add_observation(seen("a"), 0)
    shown = [*dialogue.messages, *dialogue.open_messages]

    dialogue.record_request(0)

    assert dialogue.messages == shown
    assert not dialogue.open_messages


def test_an_id_that_an_earlier_answer_had_is_answered_with_what_was_told_then() -> None:
    dialogue = answered(1)
    propose(dialogue, "a", {"n": 1}, digest="x")
    dialogue.add_observation(seen("a"), 0)

    dialogue.record_response(ModelResponded(call_count=1), "agent", 0)
    propose(dialogue, "a", digest="x", duplicate=True, known=known("x"))

    assert dialogue.messages[1] == dialogue.messages[3], "the call as it was written, too"
    told = [message.text for message in dialogue.messages if isinstance(message, ToolMessage)]
    assert told == [render_for_model(seen("a"))] * 2
    assert not dialogue.open


def test_an_id_that_stands_for_something_else_now_is_refused_in_words() -> None:
    dialogue = answered(1)
    propose(dialogue, "a", digest="x")
    dialogue.add_observation(seen("a"), 0)

    dialogue.record_response(ModelResponded(call_count=1), "agent", 0)
    propose(dialogue, "a", digest="y", duplicate=True, known=known("x"))

    last = dialogue.messages[-1]
    assert isinstance(last, ToolMessage)
    assert "stands for different calls" in last.text
    assert "Nothing was executed" in last.text


def test_what_the_model_wrote_comes_back_as_it_wrote_it() -> None:
    dialogue = answered(3)
    for call_id, raw in {"broken": '{"n": ', "nothing": None, "object": {"n": 1}}.items():
        propose(dialogue, call_id, raw)

    assert {call.call_id: call.arguments for call in dialogue.calls.values()} == {
        "broken": '{"n": ',
        "nothing": "{}",
        "object": '{"n":1}',
    }


def test_arguments_that_are_kept_elsewhere_name_the_place() -> None:
    dialogue = answered(1)
    propose(dialogue, "a", None, raw_artifact_id="art_1")

    assert dialogue.calls["a"].artifact_id == "art_1"


def test_what_is_used_adds_up() -> None:
    dialogue = answered(0)
    dialogue.record_request(25)
    dialogue.record_response(
        ModelResponded(call_count=1, usage=Usage(input_tokens=5, output_tokens=2, cost=0.5)), "other", 0
    )

    assert (dialogue.requests, dialogue.answers, dialogue.active_ms) == (2, 2, 25)
    assert dialogue.usage == Usage(input_tokens=5, output_tokens=2, cost=0.5)
    assert dialogue.tool_turns == {"other": 1}


def test_a_final_answer_is_what_the_model_said_last_and_nothing_that_was_said_to_it() -> None:
    dialogue = answered(0, "Done.")
    assert dialogue.final_text == "Done."

    dialogue.add_rejection("Try again.", 0)

    assert dialogue.final_text == ""
    assert dialogue.messages[-1] == UserMessage("Try again.")


def test_corrections_start_anew_when_a_person_speaks() -> None:
    dialogue = answered(0, "Done.")
    dialogue.add_rejection("Try again.", 0)
    dialogue.add_conflict("The tests fail.", 0, told=False)
    assert (dialogue.refusals, dialogue.conflicts, dialogue.conflict) == (1, 1, "The tests fail.")

    dialogue.add_user_message("Never mind.", 0)

    assert (dialogue.refusals, dialogue.conflicts, dialogue.conflict) == (0, 0, "")
