"""What an agent does next: a pure decision on where it stands. Whoever carries it out is in `driver.py`."""

from math import isnan
from typing import TypeAlias

import msgspec

from ..domain.commands import CancelCommand
from ..domain.errors import ConfigurationError
from ..domain.state.conversation import Dialogue
from ..domain.state.ledger import Ledger


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """What a run may use. Each ends it in words."""

    #: Answers with tool calls.
    max_steps: int = 200
    max_model_calls: int = 200
    max_tool_calls: int = 1000
    #: Time in which the run is moved on. Waiting for people does not count.
    max_seconds: float | None = None
    max_tokens: int | None = None
    #: In what the provider's prices are in.
    max_cost: float | None = None
    #: How often the model may try again when its final answer is not what it has to be.
    max_corrections: int = 2

    def __post_init__(self) -> None:
        """What cannot be compared would be no limit at all."""
        for field in msgspec.structs.fields(self):
            most = getattr(self, field.name)
            if not ((most is None and field.default is None) or (isinstance(most, int | float) and not isnan(most))):
                raise ConfigurationError(f"{field.name} is {most!r:.40}, and has to be a number.")


class LoopState(msgspec.Struct, frozen=True):
    """Where an agent stands."""

    ledger: Ledger
    budgets: Budgets
    #: How long the run has been moved on, without waiting for people.
    active_seconds: float = 0.0
    #: How many questions had an answer when calls were last gone on with; -1: not yet in this process.
    resumed_with: int = -1
    #: Does a run inside one of its calls still wait for a person?
    is_child_waiting: bool = False
    #: Does it go on with what a person says next, when an answer is final?
    chat: bool = False
    #: Somebody wants it to stop here: kept as it is.
    pause_requested: bool = False
    #: Somebody wants it to end here.
    cancel_command: CancelCommand | None = None


class AskModel(msgspec.Struct, frozen=True):
    """Ask the model, and take the calls of its answer through the pipeline."""


class Resume(msgspec.Struct, frozen=True):
    """Go on with calls that have no outcome yet."""


class Wait(msgspec.Struct, frozen=True):
    """A person has to answer first."""


class Idle(msgspec.Struct, frozen=True):
    """It is somebody else's turn: a person says what is next, or resumes it."""


class Finish(msgspec.Struct, frozen=True):
    text: str


class Fail(msgspec.Struct, frozen=True):
    reason: str


class Cancel(msgspec.Struct, frozen=True):
    wish: CancelCommand


class Ended(msgspec.Struct, frozen=True):
    """The run has ended."""


AgentStep: TypeAlias = AskModel | Resume | Wait | Idle | Finish | Fail | Cancel | Ended


def next_step(state: LoopState) -> AgentStep:
    ledger, dialogue = state.ledger, state.ledger.dialogue
    if ledger.is_over:
        return Ended()
    if state.cancel_command is not None:
        return Cancel(state.cancel_command)
    if state.pause_requested:
        return Idle()
    if dialogue.open and any(call_id not in dialogue.told for call_id in dialogue.calls):
        return _step_with_open_calls(state)
    return _step_without_open_calls(state)


def _step_without_open_calls(state: LoopState) -> AgentStep:
    """No call is open: who spoke last decides."""
    dialogue = state.ledger.dialogue
    if is_user_turn(dialogue):
        if state.chat:
            return Idle()
        return Finish(dialogue.final_text) if dialogue.last == "model" else Fail("Nobody said what to do.")
    exceeded = find_exceeded_budget(dialogue, state.budgets, state.active_seconds)
    return Fail(exceeded) if exceeded else AskModel()


def is_user_turn(dialogue: Dialogue) -> bool:
    """In a chat: has the model said all that it wants to, or nobody anything yet?"""
    return dialogue.last == "nobody" or (dialogue.last == "model" and not dialogue.open)


def _step_with_open_calls(state: LoopState) -> AgentStep:
    pending = any(action.is_open for action in state.ledger.actions.values())
    if not pending and not state.is_child_waiting:
        return Resume()
    return Resume() if count_answered(state.ledger) != state.resumed_with else Wait()


def count_answered(ledger: Ledger) -> int:
    return sum(not action.is_open for action in ledger.actions.values())


def check_call_budget(dialogue: Dialogue, budgets: Budgets, count: int) -> str:
    """Why the calls of an answer may not start: there are more of them than the run may still make."""
    left = budgets.max_tool_calls - dialogue.tool_calls
    if count <= left:
        return ""
    return f"The answer asks for {count} tool calls, and {left} are left of the run's budget."


def find_exceeded_budget(dialogue: Dialogue, budgets: Budgets, active_seconds: float) -> str:
    """Which budget is used up, in words; empty when none is."""
    usage = dialogue.usage
    used: tuple[tuple[float, float | None, str], ...] = (
        (sum(dialogue.tool_turns.values()), budgets.max_steps, "steps"),
        (dialogue.requests, budgets.max_model_calls, "requests to the model"),
        (dialogue.tool_calls, budgets.max_tool_calls, "tool calls"),
        (active_seconds, budgets.max_seconds, "seconds"),
        (usage.input_tokens + usage.output_tokens, budgets.max_tokens, "tokens"),
        (usage.cost, budgets.max_cost, "of cost"),
    )
    for amount, most, what in used:
        if most is not None and amount >= most:
            return f"The run has used its budget of {most:g} {what}."
    return ""
