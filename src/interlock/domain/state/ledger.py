"""The state of one run: a fold of its events. `apply` is the only way it changes, live and on replay alike.

It holds what the next step needs and nothing that grows with output: a call keeps the `seq` of its observation, not
the observation. It is plain data, so a snapshot is its encoding; a snapshot never beats the log.
"""

from collections.abc import Callable
from typing import Any, cast

import msgspec

from ...domain import event as facts
from ..call import Answer, Question
from ..decision import Verdict
from ..errors import IllegalTransitionError
from ..event import Event
from ..observation import Observation
from .conversation import Dialogue
from .lifecycle import ACTION_TRANSITIONS, CALL_TRANSITIONS, RUN_TRANSITIONS, ActionState, CallState, RunState, step
from .verification import Checks, Starter, started_call

#: What a tool that hands the run to another agent remembers, by this name. No other tool can.
AGENT = "interlock:agent"


#: What the run inside a call has used, among the facts of its observation.
USAGE = "interlock:usage"


class CallEntry(msgspec.Struct, gc=False, omit_defaults=True):
    tool: str
    digest: str
    state: CallState
    batch: int
    proposed_seq: int
    tool_version: str = ""
    #: The start that has no recorded end, or -1.
    started_seq: int = -1
    observed_seq: int = -1
    action_id: str = ""
    ok: bool = False
    latency_ms: float | None = None
    #: The run inside it that it waits for.
    child_run_id: str = ""

    @property
    def may_have_happened(self) -> bool:
        """It started, and nothing recorded its end."""
        return self.started_seq >= 0


class ActionEntry(msgspec.Struct, omit_defaults=True):
    """One question and its answer. The stored answer is never evaluated again."""

    question: Question
    state: ActionState = ActionState.PENDING
    answer: Answer | None = None
    #: Of what the person wrote themselves.
    written_hash: str = ""
    #: The events about it: asked, answered, started with it.
    asked_seq: int = -1
    answered_seq: int = -1
    executed_seq: int = -1

    @property
    def is_open(self) -> bool:
        """Whether nobody has answered yet."""
        return self.state is ActionState.PENDING


