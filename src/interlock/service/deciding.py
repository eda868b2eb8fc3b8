"""People answer what runs ask. The first answer stands; the same answer again is the same; another one is a conflict
that names both."""

from typing import Any

import msgspec

from ..domain.call import Answer, Question
from ..domain.decision import Scope
from ..domain.errors import AnswerRefusedError, DecisionConflictError, RunEndedError
from ..domain.json import JsonObject
from ..domain.ledger import ActionEntry
from ..domain.lifecycle import ActionState
from ..history.fold import load
from ..runs.desk import Taken
from .errors import ConflictError, InvalidError, unknown
from .fleet import Fleet
from .guard import Guard
from .permissions import Operation
from .principal import Principal
from .rows import ActionRow
from .worker import Worker


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A yes to exactly what has this hash."""

    payload_hash: str
    reason: str = ""
    scope: Scope = "once"
    until: int = 0
    rule: str = ""
    #: What to run instead: validated, judged and hashed again.
    arguments: JsonObject | None = None


class Decided(msgspec.Struct, frozen=True):
    action: ActionRow
    #: `left`: another process has the run, and takes the answer from there.
    taken: Taken


class Deciding:
    def __init__(self, fleet: Fleet, guard: Guard, worker: Worker) -> None:
        self._fleet = fleet
        self._guard = guard
        self._worker = worker

    async def approve(self, who: Principal, action_id: str, wish: Approval) -> Decided:
        answer = Answer(
            approved=True,
            reason=wish.reason,
            by=who.name,
            scope=wish.scope,
            until=wish.until,
            rule=wish.rule,
            arguments=wish.arguments,
        )
        return await self._decide(who, action_id, "approval", answer, wish.payload_hash)

    async def reject(self, who: Principal, action_id: str, reason: str, payload_hash: str = "") -> Decided:
        answer = Answer(approved=False, reason=reason, by=who.name)
        return await self._decide(who, action_id, "approval", answer, payload_hash)

    async def provide(self, who: Principal, action_id: str, value: Any, payload_hash: str = "") -> Decided:
        return await self._decide(
            who, action_id, "input", Answer(approved=True, value=value, by=who.name), payload_hash
        )

    async def refuse(self, who: Principal, action_id: str, reason: str) -> Decided:
        return await self._decide(who, action_id, "input", Answer(approved=False, reason=reason, by=who.name), "")

    async def consent(self, run_id: str, action_id: str, answer: Answer) -> None:
        """What a user said at a provider, or that they refused. Whoever calls this has proved that it was they."""
        await self._fleet.desk((await load(self._fleet.log, run_id)).ledger.agent).decide(run_id, action_id, answer)
        self._worker.wake(run_id)

    async def _decide(self, who: Principal, action_id: str, kind: str, answer: Answer, payload_hash: str) -> Decided:
        operation = Operation.DECIDE if kind == "approval" else Operation.ANSWER
        row, run = await self._guard.action(who, action_id, operation)
        entry = await self._entry(row)
        if entry.question.kind != kind:
            raise ConflictError(
                "wrong_kind",
                f"{action_id} waits for {entry.question.kind}, and this is an answer to a question for {kind}. "
                "Nothing was decided.",
                {"expected": entry.question.kind, "actual": kind},
            )
        await self._guard.second_person(who, row, entry.question.layer, run)
        if payload_hash and payload_hash != entry.question.payload_hash:
            raise _other_payload(entry.question, payload_hash)
        if entry.state is not ActionState.PENDING:
            return _known(row, entry, answer)
        try:
            taken = await self._fleet.desk(run.agent).decide(row.run_id, action_id, answer, payload_hash)
        except AnswerRefusedError as error:
            raise InvalidError("arguments" if answer.arguments is not None else "answer", str(error)) from None
        except (DecisionConflictError, RunEndedError):
            entry = await self._entry(row)
            if entry.state is ActionState.PENDING:
                raise _not_open(row, entry, answer) from None
            return _known((await self._guard.action(who, action_id))[0], entry, answer)
        self._worker.wake(row.run_id)
        return Decided((await self._guard.action(who, action_id))[0], taken)

    async def _entry(self, row: ActionRow) -> ActionEntry:
        entry = (await load(self._fleet.log, row.run_id)).ledger.actions.get(row.action_id)
        if entry is None:
            raise unknown("action", row.action_id)
        return entry


def _known(row: ActionRow, entry: ActionEntry, answer: Answer) -> Decided:
    """It was answered before: by them, and in the same way, or not."""
    given = entry.answer
    same = given is not None and (given.approved, given.by) == (answer.approved, answer.by)
    if same and given is not None and given.scope == answer.scope:
        return Decided(row, "recorded")
    by = given.by if given is not None else ""
    raise ConflictError(
        "already_decided",
        f"{row.action_id} is {entry.state.name}{f', by {by}' if by else ''}. That stands, and nothing was changed.",
        {
            "decided": {"status": entry.state.name, "by": by},
            "attempted": {"status": "APPROVED" if answer.approved else "REJECTED", "by": answer.by},
        },
    )


def _not_open(row: ActionRow, entry: ActionEntry, answer: Answer) -> ConflictError:
    return ConflictError(
        "not_open",
        f"{row.action_id} can no longer be answered: its run is over, its time is over, or an answer is on its way. "
        "Nothing was changed.",
        {"current": entry.state.name, "attempted": "APPROVED" if answer.approved else "REJECTED"},
    )


def _other_payload(question: Question, payload_hash: str) -> ConflictError:
    return ConflictError(
        "payload_hash_mismatch",
        f"{question.action_id} is about {question.payload_hash}, and this answers {payload_hash[:100]}. "
        "Nothing was decided. Look at it again.",
        {"expected": question.payload_hash, "actual": payload_hash[:200]},
    )
