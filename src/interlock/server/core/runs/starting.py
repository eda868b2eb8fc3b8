"""Runs are made and ended here, for people, keys, schedules and webhooks alike.

Making one is idempotent: with a key of the caller's, the run's id follows from the key, so the second request finds the
run of the first, also after a crash. The same key for something else is a conflict that names both.
"""

import asyncio
import re
from functools import partial
from hashlib import sha256
from weakref import WeakValueDictionary

import msgspec

from ....domain.chain import decode_event
from ....domain.errors import ConfigurationError, DecisionConflictError, RunClaimedError, RunEndedError
from ....domain.event import UserSaid
from ....domain.ids import new_run_id
from ....domain.json import without_surrogates
from ....domain.state.lifecycle import RunState
from ....runs.runner import Runner
from ..errors import BusyError, ConflictError, InvalidError, unknown
from ..identity.guard import Guard
from ..identity.permissions import Operation, RunFacts
from ..identity.principal import Principal
from ..index.index import Index
from ..index.rows import RunRow
from .runners import Fleet
from .stopping import Stopped, Stopping
from .worker import Worker

MAX_TASK_CHARS = 1_000_000
_SHOWN_CHARS = 200
_is_person_name = re.compile(r"(?:user:)?([a-z0-9][a-z0-9._-]{0,63})").fullmatch
_is_key = re.compile(r"[!-~]{1,200}").fullmatch


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    agent: str
    task: str
    #: The person it acts for, where a program makes it. People act for themselves.
    on_behalf_of: str = ""
    #: What the caller knows this wish by: sent again, it is the same run.
    idempotency_key: str = ""


class Starting:
    def __init__(self, fleet: Fleet, index: Index, guard: Guard, worker: Worker, max_live: int) -> None:
        self._fleet = fleet
        self._index = index
        self._guard = guard
        self._worker = worker
        self._max_live = max_live
        self._making: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: Runs that are on their way to be live.
        self._beginning = 0

    async def create(self, who: Principal, wish: NewRun, run_id: str = "") -> tuple[RunRow, bool]:
        """The run, and whether it was made now. `run_id`: of a trigger, which knows what it has started before."""
        await self._guard.check(who, Operation.CREATE_RUN, RunFacts(agent=wish.agent), wish.agent)
        runner = self._fleet.runners.get(wish.agent)
        if runner is None:
            raise unknown("agent", wish.agent)
        requester = _requester(who, wish)
        if not wish.task.strip() or len(wish.task) > MAX_TASK_CHARS:
            raise InvalidError("task", f"has to have 1 to {MAX_TASK_CHARS} characters, and not only spaces")
        run_id = run_id or _run_id(who, wish.idempotency_key)
        lock = self._making.setdefault(run_id, asyncio.Lock())
        async with lock:
            known = await self._index.run(run_id)
            if known is None:
                known = await self._start(runner, wish.task, run_id, requester, who)
            if known is not None and not await self._is_same(known, wish, requester, who):
                raise _other_wish(known, wish, requester)
        row = await self._index.run(run_id)
        if row is None:
            raise unknown("run", run_id)
        return row, known is None

    async def cancel(self, who: Principal, run_id: str, reason: str) -> RunRow:
        """End it, and the runs inside its calls. Once more is the same."""
        row = await self._guard.run(who, run_id, Operation.CANCEL_RUN)
        if row.state is RunState.CANCELLED:
            return row
        if row.is_over:
            raise _over(row)
        return await self._end(who, reason, row)

    async def stop(self, who: Principal, agent: str, reason: str) -> Stopped:
        """End all runs of an agent that are not over. What it may begin afterwards is what its keys let it."""
        await self._guard.check(who, Operation.STOP_AGENT, RunFacts(agent=agent), agent)
        if not reason.strip():
            raise InvalidError("reason", "has to say why. Nothing was stopped")
        stopped = await Stopping(self._index, agent, partial(self._end, who, reason)).run()
        if agent not in self._fleet.runners and not (stopped.cancelled or stopped.unfinished):
            raise unknown("agent", agent)
        counts = {"cancelled": str(stopped.cancelled), "unfinished": str(len(stopped.unfinished))}
        await self._guard.done(who, Operation.STOP_AGENT, agent, counts | {"reason": reason})
        return stopped

    async def _end(self, who: Principal, reason: str, row: RunRow) -> RunRow:
        run_id = row.run_id
        runner = self._fleet.runners.get(row.agent)
        live = None if runner is None else runner.live.get(run_id)
        try:
            if live is not None:
                await live.cancel(reason, by=who.name)
            else:
                await self._fleet.desk(row.agent).cancel(run_id, reason, who.name)
        except (RunEndedError, DecisionConflictError):
            again = await self._guard.run(who, run_id)
            if again.state is not RunState.CANCELLED and again.is_over:
                raise _over(again) from None
            return again
        return await self._guard.run(who, run_id)

    async def _start(self, runner: Runner, task: str, run_id: str, requester: str, who: Principal) -> RunRow | None:
        """None: it is made. Else the run of that id that another server made in the meantime."""
        if self._worker.stopping:
            raise BusyError("stopping", "The server is about to stop. Nothing was started. Try again in a moment.")
        if len(self._fleet.live()) + self._beginning >= self._max_live:
            raise BusyError(
                "too_many_runs",
                f"{self._max_live} runs are moved on right now, and more are not begun. Nothing was started. "
                "Try again in a moment.",
            )
        self._beginning += 1
        try:
            handle = await runner.start(task, run_id=run_id, requester=requester, created_by=who.name)
        except RunClaimedError:
            return await self._made_elsewhere(run_id)
        except ConfigurationError as error:
            known = await self._index.run(run_id)
            if known is None:
                raise InvalidError("on_behalf_of", str(error)) from None
            return known
        finally:
            self._beginning -= 1
        self._worker.follow(handle)
        return None

    async def _made_elsewhere(self, run_id: str) -> RunRow:
        known = await self._index.run(run_id)
        if known is None:
            raise BusyError(
                "run_is_being_made", f"{run_id} is being made by another server. Nothing was started. Try again."
            )
        return known

    async def _is_same(self, row: RunRow, wish: NewRun, requester: str, who: Principal) -> bool:
        redact = self._fleet.runners[wish.agent].app.parts.redactor.redact
        first = [decode_event(entry).fact for entry in await self._fleet.log.read(row.run_id, 0, 1)]
        task = next((fact.text for fact in first if isinstance(fact, UserSaid)), "")
        mine = (wish.agent, redact(without_surrogates(wish.task)), requester, who.name)
        return mine == (row.agent, task, row.requester, row.created_by)


