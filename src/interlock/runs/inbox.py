"""Read and answer the questions of runs from any process that can open the log.

Every answer is queued first, by a conditional insert: of any number of answers to one question one is first, and the
others raise an error that names it. Then it is recorded: by the process that has the run, or here, with the lease of an
idle run for the moment that it takes. So the log of a run has one writer at a time, and no answer is lost. A process
that releases a run looks for queued commands afterwards, and one that queues a command looks afterwards whether the run
was released meanwhile: one of the two finds it.
"""

import asyncio
from collections.abc import AsyncIterator, Container
from contextlib import suppress
from functools import partial
from typing import Any, Literal, TypeAlias, cast

from ..app import App, decided_error
from ..domain.call import Answer, Assurance, Channel, Question
from ..domain.commands import (
    AnswerClaim,
    AnswerCommand,
    CancelCommand,
    Command,
    command_key,
    encode_command,
    redact_command,
)
from ..domain.decision import ApprovalScope
from ..domain.errors import (
    AnswerRefusedError,
    ConfigurationError,
    DecisionConflictError,
    IllegalTransitionError,
    LogFencedError,
    LogUnreadableError,
    RunClaimedError,
    RunEndedError,
)
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import RunState
from ..domain.tool import CallContext, JsonObject
from ..history.fold import LoadedRun, has_ended, load_more, load_run
from ..pipeline.context import RunContext
from ..rendering.times import format_utc
from ..storage.artifacts import ArtifactStore
from ..storage.event_log import EventLog, Lease, QueuedCommand
from .children import find_started_children
from .command_poller import CommandPoller
from .commands import apply_command, is_recorded, read_command

PARENT_ENDED = "The run around it is over."
#: How long a later answer waits for one that its process is about to record, to name it.
_CLAIM_SECONDS = 2.0
#: `recorded`: written to the log. `queued`: waiting for the process that has the run.
Delivery: TypeAlias = Literal["recorded", "queued"]


