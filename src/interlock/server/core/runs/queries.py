"""Read access to runs, restricted to what the principal may see.

Lists and single rows come from the index, which costs the same for any run. Details of a run (its state at an event,
its calls, its questions in full) are folded from the log, in a thread where that may take a while.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import msgspec

from ....domain import event as facts
from ....domain.attachments import ATTACHMENT
from ....domain.call import Question
from ....domain.errors import ArtifactError, LogUnreadableError
from ....domain.event import Event, LogEntry, decode_event
from ....domain.state.ledger import Ledger
from ....engine.interface import Engine
from ....engine.switches import SwitchedOffAgent, find_switch
from ....history.actions import Action, list_actions
from ....history.call_view import CallView, build_call_view
from ....history.fold import load_run
from ....history.run_view import RunEvent, to_run_events
from ....history.state_view import CallStateView, RunStateView, build_state_at, build_state_view
from ....history.turns import Turn, begins_turn, build_turns, split_turns
from ..errors import InvalidRequestError, not_found_error
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation, find_four_eyes_problem, get_visibility, is_allowed
from ..identity.principal import Principal
from ..index.rows import ActionQuery, ActionRow, Page, RunQuery, RunRow
from ..index.run_index import ActivityRow, RunIndex
from ..index.statistics import Statistics, StatisticsPeriod
from ..switches import Switches
from .agent_runners import AgentRunners
from .conversations import is_idle
from .damaged_runs import DamagedRuns
from .kept_rules import RuleKeeper, RuleTarget

MAX_LIMIT = 1_000
MAX_ARTIFACTS = 10_000
_SCAN_PAGE_SIZE = 500
#: A page of stored events has no more of them once it is so long; it is read a few at a time.
MAX_PAGE_BYTES = 4 << 20
_READ_PAGE_SIZE = 50
#: A page of turns has no more of them, and is built from no more events.
MAX_TURNS = 25
MAX_TURN_EVENTS = 1_000
#: States of runs that are kept.
_MAX_STATES = 64


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    """A served agent as listed."""

    name: str
    description: str
    tools: tuple[str, ...]
    #: The queue of its runs, where workers on many hosts continue them.
    queue: str
    #: Why no run of it starts or continues; None: they do.
    switched_off: SwitchedOffAgent | None = None


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of stored events."""

    entries: tuple[LogEntry, ...]
    #: The last event that was looked at: the next page is after it.
    next_after_seq: int
    #: The last event that the run has.
    last_seq: int


class TurnPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of turns."""

    turns: tuple[Turn, ...]
    #: The events that they are built from.
    first_seq: int
    last_seq: int
    #: The last event that the run has.
    newest_seq: int

    @property
    def has_earlier(self) -> bool:
        """True if there are turns before the page."""
        return self.first_seq > 0

    @property
    def has_later(self) -> bool:
        """True if there are turns after the page."""
        return self.last_seq < self.newest_seq


class RunEventPage(msgspec.Struct, frozen=True, kw_only=True):
    """A page of events as operators see them; most facts show none."""

    events: tuple[RunEvent, ...]
    next_after_seq: int
    last_seq: int


class QuestionView(msgspec.Struct, frozen=True, kw_only=True):
    """A question with everything needed to answer it."""

    row: ActionRow
    run: RunRow
    action: Action
    #: Why the principal may not decide it; empty: they may.
    denied_reason: str = ""
    #: Where a rule would be kept with the answer; None where none can be.
    rule_target: RuleTarget | None = None


class ArtifactRow(msgspec.Struct, frozen=True, kw_only=True):
    """An artifact of a run."""

    artifact_id: str
    kind: str
    size_bytes: int
    #: The call it belongs to, if any, and the event that names it first.
    call_id: str = ""
    seq: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of runs and questions, and recent activity."""

    runs: dict[str, int]
    open_questions: dict[str, int]
    recent: tuple[ActivityRow, ...]


