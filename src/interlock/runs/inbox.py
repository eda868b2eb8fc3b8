"""Where people look at runs and answer their questions, whichever process moves them on, or none.

A run that nobody moves on is claimed for the moment that an answer takes. One that is moved on gets a note, which is
recorded by whoever does: so the log of a run has one writer at a time, and an answer is never lost. Whoever gives a
run back looks for notes after that, and whoever leaves one looks after that whether the run was given back meanwhile:
one of them finds it.
"""

from collections.abc import Container
from contextlib import suppress
from functools import partial
from types import TracebackType
from typing import Literal, TypeAlias, cast

from ..app import App
from ..domain.call import Answer, Question
from ..domain.commands import AnswerNote, CancelNote, NoteBody, encode_note, key_of, storable
from ..domain.errors import ConfigurationError, DecisionConflictError, LogFencedError, RunClaimedError, RunEndedError
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import RunState
from ..domain.tool import Situation
from ..history.fold import load
from ..pipeline.context import RunContext
from ..storage.artifacts import Artifacts
from ..storage.event_log import Claim, EventLog, Note
from .children import begun_inside
from .commands import is_recorded, take_note

AROUND_IS_OVER = "The run around it is over."
#: Written into the log, or left for the process that moves the run on.
Taken: TypeAlias = Literal["recorded", "left"]


class Desk:
    def __init__(
        self, log: EventLog, artifacts: Artifacts, *, app: App | None = None, moved_here: Container[str] = ()
    ) -> None:
        """
        Args:
            app: What knows the tools and the secrets of the runs, where somebody has it. Without it the secrets that
                were declared for the runs are not known here: only what looks like a secret by its form is taken out
                of what people write.
            moved_here: The runs that are moved on in this process, whose claims must not be taken from them.
        """
        self._log = log
        self._app = App(log=log, artifacts=artifacts) if app is None else app
        self._owns_app = app is None
        self._moved_here = moved_here

    async def ledger(self, run_id: str) -> Ledger:
        ledger = (await load(self._log, run_id)).ledger
        if not ledger.started:
            raise ConfigurationError(f"There is no run {run_id!r} in the log.")
        return ledger

    async def questions(self, run_id: str) -> list[Question]:
        """What people are asked in this run and have not answered yet."""
        return (await self.ledger(run_id)).open_questions()

    async def decide(self, run_id: str, action_id: str, answer: Answer, payload_hash: str = "") -> Taken:
        """Answer a question. The first answer stands, whichever process it comes from: `DecisionConflictError` names
        it. With `payload_hash` the answer is to exactly that payload."""
        self._app.check_answer(await self.ledger(run_id), action_id, answer, payload_hash)
        run = await self._claimed(run_id)
        if run is not None:
            try:
                if await self._take_all(run) and await self._app.decide(run, action_id, answer, payload_hash):
                    return "recorded"
            finally:
                await self._give_back(run)
        return await self._leave(run_id, AnswerNote(action_id, answer, payload_hash))

    async def cancel(self, run_id: str, message: str = "", by: str = "") -> Taken:
        """End the run, and the runs inside its calls."""
        ledger = await self.ledger(run_id)
        if ledger.is_over:
            raise _over(ledger)
        run = await self._claimed(run_id)
        if run is not None:
            try:
                if await self._take_all(run) and await self._end(run, CancelNote(message, by)):
                    return "recorded"
            finally:
                await self._give_back(run)
        return await self._leave(run_id, CancelNote(message, by))

    async def end_children(self, ledger: Ledger) -> None:
        """The run is over, so nobody waits for the runs inside its calls any more."""
        for inside in await begun_inside(self._log, ledger):
            with suppress(RunEndedError, DecisionConflictError):
                await self.cancel(inside, AROUND_IS_OVER)

    async def take_notes(self, run_id: str) -> bool:
        """Record what was left for somebody who gave the run back in that moment. False when there is nothing to do
        here: no note, or one that somebody else takes."""
        taken = False
        while await self._log.notes(run_id):
            run = await self._claimed(run_id)
            if run is None:
                break
            try:
                # Whoever had the run may have taken them right before it was claimed here.
                is_left = bool(await self._log.notes(run_id))
                if not await self._take_all(run):
                    break
            finally:
                await self._log.release(_claim_of(run))
            taken = taken or is_left
        return taken

    async def close(self) -> None:
        """Release what it made itself. The log is its owner's to close."""
        if self._owns_app:
            await self._app.close()

    async def __aenter__(self) -> "Desk":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _claimed(self, run_id: str) -> RunContext | None:
        """The run, to be written to; None when somebody moves it on."""
        if run_id in self._moved_here:
            return None
        try:
            claim = await self._log.claim(run_id)
        except RunClaimedError:
            return None
        try:
            return await self._app.open(Situation(run_id=run_id), claim)
        except BaseException:
            await self._log.release(claim)
            raise

    async def _give_back(self, run: RunContext) -> None:
        await self._log.release(_claim_of(run))
        await self.take_notes(run.ledger.run_id)

    async def _take_all(self, run: RunContext) -> bool:
        """Record what was left before. False when the run was taken from us: what is left is for whoever has it now."""
        for note in await self._log.notes(run.ledger.run_id):
            if not await take_note(note, self._app, run, partial(self._end, run)):
                return False
            await self._log.take_away(run.ledger.run_id, note.key)
        return True

    async def _end(self, run: RunContext, wish: CancelNote) -> bool:
        try:
            await self._app.cancel(run, wish.message, wish.by)
        except LogFencedError:
            return False
        await self.end_children(run.ledger)
        return True

    async def _leave(self, run_id: str, note: NoteBody) -> Taken:
        """For whoever has the run. Where it was given back meanwhile, the note is taken here, and the log says what
        became of it."""
        note = storable(note, self._app.parts.redactor.redact)
        if not await self._log.post(run_id, Note(key_of(note), encode_note(note))):
            what = f"{note.action_id} has an answer" if isinstance(note, AnswerNote) else f"{run_id} is to be cancelled"
            raise DecisionConflictError(f"{what} already, which is on its way. That one stands.")
        if not await self.take_notes(run_id):
            await self._check_first(run_id, note)
            return "left"
        if any(other.key == key_of(note) for other in await self._log.notes(run_id)):
            return "left"
        self._check_taken(note, await self.ledger(run_id))
        return "recorded"

    async def _check_first(self, run_id: str, note: NoteBody) -> None:
        """Another answer may have been recorded, and its note taken away, right before this one was left."""
        if isinstance(note, AnswerNote):
            ledger = await self.ledger(run_id)
            action = ledger.actions.get(note.action_id)
            if action is not None and action.answer is not None and not is_recorded(note, ledger):
                await self._log.take_away(run_id, key_of(note))
                self._check_taken(note, ledger)

    def _check_taken(self, note: NoteBody, ledger: Ledger) -> None:
        """The note is gone. Raises where the log does not have what it said."""
        if isinstance(note, CancelNote):
            if ledger.state is not RunState.CANCELLED:
                raise _over(ledger)
        elif not is_recorded(note, ledger):
            self._app.check_answer(ledger, note.action_id, note.answer, note.payload_hash)
            raise DecisionConflictError(f"The answer to {note.action_id} was not taken; a warning in the log says why.")


def _over(ledger: Ledger) -> RunEndedError:
    return RunEndedError(f"{ledger.run_id} is {ledger.state.value} already.")


def _claim_of(run: RunContext) -> Claim:
    return cast(Claim, run.recorder.claim)
