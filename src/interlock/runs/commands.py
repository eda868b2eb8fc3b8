"""Applying queued commands: the owner of a run turns them into events of the run."""

from collections.abc import Awaitable, Callable

import msgspec

from ..app import App
from ..domain.call import Answer, Question
from ..domain.commands import AnswerClaim, AnswerCommand, CancelCommand, Command, decode_command
from ..domain.errors import AnswerRefusedError, DecisionConflictError, LogError, LogFencedError, RunEndedError
from ..domain.event import WarningRaised
from ..domain.json import InvalidJsonError
from ..domain.payload import hash_answer
from ..domain.state.ledger import Ledger
from ..pipeline.context import RunContext
from ..storage.event_log import QueuedCommand


async def apply_command(
    command: QueuedCommand, app: App, run: RunContext, cancel: Callable[[CancelCommand], Awaitable[bool]]
) -> bool:
    """Apply a command. Return True if it may be acknowledged; False: it stays queued for the next owner. `cancel` ends
    the run.
    """
    if run.ledger.is_over:
        return True
    match read_command(command):
        case AnswerCommand() as body:
            return await _apply_answer(app, run, body)
        case AnswerClaim() as claim:
            return await _settle_claim(run, claim)
        case CancelCommand() as request:
            return await cancel(request)
        case None:
            return await _warn(run, f"A note was left that cannot be read: {command.key!r}.")


async def take_command(
    command: QueuedCommand,
    app: App,
    run: RunContext,
    cancel: Callable[[CancelCommand], Awaitable[bool]] | None = None,
) -> bool:
    """Apply a command to a run that this process has. Return False when the lease was lost: it is for the new owner.
    By default a cancellation ends the run at once.
    """

    async def cancel_now(command: CancelCommand) -> bool:
        await app.cancel(run, command.message, command.by)
        return True

    try:
        return await apply_command(command, app, run, cancel or cancel_now)
    except RunEndedError:  # meanwhile
        return True
    except LogError:
        return False


def read_command(command: QueuedCommand) -> Command | None:
    """Decode a queued command; None when it was written by a version with other commands."""
    try:
        return decode_command(command.body)
    except (msgspec.MsgspecError, RecursionError):
        return None


def is_recorded(command: AnswerCommand, ledger: Ledger) -> bool:
    """Return True if the log has this answer."""
    action, given = ledger.actions.get(command.action_id), command.answer
    if action is None or action.answer is None:
        return False
    recorded = action.answer
    if (recorded.approved, recorded.by, recorded.scope) != (given.approved, given.by, given.scope):
        return False
    return action.written_hash == (_written_hash(action.question, given) if given.approved else "")


async def _apply_answer(app: App, run: RunContext, command: AnswerCommand) -> bool:
    """Record the answer, or why it was refused. Return False when the lease was lost: nothing was written."""
    given_at = min(command.at, app.parts.clock.now())
    try:
        return await app.record_answer(run, command.action_id, command.answer, command.payload_hash, given_at)
    except (AnswerRefusedError, DecisionConflictError) as error:
        if is_recorded(command, run.ledger):  # by a process that could not acknowledge it any more
            await run.recorder.commit()
            return True
        return await _warn(run, f"An answer from elsewhere was not taken: {error}")


async def _settle_claim(run: RunContext, claim: AnswerClaim) -> bool:
    """Return True if the claim is not needed any more: its answer is durable, or its process has lost the run."""
    lease, action = run.recorder.lease, run.ledger.actions.get(claim.action_id)
    if lease is None or lease.token != claim.token:
        return True
    if action is None or action.is_open:
        return False
    await run.recorder.commit()
    return True


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
