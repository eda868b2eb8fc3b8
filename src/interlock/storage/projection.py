"""The projection of events to the rows that lists show: one small function per event type, without folding.

The states come from the tables of `domain/state/lifecycle`, so they are those of the run's ledger. An event that cannot
be read or does not fit marks the row of its run and changes nothing else: what comes after it is applied as far as it
fits, and other runs are not affected. Where the rows are, is the matter of an `IndexRows`.
"""

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, NamedTuple, Protocol, cast

import msgspec

from ..domain import event as facts
from ..domain.errors import IllegalTransitionError
from ..domain.event import Event, LogEntry
from ..domain.messages import Usage
from ..domain.rendering import truncate
from ..domain.state.ledger import USAGE_FACT_KEY
from ..domain.state.lifecycle import (
    ACTION_TRANSITIONS,
    RUN_TRANSITIONS,
    ActionState,
    RunState,
    next_state,
)
from ..rendering.run_states import RunKind
from .question_search import list_question_numbers, list_question_words, normalize_search_text

#: Of a task or message in a list.
MAX_TEXT_CHARS = 300
#: Of a run, the titles of its questions.
_MAX_TITLES_CHARS = 600
#: The status by which lists find a question that was never answered, in a run that is over: it needs no answer.
UNANSWERED_STATUS = "LEFT"
_MAX_INTEGER = (1 << 63) - 1


class IndexedRun(msgspec.Struct, kw_only=True):
    """The indexed state of a run."""

    #: The position of its first event.
    number: int
    run_id: str
    state: RunState = RunState.RUNNING
    agent: str = ""
    requester: str = ""
    created_by: str = ""
    parent: str = ""
    forked_from: str = ""
    framework: str = ""
    kind: RunKind = RunKind.AGENT
    task: str = ""
    message: str = ""
    created_at: int = 0
    updated_at: int = 0
    last_seq: int = -1
    open_questions: int = 0
    #: The code of its failure, if any.
    code: str = ""
    #: What its models used, also those of child runs whose results it has.
    input_tokens: int = 0
    output_tokens: int = 0
    cost_nanos: int = 0
    #: The titles of its questions, as far as there is space.
    titles: str = ""
    begun: bool = False
    #: The first event that could not be read or did not fit; -1: none.
    damaged_at: int = -1

    def mark_damaged(self, seq: int, reason: str) -> None:
        """Mark the run as damaged. The first damage is kept; later ones may be its consequence."""
        if self.damaged_at < 0:
            self.damaged_at = seq
            self.message = truncate(f"The log of this run is damaged at event {seq}: {reason}.", MAX_TEXT_CHARS)


class IndexedAction(msgspec.Struct, kw_only=True):
    """The indexed state of a question."""

    number: int
    action_id: str
    run_id: str
    state: ActionState = ActionState.PENDING
    status: str = ActionState.PENDING.name
    agent: str
    requester: str
    created_by: str
    call_id: str
    tool: str
    capability: str
    title: str
    kind: str
    payload_hash: str
    risk: str
    asked_at: int
    expires_at: int
    asked_seq: int
    decided_at: int = 0
    decided_by: str = ""
    #: The ids of the rules that ask, as JSON.
    rules: str = "[]"
    #: What a search looks at: its words, and its numbers by name, as JSON.
    words: str = ""
    numbers: str = "{}"


class IndexRows(Protocol):
    """The rows of runs and questions that events are applied to."""

    def get_run(self, run_id: str) -> IndexedRun | None:
        """Return a run, or None."""
        ...

    def add_run(self, run: IndexedRun) -> IndexedRun:
        """Add a run, and return it."""
        ...

    def has_action(self, run_id: str, action_id: str) -> bool:
        """Return True if a question with this id was asked in the run."""
        ...

    def get_action(self, run_id: str, action_id: str) -> IndexedAction | None:
        """Return a question that is about to change, or None."""
        ...

    def add_action(self, action: IndexedAction) -> None:
        """Add a question."""
        ...

    def mark_unanswered(self, run_id: str) -> None:
        """Give the open questions of a run the status `UNANSWERED_STATUS`."""
        ...


def clamp_integer(value: int) -> int:
    """Limit an integer to 64 bits: a log edited by hand may have any number."""
    return value if -1 <= value <= _MAX_INTEGER else min(max(value, -1), _MAX_INTEGER)


def list_search_words(run: IndexedRun) -> str:
    """Return the text that a search in runs looks at."""
    return normalize_search_text(f"{run.task}\n{run.run_id}\n{run.titles}")


