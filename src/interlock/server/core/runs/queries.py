"""Everything that people and programs look at, each of them only what they may see.

Lists and single rows come from the index, which costs the same for any run. What is inside a run (its state at an
event, its calls, its questions in full) is folded from the log, in a thread where that may take a while.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from ....domain import event as facts
from ....domain.call import Question
from ....domain.chain import Entry, decode_event
from ....domain.errors import ArtifactError
from ....domain.event import Event
from ....history.actions import Action, actions
from ....history.call_view import CallView, call_view
from ....history.fold import load
from ....history.run_view import RunEvent, run_events
from ....history.state_view import CallThen, StateThen, state_as_of, state_of
from ..errors import InvalidError, unknown
from ..identity.guard import Guard
from ..identity.permissions import Operation, four_eyes, may, visible
from ..identity.principal import Principal
from ..index.index import ActivityRow, Index
from ..index.rows import ActionQuery, ActionRow, Page, RunQuery, RunRow
from .kept_rules import RuleKeeping, RuleTarget
from .runners import Fleet

MAX_LIMIT = 1_000
MAX_ARTIFACTS = 10_000
_SCAN = 500
#: A page of stored events has no more of them once it is so long; it is read a few at a time.
MAX_PAGE_BYTES = 4 << 20
_FEW = 50


class AgentRow(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str
    tools: tuple[str, ...]


class EventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events as they are stored."""

    entries: tuple[Entry, ...]
    #: The last event that was looked at: the next page is after it.
    next_after_seq: int
    #: The last event that the run has.
    last_seq: int


class RunEventPage(msgspec.Struct, frozen=True, kw_only=True):
    """Events as operators see them; most facts show none."""

    events: tuple[RunEvent, ...]
    next_after_seq: int
    last_seq: int


class QuestionView(msgspec.Struct, frozen=True, kw_only=True):
    row: ActionRow
    run: RunRow
    action: Action
    #: Why whoever looks may not decide it; empty: they may.
    why_not: str = ""
    #: Where a rule would be kept with the answer; None where none can be.
    rule_target: RuleTarget | None = None


class ArtifactRow(msgspec.Struct, frozen=True, kw_only=True):
    artifact_id: str
    kind: str
    size_bytes: int
    #: The call it belongs to, if any, and the event that names it first.
    call_id: str = ""
    seq: int


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    runs: dict[str, int]
    open_questions: dict[str, int]
    recent: tuple[ActivityRow, ...]


