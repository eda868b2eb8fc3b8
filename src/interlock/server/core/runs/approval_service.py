"""Answers of people to the questions of runs. The first answer counts; the same answer again is accepted; another one
is a conflict that names both. The worker sees every answer in the log and resumes the run, wherever it was given.
"""

from typing import Any

import msgspec

from ....domain.call import Answer, Channel, Question
from ....domain.commands import AnswerCommand
from ....domain.decision import ApprovalScope
from ....domain.errors import AnswerRefusedError, DecisionConflictError, RunEndedError
from ....domain.json import JsonObject, encode_sorted
from ....domain.state.ledger import ActionEntry, Ledger
from ....domain.state.lifecycle import ActionState
from ....history.fold import load_run
from ....rendering.times import format_rfc3339
from ....runs.commands import is_recorded, read_command
from ....runs.inbox import Delivery
from ..errors import ConflictError, InvalidRequestError, not_found_error
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation
from ..identity.principal import Principal
from ..index.rows import ActionRow
from .agent_runners import AgentRunners
from .damaged_runs import DamagedRuns
from .kept_rules import RuleKeeper, RuleTarget


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """An approval of exactly the payload with this hash."""

    payload_hash: str
    reason: str = ""
    scope: ApprovalScope = "once"
    until: int = 0
    #: With `rule`: empty is the suggested one; another one has to be provably narrower.
    rule: str = ""
    #: What to run instead: validated, evaluated and hashed again.
    arguments: JsonObject | None = None


class DecisionResult(msgspec.Struct, frozen=True):
    """The answered question, and how the answer was delivered."""

    action: ActionRow
    #: `queued`: another process owns the run, and applies the answer.
    delivery: Delivery
    #: With the scope `rule`: where the rule is saved when the call starts.
    rule_target: RuleTarget | None = None


class ApprovalService:
    """Approves and rejects calls, and provides requested input."""

    def __init__(
        self, runners: AgentRunners, guard: AccessGuard, rule_keeper: RuleKeeper, damaged: DamagedRuns
    ) -> None:
        self._runners = runners
        self._damaged = damaged
        self._guard = guard
        self._rule_keeper = rule_keeper

    async def approve(
        self, principal: Principal, action_id: str, approval: Approval, channel: Channel = "rest"
    ) -> DecisionResult:
        """Approve a question. The payload hash must be that of what was shown."""
        if not approval.payload_hash:
            raise InvalidRequestError("payload_hash", "must be the payload hash shown with the approval")
        answer = Answer(
            approved=True,
            reason=approval.reason,
            by=principal.name,
            scope=approval.scope,
            until=approval.until,
            rule=approval.rule,
            arguments=approval.arguments,
            channel=channel,
        )
        return await self._decide(principal, action_id, "approval", answer, approval.payload_hash)

    async def reject(
        self, principal: Principal, action_id: str, reason: str, payload_hash: str = "", channel: Channel = "rest"
    ) -> DecisionResult:
        """Reject a call that requires approval, or a request for input."""
        row, _ = await self._guard.get_action(principal, action_id, Operation.DECIDE)
        kind = "input" if row.kind == "input" else "approval"
        answer = Answer(approved=False, reason=reason, by=principal.name, channel=channel)
        return await self._decide(principal, action_id, kind, answer, payload_hash)

    async def provide_input(
        self, principal: Principal, action_id: str, value: Any, payload_hash: str = "", channel: Channel = "rest"
    ) -> DecisionResult:
        """Answer a request for input."""
        answer = Answer(approved=True, value=value, by=principal.name, channel=channel)
        return await self._decide(principal, action_id, "input", answer, payload_hash)

    async def record_consent(self, run_id: str, action_id: str, answer: Answer) -> None:
        """Record a consent or its refusal. The caller has authenticated the user."""
        agent = (await load_run(self._runners.log, run_id)).ledger.agent
        await self._runners.get_inbox(agent).deliver(run_id, action_id, answer)

    async def _decide(
        self, principal: Principal, action_id: str, kind: str, answer: Answer, payload_hash: str
    ) -> DecisionResult:
        operation = Operation.DECIDE if kind == "approval" else Operation.ANSWER
        row, run = await self._guard.get_action(principal, action_id, operation)
        async with self._damaged.detect(row.run_id):
            ledger = (await load_run(self._runners.log, row.run_id)).ledger
        entry = _get_entry(ledger, action_id)
        if entry.question.kind != kind:
            raise _build_wrong_kind_error(entry.question, kind)
        await self._guard.require_second_person(principal, entry.question, ledger)
        if payload_hash and payload_hash != entry.question.payload_hash:
            raise _build_payload_mismatch_error(entry.question, payload_hash)
        if answer.scope == "rule" and not answer.rule:
            answer = msgspec.structs.replace(answer, rule=entry.question.suggested_rule)
        if not entry.is_open:  # the row was read before it was answered
            return _match_recorded_answer((await self._guard.get_action(principal, action_id))[0], ledger, answer)
        target = None
        if answer.scope == "rule":
            target = await self._rule_keeper.check_rule(principal, run, entry.question, ledger, answer.rule)
        try:
            delivery = await self._runners.get_inbox(run.agent).deliver(row.run_id, action_id, answer, payload_hash)
        except AnswerRefusedError as error:
            raise InvalidRequestError(_guess_refused_field(answer), str(error)) from None
        except (DecisionConflictError, RunEndedError) as error:
            return await self._resolve_conflict((await self._guard.get_action(principal, action_id))[0], answer, error)
        return DecisionResult((await self._guard.get_action(principal, action_id))[0], delivery, target)

    async def _resolve_conflict(
        self, row: ActionRow, answer: Answer, error: DecisionConflictError | RunEndedError
    ) -> DecisionResult:
        """Resolve an answer that was not accepted: another one was first, or the question or the run is over."""
        commands = [read_command(note) for note in await self._runners.log.queued_commands(row.run_id)]
        # Read after the queued commands: one that is no longer queued is in the log.
        ledger = (await load_run(self._runners.log, row.run_id)).ledger
        entry = _get_entry(ledger, row.action_id)
        if not entry.is_open:
            return _match_recorded_answer(row, ledger, answer)
        for command in commands:
            if isinstance(command, AnswerCommand) and command.action_id == row.action_id:
                if _is_same_answer(command.answer, answer):
                    return DecisionResult(row, "queued")
                state = ActionState.APPROVED if command.answer.approved else ActionState.REJECTED
                raise _build_decided_error(row.action_id, state, command.answer, command.at, answer)
        raise _build_not_open_error(row, entry, answer, str(error))


