"""The list of runs, newest first. The first and the last event say most; only unfinished runs are folded.

`follow_events` yields the events of a run as they are written, by any process. It reads only after a write.
"""

from collections.abc import AsyncGenerator, Collection, Iterable, Sequence
from math import inf

import msgspec

from ...domain.call import Question
from ...domain.errors import IllegalTransitionError, LogUnreadableError
from ...domain.event import Event, RunStarted, UserMessageReceived, decode_event
from ...domain.state.ledger import Ledger
from ...domain.state.lifecycle import RunState
from ...history.fold import load_run
from ...rendering.run_states import DisplayState, RunKind, to_display_state
from ...runs.fork import is_unopened_fork
from ...storage.event_log import EventLog, RunSummary
from ..config.logs import is_nested_in, list_ancestors

TERMINAL_EVENTS = frozenset(("run.completed", "run.degraded", "run.failed", "run.cancelled"))
_PAGE_EVENTS = 500


async def read_first_event(log: EventLog, run_id: str) -> Event:
    """Read the first event of a run."""
    return decode_event((await log.read(run_id, limit=1))[0])


async def read_events(log: EventLog, run_id: str, after_seq: int = -1) -> AsyncGenerator[Event, None]:
    """Yield all current events."""
    while entries := await log.read(run_id, after_seq, _PAGE_EVENTS):
        for entry in entries:
            yield decode_event(entry)
        after_seq = entries[-1].seq


async def follow_events(log: EventLog, run_id: str, after_seq: int = -1) -> AsyncGenerator[Event, None]:
    """Yield all current events, and new ones, until the run ends."""
    version = log.version()
    ledger = (await load_run(log, run_id)).ledger
    last_seq = ledger.next_seq - 1
    if after_seq >= last_seq and ledger.is_over:
        return
    after_seq = min(after_seq, last_seq)
    while True:
        async for event in read_events(log, run_id, after_seq):
            yield event
            after_seq = event.seq
            if event.type in TERMINAL_EVENTS:
                return
        await log.wait_for_change(version, inf)
        version = log.version()


#: How many of the first events may hold the task of a run.
_FIRST_EVENTS = 4
#: For each run that is wanted, so many are looked at before all of them are: some are inside of others.
_LOOKAHEAD_FACTOR = 5
_NO_LIMIT = 1 << 30


class ListedRun(msgspec.Struct, frozen=True, kw_only=True):
    """A run in a list."""

    run_id: str
    state: DisplayState
    agent: str = ""
    workspace: str = ""
    started_at: int = 0
    changed_at: int = 0
    events: int = 0
    task: str = ""
    #: Open ones, those of runs inside its calls too.
    questions: int = 0
    parent_run_id: str = ""
    kind: RunKind = RunKind.AGENT
    #: The user that it acts for, and how calls of another program come here.
    requester: str = ""
    framework: str = ""


class _RunEnds(msgspec.Struct, frozen=True):
    """Facts from the first and last event of a run. No `state`: it has not ended."""

    run_id: str
    started: RunStarted
    first: Event
    last: Event
    state: DisplayState | None


class RunFilter(msgspec.Struct, frozen=True, kw_only=True):
    """Filter of runs: the newest in these states, or in any."""

    limit: int
    states: frozenset[DisplayState] = frozenset()
    #: Also those inside a call of another one.
    include_nested: bool = False
    kind: RunKind | None = None


async def list_runs(log: EventLog, run_filter: RunFilter, held_ids: Collection[str] | None = None) -> list[ListedRun]:
    """Return the runs that pass a filter. `held_ids`: those that a living process owns; None: look them up."""
    held_ids = await log.lease_holders() if held_ids is None else held_ids
    newest = None if run_filter.states or run_filter.kind else _LOOKAHEAD_FACTOR * run_filter.limit
    ends = await log.list_runs(newest)
    listed = await _list_matching(log, ends, held_ids, run_filter)
    if len(listed) < run_filter.limit and len(ends) == newest:
        listed = await _list_matching(log, await log.list_runs(), held_ids, run_filter)
    return listed


async def _list_matching(
    log: EventLog, ends: Iterable[RunSummary], held_ids: Collection[str], run_filter: RunFilter
) -> list[ListedRun]:
    """List matching runs. Child runs start after their parent, so all of them are among the given ends."""
    runs = [_read_ends(each) for each in ends]
    open_ids = [run.run_id for run in runs if isinstance(run, _RunEnds) and run.state is None]
    listed: list[ListedRun] = []
    for run_ends in runs:
        if len(listed) >= run_filter.limit:
            break
        if isinstance(run_ends, _RunEnds) and run_ends.started.parent_run_id and not run_filter.include_nested:
            continue
        if run_filter.kind is not None and (
            isinstance(run_ends, ListedRun) or _kind_of(run_ends.started) is not run_filter.kind
        ):
            continue
        run = run_ends if isinstance(run_ends, ListedRun) else await _load_listed_run(log, run_ends, open_ids, held_ids)
        if not run_filter.states or run.state in run_filter.states:
            listed.append(run)
    return listed


