"""A handle for one run of an agent: follow it, answer its questions, stop it, resume it.

The handle drives the run in a task while it holds the lease. When the run is over, or waits for a person, the lease is
released and nothing of the run stays in memory; `resume` opens it again from the log.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from ..agent.driver import advance, find_next_step
from ..agent.model_turn import summarize_now
from ..agent.next_step import AgentStep, Ended, Wait, is_user_turn
from ..agent.session import AgentSession, ModelListener
from ..domain.attachments import ATTACHMENT, Attachment, UserContent, split_content
from ..domain.call import Answer, AnswerFields, Question
from ..domain.commands import CancelCommand
from ..domain.errors import (
    AnswerRefusedError,
    ConfigurationError,
    LogFencedError,
    RunClaimedError,
    RunEndedError,
    RunPausedError,
)
from ..domain.event import Event, UserMessageReceived
from ..domain.json import escape_surrogates
from ..domain.messages import MessagePart
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import RunState
from ..domain.tool import CallContext
from ..history.fold import load_run
from ..history.run_handle_view import AgentRunEvent, to_run_handle_events
from ..pipeline.batch import start_run
from ..pipeline.context import RunContext
from .lease import CANCELLED_MESSAGE, RunLease
from .readiness import follow_events
from .result import AgentResult, ObservationCollector, build_result

if TYPE_CHECKING:
    from .runner import Runner

#: A question may expire, and a process may die: neither is written to the log.
_POLL_SECONDS = 0.5


class RunHandle:
    """Follow and control one run: what `Runner.start` and `Runner.open` return.

    `await handle.result()` returns when the run is over or waits for a person. `events()` yields what happens
    meanwhile, `questions()` are open, `decide(...)` answers one, `send_message` continues a chat, and `pause`,
    `resume` and `cancel` do what they say.
    """

    def __init__(self, runner: "Runner", situation: CallContext) -> None:
        self._runner = runner
        self._situation = situation
        self._lease = RunLease(runner, situation)
        self._task: asyncio.Task[AgentStep] | None = None
        #: Those who wait for the end of the task. It wakes them in its last step.
        self._waiting: list[asyncio.Future[None]] = []
        #: A resume arrived when the run was about to stop; the run was paused.
        self._resume_requested = False
        self._pause_requested = False
        #: Whether it was taken over by force. Then so are its child runs.
        self.is_forced = False
        #: The last result, and what the log's version was then.
        self._cached_result: tuple[int, AgentResult] | None = None
        #: The number of events with which the run was released last; None: it was not driven here.
        self.stopped_seq: int | None = None
        self._observations = ObservationCollector(runner.log, situation.run_id)

    @property
    def run_id(self) -> str:
        """Id of the run."""
        return self._situation.run_id

    @property
    def is_live(self) -> bool:
        """True while the run is driven in this process."""
        return self._task is not None and not self._task.done()

    @property
    def live_ledger(self) -> Ledger | None:
        """The state of the run as it is driven in this process; None while it is not."""
        session = self._lease.session
        return None if session is None else session.run.ledger

    def __repr__(self) -> str:
        return f"RunHandle({self.run_id!r}, live={self.is_live})"

    def on_model(self, listener: ModelListener) -> None:
        """Register a listener for the model's streamed output."""
        self._lease.listeners.append(listener)

    async def begin(self, task: UserContent, settings: Mapping[str, str]) -> None:
        """Start a run that is not in the log yet. Used by `Runner.start`."""
        await self._add_user_message(task, begin_with=settings)

    async def submit(self, task: UserContent, settings: Mapping[str, str], queue: str) -> None:
        """Record the start of a run for the workers that serve `queue`. Used by `Runner.submit`."""
        runner = self._runner
        run = await runner.app.open(self._situation, start_tools=False)
        _check_accepts_message(run.ledger, new=True)
        await runner.log.assign_queue(self.run_id, queue)
        await self._record_message(run, task, begin_with=settings)

    async def send_message(self, text: UserContent) -> None:
        """Send the user's next message to a conversational run."""
        await self._wait_until_stopped()
        await self._add_user_message(text)

    async def add_message(self, text: UserContent, *, by: str, key: str = "") -> int:
        """Record the user's next message, and leave the run to the process that continues it. Return its `seq`: that of
        the message with the same `key`, where there is one. Raise `RunPausedError` when it is not the user's turn.
        """
        session = await self._lease.acquire()
        try:
            run, ledger = session.run, session.run.ledger
            if (known := ledger.message_keys.get(key, -1)) >= 0:
                return known
            _check_accepts_message(ledger, new=False)
            if not session.is_chat:
                raise RunPausedError(f"{self.run_id} is no conversation: it ends with its answer. Nothing was changed.")
            if not is_user_turn(ledger.dialogue):
                raise RunPausedError(f"{self.run_id} has not answered the last message yet. Nothing was changed.")
            await self._record_message(run, text, by=by, key=key)
            return ledger.next_seq - 1
        finally:
            await self._lease.release()

    async def compact(self) -> bool:
        """Ask the model to summarize everything before the newest turn, as when its window is full. Return False
        when there is nothing to summarize.
        """
        await self._wait_until_stopped()
        session = await self._lease.acquire()
        ledger, self._cached_result = session.run.ledger, None
        all_known = self._observations.next_seq == ledger.next_seq
        try:
            _check_accepts_message(ledger, new=False)
            return await summarize_now(session)
        finally:
            await self._lease.release()
            if all_known:
                self._observations.next_seq = ledger.next_seq

    async def resume(self, *, answers: Mapping[str, Answer] | None = None, force: bool = False) -> None:
        """Resume the run: after an answer, after a pause, or when another process left it behind. `force` takes it and
        its child runs from a living process.
        """
        if self.is_live:
            await self._resume_live(answers or {})
            return
        await self._wait_until_stopped()
        self.is_forced = force
        session = await self._lease.acquire(force=force)
        try:
            for action_id, answer in (answers or {}).items():
                if not await self._runner.app.decide(session.run, action_id, answer, opened_for_it=True):
                    raise RunClaimedError(
                        f"{self.run_id} was taken over by another process before the answer to {action_id} was "
                        "recorded. Nothing was started."
                    )
        except BaseException:
            await self._lease.release()
            raise
        if session.run.ledger.is_over:
            await self._lease.release()
            return
        if not session.run.ledger.calls:  # so there are no observations to be read again
            self._observations.next_seq = session.run.ledger.next_seq
        self._start_task(session)

    async def result(self) -> AgentResult:
        """Wait until the run is over, waits for a person, or its runner was closed; return the result."""
        task = self._task
        if task is not None:
            await self._wait_for_end(task)
            if not task.cancelled():
                task.result()
        if self._cached_result is not None:
            version, result = self._cached_result
            if result.state.is_over or version == self._runner.log.version():
                return result
        return await self._build_result(await self._load_ledger())

    async def wait_until_finished(self) -> AgentResult:
        """Wait until the run is over, and return the result. Answers from other processes are picked up meanwhile."""
        log = self._runner.log
        while True:
            result = await self.result()
            if result.state.is_over:
                return result
            await self._wait_until_resumable()
            try:
                await self.resume()
            except RunClaimedError:  # the process that answered resumes it, as long as it lives
                await log.wait_for_change(log.version(), _POLL_SECONDS)

    def pause(self) -> None:
        """Stop after the running calls, and leave the run resumable.

        A pause is not recorded: `Runner.recover` treats the run as left behind. Cancel a run that must not be resumed.
        """
        self._pause_requested, session = True, self._lease.session
        if session is not None:
            session.pause_requested = True
            session.interrupt_model_call()

    @property
    def is_pause_requested(self) -> bool:
        """True if the run was paused since it was opened."""
        return self._pause_requested

    async def cancel(self, message: str = "", *, by: str = "", after_turn: bool = False) -> None:
        """End the run: now, cancelling what runs, or after the running calls."""
        session, task = self._lease.session, self._task
        if session is None or task is None or task.done():
            await self._runner.inbox.cancel(self.run_id, message, by=by)
            return
        session.cancel_command = CancelCommand(message, by)
        if after_turn:
            session.interrupt_model_call()
        else:
            self._lease.stop(session, CANCELLED_MESSAGE)
        await asyncio.wait([task])
        if not session.run.ledger.is_over:  # it had just stopped, or could not continue, so the request was missed
            with suppress(RunEndedError):
                await self._runner.inbox.cancel(self.run_id, message, by=by)

    def cancel_calls(self) -> int:
        """Cancel the running calls and return their number; the run continues with their outcomes."""
        session = self._lease.session
        if session is None:
            return 0
        running = list(session.run.executions.running)
        for call_id in running:
            session.run.cancellation.cancel_call(call_id)
        return len(running)

    async def decide(self, action_id: str, **answer: Unpack[AnswerFields]) -> None:
        """Answer an open question of this run or of a child run."""
        given = cast(dict[str, Any], answer)
        payload_hash = given.pop("payload_hash", "")
        await self._decide(action_id, Answer(**given), payload_hash)

    async def questions(self) -> list[Question]:
        """Return the open questions of the run."""
        return await self._runner.readiness.open_questions(await self._load_ledger())

    async def state(self) -> RunState:
        """Return the state of the run."""
        return (await self._load_ledger()).state

    async def events(self, after_seq: int = -1) -> AsyncIterator[AgentRunEvent]:
        """Yield the run's events as they become durable, until the run ends or waits for a person."""
        async for event in self.log_events(after_seq):
            for shown in to_run_handle_events(event):
                yield shown

    def log_events(self, after_seq: int = -1) -> AsyncIterator[Event]:
        """Yield the same events from the log, with every fact."""
        return follow_events(self._runner.log, self.run_id, after_seq, lambda: self.is_live)

    async def stop(self) -> None:
        """Stop driving the run at once: running calls are cancelled, and the lease is released."""
        if self._task is not None:
            self._task.cancel()
            await self._wait_until_stopped()
            if self._lease.session is not None:  # the task was cancelled before it began
                await self._lease.release()

    async def _add_user_message(self, content: UserContent, *, begin_with: Mapping[str, str] | None = None) -> None:
        """Record the user's message, and continue."""
        if begin_with is not None and await self._begin_new(content, begin_with):
            return
        session = await self._lease.acquire()
        run = session.run
        all_known = self._observations.next_seq == run.ledger.next_seq
        try:
            _check_accepts_message(run.ledger, new=begin_with is not None)
            await self._record_message(run, content, begin_with=begin_with)
        except BaseException:
            await self._lease.release()
            raise
        if all_known:
            self._observations.next_seq = run.ledger.next_seq
        self._start_task(session)

    async def _begin_new(self, content: UserContent, settings: Mapping[str, str]) -> bool:
        """Begin a run with an append that acquires its lease. Return False where `acquire` says what is in the way."""
        session = await self._lease.open_new()
        if session is None:
            return False
        try:
            await self._record_message(session.run, content, begin_with=settings)
        except LogFencedError:
            await self._lease.keep_new()
            return False
        except BaseException:
            await self._lease.keep_new()
            await self._lease.release()
            raise
        await self._lease.keep_new()
        self._observations.next_seq = session.run.ledger.next_seq
        self._start_task(session)
        return True

    async def _record_message(
        self,
        run: RunContext,
        content: UserContent,
        *,
        begin_with: Mapping[str, str] | None = None,
        by: str = "",
        key: str = "",
    ) -> None:
        text, attachments = split_content(content)
        if begin_with is not None:
            start_run(run, begin_with)
        if text or attachments:
            said = run.parts.redactor.redact(escape_surrogates(text))
            parts = await asyncio.to_thread(_keep_attachments, attachments, run) if attachments else ()
            run.recorder.add(UserMessageReceived(text=said, by=by or self._situation.requester, parts=parts, key=key))
        await run.recorder.commit()

    async def _resume_live(self, answers: Mapping[str, Answer]) -> None:
        for action_id, answer in answers.items():
            await self._decide(action_id, answer)
        self._resume_requested, self._pause_requested = self._pause_requested or self._lease.session is None, False

    async def _decide(self, action_id: str, answer: Answer, payload_hash: str = "") -> None:
        runner = self._runner
        questions = {question.action_id: question for question in await self.questions()}
        run_id = questions[action_id].run_id if action_id in questions else self.run_id
        if self._lease.session is not None:  # the question need not be durable yet
            await self._lease.session.run.recorder.commit()
        try:
            await runner.inbox.deliver(run_id, action_id, answer, payload_hash)
        except AnswerRefusedError:  # one that may not be queued can still be recorded by the owner of the run
            session = self._lease.session if run_id == self.run_id else None
            if session is None or not await runner.app.decide(session.run, action_id, answer, payload_hash):
                raise

    def _start_task(self, session: AgentSession) -> None:
        self._cached_result, self._pause_requested = None, False
        self._task = task = asyncio.create_task(self._drive_to_end(session))
        self._runner.live_handles[self.run_id] = self
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: "asyncio.Task[AgentStep]") -> None:
        if self._task is task:  # one that was cancelled before it began did not do this itself
            self._end_task()

    def _end_task(self) -> None:
        if self._runner.live_handles.get(self.run_id) is self:
            del self._runner.live_handles[self.run_id]
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            if not waiter.done():
                waiter.set_result(None)

    async def _drive_to_end(self, session: AgentSession) -> AgentStep:
        try:
            return await self._drive(session)
        finally:
            self._end_task()

    async def _drive(self, session: AgentSession) -> AgentStep:
        """Drive the run until it is over or waits, and no answer or resume arrived while the lease was released."""
        while True:
            self._resume_requested = False
            step, has_commands = await self._run_session(session)
            ledger = session.run.ledger
            self.stopped_seq = ledger.next_seq
            if session.run.ledger.is_over:
                await self._runner.inbox.cancel_children(ledger)
                await self._runner.app.end_run(self.run_id)
            await self._cache_result(ledger)
            is_answered = isinstance(step, Wait) and (has_commands or await find_next_step(session) != step)
            # Nothing is awaited between this check and the end of the task: `resume` is seen here, or finds the task
            # done.
            if isinstance(step, Ended) or not (self._resume_requested or is_answered):
                return step
            cancelling = session.cancel_command
            try:
                session = await self._lease.acquire()
            except RunClaimedError:
                return step
            session.pause_requested, session.cancel_command = self._pause_requested, cancelling

    async def _cache_result(self, ledger: Ledger) -> None:
        """Cache the result, unless the run was written to since its lease was released."""
        log = self._runner.log
        version = log.version()
        if ledger.is_over or not await log.read(self.run_id, ledger.next_seq - 1, limit=1):
            self._cached_result = version, await self._build_result(ledger)

    async def _run_session(self, session: AgentSession) -> tuple[AgentStep, bool]:
        """Return the step at which it stopped, and whether the run was written to as the lease was released."""
        ledger = session.run.ledger
        all_known = self._observations.next_seq == ledger.next_seq
        try:
            self._lease.enforce_time_budget(session)
            step = await advance(session)
        finally:
            written = await self._lease.release()
            if all_known:
                self._observations.add(session.observations, ledger.next_seq)
        return step, written

    async def _wait_for_end(self, task: "asyncio.Task[AgentStep]") -> None:
        """Wait until the task is done. Cancelling the wait does not cancel the task."""
        if task.done():
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        try:
            await waiter
        finally:
            if waiter in self._waiting:
                self._waiting.remove(waiter)

    async def _wait_until_stopped(self) -> None:
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # the error is raised by `result`

    async def _wait_until_resumable(self) -> None:
        """Wait until there is work that needs no person."""
        log = self._runner.log
        while True:
            seen = log.version()
            ledger = await self._load_ledger()
            while not ledger.is_over and not await self._runner.readiness.can_resume(ledger):
                if await log.wait_for_change(seen, _POLL_SECONDS):
                    break
            else:
                return

    async def _load_ledger(self) -> Ledger:
        return self.live_ledger or (await load_run(self._runner.log, self.run_id)).ledger

    async def _build_result(self, ledger: Ledger) -> AgentResult:
        questions = tuple(await self._runner.readiness.open_questions(ledger))
        agent = self._runner.find_active_agent(ledger)
        result = build_result(ledger, agent, questions, await self._observations.collect(ledger))
        held = "" if questions else await self._runner.readiness.describe_busy_child(ledger)
        return msgspec.structs.replace(result, message=held) if held else result


def _check_accepts_message(ledger: Ledger, *, new: bool) -> None:
    run_id = ledger.run_id
    if new and ledger.started:
        raise ConfigurationError(
            f"There is a run {run_id!r} already. Open it, or start one with another id. Nothing was started."
        )
    if ledger.is_over:
        raise RunEndedError(f"{run_id} is {ledger.state.value}. Nothing was started.")
    if ledger.open_calls():
        raise RunPausedError(f"{run_id} is not done with its calls. Answer its questions, and resume it.")


def _keep_attachments(attachments: tuple[Attachment, ...], run: RunContext) -> tuple[MessagePart, ...]:
    """Store attachments, without secrets, and return the parts of the message."""
    parts: list[MessagePart] = []
    for attachment in attachments:
        kept = run.artifacts.keep(attachment.content, ATTACHMENT)
        name = run.parts.redactor.redact(escape_surrogates(attachment.name))
        parts.append(
            MessagePart(
                artifact_id=kept.id, media_type=attachment.media_type, size_bytes=kept.size_bytes, name=name[:200]
            )
        )
    return tuple(parts)
