"""Creates, continues and cancels runs, for people, keys, schedules and webhooks.

Creation is idempotent: with an idempotency key, the run's id follows from the key, so the second request finds the run
of the first, also after a crash. The same key for something else is a conflict that names both.
"""

import asyncio
import re
from functools import partial
from hashlib import sha256
from weakref import WeakValueDictionary

import msgspec

from ....domain.errors import (
    ConfigurationError,
    DecisionConflictError,
    IllegalTransitionError,
    LogCorruptError,
    LogFencedError,
    LogWriteError,
    RunClaimedError,
    RunEndedError,
    RunPausedError,
)
from ....domain.event import RunStarted, UserMessageReceived, decode_event
from ....domain.ids import new_run_id
from ....domain.json import escape_surrogates
from ....domain.state.lifecycle import RunState
from ....history.fold import load_run
from ....runs.handle import RunHandle
from ....runs.runner import Runner
from ..errors import ConflictError, InvalidRequestError, UnavailableError, not_found_error
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation, RunOwnershipData
from ..identity.principal import Principal
from ..index.rows import RunRow, describe_new_run
from ..index.run_index import RunIndex
from ..switches import Switches
from .agent_runners import AgentRunners
from .agent_stop import AgentStop, AgentStopResult
from .conversations import is_idle
from .damaged_runs import DamagedRuns
from .worker import RunWorker

MAX_TASK_CHARS = 1_000_000
_EXCERPT_CHARS = 200
#: How long a run of another process may be missing in the index that the log has.
_INDEX_SECONDS = 5.0
_POLL_SECONDS = 0.05
_is_person_name = re.compile(r"(?:user:)?([a-z0-9][a-z0-9._-]{0,63})").fullmatch
_is_idempotency_key = re.compile(r"[!-~]{1,200}").fullmatch


class NewRun(msgspec.Struct, frozen=True, kw_only=True):
    """A request to create a run."""

    agent: str
    task: str
    #: The person it acts for, where a program makes it. People act for themselves.
    on_behalf_of: str = ""
    #: Idempotency key: the same request again is the same run.
    idempotency_key: str = ""
    #: Whether it is a conversation: an answer does not end it.
    is_chat: bool = False

    @property
    def settings(self) -> dict[str, str]:
        """What is recorded with the start of the run."""
        return {"chat": "true"} if self.is_chat else {}