def _get_entry(ledger: Ledger, action_id: str) -> ActionEntry:
    entry = ledger.actions.get(action_id)
    if entry is None:
        raise not_found_error("action", action_id)
    return entry


def _guess_refused_field(answer: Answer) -> str:
    """Return the field of the answer that was most likely refused."""
    if answer.arguments is not None:
        return "arguments"
    return "value" if answer.value is not None else "scope" if answer.scope != "once" else "answer"


def _is_same_answer(one: Answer, other: Answer) -> bool:
    """Return True if the answers are equal, except for reason and redactions."""
    parts = ("approved", "by", "scope", "rule", "value", "arguments")
    return all(encode_sorted(getattr(one, part)) == encode_sorted(getattr(other, part)) for part in parts)


def _match_recorded_answer(row: ActionRow, ledger: Ledger, answer: Answer) -> DecisionResult:
    """Return the recorded answer if it is the same. Raise `ConflictError` if it is another."""
    entry = _get_entry(ledger, row.action_id)
    given = entry.answer
    if is_recorded(AnswerCommand(row.action_id, answer), ledger) and given is not None and given.rule == answer.rule:
        return DecisionResult(row, "recorded")
    if given is None and ledger.is_over:
        raise _build_not_open_error(row, entry, answer, f"Its run is {ledger.state.value}.")
    at = entry.answered_at or row.decided_at
    raise _build_decided_error(row.action_id, entry.state, given, at, answer)


def _build_decided_error(
    action_id: str, state: ActionState, given: Answer | None, at: int, answer: Answer
) -> ConflictError:
    """Build the error that says who answered what, and when."""
    by, reason = ("", "") if given is None else (given.by, given.reason)
    when = format_rfc3339(at, 6) if at else None
    said = "" if given is None else "expired" if given.expired else "approved" if given.approved else "rejected"
    words = "".join((f" by {by}" if by else "", f" at {when}" if when else "", f" ({reason})" if reason else ""))
    return ConflictError(
        "already_decided",
        f"{action_id} is {state.name}: it was {said or 'answered'}{words}. Nothing was changed.",
        {
            "decided": {"status": state.name, "answer": said, "by": by, "reason": reason, "at": when},
            "attempted": {"status": "APPROVED" if answer.approved else "REJECTED", "by": answer.by},
        },
    )


def _build_not_open_error(row: ActionRow, entry: ActionEntry, answer: Answer, reason: str) -> ConflictError:
    return ConflictError(
        "not_open",
        f"{row.action_id} can no longer be answered. {reason} Nothing was changed.",
        {"current": entry.state.name, "attempted": "APPROVED" if answer.approved else "REJECTED"},
    )


def _build_wrong_kind_error(question: Question, kind: str) -> ConflictError:
    return ConflictError(
        "wrong_kind",
        f"{question.action_id} requires {question.kind}; found an answer for {kind}. Nothing was decided.",
        {"expected": question.kind, "actual": kind},
    )


def _build_payload_mismatch_error(question: Question, payload_hash: str) -> ConflictError:
    return ConflictError(
        "payload_hash_mismatch",
        f"{question.action_id} is about {question.payload_hash}, and this answers {payload_hash[:100]}. "
        "Nothing was decided. Look at it again.",
        {"expected": question.payload_hash, "actual": payload_hash[:200]},
    )
