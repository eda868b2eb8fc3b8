"""People answer what runs ask. The first answer stands; the same answer again is the same; another one is a conflict
that names both. Nobody has to wake the run: its worker hears of every answer in the log, wherever it was given."""

from typing import Any

import msgspec

from ....domain.call import Answer, Question
from ....domain.commands import AnswerNote
from ....domain.decision import Scope
from ....domain.errors import AnswerRefusedError, DecisionConflictError, RunEndedError
from ....domain.json import JsonObject, encode_sorted
from ....domain.state.ledger import ActionEntry, Ledger
from ....history.fold import load
from ....runs.commands import is_recorded, read_note
from ....runs.inbox import Taken
from ..errors import ConflictError, InvalidError, unknown
from ..identity.guard import Guard
from ..identity.permissions import Operation
from ..identity.principal import Principal
from ..index.rows import ActionRow
from .kept_rules import RuleKeeping, RuleTarget
from .runners import Fleet


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A yes to exactly what has this hash."""

    payload_hash: str
    reason: str = ""
    scope: Scope = "once"
    until: int = 0
    #: With `rule`: empty is the suggested one; another one has to be provably narrower.
    rule: str = ""
    #: What to run instead: validated, judged and hashed again.
    arguments: JsonObject | None = None


class Decided(msgspec.Struct, frozen=True):
    action: ActionRow
    #: `left`: another process has the run, and takes the answer from there.
    taken: Taken
    #: With the scope `rule`: where the rule is kept when the call starts.
    rule_target: RuleTarget | None = None


class Deciding:
    def __init__(self, fleet: Fleet, guard: Guard, keeping: RuleKeeping) -> None:
        self._fleet = fleet
        self._guard = guard
        self._keeping = keeping

    async def approve(self, who: Principal, action_id: str, wish: Approval) -> Decided:
        if not wish.payload_hash:
            raise InvalidError("payload_hash", "has to be that of what is approved, as the question shows it")
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
        agent = (await load(self._fleet.log, run_id)).ledger.agent
        await self._fleet.desk(agent).decide(run_id, action_id, answer)

    async def _decide(self, who: Principal, action_id: str, kind: str, answer: Answer, payload_hash: str) -> Decided:
        operation = Operation.DECIDE if kind == "approval" else Operation.ANSWER
        row, run = await self._guard.action(who, action_id, operation)
        ledger = (await load(self._fleet.log, row.run_id)).ledger
        entry = _entry(ledger, action_id)
        if entry.question.kind != kind:
            raise _other_kind(entry.question, kind)
        await self._guard.second_person(who, entry.question, ledger)
        if payload_hash and payload_hash != entry.question.payload_hash:
            raise _other_payload(entry.question, payload_hash)
        if answer.scope == "rule" and not answer.rule:
            answer = msgspec.structs.replace(answer, rule=entry.question.suggested_rule)
        if not entry.is_open:
            return _known(row, ledger, answer)
        target = None
        if answer.scope == "rule":
            target = await self._keeping.check(who, run, entry.question, ledger, answer.rule)
        try:
            taken = await self._fleet.desk(run.agent).decide(row.run_id, action_id, answer, payload_hash)
        except AnswerRefusedError as error:
            raise InvalidError(_field(answer), str(error)) from None
        except (DecisionConflictError, RunEndedError):
            return await self._after_all((await self._guard.action(who, action_id))[0], answer)
        return Decided((await self._guard.action(who, action_id))[0], taken, target)

    async def _after_all(self, row: ActionRow, answer: Answer) -> Decided:
        """It was not taken: somebody was faster, or its time or its run is over."""
        notes = [read_note(note) for note in await self._fleet.log.notes(row.run_id)]
        # Looked at after the notes: one that is not there any more is in the log.
        ledger = (await load(self._fleet.log, row.run_id)).ledger
        entry = _entry(ledger, row.action_id)
        if not entry.is_open:
            return _known(row, ledger, answer)
        for note in notes:
            if isinstance(note, AnswerNote) and note.action_id == row.action_id and _is_same(note.answer, answer):
                return Decided(row, "left")
        raise _not_open(row, entry, answer)


def _entry(ledger: Ledger, action_id: str) -> ActionEntry:
    entry = ledger.actions.get(action_id)
    if entry is None:
        raise unknown("action", action_id)
    return entry


def _field(answer: Answer) -> str:
    """What of the answer was most likely refused."""
    if answer.arguments is not None:
        return "arguments"
    return "value" if answer.value is not None else "scope" if answer.scope != "once" else "answer"


def _is_same(one: Answer, other: Answer) -> bool:
    """But for the reason, and what was taken out of it."""
    parts = ("approved", "by", "scope", "rule", "value", "arguments")
    return all(encode_sorted(getattr(one, part)) == encode_sorted(getattr(other, part)) for part in parts)


def _known(row: ActionRow, ledger: Ledger, answer: Answer) -> Decided:
    """It was answered before: by them, and in the same way, or not."""
    entry = _entry(ledger, row.action_id)
    given = entry.answer
    if is_recorded(AnswerNote(row.action_id, answer), ledger) and given is not None and given.rule == answer.rule:
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


def _other_kind(question: Question, kind: str) -> ConflictError:
    return ConflictError(
        "wrong_kind",
        f"{question.action_id} waits for {question.kind}, and this is an answer to a question for {kind}. "
        "Nothing was decided.",
        {"expected": question.kind, "actual": kind},
    )


def _other_payload(question: Question, payload_hash: str) -> ConflictError:
    return ConflictError(
        "payload_hash_mismatch",
        f"{question.action_id} is about {question.payload_hash}, and this answers {payload_hash[:100]}. "
        "Nothing was decided. Look at it again.",
        {"expected": question.payload_hash, "actual": payload_hash[:200]},
    )