_encode = msgspec.json.Encoder().encode


class _EventContext(NamedTuple):
    """An event in its place, with the rows that it changes."""

    event: Event
    position: int
    run: IndexedRun
    rows: IndexRows


def apply_event(entry: LogEntry, event: Event | None, problem: str, position: int, rows: IndexRows) -> IndexedRun:
    """Apply an event to the rows, and return the row of its run, damaged or not. An event that cannot be decoded is
    None, and `problem` says why.
    """
    run_id = str(entry.run_id)  # a file edited by hand may have anything there
    run = rows.get_run(run_id) or rows.add_run(IndexedRun(number=position, run_id=run_id))
    expected = run.last_seq + 1
    if entry.seq != expected:
        mark_damaged(run, rows, expected, f"event {entry.seq} comes in its place")
    run.last_seq = entry.seq if type(entry.seq) is int else expected
    if event is None:
        mark_damaged(run, rows, run.last_seq, problem)
        return run
    run.updated_at = clamp_integer(event.at)
    run.created_at = run.created_at or run.updated_at
    try:
        handler = _HANDLERS.get(type(event.fact))
        if handler is not None:
            handler(_EventContext(event, position, run, rows), event.fact)
    except IllegalTransitionError as error:
        mark_damaged(run, rows, entry.seq, str(error))
    return run


def mark_damaged(run: IndexedRun, rows: IndexRows, seq: int, reason: str) -> None:
    """Mark the run as damaged, and take its questions out of the lists: they cannot be answered."""
    run.mark_damaged(seq, reason)
    run.open_questions = 0
    rows.mark_unanswered(run.run_id)


def _apply_run_started(context: _EventContext, fact: facts.RunStarted) -> None:
    run = context.run
    if run.begun:
        raise IllegalTransitionError(f"{run.run_id} started twice")
    if fact.schema > facts.SCHEMA_VERSION:
        raise IllegalTransitionError(f"it was written with event schema {fact.schema}, which is newer than this server")
    run.begun = True
    run.agent, run.parent, run.forked_from = fact.agent, fact.parent_run_id, fact.forked_from
    run.framework = truncate(fact.settings.get("framework", ""), MAX_TEXT_CHARS)
    run.kind = RunKind.SESSION if fact.is_session else RunKind.AGENT
    # A child run acts for the same user as its parent.
    is_complete = fact.requester and fact.created_by
    parent = context.rows.get_run(fact.parent_run_id) if fact.parent_run_id and not is_complete else None
    run.requester = fact.requester or (parent.requester if parent else "")
    run.created_by = fact.created_by or (parent.created_by if parent else "")


def _apply_user_said(context: _EventContext, fact: facts.UserMessageReceived) -> None:
    context.run.task = context.run.task or truncate(fact.text, MAX_TEXT_CHARS)


def _apply_usage(context: _EventContext, fact: facts.ModelResponded | facts.ContextCompacted) -> None:
    _add_usage(context.run, fact.usage)


def _apply_observation(context: _EventContext, fact: facts.CallObserved) -> None:
    """Add what a child run used, which its result says."""
    if USAGE_FACT_KEY in fact.observation.facts:
        with suppress(msgspec.ValidationError):
            _add_usage(context.run, msgspec.convert(fact.observation.facts[USAGE_FACT_KEY], Usage))


def _add_usage(run: IndexedRun, usage: Usage) -> None:
    run.input_tokens = clamp_integer(run.input_tokens + max(usage.input_tokens, 0))
    run.output_tokens = clamp_integer(run.output_tokens + max(usage.output_tokens, 0))
    if math.isfinite(usage.cost):
        run.cost_nanos = clamp_integer(run.cost_nanos + round(max(usage.cost, 0.0) * 1e9))


def _apply_run_paused(context: _EventContext, fact: facts.RunPaused) -> None:
    context.run.state = next_state(RUN_TRANSITIONS, context.run.state, f"paused for {fact.kind}")


def _apply_run_resumed(context: _EventContext, fact: facts.RunResumed) -> None:
    context.run.state = next_state(RUN_TRANSITIONS, context.run.state, facts.event_type(fact))


def _apply_run_ended(
    context: _EventContext, fact: facts.RunCompleted | facts.RunDegraded | facts.RunFailed | facts.RunCancelled
) -> None:
    run = context.run
    run.state = next_state(RUN_TRANSITIONS, run.state, facts.event_type(fact))
    run.code = truncate(fact.code, MAX_TEXT_CHARS) if isinstance(fact, facts.RunFailed) else ""
    if run.damaged_at < 0:
        run.message = truncate(fact.message, MAX_TEXT_CHARS)
    if run.open_questions:
        run.open_questions = 0
        context.rows.mark_unanswered(run.run_id)


