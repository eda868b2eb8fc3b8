"""Undo what a run changed in its workspace, or what some of its calls did.

The undo is a run of its own, with one call: planned, shown, approved and committed like any other. So it is in the log,
and can be undone in turn.
"""

import asyncio
from bisect import bisect
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from os import PathLike
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias, cast, get_args

import msgspec

from .changes.change_set import CHANGE_SET_FACT
from .changes.store import ChangeStore
from .domain.call import ToolIntent
from .domain.errors import ConfigurationError, LogUnreadableError
from .domain.event import CallObserved, CallProposed, Event, InvocationStarted, RunStarted, decode_event
from .domain.ids import child_run_id
from .domain.observation import Observation
from .domain.tool import JsonObject
from .domain.trial import Trial
from .interaction.interface import InteractionProvider
from .pipeline.parts import Clock, Limits
from .redaction.interface import Redactor
from .runs.children import find_parent
from .runtime import ToolRuntime
from .sandbox.workspace.workspace import Workspace
from .storage.artifacts import ArtifactStore
from .storage.event_log import EventLog
from .tools.files.undo import UNDO_TOOL, RecordedChanges, UndoTrials, undo_tool

#: Runs that are looked at for earlier undos: the newest.
_MAX_RUNS = 1_000
_PAGE_SIZE = 500
#: The event of an undo names its run, also beside very many calls.
_MAX_INPUT_BYTES = 4 << 20
#: How many of its first events an undo needs to name the run that it is about.
_FIRST_EVENTS = 8

RefusalCode: TypeAlias = Literal["nothing_to_undo", "unknown_call", "workspace_gone"]


