"""Delivers an answer or a cancellation to the owner of a run, and reports the result.

A run without an owner takes it at once. For one with a living owner, a command is queued; then the log is watched for a
few seconds until the owner has applied it. Should it die meanwhile, the command is applied here. The reported result is
what the log says.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec
import typer

from ...app import App
from ...domain.call import Answer, Question
from ...domain.commands import AnswerCommand, CancelCommand, command_key
from ...domain.errors import ConfigurationError, DecisionConflictError, RunEndedError, SandboxSetupError
from ...domain.event import WarningRaised
from ...domain.state.ledger import ActionEntry, Ledger
from ...domain.state.lifecycle import ActionState
from ...history.fold import load_run
from ...rendering.times import format_utc
from ...runs.commands import read_command
from ...runs.inbox import Inbox
from ...sandbox.tasks.client import list_workspaces
from ...storage.event_log import EventLog
from ..config.logs import open_log, resolve_run, shorten_id
from ..config.user_paths import find_user_paths, login_name
from ..display.output import echo_error, echo_result
from ..display.run_list import read_events
from ..exit_codes import ExitCode

MAX_NAME_CHARS = 200
#: How long a living process is waited for, and then how long for what it makes of the answer.
TAKE_SECONDS = 5.0
SETTLE_SECONDS = 1.0

#: `recorded`: by us, since the run had no owner. `applied`: by its owner. `queued`: not applied yet.
DeliveryStatus: TypeAlias = Literal["recorded", "applied", "queued"]


class AnswerDelivery(msgspec.Struct, frozen=True):
    """How an answer was delivered."""

    status: DeliveryStatus
    #: As the log has them afterwards.
    action: ActionEntry
    ledger: Ledger


class _PendingCommand(msgspec.Struct, frozen=True):
    """A queued command."""

    run_id: str
    key: str
    #: Whether it is done. Called with the current run, and whether the command is still queued.
    is_done: Callable[[Ledger, bool], bool]


@asynccontextmanager
async def open_inbox(log: EventLog) -> AsyncGenerator[Inbox]:
    """Open an inbox without artifacts or tools: an answer is small."""
    app = App(log=log)
    try:
        yield Inbox(log, app.artifacts, app=app)
    finally:
        await app.close()


def get_person_name(name: str) -> str:
    """Return `--by`, else the login name: recorded with the answer, but not authenticated."""
    if len(name) > MAX_NAME_CHARS:
        raise ConfigurationError(f"--by is longer than {MAX_NAME_CHARS} characters.")
    return name or login_name()


async def deliver_answer(log: EventLog, inbox: Inbox, question: Question, answer: Answer) -> AnswerDelivery:
    """Deliver an answer to exactly this question. Raise `DecisionConflictError` when another answer counts,
    `AnswerRefusedError` when it does not fit.
    """
    run_id, action_id, payload_hash = question.run_id, question.action_id, question.payload_hash
    last_seq = (await inbox.load_ledger(run_id)).next_seq - 1

    def is_done(ledger: Ledger, is_queued: bool) -> bool:
        answered = ledger.actions[action_id].state is not ActionState.PENDING
        return answered or not is_queued or ledger.is_over

    pending = _PendingCommand(run_id, command_key(AnswerCommand(action_id, answer)), is_done)
    had_owner = bool(await log.lease_holder(run_id))
    try:
        status: DeliveryStatus = await inbox.deliver(run_id, action_id, answer, payload_hash)
    except DecisionConflictError as conflict:
        raise await _find_conflict(log, inbox, pending, action_id) or conflict from None
    if status == "queued":
        status = await _wait_until_taken(log, inbox, pending)
    elif had_owner:  # which was faster than the look at what is queued
        status = "applied"
    ledger = (await load_run(log, run_id)).ledger
    action = ledger.actions[action_id]
    if status != "queued" and not _is_same_answer(action.answer, answer):
        raise await _explain_rejection(log, pending, action, last_seq)
    if status == "applied":
        ledger = await _wait_until_settled(log, run_id, action_id)
    return AnswerDelivery(status, ledger.actions[action_id], ledger)


async def deliver_cancel(log: EventLog, inbox: Inbox, run_id: str, message: str) -> DeliveryStatus:
    """Deliver a cancellation. Raise `RunEndedError` when the run was already over."""
    pending = _PendingCommand(run_id, command_key(CancelCommand()), lambda ledger, _: ledger.is_over)
    with suppress(DecisionConflictError):  # the same request is already queued
        if await inbox.cancel(run_id, message) == "recorded":
            return "recorded"
    return await _wait_until_taken(log, inbox, pending)


async def _wait_until_taken(log: EventLog, inbox: Inbox, pending: _PendingCommand) -> DeliveryStatus:
    loop = asyncio.get_running_loop()
    until = loop.time() + TAKE_SECONDS
    while True:
        version, left = log.version(), until - loop.time()
        is_queued = any(command.key == pending.key for command in await log.queued_commands(pending.run_id))
        if pending.is_done((await load_run(log, pending.run_id)).ledger, is_queued):
            return "applied"
        if is_queued and await inbox.apply_queued(pending.run_id):
            return "recorded"
        if left <= 0:
            return "queued" if is_queued else "applied"
        await log.wait_for_change(version, left)


async def _wait_until_settled(log: EventLog, run_id: str, action_id: str) -> Ledger:
    """Wait until the process has used the answer: the call starts, or something changed and it asks again."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLE_SECONDS
    while True:
        version, left = log.version(), until - loop.time()
        ledger = (await load_run(log, run_id)).ledger
        if ledger.actions[action_id].state is not ActionState.APPROVED or left <= 0:
            return ledger
        await log.wait_for_change(version, left)