class Reading:
    def __init__(self, fleet: Fleet, index: Index, guard: Guard, keeping: RuleKeeping) -> None:
        self._keeping = keeping
        self._fleet = fleet
        self._log = fleet.log
        self._index = index
        self._guard = guard

    async def agents(self, who: Principal) -> tuple[AgentRow, ...]:
        await self._guard.check(who, Operation.LIST_RUNS)
        seen = visible(who).agents
        return tuple(
            AgentRow(
                name=name,
                description=each.description,
                tools=tuple(sorted(tool.name for tool in self._fleet.runners[name].app.registry)),
            )
            for name, each in sorted(self._fleet.served.items())
            if seen is None or name in seen
        )

    async def runs(self, who: Principal, query: RunQuery) -> Page[RunRow]:
        await self._guard.check(who, Operation.LIST_RUNS)
        seen = visible(who)
        return await self._index.runs(msgspec.structs.replace(query, agents=seen.agents, person=seen.person))

    async def run(self, who: Principal, run_id: str) -> RunRow:
        return await self._guard.run(who, run_id)

    async def events(self, who: Principal, run_id: str, after_seq: int = -1, limit: int = 100) -> EventPage:
        row = await self._guard.run(who, run_id)
        found, at, left, size = list[Entry](), after_seq, _within(limit), 0
        while left > 0 and size < MAX_PAGE_BYTES and (some := await self._log.read(run_id, at, min(left, _FEW))):
            found += some
            at, left, size = some[-1].seq, left - len(some), size + sum(len(entry.body) for entry in some)
        return EventPage(entries=tuple(found), next_after_seq=at, last_seq=row.last_seq)

    async def run_events(self, who: Principal, run_id: str, after_seq: int = -1, limit: int = 100) -> RunEventPage:
        row = await self._guard.run(who, run_id)
        limit, found, at = _within(limit), list[RunEvent](), after_seq
        while len(found) < limit and (entries := await self._log.read(run_id, at, _SCAN)):
            for entry in entries:
                found += run_events(decode_event(entry))
                at = entry.seq
                if len(found) >= limit:
                    break
        return RunEventPage(events=tuple(found), next_after_seq=at, last_seq=row.last_seq)

    async def state(self, who: Principal, run_id: str, at_seq: int | None = None) -> StateThen:
        """As of that event; None: as of the last one."""
        row = await self._guard.run(who, run_id)
        if at_seq is None or at_seq == row.last_seq:
            return state_of((await load(self._log, run_id)).ledger, row.updated_at)
        if not 0 <= at_seq <= row.last_seq:
            raise InvalidError("at", f"is {at_seq}, and the run has events 0 to {row.last_seq}")
        entries = await self._log.read(run_id, -1, at_seq + 1)
        return await asyncio.to_thread(state_as_of, run_id, entries)

    async def calls(self, who: Principal, run_id: str) -> tuple[CallThen, ...]:
        return (await self.state(who, run_id)).calls

    async def call(self, who: Principal, run_id: str, call_id: str) -> CallView:
        await self._guard.run(who, run_id)
        entries = await self._log.read(run_id)
        found = await asyncio.to_thread(lambda: call_view(_events(entries), call_id))
        if found is None:
            raise unknown("call", call_id)
        return found

    async def actions(self, who: Principal, run_id: str) -> list[Action]:
        await self._guard.run(who, run_id)
        return actions((await load(self._log, run_id)).ledger)

    async def action(self, who: Principal, run_id: str, action_id: str) -> Action:
        for action in await self.actions(who, run_id):
            if action.action_id == action_id:
                return action
        raise unknown("action", action_id)

    async def questions(self, who: Principal, query: ActionQuery) -> Page[ActionRow]:
        await self._guard.check(who, Operation.LIST_QUESTIONS)
        seen = visible(who)
        return await self._index.actions(msgspec.structs.replace(query, agents=seen.agents, person=seen.person))

    async def question(self, who: Principal, action_id: str) -> QuestionView:
        row, run = await self._guard.action(who, action_id)
        action = await self.action(who, row.run_id, action_id)
        return QuestionView(
            row=row,
            run=run,
            action=action,
            why_not=self._why_not(who, run, action.question),
            rule_target=self._keeping.describe(who, run, action.question),
        )

    async def artifacts(self, who: Principal, run_id: str) -> tuple[ArtifactRow, ...]:
        """What this run keeps, in the order in which it was named."""
        await self._guard.run(who, run_id)
        entries = await self._log.read(run_id)
        return await asyncio.to_thread(lambda: tuple(self._kept(entries)))

    async def artifact_size(self, who: Principal, run_id: str, artifact_id: str) -> int:
        """In bytes; only of what this very run names, whatever else the store has."""
        await self._guard.run(who, run_id)
        if artifact_id not in (await load(self._log, run_id)).ledger.artifact_ids:
            rows = await self.artifacts(who, run_id)  # arguments that were too long for their event
            if not any(row.artifact_id == artifact_id for row in rows):
                raise unknown("artifact", artifact_id)
        return await asyncio.to_thread(self._size, artifact_id)

    async def artifact_bytes(self, artifact_id: str, start: int, size_bytes: int) -> bytes:
        """For whoever was told its size. `ArtifactError` when what is there is not what was kept."""
        return await asyncio.to_thread(self._fleet.artifacts.read, artifact_id, start, size_bytes)

    async def overview(self, who: Principal, limit: int = 50) -> Overview:
        """What happened last, and how many of what there are."""
        await self._guard.check(who, Operation.LIST_RUNS)
        seen = visible(who)
        return Overview(
            runs=await self._index.counts(seen.agents, seen.person),
            open_questions=await self._index.open_questions(seen.agents, seen.person),
            recent=tuple(await self._index.recent(_within(limit), seen.agents, seen.person)),
        )

    def _why_not(self, who: Principal, run: RunRow, question: Question) -> str:
        operation = {"approval": Operation.DECIDE, "input": Operation.ANSWER}.get(question.kind, Operation.CONSENT)
        if not may(who, operation, run):
            return f"You may not do this ({operation.value})."
        if operation is Operation.CONSENT:
            return ""
        setting, editor = self._guard.four_eyes, question.edited_by
        return four_eyes(who, question.risk, question.layer, run, setting, edited_by=editor)

    def _kept(self, entries: Sequence[Entry]) -> Iterator[ArtifactRow]:
        seen: set[str] = set()
        for event in _events(entries):
            for artifact_id, kind, call_id in _named(event):
                if artifact_id and artifact_id not in seen and len(seen) < MAX_ARTIFACTS:
                    seen.add(artifact_id)
                    yield ArtifactRow(
                        artifact_id=artifact_id,
                        kind=kind,
                        size_bytes=self._size(artifact_id),
                        call_id=call_id,
                        seq=event.seq,
                    )

    def _size(self, artifact_id: str) -> int:
        try:
            return self._fleet.artifacts.size_bytes(artifact_id)
        except ArtifactError:
            return -1


def _within(limit: int) -> int:
    return max(1, min(limit, MAX_LIMIT))


def _events(entries: Iterable[Entry]) -> Iterator[Event]:
    return map(decode_event, entries)


def _named(event: Event) -> Iterator[tuple[str, str, str]]:
    """The artifacts that an event names: id, kind, call."""
    match event.fact:
        case facts.CallObserved(observation=observation):
            for artifact in observation.artifacts:
                yield artifact.id, artifact.kind, observation.call_id
        case facts.CallProposed(raw_artifact_id=artifact_id, call_id=call_id):
            yield artifact_id, "arguments", call_id
        case facts.MenuShown(artifact_id=artifact_id):
            yield artifact_id, "menu", ""
        case facts.ModelAsked(instructions_artifact_id=artifact_id):
            yield artifact_id, "instructions", ""
        case facts.ModelAnswered(private_artifact_id=artifact_id):
            yield artifact_id, "model", ""
        case _:
            pass
