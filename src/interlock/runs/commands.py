"""What was left for a run by somebody who does not have it becomes events of the run, by whoever has it."""

from collections.abc import Awaitable, Callable

import msgspec

from ..app import App
from ..domain.call import Answer, Question
from ..domain.commands import AnswerCommand, CancelCommand, Command, decode_command
from ..domain.errors import AnswerRefusedError, DecisionConflictError, LogFencedError
from ..domain.event import WarningRaised
from ..domain.json import InvalidJsonError
from ..domain.payload import hash_answer
from ..domain.state.ledger import Ledger
from ..pipeline.context import RunContext
from ..storage.event_log import QueuedCommand


async def apply_command(
    command: QueuedCommand, app: App, run: RunContext, cancel: Callable[[CancelCommand], Awaitable[bool]]
) -> bool:
    """May it be taken away? False: it stays, for whoever has the run then. `end` is how the run is ended here."""
    if run.ledger.is_over:
        return True
    match read_command(command):
        case AnswerCommand() as body:
            return await _apply_answer(app, run, body)
        case CancelCommand() as wish:
            return await cancel(wish)
        case None:
            return await _warn(run, f"A note was left that cannot be read: {command.key!r}.")


def read_command(command: QueuedCommand) -> Command | None:
    """What it says; None when it was written by somebody who says things that this version does not know."""
    try:
        return decode_command(command.body)
    except (msgspec.MsgspecError, RecursionError):
        return None


def is_recorded(command: AnswerCommand, ledger: Ledger) -> bool:
    """Is it the answer that the log has?"""
    action, given = ledger.actions.get(command.action_id), command.answer
    if action is None or action.answer is None:
        return False
    recorded = action.answer
    if (recorded.approved, recorded.by, recorded.scope) != (given.approved, given.by, given.scope):
        return False
    return action.written_hash == (_written_hash(action.question, given) if given.approved else "")


async def _apply_answer(app: App, run: RunContext, command: AnswerCommand) -> bool:
    """Record it, or that it was not taken and why. False when the run was taken from us: nothing was written."""
    try:
        return await app.decide(run, command.action_id, command.answer, command.payload_hash)
    except (AnswerRefusedError, DecisionConflictError) as error:
        if is_recorded(command, run.ledger):  # by somebody who could not take the note away any more
            return True
        return await _warn(run, f"An answer from elsewhere was not taken: {error}")


async def _warn(run: RunContext, message: str) -> bool:
    run.recorder.add(WarningRaised(message=message))
    try:
        await run.recorder.commit()
    except LogFencedError:
        return False
    return True


def _written_hash(question: Question, answer: Answer) -> str:
    try:
        return hash_answer(question.payload_hash, answer.arguments, answer.value)
    except (InvalidJsonError, RecursionError):
        return "none: it was never one that could be recorded"
