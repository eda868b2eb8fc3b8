"""The conversation of a run, folded from the log: the messages that the model sees next.

A response with calls is open until every call was proposed and observed; then the response and the tool messages become
messages, in the model's order. Calls that were lost because the process died before they were recorded are not in the
log, so they are not in the conversation either: the model never saw them and may ask again.

`messages` is the whole conversation. `window` is what of it the model is sent: a projection by the events
`context.trimmed` and `context.compacted`, so it is a function of the log like everything else here.
"""

from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec

from ..json import encode
from ..messages import AssistantMessage, Message, MessagePart, ProposedCall, ToolMessage, Usage, UserMessage
from ..observation import Observation
from ..outcome import Failure
from ..rendering import render_for_model, render_trimmed, split_rendered

if TYPE_CHECKING:
    from ..event import CallProposed, ContextCompacted, ContextTrimmed, ModelResponded
    from .ledger import CallEntry

#: Bounds of the correction by reported usage, so that a wrong report cannot switch the window off.
_MIN_TOKEN_RATIO, _MAX_TOKEN_RATIO = 0.5, 4.0

#: The author of the last message, as far as the next step depends on it.
LastSpeaker: TypeAlias = Literal["none", "person", "model", "tools"]


class ContextChange(msgspec.Struct, frozen=True, gc=False):
    """A change of what the model sees of the conversation: the event, its kind, and the range of events it is about."""

    seq: int
    kind: Literal["trimmed", "compacted"]
    first_seq: int
    last_seq: int


