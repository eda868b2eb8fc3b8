"""What each fact changes in the rows of its run: one small function per kind of fact, and nothing is folded.

The states come from the tables of `domain/lifecycle`, so they are those of the run's ledger. An event that cannot be
read or does not fit marks the row of its run and changes nothing else: what comes after it is applied as far as it
fits, and the other runs go on.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import msgspec

from ....domain import event as facts
from ....domain.errors import IllegalTransitionError
from ....domain.event import Event
from ....domain.state.lifecycle import ACTION_TRANSITIONS, RUN_TRANSITIONS, ActionState, step
from ..live.event import LiveEvent
from .indexed import LEFT, IndexedAction, IndexedRun, Rows, cut, stored_int

_encode = msgspec.json.Encoder().encode


class _Told(NamedTuple):
    """An event in its place, with the rows that it changes."""

    event: Event
    position: int
    run: IndexedRun
    rows: Rows


def apply(live: LiveEvent, rows: Rows) -> IndexedRun:
    """Change the rows as the event says. The row of its run is returned, damaged or not."""
    entry, event = live.entry, live.event
    run_id = str(entry.run_id)  # whoever edited the file by hand may have left anything there
    run = rows.run(run_id) or rows.add_run(IndexedRun(number=live.position, run_id=run_id))
    expected = run.last_seq + 1
    if entry.seq != expected:
        run.damage(expected, f"event {entry.seq} comes in its place")
    run.last_seq = entry.seq if type(entry.seq) is int else expected
    if event is None:
        run.damage(run.last_seq, live.problem)
        return run
    run.updated_at = stored_int(event.at)
    run.created_at = run.created_at or run.updated_at
    try:
        change = _CHANGES.get(type(event.fact))
        if change is not None:
            change(_Told(event, live.position, run, rows), event.fact)
    except IllegalTransitionError as error:
        run.damage(entry.seq, str(error))
    return run


def _started(told: _Told, fact: facts.RunStarted) -> None:
    run = told.run
    if run.begun:
        raise IllegalTransitionError(f"{run.run_id} started twice")
    if fact.schema > facts.SCHEMA_VERSION:
        raise IllegalTransitionError(f"it was written with event schema {fact.schema}, which is newer than this server")
    run.begun = True
    run.agent, run.parent = fact.agent, fact.parent_run_id
    # A run inside a call acts for whoever the run around it acts for.
    around = told.rows.run(fact.parent_run_id) if fact.parent_run_id else None
    run.requester = fact.requester or (around.requester if around else "")
    run.created_by = fact.created_by or (around.created_by if around else "")


def _said(told: _Told, fact: facts.UserSaid) -> None:
    told.run.task = told.run.task or cut(fact.text)


def _paused(told: _Told, fact: facts.RunPaused) -> None:
    told.run.state = step(RUN_TRANSITIONS, told.run.state, f"paused for {fact.kind}")


def _resumed(told: _Told, fact: facts.RunResumed) -> None:
    told.run.state = step(RUN_TRANSITIONS, told.run.state, facts.type_of(fact))


def _ended(told: _Told, fact: facts.RunCompleted | facts.RunDegraded | facts.RunFailed | facts.RunCancelled) -> None:
    run = told.run
    run.state = step(RUN_TRANSITIONS, run.state, facts.type_of(fact))
    if run.damaged_at < 0:
        run.message = cut(fact.message)
    run.open_questions = 0
    told.rows.leave_pending(run.run_id)


def _asked(told: _Told, fact: facts.ApprovalRequested | facts.InputRequested | facts.ConsentRequested) -> None:
    question, run = fact.question, told.run
    if told.rows.action(run.run_id, question.action_id) is not None:
        raise IllegalTransitionError(f"{question.action_id} was asked twice")
    is_open = not run.state.is_over
    told.rows.add_action(
        IndexedAction(
            number=told.position,
            action_id=question.action_id,
            run_id=run.run_id,
            status=ActionState.PENDING.name if is_open else LEFT,
            agent=run.agent,
            requester=run.requester,
            created_by=run.created_by,
            call_id=question.call_id,
            tool=question.tool_name,
            capability=question.capability,
            kind=question.kind,
            payload_hash=question.payload_hash,
            risk=_encode(question.risk).decode(),
            asked_at=stored_int(question.asked_at),
            expires_at=stored_int(question.expires_at),
            asked_seq=told.event.seq,
        )
    )
    run.open_questions += is_open


def _granted(told: _Told, fact: Any) -> None:
    _decided(told, fact, "granted")


def _rejected(told: _Told, fact: Any) -> None:
    _decided(told, fact, "rejected")


def _expired(told: _Told, fact: Any) -> None:
    _decided(told, fact, "expired")


def _decided(told: _Told, fact: Any, word: str) -> None:
    action = _moved(told, fact.action_id, word)
    action.decided_at, action.decided_by = stored_int(told.event.at), fact.answer.by


def _voided(told: _Told, fact: facts.ActionVoided) -> None:
    _moved(told, fact.action_id, "voided")


def _invoked(told: _Told, fact: facts.InvocationStarted) -> None:
    if fact.action_id:
        _moved(told, fact.action_id, "tool.invocation.started")


def _moved(told: _Told, action_id: str, word: str) -> IndexedAction:
    action = told.rows.action(told.run.run_id, action_id)
    if action is None:
        raise IllegalTransitionError(f"{action_id} was never asked")
    state = step(ACTION_TRANSITIONS, action.state, word)
    if action.status == ActionState.PENDING.name:
        told.run.open_questions -= 1
    action.state, action.status = state, state.name
    return action


_Change = Callable[[_Told, Any], None]

#: Every other fact changes no row beyond its last event.
_CHANGES = cast(
    Mapping[type, _Change],
    {
        facts.RunStarted: _started,
        facts.UserSaid: _said,
        facts.RunPaused: _paused,
        facts.RunResumed: _resumed,
        facts.RunCompleted: _ended,
        facts.RunDegraded: _ended,
        facts.RunFailed: _ended,
        facts.RunCancelled: _ended,
        facts.ApprovalRequested: _asked,
        facts.InputRequested: _asked,
        facts.ConsentRequested: _asked,
        facts.ApprovalGranted: _granted,
        facts.InputProvided: _granted,
        facts.ConsentGranted: _granted,
        facts.ApprovalRejected: _rejected,
        facts.InputRefused: _rejected,
        facts.ConsentRefused: _rejected,
        facts.ApprovalExpired: _expired,
        facts.InputExpired: _expired,
        facts.ConsentExpired: _expired,
        facts.ActionVoided: _voided,
        facts.InvocationStarted: _invoked,
    },
)