class RunService:
    """Creates and cancels runs."""

    def __init__(  # noqa: PLR0913, PLR0917 - what it joins
        self,
        runners: AgentRunners,
        index: RunIndex,
        guard: AccessGuard,
        worker: RunWorker,
        damaged: DamagedRuns,
        switches: Switches,
        max_live_runs: int,
    ) -> None:
        self._runners = runners
        self._damaged = damaged
        self._switches = switches
        self._index = index
        self._guard = guard
        self._worker = worker
        self._max_live_runs = max_live_runs
        self._creation_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        #: Runs that are on their way to be live.
        self._starting_count = 0

    async def create(self, principal: Principal, request: NewRun, run_id: str = "") -> tuple[RunRow, bool]:
        """Create a run. Return it, and whether it is new. `run_id`: of a trigger, which derives it."""
        await self._guard.check(principal, Operation.CREATE_RUN, RunOwnershipData(agent=request.agent), request.agent)
        runner = self._runners.by_agent.get(request.agent)
        if runner is None:
            known = self._runners.by_agent
            raise self._guard.build_unknown_agent_error(principal, Operation.CREATE_RUN, request.agent, known)
        requester = _resolve_requester(principal, request)
        if not request.task.strip() or len(request.task) > MAX_TASK_CHARS:
            raise InvalidRequestError("task", f"has to have 1 to {MAX_TASK_CHARS} characters, and not only spaces")
        is_derived = bool(run_id or request.idempotency_key)
        run_id = run_id or _derive_run_id(principal, request.idempotency_key)
        lock = self._creation_locks.setdefault(run_id, asyncio.Lock())
        async with lock:
            existing = await self._index.get_run(run_id) if is_derived else None
            if existing is None:
                row, is_new = await self._start(runner, request, run_id, requester, principal)
                if is_new:
                    return row, True
                existing = row
            if not await self._is_same_request(existing, request, requester, principal):
                raise _build_idempotency_error(existing, request, requester)
        return existing, False

    async def send_message(
        self, principal: Principal, run_id: str, text: str, idempotency_key: str
    ) -> tuple[int, bool]:
        """Send the next message of a conversation. Return the `seq` of its event, and whether it is new."""
        row = await self._guard.get_run(principal, run_id, Operation.SEND_MESSAGE)
        if not text.strip() or len(text) > MAX_TASK_CHARS:
            raise InvalidRequestError("text", f"has to have 1 to {MAX_TASK_CHARS} characters, and not only spaces")
        key = _derive_message_key(principal, idempotency_key)
        runner = self._runners.by_agent.get(row.agent)
        if runner is None or row.owner or row.parent_run_id:
            raise ConflictError(
                "not_a_conversation", f"{run_id} takes no messages: no agent of this server answers in it."
            )
        if (seq := await self._find_message(runner, run_id, key, text)) is not None:
            return seq, False
        if row.is_over:
            raise _build_run_ended_error(row, "message")
        await self._check_can_start(row.agent)
        try:
            seq = await self._add_message(runner, row, text, principal, key)
        except RunEndedError:
            raise _build_run_ended_error(await self._guard.get_run(principal, run_id), "message") from None
        except (RunClaimedError, RunPausedError, LogFencedError) as error:
            raise ConflictError("not_your_turn", f"{str(error).rstrip('.')}.", {"run": run_id}) from None
        await self._worker.engine.wake([run_id])
        return seq, True

    async def cancel(self, principal: Principal, run_id: str, reason: str) -> RunRow:
        """Cancel a run and its child runs. Cancelling it again is fine. A damaged run is closed beside the log."""
        row = await self._guard.get_run(principal, run_id, Operation.CANCEL_RUN)
        if row.state is RunState.CANCELLED:
            return row
        if row.is_over:
            raise _build_run_ended_error(row)
        return await self._cancel_run(principal, reason, row)

    async def stop_agent(self, principal: Principal, agent: str, reason: str) -> AgentStopResult:
        """Cancel all runs of an agent that are not over. New runs are still possible: `AgentSwitches` refuses them."""
        await self._guard.check(principal, Operation.STOP_AGENT, RunOwnershipData(agent=agent), agent)
        if not reason.strip():
            raise InvalidRequestError("reason", "has to say why. Nothing was stopped")
        stopped = await self._cancel_all(principal, agent, reason)
        if agent not in self._runners.by_agent and not (stopped.cancelled or stopped.unfinished):
            known = self._runners.by_agent
            raise self._guard.build_unknown_agent_error(principal, Operation.STOP_AGENT, agent, known)
        await self._record_stop(principal, stopped, reason)
        return stopped

    async def cancel_all(self, principal: Principal, agent: str, reason: str) -> AgentStopResult:
        """Cancel all runs of an agent, or with an empty name of all agents. The caller has checked the permission."""
        stopped = await self._cancel_all(principal, agent, reason)
        await self._record_stop(principal, stopped, reason)
        return stopped

    async def _cancel_all(self, principal: Principal, agent: str, reason: str) -> AgentStopResult:
        return await AgentStop(self._index, agent, partial(self._cancel_run, principal, reason)).cancel_all()

    async def _record_stop(self, principal: Principal, stopped: AgentStopResult, reason: str) -> None:
        counts = {"cancelled": str(stopped.cancelled), "unfinished": str(len(stopped.unfinished)), "reason": reason}
        await self._guard.record_operation(principal, Operation.STOP_AGENT, stopped.agent or "every agent", counts)

    async def _cancel_run(self, principal: Principal, reason: str, row: RunRow) -> RunRow:
        run_id = row.run_id
        runner = self._runners.by_agent.get(row.agent)
        live = None if runner is None else runner.live_handles.get(run_id)
        try:
            if live is not None:
                await live.cancel(reason, by=principal.name)
            elif not (row.is_damaged and await self._damaged.check(run_id)):
                await self._runners.get_inbox(row.agent).cancel(run_id, reason, by=principal.name)
            else:
                await self._damaged.close(run_id, by=principal.name, reason=reason)
        except (LogCorruptError, IllegalTransitionError):
            if not await self._damaged.check(run_id):
                raise
            await self._damaged.close(run_id, by=principal.name, reason=reason)
        except (RunEndedError, DecisionConflictError):
            current = await self._guard.get_run(principal, run_id)
            if current.state is not RunState.CANCELLED and current.is_over:
                raise _build_run_ended_error(current) from None
            return current
        return await self._guard.get_run(principal, run_id)

    async def _start(
        self, runner: Runner, request: NewRun, run_id: str, requester: str, principal: Principal
    ) -> tuple[RunRow, bool]:
        """Start a run, and return it and True; or the run of that id that another server created meanwhile, and
        False.
        """
        await self._check_can_start(runner.agent.name)
        self._starting_count += 1
        try:
            handle = await self._worker.begin(
                runner,
                request.task,
                run_id=run_id,
                requester=requester,
                created_by=principal.name,
                settings=request.settings,
            )
        except (RunClaimedError, LogFencedError):
            return await self._get_existing_run(run_id), False
        except ConfigurationError as error:
            existing = await self._find_recorded(run_id)
            if existing is None:
                raise InvalidRequestError("on_behalf_of", str(error)) from None
            return existing, False
        finally:
            self._starting_count -= 1
        return await self._describe_started(runner, run_id, handle, request.task), True

    async def _check_can_start(self, agent: str) -> None:
        await self._switches.require_agent(agent)
        if self._worker.is_stopping:
            raise UnavailableError(
                "stopping", "The server is about to stop. Nothing was started. Try again in a moment."
            )
        if problem := self._runners.log.problem:
            raise LogWriteError(f"The event log cannot be written: {problem}. Nothing was started")
        active = self._starting_count + (0 if self._worker.is_shared else len(self._runners.list_live_handles()))
        if active >= self._max_live_runs:
            raise UnavailableError(
                "too_many_runs",
                f"{self._max_live_runs} runs are active, which is the limit. Nothing was started. "
                "Try again in a moment.",
            )

    async def _describe_started(self, runner: Runner, run_id: str, handle: RunHandle | None, task: str) -> RunRow:
        """Return the row that the index will have of a run that was just started; it need not catch up for that."""
        ledger = None if handle is None else handle.live_ledger
        if ledger is not None and ledger.state is RunState.RUNNING:
            redact = runner.app.parts.redactor.redact
            return describe_new_run(ledger, redact(escape_surrogates(task)))
        row = await self._find_recorded(run_id)
        if row is None:
            raise not_found_error("run", run_id)
        return row

    async def _find_recorded(self, run_id: str) -> RunRow | None:
        """Return a run as soon as the index has it; None when the log does not."""
        log, loop = self._runners.log, asyncio.get_running_loop()
        until = loop.time() + _INDEX_SECONDS
        while True:
            seen = log.version()
            row = await self._index.get_run(run_id)
            if row is not None or loop.time() > until or not await log.read(run_id, limit=1):
                return row
            await log.wait_for_change(seen, _POLL_SECONDS)

    async def _get_existing_run(self, run_id: str) -> RunRow:
        existing = await self._find_recorded(run_id)
        if existing is None:
            raise UnavailableError(
                "run_is_being_made", f"{run_id} is being made by another server. Nothing was started. Try again."
            )
        return existing

    async def _add_message(self, runner: Runner, row: RunRow, text: str, principal: Principal, key: str) -> int:
        """Record a message. The process that wrote the last answer may need a moment until it leaves the run."""
        loop = asyncio.get_running_loop()
        until = loop.time() + _INDEX_SECONDS
        while True:
            try:
                return await runner.add_message(row.run_id, text, by=principal.name, key=key)
            except RunClaimedError:
                row = await self._index.get_run(row.run_id) or row
                if loop.time() > until or not await is_idle(self._runners.log, row):
                    raise
            await asyncio.sleep(_POLL_SECONDS)

    async def _find_message(self, runner: Runner, run_id: str, key: str, text: str) -> int | None:
        """Return the `seq` of the message with this key, or None. Raise `ConflictError` where that is another text."""
        seq = (await load_run(self._runners.log, run_id)).ledger.message_keys.get(key) if key else None
        if seq is None:
            return None
        facts = [decode_event(entry).fact for entry in await self._runners.log.read(run_id, seq - 1, 1)]
        if any(
            isinstance(fact, UserMessageReceived)
            and fact.text == runner.app.parts.redactor.redact(escape_surrogates(text))
            for fact in facts
        ):
            return seq
        raise ConflictError(
            "idempotency_conflict",
            f"This key sent event {seq} of {run_id}, which is another message. Nothing was sent. Use a new key.",
            {"existing": {"seq": seq}},
        )

    async def _is_same_request(self, row: RunRow, request: NewRun, requester: str, principal: Principal) -> bool:
        redact = self._runners.by_agent[request.agent].app.parts.redactor.redact
        first = [decode_event(entry).fact for entry in await self._runners.log.read(row.run_id, -1, 2)]
        task = next((fact.text for fact in first if isinstance(fact, UserMessageReceived)), "")
        is_chat = any(isinstance(fact, RunStarted) and fact.is_chat for fact in first)
        requested = (request.agent, redact(escape_surrogates(request.task)), requester, principal.name, request.is_chat)
        return requested == (row.agent, task, row.requester, row.created_by, is_chat)


