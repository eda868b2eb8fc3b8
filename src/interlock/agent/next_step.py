"""The next step of an agent: a pure decision on its state. `driver.py` executes it."""

from math import isnan
from typing import TypeAlias

import msgspec

from ..domain.commands import CancelCommand
from ..domain.errors import ConfigurationError
from ..domain.state.conversation import Dialogue
from ..domain.state.ledger import Ledger


class Budgets(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of a run. Exceeding one fails the run with a message."""

    #: Answers with tool calls.
    max_steps: int = 200
    max_model_calls: int = 200
    max_tool_calls: int = 1000
    #: Active time of the run. Waiting for people does not count.
    max_seconds: float | None = None
    max_tokens: int | None = None
    #: In the currency of the provider's prices.
    max_cost: float | None = None
    #: How often the model may try again when its final answer is not what it has to be.
    max_corrections: int = 2

    def __post_init__(self) -> None:
        """Reject values that cannot be compared, which would be no limit at all."""
        for field in msgspec.structs.fields(self):
            most = getattr(self, field.name)
            if not ((most is None and field.default is None) or (isinstance(most, int | float) and not isnan(most))):
                raise ConfigurationError(f"{field.name} is {most!r:.40}, and has to be a number.")


class LoopState(msgspec.Struct, frozen=True):
    """The state of the agent loop that the next step depends on."""

    ledger: Ledger
    budgets: Budgets
    #: Active time of the run, without waiting for people.
    active_seconds: float = 0.0
    #: How many questions had an answer when calls were last resumed; -1: not yet in this process.
    resumed_with: int = -1
    #: Whether a child run still waits for a person.
    is_child_waiting: bool = False
    #: Whether the user may reply to a final answer.
    chat: bool = False
    #: A pause was requested: the run stays resumable.
    pause_requested: bool = False
    #: A cancellation was requested.
    cancel_command: CancelCommand | None = None


class AskModel(msgspec.Struct, frozen=True):
    """Ask the model, and run the calls of its response through the pipeline."""


class Resume(msgspec.Struct, frozen=True):
    """Continue with calls that have no outcome yet."""


class Wait(msgspec.Struct, frozen=True):
    """A person has to answer first."""


class Idle(msgspec.Struct, frozen=True):
    """Wait for the user to send a message or to resume the run."""


class Finish(msgspec.Struct, frozen=True):
    """Complete the run with this final answer."""

    text: str


class Fail(msgspec.Struct, frozen=True):
    """Fail the run for this reason."""

    reason: str


class Cancel(msgspec.Struct, frozen=True):
    """Cancel the run."""

    command: CancelCommand


class Ended(msgspec.Struct, frozen=True):
    """The run has ended."""


#: What most steps are.
_ASK_MODEL = AskModel()

AgentStep: TypeAlias = AskModel | Resume | Wait | Idle | Finish | Fail | Cancel | Ended


def next_step(state: LoopState) -> AgentStep:
    """Decide what the loop does next from its state. Perform no I/O."""
    ledger, dialogue = state.ledger, state.ledger.dialogue
    if ledger.is_over:
        return Ended()
    if state.cancel_command is not None:
        return Cancel(state.cancel_command)
    if state.pause_requested:
        return Idle()
    if dialogue.open and any(call_id not in dialogue.told for call_id in dialogue.calls):
        return _step_with_open_calls(state)
    if is_user_turn(dialogue):
        return _step_after_answer(state)
    exceeded = find_exceeded_budget(dialogue, state.budgets, state.active_seconds)
    return Fail(exceeded) if exceeded else _ASK_MODEL


def _step_after_answer(state: LoopState) -> AgentStep:
    """Decide the step when the model has finished, or nothing was said yet."""
    dialogue = state.ledger.dialogue
    if state.chat:
        return Idle()
    return Finish(dialogue.final_text) if dialogue.last == "model" else Fail("The run has no message to act on.")


def is_user_turn(dialogue: Dialogue) -> bool:
    """Return True if a conversational run waits for the user: the model has finished, or nothing was said yet."""
    return dialogue.last == "none" or (dialogue.last == "model" and not dialogue.open)


def _step_with_open_calls(state: LoopState) -> AgentStep:
    pending = any(action.is_open for action in state.ledger.actions.values())
    if not pending and not state.is_child_waiting:
        return Resume()
    return Resume() if count_answered(state.ledger) != state.resumed_with else Wait()


def count_answered(ledger: Ledger) -> int:
    """Count the questions of a run that are closed."""
    return sum(not action.is_open for action in ledger.actions.values())


def check_call_budget(dialogue: Dialogue, budgets: Budgets, count: int) -> str:
    """Return why the calls of a response may not start: more than the run may still make; empty when they may."""
    left = budgets.max_tool_calls - dialogue.tool_calls
    if count <= left:
        return ""
    return f"The answer asks for {count} tool calls, and {left} are left of the run's budget."


def find_exceeded_budget(dialogue: Dialogue, budgets: Budgets, active_seconds: float) -> str:
    """Return a description of the exceeded budget; empty when none is."""
    usage, most, what = dialogue.usage, 0.0, ""
    if sum(dialogue.tool_turns.values()) >= budgets.max_steps:
        most, what = budgets.max_steps, "steps"
    elif dialogue.requests >= budgets.max_model_calls:
        most, what = budgets.max_model_calls, "requests to the model"
    elif dialogue.tool_calls >= budgets.max_tool_calls:
        most, what = budgets.max_tool_calls, "tool calls"
    elif budgets.max_seconds is not None and active_seconds >= budgets.max_seconds:
        most, what = budgets.max_seconds, "seconds"
    elif budgets.max_tokens is not None and usage.input_tokens + usage.output_tokens >= budgets.max_tokens:
        most, what = budgets.max_tokens, "tokens"
    elif budgets.max_cost is not None and usage.cost >= budgets.max_cost:
        most, what = budgets.max_cost, "of cost"
    return f"The run has used its budget of {most:g} {what}." if what else ""