async def list_agents(log: EventLog) -> set[str]:
    """Return the names of the agents that have runs in the log."""
    runs = [_read_ends(ends) for ends in await log.list_runs()]
    return {run.started.agent for run in runs if isinstance(run, _RunEnds)}


async def list_unfinished(log: EventLog) -> list[str]:
    """Return unfinished runs, oldest first, without child runs of a finished one."""
    runs = [_read_ends(ends) for ends in reversed(await log.list_runs())]
    ended = {run.run_id for run in runs if isinstance(run, _RunEnds) and run.state is not None}
    return [
        run.run_id
        for run in runs
        if isinstance(run, _RunEnds) and run.state is None and ended.isdisjoint(list_ancestors(run.run_id))
    ]


async def list_stopped(log: EventLog, agent: str, newest: int | None = None) -> list[ListedRun]:
    """Return runs of an agent that can be resumed without a person, oldest first; `newest` limits how many are checked.
    A fork that was never opened does not count.
    """
    run_filter = RunFilter(limit=_NO_LIMIT, states=frozenset((DisplayState.STOPPED,)))
    found = await _list_matching(log, await log.list_runs(newest), await log.lease_holders(), run_filter)
    own = [run for run in reversed(found) if run.agent == agent]
    return [run for run in own if not await is_unopened_fork(log, run.run_id)]


def get_display_state(ledger: Ledger, questions: Sequence[Question], *, is_held: bool) -> DisplayState:
    """Return the state shown for a run, which also considers open questions, those of child runs too, and leases."""
    state = to_display_state(ledger.state, ledger.code)
    if ledger.is_over:
        return state
    if questions:
        return state if state.is_paused else DisplayState(f"paused_{questions[0].kind}")
    if is_held:
        return DisplayState.RUNNING
    # Between its calls, the agent of another framework leaves nothing in the log.
    has_answered = bool(ledger.framework) or (ledger.dialogue.last == "model" and not ledger.dialogue.open)
    return DisplayState.IDLE if has_answered else DisplayState.STOPPED


def _kind_of(started: RunStarted) -> RunKind:
    return RunKind.SESSION if started.is_session else RunKind.AGENT


def _read_ends(ends: RunSummary) -> _RunEnds | ListedRun:
    run_id = ends.first.run_id
    try:
        first, last = decode_event(ends.first), decode_event(ends.last)
    except LogUnreadableError:
        return ListedRun(run_id=run_id, state=DisplayState.DAMAGED, events=ends.last.seq + 1)
    started = first.fact if isinstance(first.fact, RunStarted) else RunStarted(schema=1)
    end = RunState(last.type.removeprefix("run.")) if last.type in TERMINAL_EVENTS else None
    state = None if end is None else to_display_state(end, getattr(last.fact, "code", ""))
    return _RunEnds(run_id, started, first, last, state)


async def _load_listed_run(
    log: EventLog, run_ends: _RunEnds, open_ids: list[str], held_ids: Collection[str]
) -> ListedRun:
    run_id, state, questions = run_ends.run_id, run_ends.state, list[Question]()
    if state is None:
        # A run that waits for one inside of it waits for a person, too.
        nested = [other for other in open_ids if is_nested_in(other, run_id)]
        try:
            ledger, *inside = [(await load_run(log, each)).ledger for each in (run_id, *nested)]
            questions = [question for each in (ledger, *inside) for question in each.open_questions()]
            state = get_display_state(ledger, questions, is_held=run_id in held_ids)
        except (LogUnreadableError, IllegalTransitionError):
            state = DisplayState.DAMAGED
    return ListedRun(
        run_id=run_ends.run_id,
        state=state,
        agent=run_ends.started.agent,
        workspace=run_ends.started.workspace,
        started_at=run_ends.first.at,
        changed_at=run_ends.last.at,
        events=run_ends.last.seq + 1,
        task=await _read_task(log, run_ends.run_id),
        questions=len(questions),
        parent_run_id=run_ends.started.parent_run_id,
        kind=_kind_of(run_ends.started),
        requester=run_ends.started.requester,
        framework=run_ends.started.settings.get("framework", ""),
    )


async def _read_task(log: EventLog, run_id: str) -> str:
    try:
        facts = [decode_event(entry).fact for entry in await log.read(run_id, 0, _FIRST_EVENTS)]
    except LogUnreadableError:
        return ""
    return next((fact.text for fact in facts if isinstance(fact, UserMessageReceived)), "")