class Dialogue(msgspec.Struct, omit_defaults=True):
    """The messages of a run and the state of its open response."""

    messages: list[Message] = []
    #: The event of each message: what said it, or the last one about a tool result. In ascending order.
    seqs: list[int] = []
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
    answered_seq: int = -1
    told_seq: int = -1

    #: The artifacts of tool results that are shown as a line, by their place in `messages`.
    trimmed: dict[int, str] = {}
    #: How many messages the summary replaces; the task stays.
    compacted: int = 0
    summary: str = ""
    context_changes: list[ContextChange] = []
    #: Estimated size of the last request, and how far reported usage is from such estimates.
    estimated_tokens: int = 0
    token_ratio: float = 1.0
    #: Estimated size of the smallest messages that a provider refused as too long; 0: none.
    refused_tokens: int = 0
    #: Refusals of that kind since the last answer.
    overflows: int = 0

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

    def add_user_message(self, text: str, seq: int, parts: tuple[MessagePart, ...] = ()) -> None:
        """Append a message of the user and reset the counters of refused answers."""
        if self.open:
            self._close()
        self._append_user_text(text, seq, parts)
        self.refusals = self.conflicts = 0
        self.conflict = ""

    def record_request(self, active_ms: float, estimated_tokens: int = 0) -> None:
        """Count a request to the model."""
        if self.open:
            self._close()
        self.requests += 1
        self.active_ms = active_ms
        self.estimated_tokens = estimated_tokens

    def record_response(self, answer: "ModelResponded", agent: str, seq: int) -> None:
        """Record an answer of the model and expect the results of its calls."""
        self.answers += 1
        self.usage = self.usage + answer.usage
        self.overflows = 0
        if self.estimated_tokens:
            self._correct_estimate(answer.usage)
        self.last = "model"
        self.answered_seq = self.told_seq = seq
        self.text, self.calls, self.told, self.awaited = answer.text, {}, {}, answer.call_count
        self.private, self.private_artifact_id = answer.private, answer.private_artifact_id
        self.open, self.answered_by, self.finish = answer.call_count > 0, agent, answer.finish
        if self.open:
            self.tool_turns[agent] = self.tool_turns[agent] + 1 if agent in self.tool_turns else 1
        else:
            self.messages.append(AssistantMessage(answer.text, (), answer.private, answer.private_artifact_id))
            self.seqs.append(seq)

    def add_call(self, fact: "CallProposed", known: "CallEntry | None", seq: int) -> None:
        """Add the next call of the response, or a duplicate of one of its calls."""
        self.awaited -= 1
        self.told_seq = seq
        if fact.call_id not in self.calls:
            self.tool_calls += 1
            raw: Any = {} if fact.raw_input is None else fact.raw_input
            written = raw if type(raw) is str else encode(raw).decode()
            self.calls[fact.call_id] = ProposedCall(
                call_id=fact.call_id, tool=fact.tool, arguments=written, artifact_id=fact.raw_artifact_id
            )
            if fact.duplicate and known is not None and known.observed_seq >= 0:
                self._answer_duplicate(fact, known)
        if self.told and self.awaited <= 0 and len(self.told) == len(self.calls):
            self._close(is_complete=True)

    def add_observation(self, observation: Observation, seq: int) -> None:
        """Record the result of a call of the open turn."""
        if observation.call_id in self.calls:
            self.told_seq = seq
            self.told[observation.call_id] = render_for_model(observation)
            if self.awaited <= 0 and len(self.told) == len(self.calls):
                self._close(is_complete=True)

    def add_usage(self, usage: Any) -> None:
        """Add the usage of a child run."""
        self.usage = self.usage + msgspec.convert(usage, Usage)

    def add_rejection(self, message: str, seq: int) -> None:
        """Append the reason why a final answer was rejected."""
        self.refusals += 1
        self._append_user_text(message, seq)

    def add_conflict(self, message: str, seq: int, *, told: bool) -> None:
        """Count a conflict with the evidence. Append it for the model, or keep it for the result."""
        self.conflicts += 1
        self.conflict = "" if told else message
        if told:
            self._append_user_text(message, seq)

    def record_overflow(self, estimated_tokens: int) -> None:
        """Record that the provider refused a request whose messages have about this size as too long."""
        self.overflows += 1
        self.refused_tokens = min(self.refused_tokens or estimated_tokens, estimated_tokens)

    def trim(self, fact: "ContextTrimmed", seq: int) -> None:
        """Show these tool results as a line from now on."""
        for index in range(self.compacted, bisect_right(self.seqs, fact.last_seq)):
            message = self.messages[index]
            if isinstance(message, ToolMessage) and index not in self.trimmed and message.call_id in fact.outputs:
                self.trimmed[index] = fact.outputs[message.call_id]
        self.context_changes.append(ContextChange(seq, "trimmed", fact.first_seq, fact.last_seq))

    def compact(self, fact: "ContextCompacted", seq: int) -> None:
        """Show a summary in place of all messages up to an event, except for the task."""
        self.compacted = bisect_right(self.seqs, fact.last_seq)
        self.trimmed = {index: artifact for index, artifact in self.trimmed.items() if index >= self.compacted}
        self.summary = _SUMMARY.format(fact.first_seq, fact.last_seq, fact.summary.strip(), fact.artifact_id)
        self.context_changes.append(ContextChange(seq, "compacted", fact.first_seq, fact.last_seq))
        self.usage = self.usage + fact.usage
        self._correct_estimate(fact.usage)

    def _correct_estimate(self, usage: Usage) -> None:
        """Compare the estimate of the last request with what the provider counted."""
        self.overflows = 0
        if self.estimated_tokens and usage.input_tokens:
            ratio = usage.input_tokens / self.estimated_tokens
            self.token_ratio = min(max(ratio, _MIN_TOKEN_RATIO), _MAX_TOKEN_RATIO)

    @property
    def task_count(self) -> int:
        """The number of messages that the conversation begins with before the model's first answer: the task."""
        others = (index for index, message in enumerate(self.messages) if not isinstance(message, UserMessage))
        return next(others, len(self.messages))

    def window_head(self) -> list[Message]:
        """Return what the model is sent for the compacted messages: the task, the summary, the user's last message."""
        if not self.compacted:
            return []
        task = min(self.task_count, self.compacted)
        between = (self.messages[index] for index in range(self.compacted - 1, task - 1, -1))
        last = [message for message in between if isinstance(message, UserMessage)][:1]
        return [*self.messages[:task], UserMessage(self.summary), *last]

    def shown(self, index: int) -> Message:
        """Return a message as the model sees it."""
        message = self.messages[index]
        if index not in self.trimmed or not isinstance(message, ToolMessage):
            return message
        rendered = split_rendered(message.text)
        return (
            message if rendered is None else ToolMessage(message.call_id, render_trimmed(rendered, self.trimmed[index]))
        )

    def window(self) -> list[Message]:
        """Return the messages that the model is sent next."""
        shown = [self.shown(index) for index in range(self.compacted, len(self.messages))]
        return self.window_head() + shown + self.open_messages

    @property
    def final_text(self) -> str:
        """The text of the last response, when it proposed no calls."""
        last = self.messages[-1] if self.messages else None
        return last.text if isinstance(last, AssistantMessage) else ""

    def _append_user_text(self, text: str, seq: int, parts: tuple[MessagePart, ...] = ()) -> None:
        self.messages.append(UserMessage(text, parts))
        self.seqs.append(seq)
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
        return self._build_messages(tuple(call for call_id, call in self.calls.items() if call_id in self.told))

    def _build_messages(self, calls: tuple[ProposedCall, ...]) -> list[Message]:
        """Return the open response with these calls, which have outcomes."""
        answer = AssistantMessage(self.text, calls, self.private, self.private_artifact_id)
        said: list[Message] = [answer] if self.text or calls else []
        return said + [ToolMessage(call.call_id, self.told[call.call_id]) for call in calls]

    def _close(self, *, is_complete: bool = False) -> None:
        """Turn the open response into messages. Calls without an outcome are left out."""
        self.messages += self._build_messages((*self.calls.values(),)) if is_complete else self.open_messages
        if self.text or self.told:
            self.seqs.append(self.answered_seq)
        self.seqs += [self.told_seq] * len(self.told)
        self.open, self.last = False, "tools"
        self.text, self.calls, self.told, self.awaited = "", {}, {}, 0


def refuse_reused_id(fact: "CallProposed") -> Observation:
    """Return the observation of a call whose id belongs to an earlier call. It is not recorded: the call that has the
    id keeps its own.
    """
    message = f"The id {fact.call_id!r} stands for different calls. Nothing was executed; use one id per call."
    failure = Failure.from_code("call_id_conflict", message)
    return Observation(call_id=fact.call_id, tool=fact.tool, ok=False, summary=message, failure=failure)


_SUMMARY = (
    "The messages of the events {} to {} are replaced by this summary, which the model wrote. It is no message of the "
    "user.\n\n{}\n\nThe replaced messages are the artifact {}. Read parts of them with read_artifact where needed."
)
