"""One run of an agent: follow it, answer its questions, stop it, go on with it.

The handle moves the run on in a task of its own while it has the claim. When the run is over, or waits for somebody,
the claim is given back and nothing of the run stays in memory; `resume` opens it again from the log.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Any, Unpack, cast

import msgspec

from ..agent.driver import advance
from ..agent.session import Listener, Session
from ..agent.steps import Step, Wait
from ..domain.call import Answer, Decided, Question
from ..domain.chain import decode_event
from ..domain.errors import LogError, RunClaimedError, RunEndedError, RunPausedError
from ..domain.event import CallObserved, Event, UserSaid
from ..domain.json import without_surrogates
from ..domain.ledger import Ledger
from ..domain.lifecycle import RUN_TRANSITIONS, RunState
from ..domain.notes import AnswerNote, CancelNote
from ..domain.observation import Observation
from ..domain.tool import Situation
from ..engine.notes import LOOK_SECONDS
from ..history.fold import load
from ..history.run_handle_view import AgentRunEvent, run_handle_events
from ..log.interface import Claim, Note
from ..pipeline.batch import start
from .desk import read_note, take_answer, warn
from .result import AgentResult, in_model_order, result_of

if TYPE_CHECKING:
    from .runner import Runner

_CANCELLED = "The run was cancelled."
#: What has to end is told so again after this long, should it have begun something meanwhile.
_LOOK_AGAIN_SECONDS = 0.5


class RunHandle:
    def __init__(self, runner: "Runner", situation: Situation) -> None:
        self._runner = runner
        self._situation = situation
        self._session: Session | None = None
        self._claim: Claim | None = None
        self._task: asyncio.Task[Step] | None = None
        self._listeners: list[Listener] = []
        self._desk = runner.desk
        self._timer: asyncio.TimerHandle | None = None
        #: Was it taken over by force? Then so are the runs inside its calls.
        self.forced = False
        #: The last result, and what the log's version was then.
        self._known: tuple[int, AgentResult] | None = None
        #: What the calls came to; None: the log has it, not this process.
        self._observations: list[Observation] | None = None

    @property
    def run_id(self) -> str:
        return self._situation.run_id

    @property
    def live(self) -> bool:
        """Is it moved on in this process right now?"""
        return self._task is not None and not self._task.done()

    def on_model(self, listener: Listener) -> None:
        """Hear what the model says, bit by bit, as it says it."""
        self._listeners.append(listener)

    async def begin(self, task: str) -> None:
        session = await self._claimed()
        try:
            run = session.run
            if run.ended:
                raise RunEndedError(f"{self.run_id} is {run.ledger.state.value}. Nothing was started.")
            if run.ledger.open_calls():
                raise RunPausedError(f"{self.run_id} is not done with its calls. Answer its questions, and resume it.")
            if not run.ledger.started:
                start(run)
                self._observations = []
            if task:
                said = run.parts.redactor.redact(without_surrogates(task))
                run.recorder.add(UserSaid(text=said, by=self._situation.requester))
            await run.recorder.commit()
        except BaseException:
            await self._give_back()
            raise
        self._go()

    async def say(self, text: str) -> None:
        """What a person says next, in a run that goes on when an answer is final."""
        await self._stopped()
        await self.begin(text)

    async def resume(self, *, answers: Mapping[str, Answer] | None = None, force: bool = False) -> None:
        """Go on: after an answer, after a pause, or with a run that another process left behind. `force` takes it, and
        the runs inside its calls, from a living one."""
        if self.live:
            return
        await self._stopped()
        self.forced = force
        session = await self._claimed(force=force)
        try:
            for action_id, answer in (answers or {}).items():
                if not await self._runner.app.decide(session.run, action_id, answer):
                    raise RunClaimedError(
                        f"{self.run_id} was taken over by somebody else before the answer to {action_id} was recorded. "
                        "Nothing was started."
                    )
        except BaseException:
            await self._give_back()
            raise
        if session.run.ended:
            await self._give_back()
            return
        self._go()

    async def result(self) -> AgentResult:
        """When the run is over or waits for a person."""
        if self._task is not None:
            await asyncio.shield(self._task)
        if self._known is not None and self._known[0] == self._runner.log.version():
            return self._known[1]
        return await self._result_of(await self._ledger())

    async def finished(self) -> AgentResult:
        """When the run is over. Whatever people answer meanwhile, from wherever, is gone on with."""
        while True:
            result = await self.result()
            if not RUN_TRANSITIONS[result.state]:
                return result
            await self._answered()
            try:
                await self.resume()
            except RunClaimedError:  # whoever answered goes on with it, as long as that lives
                await self._written_since(self._runner.log.version())

    def pause(self) -> None:
        """Stop after the calls under way. The run is kept as it is; `resume` goes on with it. That nobody else does is
        not kept: to `Runner.recover` it is a run that was left behind. One that nobody may go on with is cancelled."""
        if self._session is not None:
            self._session.pausing = True
            self._session.interrupt_asking()

    async def cancel(self, message: str = "", *, after_turn: bool = False) -> None:
        """End the run: now, so that what runs is cancelled, or after the calls under way."""
        session, task = self._session, self._task
        if session is None or task is None or task.done():
            await self._desk.cancel(self.run_id, message)
            return
        session.cancelling = message
        if after_turn:
            session.interrupt_asking()
        else:
            self._stop(session, _CANCELLED)
        await asyncio.wait([task])

    def cancel_calls(self) -> int:
        """Cancel the calls that run right now; the run goes on with what that comes to. How many there were."""
        session = self._session
        running = session.run.executions.running() if session is not None else []
        for call_id in running:
            cast(Session, session).run.cancel_call(call_id)
        return len(running)

    async def decide(self, action_id: str, **answer: Unpack[Decided]) -> None:
        """Answer an open question of this run, or of one inside its calls."""
        given = cast(dict[str, Any], answer)
        payload_hash = given.pop("payload_hash", "")
        questions = {question.action_id: question for question in await self.questions()}
        run_id = questions[action_id].run_id if action_id in questions else self.run_id
        if run_id == self.run_id:
            await self._runner.watch.bring(run_id)  # an answer that was left before stands
            session, app = self._session, self._runner.app
            if session is not None and await app.decide(session.run, action_id, Answer(**given), payload_hash):
                return
        await self._desk.decide(run_id, action_id, Answer(**given), payload_hash)

    async def questions(self) -> list[Question]:
        return await self._runner.questions(await self._ledger())

    async def state(self) -> RunState:
        return (await self._ledger()).state

    async def events(self, after_seq: int = -1) -> AsyncIterator[AgentRunEvent]:
        """The run's events as they become durable, until the run ends or waits for a person."""
        async for event in self.log_events(after_seq):
            for shown in run_handle_events(event):
                yield shown

    async def log_events(self, after_seq: int = -1) -> AsyncIterator[Event]:
        """The same from the log, with every fact."""
        while True:
            live = self.live
            seen = self._runner.log.version()
            for entry in await self._runner.log.read(self.run_id, after_seq):
                yield decode_event(entry)
                after_seq = entry.seq
            if not live:
                return
            while self.live and not await self._written_since(seen, LOOK_SECONDS):
                pass

    async def _ledger(self) -> Ledger:
        session = self._session
        return session.run.ledger if session is not None else (await load(self._runner.log, self.run_id)).ledger

    async def _claimed(self, *, force: bool = False) -> Session:
        runner = self._runner
        if self.run_id in runner.watch:
            raise RunClaimedError(f"{self.run_id} is moved on in this process already. Nothing was started.")
        self._claim = claim = await runner.log.claim(self.run_id, force=force)
        try:
            self._session = session = await runner.session(self._situation, claim)
            session.listeners = self._listeners
            await runner.watch.watch(self.run_id, self._take)
        except BaseException:
            await self._give_back()
            raise
        return session

    async def _give_back(self) -> bool:
        """Was something written to the run after that?"""
        claim, self._claim, self._session = self._claim, None, None
        if claim is None:
            return False
        self._stop_timer()
        self._runner.watch.forget(self.run_id)
        await self._runner.log.release(claim)
        return await self._desk.take_notes(self.run_id)

    def _go(self) -> None:
        self._known = None
        self._task = asyncio.create_task(self._drive(cast(Session, self._session)))
        self._runner.live[self.run_id] = self
        self._task.add_done_callback(lambda _: self._runner.live.pop(self.run_id, None))

    async def _drive(self, session: Session) -> Step:
        while True:
            step, written = await self._move_on(session)
            if not written or not isinstance(step, Wait):
                break
            try:
                session = await self._claimed()  # the answer came while the run was given back
            except RunClaimedError:
                return step
        ledger = session.run.ledger
        if session.run.ended:
            await self._desk.end_children(ledger)
        if not written:
            self._known = self._runner.log.version(), await self._result_of(ledger)
        return step

    async def _move_on(self, session: Session) -> tuple[Step, bool]:
        """Where it stopped, and whether somebody wrote to the run as it was given back."""
        written = False
        try:
            self._mind_the_time(session)
            step = await advance(session)
        finally:
            self._stop_timer()
            if self._observations is not None:
                self._observations += session.observations
            await session.run.settled()  # how cancelled calls ended is recorded while the run is still ours
            written = await self._give_back()
        return step, written

    def _mind_the_time(self, session: Session) -> None:
        """A budget of seconds also ends a step that takes longer than what is left."""
        limit = session.budgets.max_seconds
        if limit is None:
            return
        left = limit - session.active_seconds
        if left <= 0:
            self._stop(session, "The run has used its time.")
            return
        self._timer = asyncio.get_running_loop().call_later(left, self._mind_the_time, session)

    def _stop(self, session: Session, reason: str) -> None:
        """Now, and again for as long as it goes on: it may be about to begin something."""
        self._stop_timer()
        session.stop_working(reason)
        self._timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN_SECONDS, self._stop, session, reason)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def stop(self) -> None:
        """Leave the run as it is, at once: what runs is cancelled, and the claim is given back."""
        if self._task is not None:
            self._task.cancel()
            await self._stopped()

    async def _stopped(self) -> None:
        task = self._task
        if task is not None:
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # whoever wants to know asks for the result

    async def _answered(self) -> None:
        """Wait until there is something to do that waits for no person."""
        while True:
            seen = self._runner.log.version()
            ledger = (await load(self._runner.log, self.run_id)).ledger
            while RUN_TRANSITIONS[ledger.state] and not await self._runner.can_go_on(ledger):
                if await self._written_since(seen):
                    break
            else:
                return

    async def _written_since(self, seen: int, seconds: float = _LOOK_AGAIN_SECONDS) -> bool:
        """Has anybody written to the log since its version was `seen`? Waits that long for it."""
        loop = asyncio.get_running_loop()
        until = loop.time() + seconds
        while self._runner.log.version() == seen:
            if loop.time() >= until:
                return False
            await asyncio.sleep(LOOK_SECONDS)  # the writer may be another process: there is nothing else to wait for
        return True

    async def _take(self, note: Note) -> bool:
        """Somebody else left an answer, or wants the run to end. False when this process lost the run: the note is for
        whoever has it now."""
        session = self._session
        if session is None:
            return False
        try:
            return session.run.ended or await self._record(note, session)
        except RunEndedError:  # meanwhile
            return True
        except LogError:
            return False

    async def _record(self, note: Note, session: Session) -> bool:
        match read_note(note):
            case AnswerNote() as body:
                return await take_answer(self._runner.app, session.run, body)
            case CancelNote(message):
                self._end(session, message)
                return False  # it stays until the end is recorded, in case that this process dies before
            case None:
                return await warn(session.run, f"A note was left that cannot be read: {note.key!r}.")

    def _end(self, session: Session, message: str) -> None:
        """Now, unless it is ending already: a note is brought again until then."""
        if session.cancelling is None:
            session.cancelling = message
        if not session.stopped:
            self._stop(session, _CANCELLED)

    async def _result_of(self, ledger: Ledger) -> AgentResult:
        if self._observations is None:
            facts = [decode_event(entry).fact for entry in await self._runner.log.read(self.run_id)]
            self._observations = [fact.observation for fact in facts if isinstance(fact, CallObserved)]
        questions = tuple(await self._runner.questions(ledger))
        agent = self._runner.agent_of(ledger)
        result = result_of(ledger, agent, questions, in_model_order(self._observations, ledger))
        held = "" if questions else await self._runner.held_inside(ledger)
        return msgspec.structs.replace(result, message=held) if held else result