def _resolve_requester(principal: Principal, request: NewRun) -> str:
    if not request.on_behalf_of:
        return principal.name if principal.kind == "person" else ""  # consent is not possible for a program
    named = _is_person_name(request.on_behalf_of)
    if named is None:
        raise InvalidRequestError("on_behalf_of", "has to be the name of a person: a-z, 0-9, '.', '_' and '-'")
    person = f"user:{named[1]}"
    if principal.kind == "person" and person != principal.name:
        raise InvalidRequestError("on_behalf_of", f"people act for themselves, and you are {principal.name}")
    return person


def _derive_run_id(principal: Principal, key: str) -> str:
    if not key:
        return new_run_id()
    if _is_idempotency_key(key) is None:
        raise InvalidRequestError("Idempotency-Key", "has to have 1 to 200 visible ASCII characters")
    return "run_" + sha256(f"interlock/idempotency/v1\n{principal.name}\n{key}".encode()).hexdigest()[:32]


def _derive_message_key(principal: Principal, key: str) -> str:
    """Return what is recorded of a key: keys of others are not known to anyone."""
    return _derive_run_id(principal, key).removeprefix("run_") if key else ""


def _build_idempotency_error(existing: RunRow, request: NewRun, requester: str) -> ConflictError:
    return ConflictError(
        "idempotency_conflict",
        f"This key made {existing.run_id}, which is something else. Nothing was started. Use a new key.",
        {
            "existing": {
                "agent": existing.agent,
                "task": existing.task[:_EXCERPT_CHARS],
                "on_behalf_of": existing.requester,
            },
            "attempted": {"agent": request.agent, "task": request.task[:_EXCERPT_CHARS], "on_behalf_of": requester},
        },
    )


def _build_run_ended_error(row: RunRow, attempted: str = "cancel") -> ConflictError:
    status = row.status
    what = "cannot be cancelled" if attempted == "cancel" else "takes no more messages"
    return ConflictError(
        "run_ended",
        f"{row.run_id} is {status} and {what}. Nothing was changed.",
        {"current": status, "attempted": attempted},
    )
