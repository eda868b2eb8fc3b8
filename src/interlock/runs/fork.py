"""Fork a run: a new run that continues from an event of another one.

The new log begins with the events of the old one up to there, copied into a new chain: the same facts at the same
positions, for the new run, and the first one names the source. The events that follow close what a fork must not
inherit:

- Approvals are valid for the run they were given in. Open questions and unused approvals are void, and grants for the
  whole run do not apply: they are asked again.
- Calls that started and did not end are not started again. Their outcome is unknown here, whatever the tool declares;
  the same holds for child runs.

The fork has the memory of the other run up to there, not its environment: files and everything else are as they are
now. A check that passed before the fork is stale.

A fork is never resumed automatically: it waits until it is opened by its id. Until then it has only the copied and the
closing events.
"""

import asyncio
from collections.abc import Iterable, Iterator
from time import time_ns

import msgspec

from ..domain.errors import ConfigurationError, LogFencedError
from ..domain.event import (
    ApprovalGranted,
    ApprovalVoided,
    CallObserved,
    Event,
    Fact,
    LogEntry,
    RunResumed,
    RunStarted,
    decode_event,
    encode_event,
    genesis_hash,
    next_hash,
)
from ..domain.ids import is_valid_name, new_run_id
from ..domain.observation import Observation
from ..domain.outcome import Failure
from ..domain.state.ledger import Ledger
from ..domain.state.lifecycle import ActionState, CallState, RunState
from ..history.fold import fold_entries
from ..storage.event_log import EventLog

_VOIDABLE = frozenset({ActionState.PENDING, ActionState.APPROVED})
_STARTED = frozenset({CallState.RUNNING, CallState.SUSPENDED, CallState.ENDED})
_VOID_REASON = "The run goes on as a fork from here. What was asked or allowed before does not hold in it."


async def fork(log: EventLog, run_id: str, at: int | None = None, *, new_run_id: str = "") -> str:
    """Create a fork after event `at` of another run, and return its id. Default: its last event, or the one before its
    end. Nothing is executed, and the other run is unchanged.
    """
    entries = await log.read(run_id)
    if not entries:
        raise ConfigurationError(f"There is no run {run_id!r} in the log.")
    name = _choose_run_id(new_run_id)
    copied = copy_entries(entries[: _fork_point(entries, at) + 1], name)
    entries_to_write = [*copied, *close_open_items(copied, time_ns())]
    if await log.read(name, limit=1):
        raise ConfigurationError(f"There is a run {name!r} already. Nothing was written.")
    try:
        writing = log.append(name, entries_to_write)
        if writing is not None:
            await asyncio.shield(writing)
    except LogFencedError:
        raise ConfigurationError(f"There is a run {name!r} already. Nothing was written.") from None
    return name


def copy_entries(entries: list[LogEntry], name: str) -> list[LogEntry]:
    """Return the first events of a run as those of another one. Raise `LogCorruptError` when they fail verification."""
    run_id, at = entries[0].run_id, len(entries) - 1
    fold_entries(run_id, entries)
    events = [decode_event(entry) for entry in entries]
    return _chain_events(
        genesis_hash(name),
        (
            msgspec.structs.replace(
                event,
                run_id=name,
                correlation_id=name if event.correlation_id == run_id else event.correlation_id,
                fact=_rewrite_fact(event.fact, run_id, at),
            )
            for event in events
        ),
    )


def close_open_items(copied: list[LogEntry], now: int) -> list[LogEntry]:
    """Return the events that close what a fork must not take over."""
    ledger = fold_entries(copied[0].run_id, copied)
    events: list[Event] = []
    for fact, call_id in _closing_facts(ledger):
        event = Event(ledger.next_seq, ledger.run_id, now, call_id or ledger.run_id, None, fact)
        ledger.apply(event)
        events.append(event)
    return _chain_events(copied[-1].hash, events)


async def is_unopened_fork(log: EventLog, run_id: str) -> bool:
    """Return True if the run is a fork that was never opened."""
    started = decode_event((await log.read(run_id, limit=1))[0]).fact
    if not (isinstance(started, RunStarted) and started.forked_from):
        return False
    entries = await log.read(run_id)
    copied = entries[: started.forked_at + 1]
    return len(entries) == len(copied) + len(close_open_items(copied, 0))


def _rewrite_fact(fact: Fact, run_id: str, at: int) -> Fact:
    match fact:
        case RunStarted():
            # Nor does it belong to the creator of the source: a server resumes its own runs, and this one was not
            # requested.
            return msgspec.structs.replace(
                fact, forked_from=run_id, forked_at=at, parent_run_id="", parent_call_id="", created_by=""
            )
        case ApprovalGranted():
            return msgspec.structs.replace(fact, grant_key="")
        case _:
            return fact


def _closing_facts(ledger: Ledger) -> Iterator[tuple[Fact, str]]:
    """Yield the closing facts one by one: each depends on the state that the one before it left."""
    for action in list(ledger.actions.values()):
        if action.state in _VOIDABLE:
            question = action.question
            yield (
                ApprovalVoided(call_id=question.call_id, action_id=question.action_id, reason=_VOID_REASON),
                question.call_id,
            )
    for call_id, call in ledger.calls.items():
        if call.state in _STARTED or (call.started_seq >= 0 and call.observed_seq < 0):
            observation = _unknown_outcome(call_id, call.tool, call.child_run_id)
            yield CallObserved(observation_id="obs_" + call_id, observation=observation), call_id
    if ledger.state is not RunState.RUNNING:
        yield RunResumed(), ""


def _unknown_outcome(call_id: str, tool: str, child_run_id: str) -> Observation:
    inside = f" (as {child_run_id})" if child_run_id else ""
    message = (
        f"{tool} had started{inside} where this run was forked from another one, and what came of it is not part of "
        "this run. It is not run again; check its effects before you retry."
    )
    failure = Failure.from_code("outcome_unknown", message)
    return Observation(
        call_id=call_id, tool=tool, ok=False, summary=message, failure=failure, side_effects=failure.side_effects
    )


def _chain_events(head: bytes, events: Iterable[Event]) -> list[LogEntry]:
    entries: list[LogEntry] = []
    for event in events:
        body = encode_event(event)
        head = next_hash(head, body)
        entries.append(LogEntry(event.run_id, event.seq, body, head))
    return entries


def _fork_point(entries: list[LogEntry], at: int | None) -> int:
    run_id, last, open_until = entries[0].run_id, len(entries) - 1, _last_open_seq(entries)
    if at is None:
        return open_until
    if not 0 <= at <= last:
        raise ConfigurationError(f"{run_id} has events 0 to {last}, not {at}. Nothing was written.")
    if at > open_until:
        raise ConfigurationError(
            f"{run_id} is over at event {at}: nothing can go on from there. Fork it from event {open_until} or before."
        )
    return at


def _last_open_seq(entries: list[LogEntry]) -> int:
    """Return the last event at which the run was not over."""
    ledger = Ledger(run_id=entries[0].run_id)
    for entry in entries:
        ledger.apply(decode_event(entry))
        if ledger.is_over:
            return entry.seq - 1
    return len(entries) - 1


def _choose_run_id(requested: str) -> str:
    if requested and not is_valid_name(requested):
        raise ConfigurationError(f"{requested[:80]!r} cannot be the id of a run.")
    return requested or new_run_id()
