"""The questions of all runs, and the one that is meant: by its id, by the first letters of it, or the `last` one."""

from collections.abc import AsyncGenerator, Iterable, Sequence

import msgspec

from ..domain.call import Question
from ..domain.errors import ConfigurationError, IllegalTransitionError, LogCorruptError
from ..domain.ledger import ActionEntry, Ledger
from ..domain.lifecycle import RUN_TRANSITIONS, ActionState
from ..history.fold import load
from ..log.interface import EventLog
from .runs_list import unfinished
from .runs_log import is_inside, short

_MAX_NAMED = 10
#: A question that was answered is looked for in so many runs.
_MAX_RUNS = 1_000
_PREFIX = "act_"


class Found(msgspec.Struct, frozen=True):
    action: ActionEntry
    #: The run that asks.
    ledger: Ledger

    @property
    def question(self) -> Question:
        return self.action.question


async def open_questions(log: EventLog, run_id: str = "") -> list[Found]:
    """Oldest first; with `run_id` those of that run and of the runs inside of it."""
    wanted = [each for each in await unfinished(log) if not run_id or each == run_id or is_inside(each, run_id)]
    found = [
        Found(action, ledger)
        async for ledger in _ledgers(log, wanted)
        if RUN_TRANSITIONS[ledger.state]
        for action in ledger.actions.values()
        if action.state is ActionState.PENDING and _is_its_own(action, ledger)
    ]
    return sorted(found, key=lambda each: (each.question.asked_at, each.action.asked_seq))


async def find_question(log: EventLog, wanted: str) -> Found:
    """An open one where there is one; else one that was answered. `ConfigurationError` in words when there is none."""
    there = await open_questions(log)
    if wanted == "last" and there:
        return there[-1]
    meant = [each for each in there if _is_meant(each.question.action_id, wanted)]
    if not meant and wanted != "last":
        meant = await _answered(log, wanted)
    if len(meant) == 1:
        return meant[0]
    if meant:
        raise ConfigurationError(
            f"{wanted} may be any of {len(meant):,} questions: {_listed(meant)}. Write more of it."
        )
    if wanted == "last":
        raise ConfigurationError("No question is open.")
    said = f"Open are: {_listed(there)}." if there else "No question is open."
    raise ConfigurationError(f"There is no question {wanted[:80]!r}. {said} `interlock approvals list` shows them.")


async def _answered(log: EventLog, wanted: str) -> list[Found]:
    newest = (await log.run_ids())[: -_MAX_RUNS - 1 : -1]
    return [
        Found(action, ledger)
        async for ledger in _ledgers(log, newest)
        for action_id, action in ledger.actions.items()
        if _is_meant(action_id, wanted) and _is_its_own(action, ledger)
    ]


async def _ledgers(log: EventLog, run_ids: Iterable[str]) -> AsyncGenerator[Ledger, None]:
    """A run that cannot be read has no questions that could be answered."""
    for run_id in run_ids:
        try:
            yield (await load(log, run_id)).ledger
        except (LogCorruptError, IllegalTransitionError):
            continue


def _is_its_own(action: ActionEntry, ledger: Ledger) -> bool:
    """A fork retells the questions of another run; they stay those of the other one."""
    return action.question.run_id == ledger.run_id


def _is_meant(action_id: str, wanted: str) -> bool:
    return bool(wanted) and action_id.startswith((wanted, f"{_PREFIX}{wanted}"))


def _listed(found: Sequence[Found]) -> str:
    """The newest first."""
    names = ", ".join(short(each.question.action_id) for each in list(reversed(found))[:_MAX_NAMED])
    return names if len(found) <= _MAX_NAMED else f"{names} and {len(found) - _MAX_NAMED:,} more"
