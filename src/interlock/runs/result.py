"""The result of a run of an agent."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec

from ..agent.agent import Agent
from ..agent.final_answer import parse_output
from ..domain.call import Question
from ..domain.errors import AgentExecutionError
from ..domain.event import CallObserved, CallProposed, decode_event
from ..domain.messages import Usage
from ..domain.observation import Observation, ToolExecutionRecord, to_execution_record
from ..domain.state.conversation import ContextChange, refuse_reused_id
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import RUN_STATUS, RunState
from ..domain.state.verification import Verification
from ..rendering.text import quote_value, shorten
from ..storage.event_log import EventLog

_MAX_SHOWN_CHARS = 100
#: In the bytes of every observation, and of every proposal of a call that is known: few events have to be decoded.
_OBSERVED, _REPEATED = b"tool.observation", b'"duplicate":true'


def build_result(
    ledger: Ledger, agent: Agent, questions: tuple[Question, ...], observations: tuple[Observation, ...]
) -> "AgentResult":
    """Build the result of a run from its ledger."""
    dialogue, completed = ledger.dialogue, ledger.state is RunState.COMPLETED
    return AgentResult(
        run_id=ledger.run_id,
        state=ledger.state,
        text=dialogue.final_text,
        output=_parse_output(dialogue.final_text, agent) if completed else None,
        message="" if completed else ledger.message,
        usage=dialogue.usage,
        code=ledger.code,
        context_changes=tuple(dialogue.context_changes),
        verification=ledger.checks.summarize(),
        conflict=dialogue.conflict,
        questions=questions,
        observations=observations,
    )


def _parse_output(text: str, agent: Agent) -> Any:
    """Return the output. None also for a final answer that was given for another type."""
    if agent.output_type is None:
        return None
    with suppress(ValueError):
        return parse_output(text, agent.output_type)


class ObservationCollector:
    """Collects the observations of a run: those made in this process, and the rest from the log."""

    def __init__(self, log: EventLog, run_id: str) -> None:
        self._log = log
        self._run_id = run_id
        self._observations: list[Observation] = []
        #: The first event that it does not know.
        self.next_seq = 0

    def add(self, observations: Sequence[Observation], next_seq: int) -> None:
        """Add the observations up to this event."""
        self._observations += observations
        self.next_seq = next_seq

    async def collect(self, ledger: Ledger) -> tuple[Observation, ...]:
        """Return one observation per call, in the order in which the model proposed them.

        A call that was refused because its id belongs to an earlier one comes after that one.
        """
        if self.next_seq < ledger.next_seq:
            entries = await self._log.read(self._run_id, self.next_seq - 1)
            facts = [
                decode_event(entry).fact for entry in entries if _OBSERVED in entry.body or _REPEATED in entry.body
            ]
            for fact in facts:
                if isinstance(fact, CallObserved):
                    self._observations.append(fact.observation)
                elif isinstance(fact, CallProposed) and fact.duplicate and _is_other_call(fact, ledger):
                    self._observations.append(refuse_reused_id(fact))
            self.next_seq = ledger.next_seq
        known = [seen for seen in self._observations if seen.call_id in ledger.calls]
        by_call = {seen.call_id: seen for seen in reversed(known)}
        failed = [seen for seen in known if seen.failure is not None]
        refused = [seen for seen in failed if seen.code == "call_id_conflict" != by_call[seen.call_id].code]
        if not refused:
            return tuple([by_call[call_id] for call_id in ledger.calls if call_id in by_call])
        return tuple(sorted([*by_call.values(), *refused], key=lambda seen: ledger.calls[seen.call_id].proposed_seq))


def _is_other_call(fact: CallProposed, ledger: Ledger) -> bool:
    call = ledger.calls.get(fact.call_id)
    return call is not None and call.digest != fact.digest


class AgentResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run so far: `status`, the final answer, what was used, and what people are asked.

    `text` is what the model said last, `output` the final answer as the type that the agent declares, and `questions`
    what a paused run waits for.
    """

    run_id: str
    state: RunState
    #: The model's last text.
    text: str
    #: The final answer as the type that was asked for; None where none was, or where there is no final answer.
    output: Any = None
    #: Why the run ended as it did, where that is not the final answer.
    message: str = ""
    #: The code of a failed run, such as `context_length_exceeded`; empty where the message is all there is.
    code: str = ""
    usage: Usage
    #: When older messages were left out of what the model saw, or replaced by a summary.
    context_changes: tuple[ContextChange, ...] = ()
    verification: Verification
    #: What the final answer claimed although the facts contradict it; empty when nothing.
    conflict: str = ""
    #: The open questions of this run and its child runs.
    questions: tuple[Question, ...] = ()
    observations: tuple[Observation, ...] = ()

    def __repr__(self) -> str:
        """Return the state and the open questions. The fields have everything."""
        parts: dict[str, object] = {
            "run_id": self.run_id,
            "status": self.status,
            "text": shorten(self.text, _MAX_SHOWN_CHARS),
            "output": "" if self.output is None else quote_value(self.output, _MAX_SHOWN_CHARS),
            "message": shorten(self.message, _MAX_SHOWN_CHARS),
            "conflict": shorten(self.conflict, _MAX_SHOWN_CHARS),
            "questions": [question.prompt for question in self.questions],
            "calls": len(self.observations),
        }
        told = (f"{name}={part if name == 'output' else repr(part)}" for name, part in parts.items() if part)
        return f"AgentResult({', '.join(told)})"

    @property
    def status(self) -> str:
        """One of five values: RUNNING, PAUSED_APPROVAL, PAUSED_CONSENT, COMPLETED, FAILED."""
        return RUN_STATUS[self.state]

    @property
    def degraded(self) -> bool:
        """True if the run completed degraded."""
        return self.state is RunState.DEGRADED

    @property
    def cancelled(self) -> bool:
        """True if the run was cancelled."""
        return self.state is RunState.CANCELLED

    def raise_for_status(self) -> "AgentResult":
        """Return the result, or raise `AgentExecutionError` when the run failed or was cancelled."""
        if self.state in (RunState.FAILED, RunState.CANCELLED):
            raise AgentExecutionError(self.message or f"The run is {self.state.value}.", self.observations)
        return self

    @property
    def tool_executions(self) -> list[ToolExecutionRecord]:
        """Records of all executed calls."""
        return [to_execution_record(observation) for observation in self.observations]