def _requester(who: Principal, wish: NewRun) -> str:
    if not wish.on_behalf_of:
        return who.name if who.kind == "person" else ""  # nobody can consent for a program
    named = _is_person_name(wish.on_behalf_of)
    if named is None:
        raise InvalidError("on_behalf_of", "has to be the name of a person: a-z, 0-9, '.', '_' and '-'")
    person = f"user:{named[1]}"
    if who.kind == "person" and person != who.name:
        raise InvalidError("on_behalf_of", f"people act for themselves, and you are {who.name}")
    return person


def _run_id(who: Principal, key: str) -> str:
    if not key:
        return new_run_id()
    if _is_key(key) is None:
        raise InvalidError("Idempotency-Key", "has to have 1 to 200 visible ASCII characters")
    return "run_" + sha256(f"interlock/idempotency/v1\n{who.name}\n{key}".encode()).hexdigest()[:32]


def _other_wish(known: RunRow, wish: NewRun, requester: str) -> ConflictError:
    return ConflictError(
        "idempotency_conflict",
        f"This key made {known.run_id}, which is something else. Nothing was started. Use a new key.",
        {
            "existing": {"agent": known.agent, "task": known.task[:_SHOWN_CHARS], "on_behalf_of": known.requester},
            "attempted": {"agent": wish.agent, "task": wish.task[:_SHOWN_CHARS], "on_behalf_of": requester},
        },
    )


def _over(row: RunRow) -> ConflictError:
    status = row.status
    return ConflictError(
        "run_ended",
        f"{row.run_id} is {status} and cannot be cancelled. Nothing was changed.",
        {"current": status, "attempted": "cancel"},
    )
