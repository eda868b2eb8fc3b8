"""What was left for a run by somebody who does not have it becomes events of the run, by whoever has it."""

from collections.abc import Awaitable, Callable

import msgspec

from ..app import App
from ..domain.call import Answer, Question
from ..domain.commands import AnswerNote, CancelNote, NoteBody, decode_note
from ..domain.errors import AnswerRefusedError, DecisionConflictError, LogFencedError
from ..domain.event import Warned
from ..domain.json import BadJson
from ..domain.payload import hash_of_answer
from ..domain.state.ledger import Ledger
from ..pipeline.context import RunContext
from ..storage.event_log import Note


async def take_note(note: Note, app: App, run: RunContext, end: Callable[[CancelNote], Awaitable[bool]]) -> bool:
    """May it be taken away? False: it stays, for whoever has the run then. `end` is how the run is ended here."""
    if run.ledger.is_over:
        return True
    match read_note(note):
        case AnswerNote() as body:
            return await _take_answer(app, run, body)
        case CancelNote() as wish:
            return await end(wish)
        case None:
            return await _warn(run, f"A note was left that cannot be read: {note.key!r}.")


def read_note(note: Note) -> NoteBody | None:
    """What it says; None when it was written by somebody who says things that this version does not know."""
    try:
        return decode_note(note.body)
    except (msgspec.MsgspecError, RecursionError):
        return None


def is_recorded(note: AnswerNote, ledger: Ledger) -> bool:
    """Is it the answer that the log has?"""
    action, given = ledger.actions.get(note.action_id), note.answer
    if action is None or action.answer is None:
        return False
    recorded = action.answer
    if (recorded.approved, recorded.by, recorded.scope) != (given.approved, given.by, given.scope):
        return False
    return action.written_hash == (_written_hash(action.question, given) if given.approved else "")


async def _take_answer(app: App, run: RunContext, note: AnswerNote) -> bool:
    """Record it, or that it was not taken and why. False when the run was taken from us: nothing was written."""
    try:
        return await app.decide(run, note.action_id, note.answer, note.payload_hash)
    except (AnswerRefusedError, DecisionConflictError) as error:
        if is_recorded(note, run.ledger):  # by somebody who could not take the note away any more
            return True
        return await _warn(run, f"An answer from elsewhere was not taken: {error}")


async def _warn(run: RunContext, message: str) -> bool:
    run.recorder.add(Warned(message=message))
    try:
        await run.recorder.commit()
    except LogFencedError:
        return False
    return True


def _written_hash(question: Question, answer: Answer) -> str:
    try:
        return hash_of_answer(question.payload_hash, answer.arguments, answer.value)
    except (BadJson, RecursionError):
        return "none: it was never one that could be recorded"
