"""Which runs there are, newest first. The first and the last event tell most; only what has not ended is folded."""

from collections.abc import Collection, Iterable

import msgspec

from ...domain.chain import decode_event
from ...domain.errors import IllegalTransitionError, LogCorruptError
from ...domain.event import Event, RunStarted, UserSaid
from ...domain.state.ledger import Ledger
from ...history.fold import load
from ...runs.fork import is_unopened
from ...storage.event_log import Ends, EventLog
from ..config.logs import around, is_inside
from .formatting import StateWord

_ENDED = {f"run.{state}": StateWord(state) for state in ("completed", "degraded", "failed", "cancelled")}
#: Where the task of a run stands: among its first events.
_FIRST_EVENTS = 4
#: For each run that is wanted, so many are looked at before all of them are: some are inside of others.
_LOOKED_AT = 5
_NO_LIMIT = 1 << 30


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    run_id: str
    state: StateWord
    agent: str = ""
    workspace: str = ""
    started_at: int = 0
    changed_at: int = 0
    events: int = 0
    task: str = ""
    #: Open ones, those of runs inside its calls too.
    questions: int = 0
    parent_run_id: str = ""


class _Known(msgspec.Struct, frozen=True):
    """What the ends of a run tell. No `state`: it has not ended."""

    run_id: str
    started: RunStarted
    first: Event
    last: Event
    state: StateWord | None


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """Which runs are wanted: the newest in these states, or in any."""

    limit: int
    states: frozenset[StateWord] = frozenset()
    #: Also those inside a call of another one.
    inside: bool = False


async def list_runs(log: EventLog, held: Collection[str], which: Which) -> list[ListedRun]:
    """`held`: the runs that a living process has."""
    newest = None if which.states else _LOOKED_AT * which.limit
    ends = await log.ends(newest)
    listed = await _list(log, ends, held, which)
    if len(listed) < which.limit and len(ends) == newest:
        listed = await _list(log, await log.ends(), held, which)
    return listed


async def _list(log: EventLog, ends: Iterable[Ends], held: Collection[str], which: Which) -> list[ListedRun]:
    """What is inside of a run was begun after it, so the ends of a run come with those of all inside of it."""
    runs = [_known(each) for each in ends]
    open_ids = [run.run_id for run in runs if isinstance(run, _Known) and run.state is None]
    listed: list[ListedRun] = []
    for known in runs:
        if len(listed) >= which.limit:
            break
        if isinstance(known, _Known) and known.started.parent_run_id and not which.inside:
            continue
        run = known if isinstance(known, ListedRun) else await _listed(log, known, open_ids, held)
        if not which.states or run.state in which.states:
            listed.append(run)
    return listed


async def agents_in(log: EventLog) -> set[str]:
    """Return the names of the agents that have runs in the log."""
    runs = [_known(ends) for ends in await log.ends()]
    return {run.started.agent for run in runs if isinstance(run, _Known)}


async def unfinished(log: EventLog) -> list[str]:
    """Runs that have not ended, oldest first. One inside a run that has ended needs nothing any more."""
    runs = [_known(ends) for ends in reversed(await log.ends())]
    ended = {run.run_id for run in runs if isinstance(run, _Known) and run.state is not None}
    return [
        run.run_id
        for run in runs
        if isinstance(run, _Known) and run.state is None and ended.isdisjoint(around(run.run_id))
    ]


async def stopped(log: EventLog, agent: str, newest: int | None = None) -> list[ListedRun]:
    """Runs of an agent that can go on and wait for nobody, oldest first; with `newest` so many runs are looked at. A
    fork that nobody has opened yet waits for somebody who does."""
    which = Which(limit=_NO_LIMIT, states=frozenset((StateWord.STOPPED,)))
    found = await _list(log, await log.ends(newest), await log.holders(), which)
    own = [run for run in reversed(found) if run.agent == agent]
    return [run for run in own if not await is_unopened(log, run.run_id)]


def state_word(ledger: Ledger, questions: int, *, held: bool) -> StateWord:
    if ledger.is_over:
        return StateWord(ledger.state)
    if questions or held:
        return StateWord.WAITING if questions else StateWord.RUNNING
    has_answered = ledger.dialogue.last == "model" and not ledger.dialogue.open
    return StateWord.RESTING if has_answered else StateWord.STOPPED


def _known(ends: Ends) -> _Known | ListedRun:
    run_id = ends.first.run_id
    try:
        first, last = decode_event(ends.first), decode_event(ends.last)
    except LogCorruptError:
        return ListedRun(run_id=run_id, state=StateWord.DAMAGED, events=ends.last.seq + 1)
    started = first.fact if isinstance(first.fact, RunStarted) else RunStarted(schema=1)
    return _Known(run_id, started, first, last, _ENDED.get(last.type))


async def _listed(log: EventLog, known: _Known, open_ids: list[str], held: Collection[str]) -> ListedRun:
    state, questions = known.state, 0
    if state is None:
        try:
            state, questions = await _standing(log, known.run_id, open_ids, held)
        except (LogCorruptError, IllegalTransitionError):
            state = StateWord.DAMAGED
    return ListedRun(
        run_id=known.run_id,
        state=state,
        agent=known.started.agent,
        workspace=known.started.workspace,
        started_at=known.first.at,
        changed_at=known.last.at,
        events=known.last.seq + 1,
        task=await _task(log, known.run_id),
        questions=questions,
        parent_run_id=known.started.parent_run_id,
    )


async def _standing(log: EventLog, run_id: str, open_ids: list[str], held: Collection[str]) -> tuple[StateWord, int]:
    """A run that waits for one inside of it waits for a person, too."""
    ledger = (await load(log, run_id)).ledger
    within = [(await load(log, other)).ledger for other in open_ids if is_inside(other, run_id)]
    questions = sum(len(each.open_questions()) for each in (ledger, *within))
    return state_word(ledger, questions, held=run_id in held), questions


async def _task(log: EventLog, run_id: str) -> str:
    try:
        facts = [decode_event(entry).fact for entry in await log.read(run_id, 0, _FIRST_EVENTS)]
    except LogCorruptError:
        return ""
    return next((fact.text for fact in facts if isinstance(fact, UserSaid)), "")