class RunQueries:
    """Queries on runs, events, questions and artifacts."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it reads from
        self,
        runners: AgentRunners,
        index: RunIndex,
        guard: AccessGuard,
        rule_keeper: RuleKeeper,
        damaged: DamagedRuns,
        switches: Switches,
        engine: Engine,
    ) -> None:
        """Set up the queries. The engine says why runs wait that cannot continue right now."""
        self._rule_keeper = rule_keeper
        self._damaged = damaged
        self._switches = switches
        self._engine = engine
        self._runners = runners
        self._log = runners.log
        self._index = index
        self._guard = guard
        #: The states of runs that were looked at last.
        self._states: OrderedDict[str, RunStateView] = OrderedDict()

    async def list_agents(self, principal: Principal) -> tuple[AgentRow, ...]:
        """List the agents that the principal may see."""
        await self._guard.check(principal, Operation.LIST_RUNS)
        seen, switches = get_visibility(principal).agents, await self._switches.list_agents()
        return tuple(
            AgentRow(
                name=name,
                description=each.description,
                tools=tuple(sorted(tool.name for tool in self._runners.by_agent[name].app.registry)),
                queue=each.queue,
                switched_off=find_switch(switches, name),
            )
            for name, each in sorted(self._runners.served_agents.items())
            if seen is None or name in seen
        )

    async def list_runs(self, principal: Principal, query: RunQuery) -> Page[RunRow]:
        """List the runs that the principal may see."""
        await self._guard.check(principal, Operation.LIST_RUNS)
        visibility = get_visibility(principal)
        page = await self._index.list_runs(
            msgspec.structs.replace(query, agents=visibility.agents, person=visibility.person)
        )
        return msgspec.structs.replace(page, rows=await self._add_waiting_reasons(page.rows))

    async def get_run(self, principal: Principal, run_id: str) -> RunRow:
        """Return a run. Of a conversation, whether it waits for the next message."""
        (row,) = await self._add_waiting_reasons((await self._guard.get_run(principal, run_id),))
        with suppress(LogUnreadableError):
            if await is_idle(self._log, row):
                return msgspec.structs.replace(row, is_idle=True)
        return row

    async def list_events(self, principal: Principal, run_id: str, after_seq: int = -1, limit: int = 100) -> EventPage:
        """List logged events of a run, limited by number and size."""
        row = await self._guard.get_run(principal, run_id)
        found, at, left, size = list[LogEntry](), after_seq, _clamp_limit(limit), 0
        while (
            left > 0
            and size < MAX_PAGE_BYTES
            and (some := await self._log.read(run_id, at, min(left, _READ_PAGE_SIZE)))
        ):
            found += some
            at, left, size = some[-1].seq, left - len(some), size + sum(len(entry.body) for entry in some)
        return EventPage(entries=tuple(found), next_after_seq=at, last_seq=row.last_seq)

    async def list_turns(
        self, principal: Principal, run_id: str, at_seq: int | None = None, before_seq: int | None = None
    ) -> TurnPage:
        """List turns of a run, limited by number, events and size: from the one that has an event on, those before an
        event, or the newest.
        """
        row = await self._guard.get_run(principal, run_id)
        if at_seq is None:
            entries = await self._read_back(run_id, row.last_seq if before_seq is None else before_seq - 1, MAX_TURNS)
        else:
            begun = await self._read_back(run_id, min(at_seq, row.last_seq), 1)
            entries = await self._read_turns(run_id, begun[0].seq if begun else 0, row.last_seq)
        async with self._damaged.detect(run_id):
            turns = await asyncio.to_thread(lambda: build_turns(_decode_all(entries)))
        first, last = (entries[0].seq, entries[-1].seq) if entries else (0, -1)
        return TurnPage(turns=turns, first_seq=first, last_seq=last, newest_seq=row.last_seq)

    async def list_run_events(
        self, principal: Principal, run_id: str, after_seq: int = -1, limit: int = 100
    ) -> RunEventPage:
        """List public events of a run."""
        row = await self._guard.get_run(principal, run_id)
        limit, found, at = _clamp_limit(limit), list[RunEvent](), after_seq
        async with self._damaged.detect(run_id):
            while len(found) < limit and (entries := await self._log.read(run_id, at, _SCAN_PAGE_SIZE)):
                for entry in entries:
                    found += to_run_events(decode_event(entry))
                    at = entry.seq
                    if len(found) >= limit:
                        break
        return RunEventPage(events=tuple(found), next_after_seq=at, last_seq=row.last_seq)

    async def get_state(self, principal: Principal, run_id: str, at_seq: int | None = None) -> RunStateView:
        """Return the state as of that event; None: as of the last one."""
        row = await self._guard.get_run(principal, run_id)
        if at_seq is None or at_seq == row.last_seq:
            return await self._load_state(row)
        if not 0 <= at_seq <= row.last_seq:
            raise InvalidRequestError("at", f"is {at_seq}, and the run has events 0 to {row.last_seq}")
        entries = await self._log.read(run_id, -1, at_seq + 1)
        async with self._damaged.detect(run_id):
            return await asyncio.to_thread(build_state_at, run_id, entries)

    async def list_calls(self, principal: Principal, run_id: str) -> tuple[CallStateView, ...]:
        """List the calls of a run."""
        return (await self.get_state(principal, run_id)).calls

    async def get_call(self, principal: Principal, run_id: str, call_id: str) -> CallView:
        """Return a call with its whole history."""
        await self._guard.get_run(principal, run_id)
        entries = await self._log.read(run_id)
        async with self._damaged.detect(run_id):
            found = await asyncio.to_thread(lambda: build_call_view(_decode_events(entries), call_id))
        if found is None:
            raise not_found_error("call", call_id)
        return found

    async def list_actions(self, principal: Principal, run_id: str) -> list[Action]:
        """List the questions of a run."""
        await self._guard.get_run(principal, run_id)
        return list_actions(await self._load_ledger(run_id))

    async def get_action(self, principal: Principal, run_id: str, action_id: str) -> Action:
        """Return a question of a run."""
        for action in await self.list_actions(principal, run_id):
            if action.action_id == action_id:
                return action
        raise not_found_error("action", action_id)

    async def list_questions(self, principal: Principal, query: ActionQuery) -> Page[ActionRow]:
        """List questions of all visible runs."""
        await self._guard.check(principal, Operation.LIST_QUESTIONS)
        visibility = get_visibility(principal)
        return await self._index.list_actions(
            msgspec.structs.replace(query, agents=visibility.agents, person=visibility.person)
        )

    async def get_question(self, principal: Principal, action_id: str) -> QuestionView:
        """Return a question and whether the principal may answer it."""
        row, run = await self._guard.get_action(principal, action_id)
        action = await self.get_action(principal, row.run_id, action_id)
        return QuestionView(
            row=row,
            run=run,
            action=action,
            denied_reason=self.find_denied_reason(principal, run, action.question),
            rule_target=self._rule_keeper.describe_target(principal, run, action.question),
        )

    async def list_artifacts(self, principal: Principal, run_id: str) -> tuple[ArtifactRow, ...]:
        """Return the artifacts of this run, in the order in which they were named."""
        await self._guard.get_run(principal, run_id)
        entries = await self._log.read(run_id)
        async with self._damaged.detect(run_id):
            return await asyncio.to_thread(lambda: tuple(self._iterate_artifacts(entries)))

    async def get_artifact_size(self, principal: Principal, run_id: str, artifact_id: str) -> int:
        """Return the size in bytes of an artifact that this run names."""
        await self._guard.get_run(principal, run_id)
        if artifact_id not in (await self._load_ledger(run_id)).artifact_ids:
            rows = await self.list_artifacts(principal, run_id)  # arguments that were too long for their event
            if not any(row.artifact_id == artifact_id for row in rows):
                raise not_found_error("artifact", artifact_id)
        return await asyncio.to_thread(self._get_size, artifact_id)

    async def read_artifact(self, artifact_id: str, start: int, size_bytes: int) -> bytes:
        """Read an artifact whose size was checked. Raise `ArtifactError` when its content is damaged."""
        return await asyncio.to_thread(self._runners.artifacts.read, artifact_id, start, size_bytes)

    async def get_overview(self, principal: Principal, limit: int = 50) -> Overview:
        """Return counts and recent activity."""
        await self._guard.check(principal, Operation.LIST_RUNS)
        visibility = get_visibility(principal)
        return Overview(
            runs=await self._index.count_runs(visibility.agents, visibility.person),
            open_questions=await self._index.count_open_questions(visibility.agents, visibility.person),
            recent=tuple(await self._index.list_activity(_clamp_limit(limit), visibility.agents, visibility.person)),
        )

    async def get_statistics(
        self, principal: Principal, period: StatisticsPeriod, now: int, agent: str | None = None
    ) -> Statistics:
        """Return the statistics of the period that ends now: of all agents that the principal has a role for, or of
        one of them.
        """
        await self._guard.check(principal, Operation.READ_STATISTICS)
        agents = get_visibility(principal).agents
        if agent is not None:
            agents = frozenset((agent,)) if agents is None or agent in agents else frozenset[str]()
        return await self._index.read_statistics(period, now, agents)

    async def _read_back(self, run_id: str, last_seq: int, turns: int) -> list[LogEntry]:
        """Read the events up to one of them that make so many turns, or as many as a page may have."""
        found, starts, size, later = list[LogEntry](), list[int](), 0, None
        end = last_seq + 1
        while end > 0 and len(starts) < turns and len(found) < MAX_TURN_EVENTS and size < MAX_PAGE_BYTES:
            begin = max(0, end - _READ_PAGE_SIZE)
            some = await self._log.read(run_id, begin - 1, end - begin)
            async with self._damaged.detect(run_id):
                events = await asyncio.to_thread(_decode_all, some)
            around = events if later is None else [*events, later]
            starts += [
                around[at].seq
                for at in range(len(around) - 1, 0, -1)
                if begins_turn(around[at - 1].fact, around[at].fact)
            ]
            found, size, end = [*some, *found], size + sum(len(entry.body) for entry in some), begin
            later = events[0] if events else None
        start = starts[turns - 1] if len(starts) >= turns else -1
        if start < 0 < end:  # a page that is full: what is left of its first turn belongs to the page before
            start = starts[-1] if starts else -1
        return [entry for entry in found if entry.seq >= start]

    async def _read_turns(self, run_id: str, first_seq: int, last_seq: int) -> list[LogEntry]:
        """Read the events from one on that make a page of turns. A turn that is too long for it is cut."""
        found, events, parts, size = list[LogEntry](), list[Event](), list[Sequence[Event]](), 0
        while len(parts) <= MAX_TURNS and len(found) < MAX_TURN_EVENTS and size < MAX_PAGE_BYTES:
            some = await self._log.read(run_id, found[-1].seq if found else first_seq - 1, _READ_PAGE_SIZE)
            if not some:
                break
            found += some
            size += sum(len(entry.body) for entry in some)
            async with self._damaged.detect(run_id):
                events += await asyncio.to_thread(_decode_all, some)
            parts = split_turns(events)
        is_cut = bool(found) and found[-1].seq < last_seq
        parts = parts[: min(MAX_TURNS, len(parts) - 1 if is_cut and len(parts) > 1 else len(parts))]
        return found[: sum(map(len, parts))]

    async def _load_state(self, row: RunRow) -> RunStateView:
        """Return the newest state. It is folded once for every event of a run, however often it is looked at."""
        known = self._states.pop(row.run_id, None)
        if known is None or known.at_seq != row.last_seq:
            known = build_state_view(await self._load_ledger(row.run_id), row.updated_at)
        self._states[row.run_id] = known
        if len(self._states) > _MAX_STATES:
            self._states.popitem(last=False)
        return known

    async def _load_ledger(self, run_id: str) -> Ledger:
        async with self._damaged.detect(run_id):
            return (await load_run(self._log, run_id)).ledger

    async def _add_waiting_reasons(self, rows: tuple[RunRow, ...]) -> tuple[RunRow, ...]:
        """Show why runs wait that cannot continue right now."""
        reasons = await self._engine.waiting_reasons([row.run_id for row in rows if not row.is_over])
        if not reasons:
            return rows
        return tuple(
            msgspec.structs.replace(row, message=reasons[row.run_id]) if row.run_id in reasons else row for row in rows
        )

    def find_denied_reason(self, principal: Principal, run: RunRow, question: Question) -> str:
        """Return why a principal may not answer a question; empty: they may."""
        operation = {"approval": Operation.DECIDE, "input": Operation.ANSWER}.get(question.kind, Operation.CONSENT)
        if not is_allowed(principal, operation, run):
            return f"Not allowed: you lack the permission {operation.value}."
        if operation is Operation.CONSENT:
            return ""
        setting, editor = self._guard.four_eyes, question.edited_by
        return find_four_eyes_problem(principal, question.risk, question.layer, run, setting, edited_by=editor)

    def _iterate_artifacts(self, entries: Sequence[LogEntry]) -> Iterator[ArtifactRow]:
        seen: set[str] = set()
        for event in _decode_events(entries):
            for artifact_id, kind, call_id in _iterate_artifact_references(event):
                if artifact_id and artifact_id not in seen and len(seen) < MAX_ARTIFACTS:
                    seen.add(artifact_id)
                    yield ArtifactRow(
                        artifact_id=artifact_id,
                        kind=kind,
                        size_bytes=self._get_size(artifact_id),
                        call_id=call_id,
                        seq=event.seq,
                    )

    def _get_size(self, artifact_id: str) -> int:
        try:
            return self._runners.artifacts.size_bytes(artifact_id)
        except ArtifactError:
            return -1


def _clamp_limit(limit: int) -> int:
    return max(1, min(limit, MAX_LIMIT))


def _decode_events(entries: Iterable[LogEntry]) -> Iterator[Event]:
    return map(decode_event, entries)


def _decode_all(entries: Iterable[LogEntry]) -> list[Event]:
    return list(_decode_events(entries))


def _iterate_artifact_references(event: Event) -> Iterator[tuple[str, str, str]]:
    """Yield the artifacts that an event names: id, kind, call."""
    match event.fact:
        case facts.CallObserved(observation=observation):
            for artifact in observation.artifacts:
                yield artifact.id, artifact.kind, observation.call_id
        case facts.UserMessageReceived(parts=parts):
            for part in parts:
                yield part.artifact_id, ATTACHMENT, ""
        case facts.CallProposed(raw_artifact_id=artifact_id, call_id=call_id):
            yield artifact_id, "arguments", call_id
        case facts.ToolsOffered(artifact_id=artifact_id):
            yield artifact_id, "menu", ""
        case facts.ModelRequested(instructions_artifact_id=artifact_id):
            yield artifact_id, "instructions", ""
        case facts.ModelResponded(private_artifact_id=artifact_id):
            yield artifact_id, "model", ""
        case _:
            pass
