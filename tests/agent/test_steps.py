"""What an agent does next, as a table of situations."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock.agent.next_step import (
    AgentStep,
    AskModel,
    Budgets,
    Cancel,
    Ended,
    Fail,
    Finish,
    Idle,
    LoopState,
    Resume,
    Wait,
    find_exceeded_budget,
    next_step,
)
from interlock.domain.call import Question
from interlock.domain.commands import CancelCommand
from interlock.domain.messages import AssistantMessage, ProposedCall, Usage
from interlock.domain.state.conversation import Dialogue, LastSpeaker
from interlock.domain.state.ledger import ActionEntry, Ledger
from interlock.domain.state.lifecycle import RUN_TRANSITIONS, ActionState, RunState
from tests.each import each

CALL = {"a": ProposedCall(call_id="a", tool="t", arguments="{}")}
FINAL = Dialogue(last="model", messages=[AssistantMessage("Done.")])
ASKED = Dialogue(last="person")
UNDER_WAY = Dialogue(last="model", open=True, calls=CALL)
TOLD = Dialogue(last="model", open=True, calls=CALL, told={"a": "ok"})


def ledger(dialogue: Dialogue, state: RunState = RunState.RUNNING, *actions: ActionState) -> Ledger:
    asked = {f"act_{number}": ActionEntry(_question(number), state) for number, state in enumerate(actions)}
    return Ledger(run_id="run", state=state, started=True, dialogue=dialogue, actions=asked)


def _question(number: int) -> Question:
    return Question(
        action_id=f"act_{number}",
        run_id="run",
        call_id="a",
        tool_name="t",
        kind="approval",
        prompt="May it?",
        arguments={},
        payload_hash="",
    )


def at(dialogue: Dialogue, *actions: ActionState, state: RunState = RunState.RUNNING, **where: object) -> LoopState:
    standing = LoopState(ledger(dialogue, state, *actions), Budgets())
    return msgspec.structs.replace(standing, **where)


ENOUGH = CancelCommand("Enough.", "ada")

SITUATIONS: dict[str, tuple[LoopState, AgentStep]] = {
    "a person spoke": (at(ASKED), AskModel()),
    "tools were heard": (at(Dialogue(last="tools")), AskModel()),
    "all calls of the answer are known": (at(TOLD), AskModel()),
    "the answer is final": (at(FINAL), Finish("Done.")),
    "the answer is final in a chat": (at(FINAL, chat=True), Idle()),
    "nobody said anything": (at(Dialogue()), Fail("The run has no message to act on.")),
    "nobody said anything yet in a chat": (at(Dialogue(), chat=True), Idle()),
    "a call is open": (at(UNDER_WAY), Resume()),
    "a call is open, and nobody looked at it here": (at(UNDER_WAY, ActionState.PENDING), Resume()),
    "a question is open": (at(UNDER_WAY, ActionState.PENDING, resumed_with=0), Wait()),
    "a question was answered since": (
        at(UNDER_WAY, ActionState.PENDING, ActionState.APPROVED, resumed_with=0),
        Resume(),
    ),
    "every question was answered": (at(UNDER_WAY, ActionState.REJECTED, resumed_with=0), Resume()),
    "a run inside waits": (at(UNDER_WAY, resumed_with=0, is_child_waiting=True), Wait()),
    "a run inside waits, and nobody looked at it here": (at(UNDER_WAY, is_child_waiting=True), Resume()),
    "a run inside can go on": (at(UNDER_WAY, resumed_with=0), Resume()),
    "somebody pauses it": (at(ASKED, pause_requested=True), Idle()),
    "somebody pauses it with calls open": (at(UNDER_WAY, pause_requested=True), Idle()),
    "somebody cancels it": (at(ASKED, cancel_command=ENOUGH), Cancel(ENOUGH)),
    "somebody cancels it without a word": (at(FINAL, cancel_command=CancelCommand()), Cancel(CancelCommand())),
    "somebody cancels it while it is paused": (
        at(UNDER_WAY, pause_requested=True, cancel_command=ENOUGH),
        Cancel(ENOUGH),
    ),
    "it has ended": (at(FINAL, state=RunState.COMPLETED), Ended()),
    "it has ended and is cancelled": (at(ASKED, state=RunState.FAILED, cancel_command=ENOUGH), Ended()),
}


@each("situation", SITUATIONS)
def test_the_next_step_follows_from_where_the_agent_stands(situation: str) -> None:
    standing, step = SITUATIONS[situation]

    assert next_step(standing) == step


@pytest.mark.parametrize(
    ("budgets", "used", "words"),
    [
        (Budgets(max_steps=2), Dialogue(tool_turns={"a": 1, "b": 1}), "2 steps"),
        (Budgets(max_model_calls=3), Dialogue(requests=3), "3 requests to the model"),
        (Budgets(max_tool_calls=4), Dialogue(tool_calls=5), "4 tool calls"),
        (Budgets(max_tokens=100), Dialogue(usage=Usage(input_tokens=60, output_tokens=40)), "100 tokens"),
        (Budgets(max_cost=0.5), Dialogue(usage=Usage(cost=0.75)), "0.5 of cost"),
    ],
)
def test_a_budget_that_is_used_up_is_named(budgets: Budgets, used: Dialogue, words: str) -> None:
    assert find_exceeded_budget(used, budgets, 0) == f"The run has used its budget of {words}."


def test_time_is_a_budget_too() -> None:
    assert (
        find_exceeded_budget(Dialogue(), Budgets(max_seconds=1.5), 1.5) == "The run has used its budget of 1.5 seconds."
    )
    assert not find_exceeded_budget(Dialogue(), Budgets(max_seconds=1.5), 1.4)


DIALOGUES = st.builds(
    Dialogue,
    messages=st.sampled_from([[], [AssistantMessage("Done.")]]),
    last=st.sampled_from(LastSpeaker.__args__),
    open=st.booleans(),
    calls=st.sampled_from([{}, CALL]),
    told=st.sampled_from([{}, {"a": "ok"}]),
    requests=st.integers(0, 3),
    tool_calls=st.integers(0, 3),
    tool_turns=st.dictionaries(st.sampled_from("ab"), st.integers(0, 2)),
    usage=st.builds(Usage, input_tokens=st.integers(0, 3), cost=st.floats(0, 3)),
)
LIMITS = st.one_of(st.none(), st.integers(0, 3))
BUDGETS = st.builds(
    Budgets,
    max_steps=st.integers(0, 3),
    max_model_calls=st.integers(0, 3),
    max_tool_calls=st.integers(0, 3),
    max_seconds=LIMITS,
    max_tokens=LIMITS,
    max_cost=LIMITS,
)
STANDINGS = st.builds(
    LoopState,
    ledger=st.builds(
        ledger, DIALOGUES, st.sampled_from(RunState), st.sampled_from(ActionState), st.sampled_from(ActionState)
    ),
    budgets=BUDGETS,
    active_seconds=st.floats(0, 4),
    resumed_with=st.integers(-1, 2),
    is_child_waiting=st.booleans(),
    chat=st.booleans(),
    pause_requested=st.booleans(),
    cancel_command=st.one_of(st.none(), st.just(ENOUGH)),
)


@given(STANDINGS)
def test_the_model_is_never_asked_over_budget_and_no_run_ends_with_open_calls(standing: LoopState) -> None:
    step, dialogue = next_step(standing), standing.ledger.dialogue
    ended = not RUN_TRANSITIONS[standing.ledger.state]

    assert isinstance(step, Ended) == ended
    if isinstance(step, AskModel):
        assert not find_exceeded_budget(dialogue, standing.budgets, standing.active_seconds)
        assert standing.cancel_command is None
        assert not standing.pause_requested
    if isinstance(step, AskModel | Finish):
        assert not dialogue.open or dialogue.calls.keys() <= dialogue.told.keys()
    if isinstance(step, Wait):
        pending = any(action.state is ActionState.PENDING for action in standing.ledger.actions.values())
        assert pending or standing.is_child_waiting


@given(STANDINGS)
def test_the_same_situation_always_has_the_same_next_step(standing: LoopState) -> None:
    assert next_step(standing) == next_step(standing)
