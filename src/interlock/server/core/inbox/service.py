"""Work in the inbox: lists with assignments, comments, and one decision about each of many questions."""

from collections.abc import Mapping
from contextlib import suppress
from typing import Literal

import msgspec

from ....domain.call import Channel
from ..errors import ConflictError, ForbiddenError, InvalidRequestError, NotFoundError, RemovedError, ServiceError
from ..identity.accounts import Accounts
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation, RunOwnershipData
from ..identity.principal import Principal
from ..index.rows import ActionQuery, ActionRow, Page
from ..index.run_index import RunIndex
from ..runs.approval_service import Approval, ApprovalService
from ..runs.queries import QuestionView, RunQueries
from .assignments import Assignment, Assignments
from .comments import MAX_COMMENT_CHARS, Comment, Comments
from .filters import ASSIGNED_TO_ME, UNASSIGNED
from .saved_views import SavedViews

#: Decided with one request.
MAX_DECISIONS = 100
_MAX_CANDIDATES = 200
_PAGE = 1_000
_OPEN = frozenset(("PENDING",))
_PERSON_PREFIX = "user:"


class ShownQuestion(msgspec.Struct, frozen=True):
    """A question as a person saw it."""

    action_id: str
    payload_hash: str


class ManyDecisions(msgspec.Struct, frozen=True, kw_only=True):
    """The same answer to many questions."""

    approved: bool
    reason: str
    questions: tuple[ShownQuestion, ...]


class DecisionOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the answer to one of many questions."""

    action_id: str
    outcome: Literal["recorded", "queued", "skipped"]
    #: Why it was skipped: the code and message that a decision about this one alone has.
    code: str = ""
    message: str = ""


class InboxService:
    """The inbox of a server."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        *,
        queries: RunQueries,
        approvals: ApprovalService,
        accounts: Accounts,
        guard: AccessGuard,
        index: RunIndex,
        assignments: Assignments,
        comments: Comments,
        views: SavedViews,
    ) -> None:
        self._queries = queries
        self._approvals = approvals
        self._accounts = accounts
        self._guard = guard
        self._index = index
        self._assignments = assignments
        self._comments = comments
        self.views = views

    async def list_questions(self, principal: Principal, query: ActionQuery, assigned: str = "") -> Page[ActionRow]:
        """List questions of all visible runs, with their assignees.

        Args:
            assigned: `me`, `none`, or the name of an account; empty: any.
        """
        page = await self._queries.list_questions(principal, await self._narrow(principal, query, assigned))
        found = await self._assignments.find([row.action_id for row in page.rows])
        return msgspec.structs.replace(page, rows=tuple(_add_assignee(row, found) for row in page.rows))

    async def get_question(self, principal: Principal, action_id: str) -> QuestionView:
        """Return a question, whether the principal may answer it, and its assignee."""
        view = await self._queries.get_question(principal, action_id)
        found = await self._assignments.find((action_id,))
        return msgspec.structs.replace(view, row=_add_assignee(view.row, found))

    async def assign(self, principal: Principal, action_id: str, account: str) -> Assignment:
        """Assign an open question to an account that may answer it; an empty one takes the assignment back."""
        row, _ = await self._guard.get_action(principal, action_id, Operation.ASSIGN)
        if row.status not in _OPEN:
            raise ConflictError(
                "not_open", f"{action_id} is {row.status}. Nothing was assigned.", {"current": row.status}
            )
        name = ""
        if account:
            found = await self._accounts.get(account.removeprefix(_PERSON_PREFIX))
            if found is None or found.disabled or await self._find_denial(found.principal, action_id):
                raise InvalidRequestError("account", f"{account[:80]!r} is no account that may answer this question")
            name = found.principal.name
        return await self._assignments.set(action_id, row.run_id, name, principal.name)

    async def list_candidates(self, principal: Principal, view: QuestionView) -> tuple[str, ...]:
        """Return the names of accounts that a question can be assigned to."""
        await self._guard.get_action(principal, view.row.action_id, Operation.ASSIGN)
        people = [account.principal for account in await self._accounts.list() if not account.disabled]
        question = view.action.question
        able = [each.name for each in people if not self._queries.find_denied_reason(each, view.run, question)]
        return tuple(able[:_MAX_CANDIDATES])

    async def add_comment(self, principal: Principal, action_id: str, text: str) -> Comment:
        """Add a comment to a question. It is for people: no run and no model gets it."""
        row, _ = await self._guard.get_action(principal, action_id, Operation.COMMENT)
        text = text.strip()
        if not 0 < len(text) <= MAX_COMMENT_CHARS:
            raise InvalidRequestError("text", f"must have 1 to {MAX_COMMENT_CHARS} characters")
        return await self._comments.add(action_id, row.run_id, principal.name, text)

    async def list_comments(self, principal: Principal, action_id: str) -> tuple[Comment, ...]:
        """Return the comments of a question, oldest first."""
        await self._guard.get_action(principal, action_id)
        return await self._comments.list(action_id)

    async def decide_many(
        self, principal: Principal, decisions: ManyDecisions, channel: Channel = "rest"
    ) -> tuple[DecisionOutcome, ...]:
        """Answer each of these questions, one by one, with the checks that an answer to it alone has. One that was
        answered or changed meanwhile is skipped, and the others are still answered.
        """
        some_agent = next(iter(sorted(principal.agents or ())), "")
        await self._guard.check(principal, Operation.DECIDE, RunOwnershipData(agent=some_agent))
        outcomes = list[DecisionOutcome]()
        for shown in {each.action_id: each for each in decisions.questions}.values():
            try:
                delivery = await self._decide(principal, decisions, shown, channel)
                outcomes.append(DecisionOutcome(action_id=shown.action_id, outcome=delivery))
            except (ConflictError, ForbiddenError, InvalidRequestError, NotFoundError, RemovedError) as error:
                outcomes.append(_describe_skipped(shown.action_id, error))
        return tuple(outcomes)

    async def close_answered(self) -> int:
        """Mark assignments whose questions need no answer any more. Return how many there were."""
        assigned = sorted(await self._assignments.list_ids())
        still_open = set[str]()
        for start in range(0, len(assigned), _PAGE):
            ids = frozenset(assigned[start : start + _PAGE])
            page = await self._index.list_actions(ActionQuery(statuses=_OPEN, action_ids=ids, limit=_PAGE))
            still_open |= {row.action_id for row in page.rows}
        answered = set(assigned) - still_open
        await self._assignments.close(answered)
        return len(answered)

    async def _decide(
        self, principal: Principal, decisions: ManyDecisions, shown: ShownQuestion, channel: Channel
    ) -> Literal["recorded", "queued"]:
        if decisions.approved:
            approval = Approval(payload_hash=shown.payload_hash, reason=decisions.reason)
            return (await self._approvals.approve(principal, shown.action_id, approval, channel)).delivery
        result = await self._approvals.reject(principal, shown.action_id, decisions.reason, shown.payload_hash, channel)
        return result.delivery

    async def _find_denial(self, principal: Principal, action_id: str) -> str:
        with suppress(NotFoundError):
            return (await self._queries.get_question(principal, action_id)).denied_reason
        return "It is not visible to them."

    async def _narrow(self, principal: Principal, query: ActionQuery, assigned: str) -> ActionQuery:
        if not assigned:
            return query
        with_answered = query.statuses != _OPEN
        if assigned == UNASSIGNED:
            taken = await self._assignments.list_ids(with_answered=with_answered)
            return msgspec.structs.replace(query, other_than_ids=taken)
        is_named = assigned.startswith(_PERSON_PREFIX)
        account = (
            principal.name if assigned == ASSIGNED_TO_ME else assigned if is_named else f"{_PERSON_PREFIX}{assigned}"
        )
        ids = await self._assignments.list_ids(account, with_answered=with_answered)
        return msgspec.structs.replace(query, action_ids=ids)


def _add_assignee(row: ActionRow, assignments: Mapping[str, Assignment]) -> ActionRow:
    found = assignments.get(row.action_id)
    return row if found is None else msgspec.structs.replace(row, assignee=found.account)


def _describe_skipped(action_id: str, error: ServiceError) -> DecisionOutcome:
    return DecisionOutcome(action_id=action_id, outcome="skipped", code=error.code, message=str(error))
