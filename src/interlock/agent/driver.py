"""Carry out what `next_step` decides, one step after the other, until a person is needed or the run is over.

Everything that a step finds out is an event before the next step is decided, and everything that is shown outside is
durable before it is shown. So the process may die anywhere: whoever opens the run again decides the same next step.
"""

from ..domain.errors import ModelError
from ..domain.event import AnswerRefused, ClaimContradicted, RunCancelled, RunCompleted, RunFailed
from ..domain.observation import Observation
from ..pipeline.batch import BatchOutcome
from ..pipeline.events import resume_if_unblocked
from ..verification.final_answer import objection
from .model_turn import ask_model
from .next_step import (
    AskModel,
    Cancel,
    Finish,
    GiveUp,
    Over,
    Rest,
    Resume,
    Step,
    Wait,
    answered,
    next_step,
    over_budget,
    too_many_calls,
)
from .session import Session


async def advance(session: Session) -> Step:
    """The step at which it stopped: `Wait`, `Rest` or `Over`."""
    run = session.run
    while True:
        step = next_step(await session.standing())
        match step:
            case Wait() | Rest() | Over():
                await run.recorder.commit()
                if next_step(await session.standing()) == step:  # nobody answered or stopped it meanwhile
                    return step
            case AskModel():
                await _ask(session)
            case Resume():
                await _resume(session)
            case Finish(text=text):
                _finish(text, session)
            case GiveUp(reason=reason):
                run.recorder.add(RunFailed(message=reason))
            case Cancel(wish=wish):
                redact = run.parts.redactor.redact
                run.recorder.add(RunCancelled(message=redact(wish.message), by=redact(wish.by)))


async def _resume(session: Session) -> None:
    run = session.run
    calls = [run.ledger.calls[call_id] for call_id in run.ledger.open_calls()]
    session.resumed_with = answered(run.ledger)
    run = session.act_as(run.ledger.dialogue.answered_by)
    resume_if_unblocked(run.ledger.next_seq - 1, run)  # an answer may have come before the pause was written down
    await _take(await session.mover.resume(run), session)
    stays = calls and not any(call.child_run_id or call.observed_seq >= 0 for call in calls)
    pending = any(action.is_open for action in run.ledger.actions.values())
    # Nothing came of it, nobody is asked, and so nothing ever will.
    unanswered = answered(run.ledger) == session.resumed_with
    if stays and not pending and unanswered and isinstance(next_step(await session.standing()), Resume):
        names = ", ".join(call.tool for call in calls)
        run.recorder.add(RunFailed(message=f"The run cannot go on with {names}. Start a new one, or fork it."))


async def _ask(session: Session) -> None:
    run = session.run
    try:
        intents = await ask_model(session)
    except ModelError as error:
        if run.parts.fail_safe.model_failure_policy == "keep":
            await run.recorder.commit()
            raise
        run.recorder.add(RunFailed(message=f"The model gave no answer: {run.parts.redactor.redact(str(error))}"))
        return
    if intents:
        session.resumed_with = answered(run.ledger)
        refusal = too_many_calls(run.ledger.dialogue, session.budgets, len(intents))
        await _take(await session.mover.execute(session.run, intents, refusal=refusal), session)


async def _take(outcome: BatchOutcome, session: Session) -> None:
    """What the calls came to. A tool that raises, raises here: the log has what happened."""
    session.observations += [item for item in outcome.outcomes if type(item) is Observation]
    if outcome.error is not None:
        await session.run.recorder.commit()
        raise outcome.error


def _finish(text: str, session: Session) -> None:
    run = session.run
    spent = over_budget(run.ledger.dialogue, session.budgets, session.active_seconds)
    wrong = objection(text, session.agent, run.ledger, can_ask=not spent)
    match wrong:
        case None:
            run.recorder.add(RunCompleted(message=text))
        case AnswerRefused():
            tries = run.ledger.dialogue.refusals
            if tries < session.budgets.max_corrections:
                run.recorder.add(wrong)
            else:
                run.recorder.add(RunFailed(message=f"After {tries} corrections: {wrong.message}"))
        case ClaimContradicted():
            run.recorder.add(wrong)
            if not wrong.told:
                run.recorder.add(RunCompleted(message=text))