class Grant(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A yes that holds for the same call again."""

    action_id: str
    #: In nanoseconds since 1970; 0 is until the run ends.
    until: int = 0


class Ledger(msgspec.Struct, kw_only=True):
    run_id: str
    state: RunState = RunState.RUNNING
    #: The `seq` that the next event must have.
    next_seq: int = 0
    started: bool = False
    batch: int = -1
    menu_digest: str = ""
    calls: dict[str, CallEntry] = {}
    actions: dict[str, ActionEntry] = {}
    grants: dict[str, Grant] = {}
    artifact_ids: set[str] = set()
    #: What tools want later calls to know, the newest by name.
    tool_state: dict[str, Any] = {}
    #: When it began, in nanoseconds since 1970, and for which agent.
    started_at: int = 0
    agent: str = ""
    #: Who it acts for, and who made it.
    requester: str = ""
    created_by: str = ""
    #: The run that it is inside of.
    parent_run_id: str = ""
    #: Why it ended, or what it ended with.
    message: str = ""
    checks: Checks = msgspec.field(default_factory=Checks)
    dialogue: Dialogue = msgspec.field(default_factory=Dialogue)

    def apply(self, event: Event) -> None:
        if event.seq != self.next_seq:
            raise IllegalTransitionError(f"event {event.seq} of {self.run_id} is not the next one, {self.next_seq}")
        fact = event.fact
        try:
            CHANGES[type(fact)](self, fact, event.seq)
        except KeyError as unknown:
            raise misfit(event, unknown) from None
        self.next_seq = event.seq + 1
        if not event.seq:
            self.started_at = event.at

    @property
    def speaker(self) -> str:
        """The agent whose turn it is: the one that the run began with, or the one that it was handed to."""
        return self.tool_state.get(AGENT, self.agent)

    @property
    def is_over(self) -> bool:
        """Whether nothing can happen in the run any more."""
        return not RUN_TRANSITIONS[self.state]

    def open_questions(self) -> "list[Question]":
        """Return the questions that wait for an answer, in the order in which they were asked. A run that is over waits
        for none."""
        if self.is_over:
            return []
        return [action.question for action in self.actions.values() if action.is_open]

    def open_calls(self) -> list[str]:
        """Return the calls that have no observation yet, in model order."""
        return [call_id for call_id, call in self.calls.items() if call.state is not CallState.OBSERVED]


def misfit(event: Event, unknown: KeyError) -> IllegalTransitionError:
    return IllegalTransitionError(
        f"event {event.seq} of {event.run_id}, {event.type}, does not fit what came before: no {unknown} here"
    )


def _nothing(ledger: Ledger, fact: Any, seq: int) -> None:
    """The fact is for readers of the log; it changes no state."""


def _started(ledger: Ledger, fact: facts.RunStarted, seq: int) -> None:
    if ledger.started:
        raise IllegalTransitionError(f"{ledger.run_id} started twice")
    if fact.schema > facts.SCHEMA_VERSION:
        raise IllegalTransitionError(
            f"{ledger.run_id} was written with event schema {fact.schema}; this version reads up to "
            f"{facts.SCHEMA_VERSION}"
        )
    ledger.started = True
    ledger.agent, ledger.parent_run_id = fact.agent, fact.parent_run_id
    ledger.requester, ledger.created_by = fact.requester, fact.created_by
    ledger.checks.forked_at = fact.forked_at


def _paused(ledger: Ledger, fact: facts.RunPaused, seq: int) -> None:
    ledger.state = step(RUN_TRANSITIONS, ledger.state, f"paused for {fact.kind}")


def _run_moved(ledger: Ledger, fact: Any, seq: int) -> None:
    ledger.state = step(RUN_TRANSITIONS, ledger.state, facts.type_of(fact))


def _run_ended(ledger: Ledger, fact: Any, seq: int) -> None:
    _run_moved(ledger, fact, seq)
    ledger.message = fact.message


def _menu(ledger: Ledger, fact: facts.MenuShown, seq: int) -> None:
    ledger.menu_digest = fact.digest
    ledger.artifact_ids.add(fact.artifact_id)


def _batch(ledger: Ledger, fact: facts.BatchStarted, seq: int) -> None:
    ledger.batch = seq


def _proposed(ledger: Ledger, fact: facts.CallProposed, seq: int) -> None:
    if ledger.dialogue.open:
        ledger.dialogue.proposed(fact, ledger.calls.get(fact.call_id))
    if fact.call_id not in ledger.calls:
        ledger.calls[fact.call_id] = CallEntry(
            fact.tool, fact.digest, CallState.PROPOSED, ledger.batch, seq, fact.tool_version
        )


def _validated(ledger: Ledger, fact: facts.CallValidated, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    if call.state is CallState.PROPOSED:
        call.state = CALL_TRANSITIONS[call.state]["validation passed" if fact.ok else "validation failed"]


_JUDGED = {
    Verdict.ALLOW: "allowed",
    Verdict.ASK: "asked",
    Verdict.REQUEST_INPUT: "asked",
    Verdict.DENY: "denied",
}


def _judged(ledger: Ledger, fact: facts.CallJudged, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    call.state = CALL_TRANSITIONS[call.state][_JUDGED[fact.decision.verdict]]
    call.action_id = ""  # a judgement of its own: what was asked about an earlier one does not speak for it


def _asked(
    ledger: Ledger, fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested, seq: int
) -> None:
    question, call = fact.question, ledger.calls[fact.call_id]
    if question.action_id in ledger.actions:
        raise IllegalTransitionError(f"{question.action_id} was asked twice")
    ledger.actions[question.action_id] = ActionEntry(question, asked_seq=seq)
    call.action_id = question.action_id


def _action(ledger: Ledger, action_id: str, call_id: str) -> ActionEntry:
    """The question about exactly this call: an answer to one call is never an answer to another."""
    action = ledger.actions[action_id]
    if action.question.call_id != call_id:
        raise IllegalTransitionError(f"{action_id} is about {action.question.call_id}, not {call_id}")
    return action


#: What an answer comes to, whichever kind of question it is to.
ANSWERS: dict[type, str] = {
    facts.ApprovalGranted: "granted",
    facts.InputProvided: "granted",
    facts.ConsentGranted: "granted",
    facts.ApprovalRejected: "rejected",
    facts.InputRefused: "rejected",
    facts.ConsentRefused: "rejected",
    facts.ApprovalExpired: "expired",
    facts.InputExpired: "expired",
    facts.ConsentExpired: "expired",
}


def _answered(ledger: Ledger, fact: Any, seq: int) -> None:
    word = ANSWERS[type(fact)]
    action, call = _action(ledger, fact.action_id, fact.call_id), ledger.calls[fact.call_id]
    action_state = step(ACTION_TRANSITIONS, action.state, word)
    call.state = CALL_TRANSITIONS[call.state][word]
    action.state, action.answer, action.answered_seq = action_state, fact.answer, seq
    if isinstance(fact, facts.ApprovalGranted | facts.InputProvided):
        action.written_hash = fact.written_hash
    if isinstance(fact, facts.ApprovalGranted) and fact.grant_key:
        ledger.grants[fact.grant_key] = Grant(fact.action_id, fact.answer.until)


def _voided(ledger: Ledger, fact: facts.ActionVoided, seq: int) -> None:
    action, call = _action(ledger, fact.action_id, fact.call_id), ledger.calls[fact.call_id]
    action.state = step(ACTION_TRANSITIONS, action.state, "voided")
    call.action_id = ""


def _invoked(ledger: Ledger, fact: facts.InvocationStarted, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    state = CALL_TRANSITIONS[call.state]["tool.invocation.started"]
    if fact.action_id != call.action_id:
        raise IllegalTransitionError(f"{fact.call_id} starts with {fact.action_id!r}, not {call.action_id!r}")
    if fact.action_id:
        action = _action(ledger, fact.action_id, fact.call_id)
        action.state = step(ACTION_TRANSITIONS, action.state, "tool.invocation.started")
        action.executed_seq = seq
    call.state, call.started_seq = state, seq
    ledger.checks.running[fact.call_id] = seq


def _completed(ledger: Ledger, fact: facts.InvocationCompleted, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    call.state = CALL_TRANSITIONS[call.state]["tool.invocation.completed"]
    call.started_seq = -1
    call.latency_ms = fact.duration_ms
    if fact.side_effects:
        ledger.checks.changed(seq, fact.side_effects, fact.call_id, call.tool)


def _suspended(ledger: Ledger, fact: facts.InvocationSuspended, seq: int) -> None:
    call = ledger.calls[fact.call_id]
    call.state = CALL_TRANSITIONS[call.state]["tool.invocation.suspended"]
    call.started_seq, call.child_run_id = -1, fact.child_run_id
    call.action_id = ""  # its start consumed the approval


def _observed(ledger: Ledger, fact: facts.CallObserved, seq: int) -> None:
    observation = fact.observation
    call = ledger.calls[observation.call_id]
    call.state = CALL_TRANSITIONS[call.state]["tool.observation"]
    call.observed_seq, call.ok = seq, observation.ok
    if observation.artifacts:
        ledger.artifact_ids.update(artifact.id for artifact in observation.artifacts)
    if observation.state:
        _remember(ledger.tool_state, observation.state)
    if observation.kind == "verification" or observation.side_effects:
        ledger.checks.observed(observation, seq, _starter(ledger, observation))
    elif observation.call_id in ledger.checks.running:
        del ledger.checks.running[observation.call_id]
    if observation.facts and USAGE in observation.facts:
        ledger.dialogue.spent(observation.facts[USAGE])
    if ledger.dialogue.open:
        ledger.dialogue.observed(observation)


def _starter(ledger: Ledger, observation: Observation) -> Starter | None:
    """The call that started what this one tells of. One that is not known may have started at any time."""
    call_id = started_call(observation)
    if not call_id:
        return None
    call = ledger.calls.get(call_id)
    return Starter(0, observation.tool) if call is None else Starter(max(call.observed_seq, 0), call.tool)


def _remember(tool_state: dict[str, Any], said: dict[str, Any]) -> None:
    tool_state.update(said)
    for name in [name for name, value in said.items() if value is None]:
        del tool_state[name]


def _said(ledger: Ledger, fact: facts.UserSaid, seq: int) -> None:
    ledger.dialogue.said(fact.text)


def _model_asked(ledger: Ledger, fact: facts.ModelAsked, seq: int) -> None:
    ledger.dialogue.asked(fact.active_ms)
    if fact.instructions_artifact_id:
        ledger.artifact_ids.add(fact.instructions_artifact_id)


def _model_answered(ledger: Ledger, fact: facts.ModelAnswered, seq: int) -> None:
    ledger.dialogue.answered(fact, ledger.speaker)
    if fact.private_artifact_id:
        ledger.artifact_ids.add(fact.private_artifact_id)


def _told(ledger: Ledger, fact: facts.AnswerRefused, seq: int) -> None:
    ledger.dialogue.refused(fact.message)


def _contradicted(ledger: Ledger, fact: facts.ClaimContradicted, seq: int) -> None:
    ledger.dialogue.contradicted(fact.message, told=fact.told)


_Change = Callable[[Ledger, Any, int], None]

#: What each fact changes. Each looks everything up before it writes, so a fact that does not fit changes nothing.
CHANGES = cast(
    dict[type, _Change],
    {
        facts.RunStarted: _started,
        facts.RunPaused: _paused,
        facts.RunResumed: _run_moved,
        facts.RunCompleted: _run_ended,
        facts.RunDegraded: _run_ended,
        facts.RunFailed: _run_ended,
        facts.RunCancelled: _run_ended,
        facts.MenuShown: _menu,
        facts.UserSaid: _said,
        facts.ModelAsked: _model_asked,
        facts.ModelAnswered: _model_answered,
        facts.ModelFailed: _nothing,
        facts.AnswerRefused: _told,
        facts.ClaimContradicted: _contradicted,
        facts.BatchStarted: _batch,
        facts.Warned: _nothing,
        facts.CallProposed: _proposed,
        facts.CallValidated: _validated,
        facts.CallJudged: _judged,
        facts.ApprovalRequested: _asked,
        facts.InputRequested: _asked,
        facts.ApprovalGranted: _answered,
        facts.ApprovalRejected: _answered,
        facts.ApprovalExpired: _answered,
        facts.InputProvided: _answered,
        facts.InputRefused: _answered,
        facts.InputExpired: _answered,
        facts.ConsentRequested: _asked,
        facts.ConsentGranted: _answered,
        facts.ConsentRefused: _answered,
        facts.ConsentExpired: _answered,
        facts.ActionVoided: _voided,
        facts.InvocationStarted: _invoked,
        facts.InvocationCompleted: _completed,
        facts.InvocationSuspended: _suspended,
        facts.CallObserved: _observed,
    },
)
