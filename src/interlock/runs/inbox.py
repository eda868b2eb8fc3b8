"""The inbox of people: look at runs and answer their questions, whichever process owns them.

A run without an owner is leased for the moment that an answer takes. One with an owner gets a queued command, which the
owner records: so the log of a run has one writer at a time, and no answer is lost. The owner checks for commands after
it released the lease, and the sender checks after queueing whether the lease was released meanwhile: one of them finds
the command.
"""

from collections.abc import Container
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Literal, TypeAlias, cast

from ..app import App
from ..domain.call import Answer, Question
from ..domain.commands import AnswerCommand, CancelCommand, Command, command_key, encode_command, redact_command
from ..domain.errors import ConfigurationError, DecisionConflictError, LogFencedError, RunClaimedError, RunEndedError
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import RunState
from ..domain.tool import CallContext
from ..history.fold import load_run
from ..pipeline.context import RunContext
from ..storage.artifacts import ArtifactStore
from ..storage.event_log import EventLog, Lease, QueuedCommand
from .children import find_started_children
from .command_poller import CommandPoller
from .commands import apply_command, is_recorded

PARENT_ENDED = "The run around it is over."
#: Written into the log, or queued for the process that owns the run.
Delivery: TypeAlias = Literal["recorded", "left"]


class Inbox:
    """Pending questions of runs, and the ways to answer and cancel, from any process."""

    def __init__(
        self, log: EventLog, artifacts: ArtifactStore, *, app: App | None = None, active_runs: Container[str] = ()
    ) -> None:
        """
        Args:
            app: The app that knows the tools and the secrets of the runs. Without it the secrets that
                were declared for the runs are unknown here: only what looks like a secret by its form is redacted
                in what people write.
            active_runs: The runs that are driven in this process, whose leases must not be taken.
        """
        self._log = log
        self._app = App(log=log, artifacts=artifacts) if app is None else app
        self._owns_app = app is None
        self._active_runs = active_runs

    async def load_ledger(self, run_id: str) -> Ledger:
        ledger = (await load_run(self._log, run_id)).ledger
        if not ledger.started:
            raise ConfigurationError(f"There is no run {run_id!r} in the log.")
        return ledger

    async def pending(self, run_id: str) -> list[Question]:
        """Return the open questions of a run."""
        return (await self.load_ledger(run_id)).open_questions()

    async def answer(self, run_id: str, action_id: str, answer: Answer, payload_hash: str = "") -> Delivery:
        """Answer a question. The first answer counts, from whichever process: `DecisionConflictError` names it. With
        `payload_hash` the answer is to exactly that payload.
        """
        self._app.check_answer(await self.load_ledger(run_id), action_id, answer, payload_hash)
        run = await self._acquire(run_id)
        if run is not None:
            try:
                if await self._apply_all(run) and await self._app.decide(run, action_id, answer, payload_hash):
                    return "recorded"
            finally:
                await self._release(run)
        return await self._enqueue(run_id, AnswerCommand(action_id, answer, payload_hash))

    async def cancel(self, run_id: str, message: str = "", by: str = "") -> Delivery:
        """Cancel the run and its child runs."""
        ledger = await self.load_ledger(run_id)
        if ledger.is_over:
            raise _ended_error(ledger)
        run = await self._acquire(run_id)
        if run is not None:
            try:
                if await self._apply_all(run) and await self._cancel_run(run, CancelCommand(message, by)):
                    return "recorded"
            finally:
                await self._release(run)
        return await self._enqueue(run_id, CancelCommand(message, by))

    async def cancel_children(self, ledger: Ledger) -> None:
        """Cancel the child runs of a run that is over."""
        for child_run_id in await find_started_children(self._log, ledger):
            with suppress(RunEndedError, DecisionConflictError):
                await self.cancel(child_run_id, PARENT_ENDED)

    async def apply_queued(self, run_id: str) -> bool:
        """Apply commands that were queued while the owner released the run. Return False when there is nothing to do
        here.
        """
        applied = False
        while await self._log.queued_commands(run_id):
            run = await self._acquire(run_id)
            if run is None:
                break
            try:
                # The previous owner may have applied them right before the lease was acquired here.
                has_commands = bool(await self._log.queued_commands(run_id))
                if not await self._apply_all(run):
                    break
            finally:
                await self._log.release(_lease_of(run))
            applied = applied or has_commands
        return applied

    async def close(self) -> None:
        """Release the resources that the inbox created. The log is closed by its owner."""
        if self._owns_app:
            await self._app.close()

    async def __aenter__(self) -> "Inbox":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _acquire(self, run_id: str) -> RunContext | None:
        """Return the run for writing; None when another process owns it."""
        if run_id in self._active_runs:
            return None
        try:
            lease = await self._log.acquire(run_id)
        except RunClaimedError:
            return None
        try:
            return await self._app.open(CallContext(run_id=run_id), lease)
        except BaseException:
            await self._log.release(lease)
            raise

    async def _release(self, run: RunContext) -> None:
        await self._log.release(_lease_of(run))
        await self.apply_queued(run.ledger.run_id)

    async def _apply_all(self, run: RunContext) -> bool:
        """Apply the queued commands. Return False when the lease was lost: the rest is for the new owner."""
        for command in await self._log.queued_commands(run.ledger.run_id):
            if not await apply_command(command, self._app, run, partial(self._cancel_run, run)):
                return False
            await self._log.ack(run.ledger.run_id, command.key)
        return True

    async def _cancel_run(self, run: RunContext, command: CancelCommand) -> bool:
        try:
            await self._app.cancel(run, command.message, command.by)
        except LogFencedError:
            return False
        await self.cancel_children(run.ledger)
        return True

    async def _enqueue(self, run_id: str, command: Command) -> Delivery:
        """Queue a command for the owner. Where the lease was released meanwhile, apply it here and report the
        result.
        """
        command = redact_command(command, self._app.parts.redactor.redact)
        if not await self._log.enqueue(run_id, QueuedCommand(command_key(command), encode_command(command))):
            what = (
                f"{command.action_id} has an answer"
                if isinstance(command, AnswerCommand)
                else f"{run_id} is to be cancelled"
            )
            raise DecisionConflictError(f"{what} already, which is on its way. That one stands.")
        if isinstance(self._active_runs, CommandPoller):
            self._active_runs.notify()
        if not await self.apply_queued(run_id):
            await self._check_not_superseded(run_id, command)
            return "left"
        if any(other.key == command_key(command) for other in await self._log.queued_commands(run_id)):
            return "left"
        self._check_applied(command, await self.load_ledger(run_id))
        return "recorded"

    async def _check_not_superseded(self, run_id: str, command: Command) -> None:
        """Raise if another answer was recorded, and its command acknowledged, right before this one was queued."""
        if isinstance(command, AnswerCommand):
            ledger = await self.load_ledger(run_id)
            action = ledger.actions.get(command.action_id)
            if action is not None and action.answer is not None and not is_recorded(command, ledger):
                await self._log.ack(run_id, command_key(command))
                self._check_applied(command, ledger)

    def _check_applied(self, command: Command, ledger: Ledger) -> None:
        """Raise where a command is gone and the log does not have its effect."""
        if isinstance(command, CancelCommand):
            if ledger.state is not RunState.CANCELLED:
                raise _ended_error(ledger)
        elif not is_recorded(command, ledger):
            self._app.check_answer(ledger, command.action_id, command.answer, command.payload_hash)
            raise DecisionConflictError(
                f"The answer to {command.action_id} was not taken; a warning in the log says why."
            )


def _ended_error(ledger: Ledger) -> RunEndedError:
    return RunEndedError(f"{ledger.run_id} is {ledger.state.value} already.")


def _lease_of(run: RunContext) -> Lease:
    return cast(Lease, run.recorder.claim)