class UndoRefusedError(ConfigurationError):
    """An undo is not possible. Nothing was changed. `code` is for programs."""

    def __init__(self, code: RefusalCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class ChangedRun(msgspec.Struct, frozen=True):
    """What is known of a run for its undo."""

    run_id: str
    workspace: str
    #: By its calls, by those of its child runs, and by undos of them, in the order in which they happened.
    changes: tuple[RecordedChanges, ...]
    #: The runs that undid something of it, oldest first.
    undo_run_ids: tuple[str, ...] = ()


class UndoReport(msgspec.Struct, frozen=True):
    """What an undo would do, and did."""

    run_id: str
    calls: tuple[str, ...]
    preview: Trial
    undo_run_id: str
    #: None: it was only previewed.
    observation: Observation | None

    @property
    def is_done(self) -> bool:
        """True when files were put back."""
        return self.observation is not None and self.observation.ok


async def load_changed_run(log: EventLog, run_id: str) -> ChangedRun:
    """Read which calls of a run and of its child runs changed its workspace, undos of them included, in order."""
    run = await _read_run(log, run_id)
    changes = [_place(event, digest, event.seq, "own") for event, digest in run.changes]
    related, waiting = {run_id}, list(run.started_children)
    while waiting:
        child = await _read_run(log, waiting.pop())
        related.add(child.run_id)
        waiting += child.started_children
        if child.workspace == run.workspace:
            changes += (_place(*each, bisect(run.times, each[0].at), "child") for each in child.changes)
    undo_ids: list[str] = []
    for undo_id in await _list_undos(log, run.workspace):
        if undo_id != run_id and await find_undone_run(log, undo_id) in related:
            related.add(undo_id)
            undo_ids.append(undo_id)
            undo = await _read_run(log, undo_id)
            changes += (_place(*each, bisect(run.times, each[0].at) - 1, "undo") for each in undo.changes)
    found = tuple(changed.recorded for changed in sorted(changes, key=lambda changed: changed.place))
    return ChangedRun(run_id, run.workspace, found, tuple(undo_ids))


def select_calls(run: ChangedRun, after: int | None = None, call: str = "") -> list[str]:
    """Return one call, or all that happened after an event. Raise `UndoRefusedError` when there is none to undo."""
    calls = [one for one in run.changes if not one.is_undo]
    known = [one.call_id for one in calls]
    if call and call not in known:
        listed = f"These did: {', '.join(known)}." if known else "None did."
        raise UndoRefusedError("unknown_call", f"No call {call!r} of this run changed the workspace. {listed}")
    if call:
        return [call]
    # What undos since did to these files goes with it.
    found = [one.call_id for one in run.changes if after is None or one.seq > after]
    if not set(found).intersection(known):
        since = f" after event {after}" if after is not None else ""
        message = f"Nothing to undo: no call of this run changed the workspace{since}."
        raise UndoRefusedError("nothing_to_undo", message)
    return found


async def preview_undo(run: ChangedRun, calls: Sequence[str], folder: str | PathLike[str]) -> Trial:
    """Return what undoing these calls would do, and change nothing.

    Args:
        folder: Where the changes of the run are kept.

    Raises:
        UndoRefusedError: The workspace is gone.
        PreconditionError: A change is not kept any more.
    """
    async with _open_changes(run, folder) as (workspace, store):
        return await UndoTrials(workspace, store, run.changes).preview(calls)


async def undo_calls(  # noqa: PLR0913 - what the undo's own run needs
    log: EventLog,
    run: ChangedRun,
    calls: Sequence[str],
    folder: str | PathLike[str],
    person: InteractionProvider | None,
    *,
    requester: str,
    artifacts: ArtifactStore | None = None,
    redactor: Redactor | None = None,
    clock: Clock | None = None,
) -> UndoReport:
    """Undo these calls when the person approves. None, or a person who is not there: only find out what it would do.

    Args:
        folder: Where the changes of the run are kept.
        person: Who is asked, with the effect of the undo as the trial of its call.
        requester: Who the undo acts for.

    Raises:
        UndoRefusedError: The workspace is gone.
        PreconditionError: A change is not kept any more.
    """
    async with _open_changes(run, folder) as (workspace, store):
        preview = await UndoTrials(workspace, store, run.changes).preview(calls)
        if person is None or not person.interactive or not preview.has_effect:
            return UndoReport(run.run_id, tuple(calls), preview, "", None)
        async with ToolRuntime(
            tools=[undo_tool(workspace, store, run.changes)],
            log=log,
            artifacts=artifacts,
            redactor=redactor,
            clock=clock,
            limits=Limits(max_event_input_bytes=_MAX_INPUT_BYTES),
            agent=UNDO_TOOL,
            interaction=person,
            workspace=run.workspace,
            requester=requester,
        ) as runtime:
            arguments = {"run_id": run.run_id, "calls": list(calls)}
            intent = ToolIntent(call_id=f"undo_{runtime.run_id[-8:]}", tool_name=UNDO_TOOL, arguments=arguments)
            (observation,) = (await runtime.execute([intent])).observations
            await runtime.complete(observation.summary)
            return UndoReport(run.run_id, tuple(calls), preview, runtime.run_id, observation)


async def find_undone_run(log: EventLog, undo_id: str) -> str:
    """Return the run that an undo is about; empty when the run is no undo, or cannot be read."""
    for entry in await log.read(undo_id, limit=_FIRST_EVENTS):
        try:
            fact = decode_event(entry).fact
        except LogUnreadableError:
            return ""
        match fact:
            # An agent of this name that a server serves is no undo.
            case RunStarted(agent=agent, created_by=creator) if agent != UNDO_TOOL or creator:
                return ""
            case CallProposed() as proposed:
                given: object = proposed.raw_input
                run_id = cast(JsonObject, given).get("run_id") if isinstance(given, dict) else None
                return run_id if isinstance(run_id, str) and proposed.tool == UNDO_TOOL else ""
            case _:
                pass
    return ""


#: What came first at the same event of the run: a child run, before the event; the event itself; an undo after it.
_Origin: TypeAlias = Literal["child", "own", "undo"]


class _PlacedChanges(NamedTuple):
    #: The event of the run, what came first there, and the time.
    place: tuple[int, int, int]
    recorded: RecordedChanges


async def _list_undos(log: EventLog, workspace: str) -> list[str]:
    """Return the undos in a workspace, oldest first."""
    found: list[str] = []
    for summary in reversed(await log.list_runs(_MAX_RUNS)):
        with suppress(LogUnreadableError):
            match decode_event(summary.first).fact:
                case RunStarted(agent=agent, workspace=place) if (agent, place) == (UNDO_TOOL, workspace):
                    found.append(summary.first.run_id)
                case _:
                    pass
    return found


async def _read_run(log: EventLog, run_id: str) -> "_ReadRun":
    """Read a run whole, in pages."""
    found = _ReadRun(run_id)
    at = -1
    while entries := await log.read(run_id, at, _PAGE_SIZE):
        for event in map(decode_event, entries):
            found.times.append(event.at)
            match event.fact:
                case RunStarted(workspace=workspace):
                    found.workspace = workspace
                case InvocationStarted(call_id=call_id):
                    child_id = child_run_id(run_id, call_id)
                    if await find_parent(log, child_id) == (run_id, call_id):
                        found.started_children[child_id] = None
                case CallObserved(observation=observation):
                    digest = observation.facts.get(CHANGE_SET_FACT)
                    found.changes += [(event, digest)] if isinstance(digest, str) else []
                case _:
                    pass
        at = entries[-1].seq
    return found


class _ReadRun:
    """What the events of a run say."""

    def __init__(self, run_id: str) -> None:
        self.run_id = run_id
        self.workspace = ""
        #: When each event happened.
        self.times: list[int] = []
        #: The observations of calls that changed the workspace, with the digests of their change sets.
        self.changes: list[tuple[Event, str]] = []
        #: A set in order.
        self.started_children: dict[str, None] = {}


def _place(event: Event, digest: str, seq: int, origin: _Origin) -> _PlacedChanges:
    call_id = cast(CallObserved, event.fact).observation.call_id
    call_id = f"{event.run_id}/{call_id}" if origin == "child" else call_id
    place = seq, get_args(_Origin).index(origin), event.at
    return _PlacedChanges(place, RecordedChanges(call_id, seq, digest, origin == "undo"))


@asynccontextmanager
async def _open_changes(run: ChangedRun, folder: str | PathLike[str]) -> AsyncGenerator[tuple[Workspace, ChangeStore]]:
    if not run.workspace or not await asyncio.to_thread(Path(run.workspace).is_dir):
        message = f"The workspace of the run is gone: {run.workspace or 'none was recorded'}."
        raise UndoRefusedError("workspace_gone", message)
    workspace, store = Workspace(run.workspace), ChangeStore(folder)
    try:
        await asyncio.to_thread(store.recover)
        yield workspace, store
    finally:
        store.close()
        workspace.close()
