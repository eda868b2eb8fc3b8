"""Bring an answer, or the wish to end a run, to whoever can write it down, and tell what became of it.

A run that nobody has takes it at once. For one that a living process has, a note is left; then the log is watched, for
a few seconds, until that process has taken it. Should it die meanwhile, the note is taken here. What is told in the end
is what the log says, whoever wrote it.
"""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Literal, TypeAlias

import msgspec

from ...app import App
from ...domain.call import Answer, Question
from ...domain.commands import AnswerNote, CancelNote, key_of
from ...domain.errors import ConfigurationError, DecisionConflictError
from ...domain.event import Warned
from ...domain.state.ledger import ActionEntry, Ledger
from ...domain.state.lifecycle import ActionState
from ...history.fold import load
from ...runs.commands import read_note
from ...runs.inbox import Desk
from ...storage.event_log import EventLog
from ..config.logs import short
from ..config.places import login_name
from ..display.follow import changed, events_of

MAX_NAME_CHARS = 200
#: How long a living process is waited for, and then how long for what it makes of the answer.
TAKE_SECONDS = 5.0
SETTLE_SECONDS = 1.0

#: `recorded`: by us, since nobody had the run. `taken`: by the process that has it. `left`: not taken yet.
How: TypeAlias = Literal["recorded", "taken", "left"]


class Answered(msgspec.Struct, frozen=True):
    how: How
    #: As the log has them afterwards.
    action: ActionEntry
    ledger: Ledger


class _Errand(msgspec.Struct, frozen=True):
    """Something that a note is left for."""

    run_id: str
    key: str
    #: Has it been done? Told the run as it is, and whether the note still lies there.
    done: Callable[[Ledger, bool], bool]


@asynccontextmanager
async def at_desk(log: EventLog) -> AsyncGenerator[Desk]:
    """An answer is small: nothing of it is kept as an artifact, and no tool is needed."""
    app = App(log=log)
    try:
        yield Desk(log, app.artifacts, app=app)
    finally:
        await app.close()


def name_of_person(said: str) -> str:
    """What `--by` said, else the login name: recorded with the answer, and not proved by anything."""
    if len(said) > MAX_NAME_CHARS:
        raise ConfigurationError(f"--by is longer than {MAX_NAME_CHARS} characters.")
    return said or login_name()


async def give_answer(
    log: EventLog, desk: Desk, question: Question, answer: Answer, *, seconds: float | None = None
) -> Answered:
    """The answer is to exactly this question. `DecisionConflictError` when another answer stands, `AnswerRefusedError`
    when it cannot be the answer."""
    run_id, action_id, payload_hash = question.run_id, question.action_id, question.payload_hash
    known = (await desk.ledger(run_id)).next_seq - 1

    def is_done(ledger: Ledger, note_lies_there: bool) -> bool:
        answered = ledger.actions[action_id].state is not ActionState.PENDING
        return answered or not note_lies_there or ledger.is_over

    errand = _Errand(run_id, key_of(AnswerNote(action_id, answer)), is_done)
    try:
        how: How = await desk.decide(run_id, action_id, answer, payload_hash)
    except DecisionConflictError as conflict:
        raise await _standing(log, desk, errand, action_id, seconds) or conflict from None
    if how == "left":
        how = await _taken(log, desk, errand, seconds)
    ledger = (await load(log, run_id)).ledger
    action = ledger.actions[action_id]
    if how != "left" and not _is_ours(action.answer, answer):
        raise await _why_not(log, errand, action, known)
    if how == "taken":
        ledger = await _settled(log, run_id, action_id)
    return Answered(how, ledger.actions[action_id], ledger)


async def give_cancel(log: EventLog, desk: Desk, run_id: str, message: str, seconds: float | None = None) -> How:
    """`RunEndedError` when it was over before."""
    errand = _Errand(run_id, key_of(CancelNote()), lambda ledger, _: ledger.is_over)
    with suppress(DecisionConflictError):  # somebody else wants the same, and that is on its way
        if await desk.cancel(run_id, message) == "recorded":
            return "recorded"
    return await _taken(log, desk, errand, seconds)


async def _taken(log: EventLog, desk: Desk, errand: _Errand, seconds: float | None) -> How:
    seconds = TAKE_SECONDS if seconds is None else seconds
    while True:
        seen = log.version()
        lies_there = any(note.key == errand.key for note in await log.notes(errand.run_id))
        if errand.done((await load(log, errand.run_id)).ledger, lies_there):
            return "taken"
        if lies_there and await desk.take_notes(errand.run_id):
            return "recorded"
        if seconds <= 0:
            return "left" if lies_there else "taken"
        seconds = await changed(log, seen, seconds)


async def _settled(log: EventLog, run_id: str, action_id: str) -> Ledger:
    """What the process makes of the answer: the call starts, or something changed and it asks again."""
    seconds = SETTLE_SECONDS
    while True:
        seen = log.version()
        ledger = (await load(log, run_id)).ledger
        if ledger.actions[action_id].state is not ActionState.APPROVED or seconds <= 0:
            return ledger
        seconds = await changed(log, seen, seconds)


async def _standing(
    log: EventLog, desk: Desk, errand: _Errand, action_id: str, seconds: float | None
) -> DecisionConflictError | None:
    """Which answer stands. One of somebody else may lie there, not taken yet: the log says it then."""
    await _taken(log, desk, errand, seconds)
    action = (await load(log, errand.run_id)).ledger.actions[action_id]
    if action.answer is not None:
        return _decided_before(action)
    for note in await log.notes(errand.run_id):
        body = read_note(note)
        if note.key == errand.key and isinstance(body, AnswerNote):
            who, said = body.answer.by or "somebody", "approved" if body.answer.approved else "rejected"
            return DecisionConflictError(f"{who} {said} {short(action_id)} already; that is on its way.")
    return None


async def _why_not(log: EventLog, errand: _Errand, action: ActionEntry, known: int) -> DecisionConflictError:
    """Another answer was first, or the process that has the run did not take ours and said why."""
    if action.answer is not None:
        return _decided_before(action)
    events = [event.fact async for event in events_of(log, errand.run_id, known)]
    warnings = [fact.message for fact in events if isinstance(fact, Warned)]
    said = warnings[-1] if warnings else f"The answer was not taken: {short(action.question.action_id)} is open."
    return DecisionConflictError(said)


def _decided_before(action: ActionEntry) -> DecisionConflictError:
    answer, name = action.answer, short(action.question.action_id)
    who = (answer.by if answer else "") or "somebody"
    return DecisionConflictError(f"{name} was decided before: it is {action.state.value}, by {who}. That stands.")


def _is_ours(recorded: Answer | None, given: Answer) -> bool:
    return recorded is not None and (recorded.approved, recorded.by) == (given.approved, given.by)
