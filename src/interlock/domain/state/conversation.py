"""The conversation of a run, folded from the log: the messages that the model sees next.

A response with calls is open until every call was proposed and observed; then the response and the tool messages become
messages, in the model's order. Calls that were lost because the process died before they were recorded are not in the
log, so they are not in the conversation either: the model never saw them and may ask again.
"""

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ..json import encode
from ..messages import AssistantMessage, Message, ProposedCall, ToolMessage, Usage, UserMessage
from ..observation import Observation
from ..outcome import Failure
from ..rendering import render_for_model

if TYPE_CHECKING:
    from ..event import CallProposed, ModelResponded
    from .ledger import CallEntry

#: The author of the last message, as far as the next step depends on it.
LastSpeaker: TypeAlias = Literal["none", "person", "model", "tools"]


class Dialogue(msgspec.Struct, omit_defaults=True):
    """The messages of a run and the state of its open response."""

    messages: list[Message] = []
    last: LastSpeaker = "none"
    #: Whether a response is open. Then: its agent, its text, the calls proposed so far, how many are still
    #: expected, and the tool messages.
    open: bool = False
    answered_by: str = ""
    finish: str = ""
    text: str = ""
    private: str = ""
    private_artifact_id: str = ""
    calls: dict[str, ProposedCall] = {}
    awaited: int = 0
    told: dict[str, str] = {}

    usage: Usage = Usage()
    #: Active time of the run up to the last request, without waiting for people.
    active_ms: float = 0.0
    requests: int = 0
    answers: int = 0
    tool_calls: int = 0
    #: How many answers with calls each agent has given.
    tool_turns: dict[str, int] = {}
    #: Consecutive final answers that were rejected, and claims that the facts contradicted.
    refusals: int = 0
    conflicts: int = 0
    conflict: str = ""

    def add_user_message(self, text: str) -> None:
        """Append a message of the user and reset the counters of refused answers."""
        self._close()
        self._append_user_text(text)
        self.refusals = self.conflicts = 0
        self.conflict = ""

    def record_request(self, active_ms: float) -> None:
        """Count a request to the model."""
        self._close()
        self.requests += 1
        self.active_ms = active_ms

    def record_response(self, answer: "ModelResponded", agent: str) -> None:
        """Record an answer of the model and expect the results of its calls."""
        self.answers += 1
        self.usage = self.usage + answer.usage
        self.last = "model"
        self.text, self.calls, self.told, self.awaited = answer.text, {}, {}, answer.call_count
        self.private, self.private_artifact_id = answer.private, answer.private_artifact_id
        self.open, self.answered_by, self.finish = answer.call_count > 0, agent, answer.finish
        if self.open:
            self.tool_turns[agent] = self.tool_turns.get(agent, 0) + 1
        else:
            self.messages.append(AssistantMessage(answer.text, (), answer.private, answer.private_artifact_id))

    def add_call(self, fact: "CallProposed", known: "CallEntry | None") -> None:
        """Add the next call of the response, or a duplicate of one of its calls."""
        self.awaited -= 1
        if fact.call_id not in self.calls:
            self.tool_calls += 1
            self.calls[fact.call_id] = _to_proposed_call(fact)
            if fact.duplicate and known is not None and known.observed_seq >= 0:
                self._answer_duplicate(fact, known)
        self._close_if_complete()

    def add_observation(self, observation: Observation) -> None:
        """Record the result of a call of the open turn."""
        if observation.call_id in self.calls:
            self.told[observation.call_id] = render_for_model(observation)
            self._close_if_complete()

    def add_usage(self, usage: Any) -> None:
        """Add the usage of a child run."""
        self.usage = self.usage + msgspec.convert(usage, Usage)

    def add_rejection(self, message: str) -> None:
        """Append the reason why a final answer was rejected."""
        self.refusals += 1
        self._append_user_text(message)

    def add_conflict(self, message: str, *, told: bool) -> None:
        """Count a conflict with the evidence. Append it for the model, or keep it for the result."""
        self.conflicts += 1
        self.conflict = "" if told else message
        if told:
            self._append_user_text(message)

    @property
    def final_text(self) -> str:
        """The text of the last response, when it proposed no calls."""
        last = self.messages[-1] if self.messages else None
        return last.text if isinstance(last, AssistantMessage) else ""

    def _append_user_text(self, text: str) -> None:
        self.messages.append(UserMessage(text))
        self.last = "person"

    def _answer_duplicate(self, fact: "CallProposed", known: "CallEntry") -> None:
        """Handle an id that an earlier response used: repeat the outcome, or report the conflict."""
        if known.digest == fact.digest:
            told = [m.text for m in self.messages if isinstance(m, ToolMessage) and m.call_id == fact.call_id]
            text = told[-1] if told else ""
            said = [call for m in self.messages if isinstance(m, AssistantMessage) for call in m.calls]
            first = next((call for call in said if call.call_id == fact.call_id), None)
            self.calls[fact.call_id] = first or self.calls[fact.call_id]
        else:
            text = render_for_model(refuse_reused_id(fact))
        self.told[fact.call_id] = text

    @property
    def open_messages(self) -> list[Message]:
        """The open response as messages: its proposed calls and their known outcomes."""
        if not self.open:
            return []
        calls = tuple(call for call_id, call in self.calls.items() if call_id in self.told)
        answer = AssistantMessage(self.text, calls, self.private, self.private_artifact_id)
        said: list[Message] = [answer] if self.text or calls else []
        return said + [ToolMessage(call.call_id, self.told[call.call_id]) for call in calls]

    def _close_if_complete(self) -> None:
        if self.awaited <= 0 and len(self.told) == len(self.calls):
            self._close()

    def _close(self) -> None:
        if not self.open:
            return
        self.messages += self.open_messages
        self.open, self.last = False, "tools"
        self.text, self.calls, self.told, self.awaited = "", {}, {}, 0


def refuse_reused_id(fact: "CallProposed") -> Observation:
    """Return the observation of a call whose id belongs to an earlier call. It is not recorded: the call that has the
    id keeps its own.
    """
    message = f"The id {fact.call_id!r} stands for different calls. Nothing was executed; use one id per call."
    failure = Failure.from_code("call_id_conflict", message)
    return Observation(call_id=fact.call_id, tool=fact.tool, ok=False, summary=message, failure=failure)


def _to_proposed_call(fact: "CallProposed") -> ProposedCall:
    raw: Any = {} if fact.raw_input is None else fact.raw_input
    written = raw if isinstance(raw, str) else encode(raw).decode()
    return ProposedCall(call_id=fact.call_id, tool=fact.tool, arguments=written, artifact_id=fact.raw_artifact_id)