class Inbox:
    """Answer the open questions of runs, from any process that can open their log.

        async with Inbox(SqliteLog("runs.db")) as inbox:
            for question in await inbox.pending():
                await inbox.approve(question, by="ana")

    It needs neither the agents nor their tools, and it never executes anything: a run continues in the process that
    has it, or when a `Runner` opens or recovers it.

    `approve`, `reject`, `answer` and `cancel` return `"recorded"` when the log has it, or `"queued"` when it is queued
    for the process that has the run. The first answer to a question counts: a later one raises
    `DecisionConflictError`, which names the first. `AnswerRefusedError` means that the answer does not fit the
    question, which stays open.
    """

    def __init__(
        self,
        log: EventLog,
        artifacts: ArtifactStore | None = None,
        *,
        app: App | None = None,
        active_runs: Container[str] = (),
    ) -> None:
        """
        Args:
            log: The log of the runs. Its owner closes it.
            artifacts: Where large texts of the runs are kept. Default: in memory, which is enough to answer.
            app: Knows the tools and the secrets of the runs. Without it, only what looks like a secret by its form is
                redacted from what people write.
            active_runs: The runs that this process executes, whose leases must not be taken from them.
        """
        self._log = log
        self._app = App(log=log, artifacts=artifacts) if app is None else app
        self._owns_app = app is None
        self._active_runs = active_runs

    async def load_ledger(self, run_id: str) -> Ledger:
        """Return the state of a run. `ConfigurationError` when the log has no such run."""
        return (await self._load(run_id)).ledger

    async def pending(self, run_id: str | None = None) -> list[Question]:
        """Return the open questions of a run, oldest first. Without `run_id`: those of all runs of the log.

        Runs whose events are damaged are left out of the list of all runs.
        """
        if run_id is not None:
            return (await self.load_ledger(run_id)).open_questions()
        questions = [question async for ledger in self._unfinished_runs() for question in ledger.open_questions()]
        return sorted(questions, key=lambda question: question.asked_at)

    async def approve(  # noqa: PLR0913 - every keyword is explicit
        self,
        question: Question | str,
        *,
        by: str = "",
        reason: str = "",
        arguments: JsonObject | None = None,
        scope: ApprovalScope = "once",
        until: int = 0,
        rule: str = "",
        payload_hash: str = "",
        run_id: str = "",
        channel: Channel = "",
        assurance: Assurance = "proved",
    ) -> Delivery:
        """Allow the call that the question is about.

        Args:
            question: The question, or its action id. A `Question` is approved exactly as it was shown: a call that
                changed since is not covered.
            by: Who approves.
            reason: Why. Recorded.
            arguments: What to run instead: validated, judged and hashed again, and the model is informed.
            scope: What the approval covers: `once`, `run`, `window` (requires `until`) or `rule` (requires `rule`).
            until: The end of the window, in nanoseconds since 1970.
            rule: The rule to keep, as a line of a policy file.
            payload_hash: Approve only this payload. Default: that of the `Question`, if one was given.
            run_id: The run, where only an action id was given. Default: the unfinished run that asks it.
            channel: Where the person answered. Recorded.
            assurance: `claimed` when the client that requested the call says that its user answered: it counts only
                where the rule that asked has `approver: client`.
        """
        answer = Answer(
            approved=True,
            by=by,
            reason=reason,
            arguments=arguments,
            scope=scope,
            until=until,
            rule=rule,
            channel=channel,
            assurance=assurance,
        )
        return await self._deliver_to(question, answer, payload_hash, run_id)

    async def reject(  # noqa: PLR0913 - every keyword is explicit
        self,
        question: Question | str,
        *,
        by: str = "",
        reason: str = "",
        payload_hash: str = "",
        run_id: str = "",
        channel: Channel = "",
        assurance: Assurance = "proved",
    ) -> Delivery:
        """Refuse the call that the question is about. The model reads `reason`. For the rest see `approve`."""
        answer = Answer(approved=False, by=by, reason=reason, channel=channel, assurance=assurance)
        return await self._deliver_to(question, answer, payload_hash, run_id)

    async def answer(  # noqa: PLR0913 - every keyword is explicit
        self,
        question: Question | str,
        value: Any,
        *,
        by: str = "",
        reason: str = "",
        payload_hash: str = "",
        run_id: str = "",
        channel: Channel = "",
        assurance: Assurance = "proved",
    ) -> Delivery:
        """Answer a question that asks for a value (`question.kind == "input"`). For the rest see `approve`."""
        answer = Answer(approved=True, value=value, by=by, reason=reason, channel=channel, assurance=assurance)
        return await self._deliver_to(question, answer, payload_hash, run_id)

    async def cancel(self, run_id: str, message: str = "", *, by: str = "") -> Delivery:
        """Cancel a run, and the runs inside its calls. `RunEndedError` when it is over already."""
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
        return await self._enqueue_cancel(run_id, CancelCommand(message, by))

    async def fail(self, run_id: str, message: str) -> bool:
        """End a run that can never continue, and the runs inside its calls. Return False when another process has it.
        `RunEndedError` when it is over already.
        """
        run = await self._acquire(run_id)
        if run is None:
            return False
        try:
            await self._app.fail(run, message)
            await self.cancel_children(run.ledger)
        finally:
            await self._release(run)
        return True

    async def deliver(self, run_id: str, action_id: str, answer: Answer, payload_hash: str = "") -> Delivery:
        """Record an `Answer` to a question, or queue it: what `approve`, `reject` and `answer` do with theirs."""
        command = AnswerCommand(action_id, answer, payload_hash, self._app.parts.clock.now())
        key = command_key(command)
        loaded = await self._load(run_id)
        while True:
            self._app.check_answer(loaded.ledger, action_id, answer, payload_hash, command.at)
            try:
                storable = cast(AnswerCommand, redact_command(command, self._app.parts.redactor.redact))
            except AnswerRefusedError:
                if await self._record_unqueued(run_id, command):
                    return "recorded"
                raise
            if await self._log.enqueue(run_id, QueuedCommand(key, encode_command(storable))):
                break
            await self._raise_conflict(run_id, command)
            loaded = await load_more(self._log, loaded)
        # An answer that was recorded before this one was queued is in the log now, and no later one can be first.
        loaded = await load_more(self._log, loaded)
        ledger = loaded.ledger
        action = ledger.actions[action_id]
        if not action.is_open and not is_recorded(storable, ledger):
            await self._log.ack(run_id, key)
            self._app.check_answer(ledger, action_id, answer, payload_hash, command.at)  # raises, and says why
            raise decided_error(action)
        if isinstance(self._active_runs, CommandPoller):
            await self._active_runs.poll(run_id)
        await self.apply_queued(run_id)
        if any(other.key == key for other in await self._log.queued_commands(run_id)):
            return "queued"
        self._check_applied(storable, (await load_more(self._log, loaded)).ledger)
        return "recorded"

    async def cancel_children(self, ledger: Ledger) -> None:
        """Cancel the runs inside the calls of a run that is over."""
        for child_run_id in await find_started_children(self._log, ledger):
            # A child run whose events are damaged cannot be cancelled, and keeps its parent from nothing.
            with suppress(RunEndedError, DecisionConflictError, LogUnreadableError, IllegalTransitionError):
                await self.cancel(child_run_id, PARENT_ENDED)

    async def apply_queued(self, run_id: str) -> bool:
        """Record the queued commands of a run that was released meanwhile. Return False when there was nothing to
        record: none is queued, another process has the run, or it is over."""
        applied = False
        while await self._log.queued_commands(run_id):
            run = await self._acquire(run_id)
            if run is None:
                break
            try:
                # The process that had the run may have applied them right before this one acquired it.
                has_commands = not run.ledger.is_over and bool(await self._log.queued_commands(run_id))
                if not await self._apply_all(run):
                    break
            finally:
                await self._log.release(_lease_of(run))
            applied = applied or has_commands
        return applied

    async def close(self) -> None:
        """Release its own resources. The log stays open: its owner closes it."""
        if self._owns_app:
            await self._app.close()

    async def __aenter__(self) -> "Inbox":
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _load(self, run_id: str) -> LoadedRun:
        loaded = await load_run(self._log, run_id)
        if not loaded.ledger.started:
            raise ConfigurationError(f"There is no run {run_id!r} in the log.")
        return loaded

    async def _unfinished_runs(self) -> AsyncIterator[Ledger]:
        """Yield the state of every run that is not over, except those whose events are damaged."""
        for summary in await self._log.list_runs():
            try:
                ledger = None if has_ended(summary) else (await load_run(self._log, summary.first.run_id)).ledger
            except (LogUnreadableError, IllegalTransitionError):
                continue
            if ledger is not None and not ledger.is_over:
                yield ledger

    async def _deliver_to(self, question: Question | str, answer: Answer, payload_hash: str, run_id: str) -> Delivery:
        """Deliver the answer to the run that asks."""
        if isinstance(question, Question):
            payload_hash = payload_hash or question.payload_hash
            return await self.deliver(run_id or question.run_id, question.action_id, answer, payload_hash)
        return await self.deliver(run_id or await self._find_run(question), question, answer, payload_hash)

    async def _find_run(self, action_id: str) -> str:
        async for ledger in self._unfinished_runs():
            if action_id in ledger.actions:
                return ledger.run_id
        raise DecisionConflictError(
            f"No unfinished run of the log asks {action_id!r}. `pending()` lists the open questions."
        )

    async def _acquire(self, run_id: str) -> RunContext | None:
        """Return the run to write to; None when another process has it."""
        if run_id in self._active_runs:
            return None
        try:
            lease = await self._log.acquire(run_id)
        except RunClaimedError:
            return None
        try:
            return await self._app.open(CallContext(run_id=run_id), lease, start_tools=False)
        except BaseException:
            await self._log.release(lease)
            raise

    async def _release(self, run: RunContext) -> None:
        if await self._log.release(_lease_of(run)):
            await self.apply_queued(run.ledger.run_id)

    async def _apply_all(self, run: RunContext) -> bool:
        """Record the queued commands. Return False when the lease was lost: the rest is for its new holder."""
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

    async def _record_unqueued(self, run_id: str, command: AnswerCommand) -> bool:
        """Record an answer that may not be queued, because it holds a secret. Return False when another process has the
        run.
        """
        run = await self._acquire(run_id)
        if run is None:
            return False
        try:
            return await self._apply_all(run) and await self._app.decide(
                run, command.action_id, command.answer, command.payload_hash
            )
        finally:
            await self._release(run)

    async def _raise_conflict(self, run_id: str, command: AnswerCommand) -> None:
        """Raise the error that names the answer that was first. Return when it was withdrawn, so that the question is
        open again.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + _CLAIM_SECONDS
        while True:
            seen = self._log.version()
            queued = {other.key: other for other in await self._log.queued_commands(run_id)}
            # Read after the queued commands: one that is no longer queued is in the log, or was withdrawn.
            action = (await self.load_ledger(run_id)).actions[command.action_id]
            if not action.is_open:
                raise decided_error(action)
            first = queued.get(command_key(command))
            if first is None:
                return
            if await self.apply_queued(run_id):
                continue
            body = read_command(first)
            if not isinstance(body, AnswerClaim) or loop.time() >= until:
                raise _queued_error(command.action_id, body)
            await self._log.wait_for_change(seen, until - loop.time())  # its process is about to record it

    async def _enqueue_cancel(self, run_id: str, command: CancelCommand) -> Delivery:
        """Queue the command for the process that has the run. Where that released it meanwhile, apply it here."""
        command = cast(CancelCommand, redact_command(command, self._app.parts.redactor.redact))
        key = command_key(command)
        if not await self._log.enqueue(run_id, QueuedCommand(key, encode_command(command))):
            raise DecisionConflictError(f"{run_id} is already being cancelled. The first request counts.")
        if isinstance(self._active_runs, CommandPoller):
            self._active_runs.notify()
        recorded = await self.apply_queued(run_id)
        if any(other.key == key for other in await self._log.queued_commands(run_id)):
            return "queued"
        ledger = await self.load_ledger(run_id)
        if ledger.is_over and ledger.state is not RunState.CANCELLED:
            raise _ended_error(ledger)
        return "recorded" if recorded else "queued"  # else the process that has the run took it

    def _check_applied(self, command: AnswerCommand, ledger: Ledger) -> None:
        """Raise when the command was removed and the log does not have what it said."""
        if not is_recorded(command, ledger):
            self._app.check_answer(ledger, command.action_id, command.answer, command.payload_hash, command.at)
            raise DecisionConflictError(
                f"The answer to {command.action_id} was not taken; a warning in the log says why."
            )


def _queued_error(action_id: str, first: Command | None) -> DecisionConflictError:
    """Return the error for an answer that came after one that is queued."""
    match first:
        case AnswerCommand(answer=answer, at=at):
            approved, by = answer.approved, answer.by
        case AnswerClaim(approved=approved, by=by, at=at):
            pass
        case _:
            return DecisionConflictError(f"{action_id} has an answer already, which is queued.")
    status = "approved" if approved else "rejected"
    return DecisionConflictError(
        f"{action_id} has an answer already: {status}{f', by {by}' if by else ''}, at {format_utc(at)}. It is queued.",
        status=status,
        by=by,
        at=at,
    )


def _ended_error(ledger: Ledger) -> RunEndedError:
    return RunEndedError(f"{ledger.run_id} is {ledger.state.value} already.")


def _lease_of(run: RunContext) -> Lease:
    return cast(Lease, run.recorder.lease)
