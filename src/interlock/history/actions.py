"""The questions of a run: their answers, and the events about them."""

import msgspec

from ..domain.call import Answer, Question
from ..domain.payload import BindingChange
from ..domain.state.ledger import ActionEntry, Ledger


class Action(msgspec.Struct, frozen=True, kw_only=True):
    """A question of a run, with its answer and status."""

    action_id: str
    run_id: str
    agent: str
    call_id: str
    tool: str
    #: The operation and the first thing that it acts on.
    capability: str
    #: What it is about, in one line.
    title: str
    payload_hash: str
    #: PENDING, APPROVED, REJECTED, EXPIRED, EXECUTED or VOID.
    status: str
    #: In nanoseconds since 1970.
    asked_at: int
    question: Question
    answer: Answer | None = None
    #: The events about it: where it was asked, answered, and started with. None where that has not happened.
    asked_seq: int
    answered_seq: int | None = None
    executed_seq: int | None = None
    #: The action that this one replaced, and why it had to be asked again.
    replaces: str = ""
    changes: tuple[BindingChange, ...] = ()


def list_actions(ledger: Ledger) -> list[Action]:
    """Return the questions, oldest first."""
    return [_action(entry) for entry in ledger.actions.values()]


def _action(entry: ActionEntry) -> Action:
    question = entry.question
    return Action(
        action_id=question.action_id,
        run_id=question.run_id,
        agent=question.agent,
        call_id=question.call_id,
        tool=question.tool_name,
        capability=question.capability,
        title=question.headline,
        payload_hash=question.payload_hash,
        status=entry.state.name,
        asked_at=question.asked_at,
        question=question,
        answer=entry.answer,
        asked_seq=entry.asked_seq,
        answered_seq=_optional_seq(entry.answered_seq),
        executed_seq=_optional_seq(entry.executed_seq),
        replaces=question.replaces,
        changes=question.changes,
    )


def _optional_seq(seq: int) -> int | None:
    return seq if seq >= 0 else None