async def _find_conflict(
    log: EventLog, inbox: Inbox, pending: _PendingCommand, action_id: str
) -> DecisionConflictError | None:
    """Return the answer that counts. Another one may be queued and not applied yet: the log says it then."""
    await _wait_until_taken(log, inbox, pending)
    action = (await load_run(log, pending.run_id)).ledger.actions[action_id]
    if action.answer is not None:
        return _already_decided_error(action)
    for command in await log.queued_commands(pending.run_id):
        body = read_command(command)
        if command.key == pending.key and isinstance(body, AnswerCommand):
            person, decision = body.answer.by or "a person", "approved" if body.answer.approved else "rejected"
            return DecisionConflictError(f"{person} {decision} {shorten_id(action_id)} already; that answer is queued.")
    return None


async def _explain_rejection(
    log: EventLog, pending: _PendingCommand, action: ActionEntry, last_seq: int
) -> DecisionConflictError:
    """Explain why the answer was not used: another was first, or the process of the run refused it."""
    if action.answer is not None:
        return _already_decided_error(action)
    events = [event.fact async for event in read_events(log, pending.run_id, last_seq)]
    warnings = [fact.message for fact in events if isinstance(fact, WarningRaised)]
    message = (
        warnings[-1] if warnings else f"The answer was not taken: {shorten_id(action.question.action_id)} is open."
    )
    return DecisionConflictError(message)


def _already_decided_error(action: ActionEntry) -> DecisionConflictError:
    answer, name = action.answer, shorten_id(action.question.action_id)
    person = (answer.by if answer else "") or "a person"
    at = f", at {format_utc(action.answered_at)}" if action.answered_at else ""
    reason = f" ({answer.reason})" if answer and answer.reason else ""
    return DecisionConflictError(
        f"{name} was already decided: {action.state.value}, by {person}{at}{reason}. The first answer counts."
    )


def _is_same_answer(recorded: Answer | None, given: Answer) -> bool:
    return recorded is not None and (recorded.approved, recorded.by) == (given.approved, given.by)


_STATUS_MESSAGES: dict[DeliveryStatus, str] = {
    "recorded": "cancelled. No process had it.",
    "applied": "cancelled by the process that has it.",
    "queued": "to be cancelled. The process that has it did not do so yet; it will when it looks.",
}


async def end_run_tasks(run_id: str) -> None:
    """Stop the background tasks that a run left behind."""
    folder = find_user_paths().tasks
    for workspace in list_workspaces(str(folder)) if folder is not None else ():
        with suppress(SandboxSetupError):  # of another version; `interlock doctor` shows it
            await workspace.end_run(run_id)


async def cancel_run(log_path: Path | None, run_ref: str, reason: str, by: str, as_json: bool) -> None:
    """Cancel a run, whichever process owns it."""
    message = f"Cancelled by {get_person_name(by)}{f': {reason}' if reason else '.'}"
    async with open_log(log_path) as log, open_inbox(log) as inbox:
        run_id = await resolve_run(log, run_ref)
        try:
            status = await deliver_cancel(log, inbox, run_id, message)
        except RunEndedError as error:
            await end_run_tasks(run_id)
            echo_error(error)
            raise typer.Exit(ExitCode.FAILED) from None
    if status == "recorded":  # else the process that owns it stops them
        await end_run_tasks(run_id)
    line = f"{shorten_id(run_id)} is {_STATUS_MESSAGES[status]}"
    echo_result(as_json, {"run_id": run_id, "how": status, "message": message}, line)
    if status == "queued":
        raise typer.Exit(ExitCode.WAITING)
