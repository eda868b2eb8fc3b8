"""What became of a run of an agent."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ..agent.agent import Agent
from ..agent.answer import read_output
from ..domain.call import Question
from ..domain.conversation import Usage
from ..domain.execution import ToolExecutionRecord, execution_record
from ..domain.ledger import Ledger
from ..domain.lifecycle import RUN_STATUS, RunState
from ..domain.observation import Observation
from ..domain.verification import Verification


def result_of(
    ledger: Ledger, agent: Agent, questions: tuple[Question, ...], observations: tuple[Observation, ...]
) -> "AgentResult":
    dialogue, completed = ledger.dialogue, ledger.state is RunState.COMPLETED
    typed = completed and agent.output_type is not None
    return AgentResult(
        run_id=ledger.run_id,
        state=ledger.state,
        text=dialogue.final_text,
        output=read_output(dialogue.final_text, agent.output_type) if typed else None,
        message="" if completed else ledger.message,
        usage=dialogue.usage,
        verification=ledger.checks.verdict(),
        conflict=dialogue.conflict,
        questions=questions,
        observations=observations,
    )


def in_model_order(observations: Sequence[Observation], ledger: Ledger) -> tuple[Observation, ...]:
    """One for each call, however often it was told, in the order in which the model asked."""
    by_call = {seen.call_id: seen for seen in reversed(observations) if seen.call_id in ledger.calls}
    return tuple(sorted(by_call.values(), key=lambda seen: ledger.calls[seen.call_id].proposed_seq))


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    state: RunState
    #: What the model said last.
    text: str
    #: The final answer as the type that was asked for; None where none was, or where there is no final answer.
    output: Any = None
    #: Why the run ended as it did, where that is not the final answer.
    message: str = ""
    usage: Usage
    verification: Verification
    #: What the final answer claimed although the facts contradict it; empty when nothing.
    conflict: str = ""
    #: What people are asked right now, in this run and in runs inside its calls.
    questions: tuple[Question, ...] = ()
    observations: tuple[Observation, ...] = ()

    @property
    def status(self) -> str:
        """One of five words: RUNNING, PAUSED_APPROVAL, PAUSED_CONSENT, COMPLETED, FAILED."""
        return RUN_STATUS[self.state]

    @property
    def degraded(self) -> bool:
        return self.state is RunState.DEGRADED

    @property
    def cancelled(self) -> bool:
        return self.state is RunState.CANCELLED

    @property
    def tool_executions(self) -> list[ToolExecutionRecord]:
        return [execution_record(observation) for observation in self.observations]