def _apply_question_asked(
    context: _EventContext, fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested
) -> None:
    question, run = fact.question, context.run
    if context.rows.has_action(run.run_id, question.action_id):
        raise IllegalTransitionError(f"{question.action_id} was asked twice")
    is_open = not run.state.is_over and run.damaged_at < 0
    context.rows.add_action(
        IndexedAction(
            number=context.position,
            action_id=question.action_id,
            run_id=run.run_id,
            status=ActionState.PENDING.name if is_open else UNANSWERED_STATUS,
            agent=run.agent,
            requester=run.requester,
            created_by=run.created_by,
            call_id=question.call_id,
            tool=question.tool_name,
            capability=question.capability,
            title=truncate(question.headline, MAX_TEXT_CHARS),
            kind=question.kind,
            payload_hash=question.payload_hash,
            risk=_encode(question.risk).decode(),
            asked_at=clamp_integer(question.asked_at),
            expires_at=clamp_integer(question.expires_at),
            asked_seq=context.event.seq,
            rules=_encode(question.rule_ids).decode(),
            words=list_question_words(question),
            numbers=_encode(list_question_numbers(question)).decode(),
        )
    )
    run.open_questions += is_open
    run.titles = truncate(f"{run.titles}{question.headline}\n{question.tool_name}\n", _MAX_TITLES_CHARS)


def _apply_granted(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "granted")


def _apply_rejected(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "rejected")


def _apply_expired(context: _EventContext, fact: Any) -> None:
    _apply_decision(context, fact, "expired")


def _apply_decision(context: _EventContext, fact: Any, transition: str) -> None:
    action = _transition_action(context, fact.action_id, transition)
    action.decided_at, action.decided_by = clamp_integer(context.event.at), fact.answer.by


def _apply_action_voided(context: _EventContext, fact: facts.ApprovalVoided) -> None:
    _transition_action(context, fact.action_id, "voided")


def _apply_invocation_started(context: _EventContext, fact: facts.InvocationStarted) -> None:
    if fact.action_id:
        _transition_action(context, fact.action_id, "tool.invocation.started")


def _transition_action(context: _EventContext, action_id: str, transition: str) -> IndexedAction:
    action = context.rows.get_action(context.run.run_id, action_id)
    if action is None:
        raise IllegalTransitionError(f"{action_id} was never asked")
    state = next_state(ACTION_TRANSITIONS, action.state, transition)
    if action.status == ActionState.PENDING.name:
        context.run.open_questions -= 1
    action.state, action.status = state, state.name
    return action


_EventHandler = Callable[[_EventContext, Any], None]

#: Every other fact changes no row beyond its last event.
_HANDLERS = cast(
    Mapping[type, _EventHandler],
    {
        facts.RunStarted: _apply_run_started,
        facts.UserMessageReceived: _apply_user_said,
        facts.ModelResponded: _apply_usage,
        facts.ContextCompacted: _apply_usage,
        facts.CallObserved: _apply_observation,
        facts.RunPaused: _apply_run_paused,
        facts.RunResumed: _apply_run_resumed,
        facts.RunCompleted: _apply_run_ended,
        facts.RunDegraded: _apply_run_ended,
        facts.RunFailed: _apply_run_ended,
        facts.RunCancelled: _apply_run_ended,
        facts.ApprovalRequested: _apply_question_asked,
        facts.InputRequested: _apply_question_asked,
        facts.ConsentRequested: _apply_question_asked,
        facts.ApprovalGranted: _apply_granted,
        facts.InputProvided: _apply_granted,
        facts.ConsentGranted: _apply_granted,
        facts.ApprovalRejected: _apply_rejected,
        facts.InputRefused: _apply_rejected,
        facts.ConsentRefused: _apply_rejected,
        facts.ApprovalExpired: _apply_expired,
        facts.InputExpired: _apply_expired,
        facts.ConsentExpired: _apply_expired,
        facts.ApprovalVoided: _apply_action_voided,
        facts.InvocationStarted: _apply_invocation_started,
    },
)

#: The types of events that change rows.
INDEXED_TYPES = frozenset(str(cast(Any, fact).__struct_config__.tag) for fact in _HANDLERS)
