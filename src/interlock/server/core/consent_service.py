"""Consents of people: list what is requested and granted, grant, refuse, revoke.

Only the person that a run acts for may answer its question, and they answer it at the provider. Once they did, every
open question that this covers is answered with it, and the runs are resumed. Unexpected callbacks are refused and
recorded in the audit log. A run with damaged events cannot be answered, and does not block the others.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing, suppress
from typing import Any, Literal, Protocol, TypeAlias

import msgspec

from ...domain.call import Answer
from ...domain.errors import (
    AnswerRefusedError,
    ConfigurationError,
    ConsentError,
    DecisionConflictError,
    IllegalTransitionError,
    LogError,
    LogUnreadableError,
    RunEndedError,
)
from ...domain.state.lifecycle import ActionState
from ...domain.tool import Consent, ConsentBinding
from ...oauth.consents import ConsentRequest, OAuthConsents
from ...oauth.flow import Callback, FlowRefusal
from ...oauth.providers import find_url_problem
from ...oauth.tokens import GrantSummary
from .audit.audit_log import AuditLog, AuditOutcome
from .identity.principal import Principal
from .index.rows import ActionQuery, ActionRow, Page

_PAGE_SIZE = 100
_MAX_LISTED = 1_000
_OPEN = ActionState.PENDING
_GIVEN_REASON = "Consent was given at {}."
_DEFAULT_REASON = "Consent rejected."


class QuestionIndex(Protocol):
    """The index of questions, as far as consents need it."""

    async def get_action(self, action_id: str) -> ActionRow | None: ...

    async def list_actions(self, query: ActionQuery) -> Page[ActionRow]: ...


class PendingConsent(msgspec.Struct, frozen=True, kw_only=True):
    """An open question for consent."""

    question: ActionRow
    consent: Consent
    #: What the consent would be given for.
    binding: ConsentBinding
    #: When the person gave access to an earlier definition of the same agent's tool, in nanoseconds since 1970, which
    #: does not serve this one. 0: never.
    earlier_consent_at: int = 0


class ConsentRedirect(msgspec.Struct, frozen=True, kw_only=True):
    """The URL that the person's browser is sent to."""

    url: str


class ConsentDecision(msgspec.Struct, frozen=True, kw_only=True):
    """The answered question, and the others answered with it."""

    run_id: str
    action_id: str
    approved: bool
    also_answered: tuple[str, ...] = ()


#: `unknown` 404, `not_yours` 403, `closed` 409, `refused` 400, `unavailable` 503.
ConsentProblemCode: TypeAlias = Literal["unknown", "not_yours", "closed", "refused", "unavailable"]


class ConsentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """Why it cannot be done. With `closed` the details say what was decided, and what was attempted."""

    code: ConsentProblemCode
    message: str
    details: dict[str, str] = {}


DecisionHandler: TypeAlias = Callable[[str, str, Answer], Awaitable[Any]]


class ConsentService:
    """Requests, grants, refuses and revokes consents."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        *,
        consents: OAuthConsents,
        questions: QuestionIndex,
        read_request: Callable[[ActionRow], Awaitable[ConsentRequest | None]],
        decide: DecisionHandler,
        audit_log: AuditLog,
        redirect_url: str,
    ) -> None:
        """
        Args:
            read_request: Reads what a question asks for, from the log.
            decide: Answers a question: run id, action id, answer.
            redirect_url: The callback URL, as registered at the providers.
        """
        if problem := find_url_problem(redirect_url):
            raise ConfigurationError(
                f"Providers send people back to {redirect_url}, which {problem} Set `public_url`. Nothing was started."
            )
        self._consents = consents
        self._questions = questions
        self._read_request = read_request
        self._decide = decide
        self._audit_log = audit_log
        self._redirect_url = redirect_url

    async def list_pending(self, principal: Principal) -> tuple[PendingConsent, ...]:
        """Return the open questions of the person, oldest first."""
        found: list[PendingConsent] = []
        given = await self.list_granted(principal)
        async with aclosing(self._iterate_open_questions(principal.name)) as rows:
            async for row in rows:
                if request := await self._try_read_request(row):
                    found.append(_to_pending_consent(row, request, given))
        return tuple(found)

    async def list_granted(self, principal: Principal) -> tuple[GrantSummary, ...]:
        """Return the person's grants, without tokens."""
        return await self._consents.list_grants(principal.name)

    async def start(
        self, principal: Principal, action_id: str, session_id: str
    ) -> ConsentRedirect | ConsentDecision | ConsentProblem:
        """Start the flow at the provider. Where the person consented meanwhile, the question is answered at once."""
        row = await self._find_own_question(principal, action_id)
        if isinstance(row, ConsentProblem):
            return row
        if row.state is not _OPEN:
            return _build_closed_problem(row, "consent")
        request = await self._try_read_request(row)
        if request is None:
            return _DAMAGED_RUN
        try:
            if not await self._consents.needs_consent(request.binding, request.consent):
                return await self._approve_all_covered(principal, row)
            flow = await self._consents.begin(request, self._redirect_url, session_id)
        except ConsentError as error:
            return ConsentProblem(code="unavailable", message=f"{error} Nothing was changed; try again later.")
        return ConsentRedirect(url=flow.url)

    async def handle_callback(
        self, params: Mapping[str, str], principal: Principal, session_id: str
    ) -> ConsentDecision | ConsentProblem:
        """Handle the callback from the provider."""
        callback = Callback(**{name: params.get(name, "") for name in ("state", "code", "error", "iss")})
        result = await self._consents.finish(callback, principal.name, session_id)
        if isinstance(result, FlowRefusal):
            return await self._handle_failed_callback(result, principal)
        given = result.binding
        await self._record(
            principal,
            "consent.given",
            given.tool,
            "done",
            provider=result.provider,
            agent=given.agent,
            definition=given.definition,
        )
        row = await self._questions.get_action(result.action_id)
        if row is None:
            return ConsentProblem(code="unknown", message="Access was given, but its question is gone.")
        return await self._approve_all_covered(principal, row)

    async def reject(self, principal: Principal, action_id: str, reason: str = "") -> ConsentDecision | ConsentProblem:
        """Reject a consent that was requested from the person. Repeating a rejection is no error."""
        row = await self._find_own_question(principal, action_id)
        if isinstance(row, ConsentProblem):
            return row
        rejection = ConsentDecision(run_id=row.run_id, action_id=row.action_id, approved=False)
        if row.state is ActionState.REJECTED and row.decided_by == principal.name:
            return rejection
        if row.state is not _OPEN:
            return _build_closed_problem(row, "refusal")
        answer = Answer(approved=False, by=principal.name, reason=reason or _DEFAULT_REASON, channel="console")
        if await self._answer(row, answer):
            return rejection
        return _build_closed_problem(await self._questions.get_action(row.action_id) or row, "refusal")

    async def revoke(
        self, principal: Principal, provider: str, tool: str, agent: str | None = None
    ) -> bool | ConsentProblem:
        """Revoke the grant of a tool for one agent or (None) for all. Return False when it was deleted here but the
        provider did not confirm.
        """
        confirmed = await self._consents.revoke(principal.name, tool, provider, agent)
        if confirmed is None:
            return ConsentProblem(code="unknown", message="You have given no such access.")
        at_provider = "taken back" if confirmed else "not confirmed"
        detail = {"provider": provider, "at_provider": at_provider} | ({} if agent is None else {"agent": agent})
        await self._record(principal, "consent.revoked", tool, "done", **detail)
        return confirmed

    async def answer_covered_questions(self) -> int:
        """Answer questions whose consent was given before a restart, and return their number."""
        answered = 0
        async with aclosing(self._iterate_open_questions(None)) as rows:
            async for row in rows:
                with suppress(LogError):
                    answered += bool(row.requester) and await self._approve_if_covered(row)
        return answered

    async def _find_own_question(self, principal: Principal, action_id: str) -> ActionRow | ConsentProblem:
        row = await self._questions.get_action(action_id)
        if row is None or row.kind != "consent":
            return ConsentProblem(code="unknown", message="There is no such question for consent.")
        if principal.kind != "person" or not row.requester or row.requester != principal.name:
            await self._record(
                principal, "consent.refused", action_id, "refused", why="not the person the run acts for"
            )
            return ConsentProblem(
                code="not_yours", message="Only the person that the run acts for can answer this. Nothing was changed."
            )
        return row

    async def _handle_failed_callback(
        self, refusal: FlowRefusal, principal: Principal
    ) -> ConsentDecision | ConsentProblem:
        outcome: AuditOutcome = (
            "failed" if refusal.code in {"failed", "unavailable", "insufficient", "denied"} else "refused"
        )
        await self._record(
            principal, "consent.returned", refusal.action_id, outcome, why=refusal.code, begun_by=refusal.user
        )
        if refusal.code != "denied":
            code: ConsentProblemCode = "unavailable" if refusal.code == "unavailable" else "refused"
            return ConsentProblem(code=code, message=refusal.reason)
        return await self.reject(principal, refusal.action_id, refusal.reason)

    async def _approve_all_covered(self, principal: Principal, row: ActionRow) -> ConsentDecision | ConsentProblem:
        """Answer the question, and each other one of this person about the tool that what they gave is enough for."""
        if not await self._approve_if_covered(row):
            current = await self._questions.get_action(row.action_id) or row
            if current.state not in {ActionState.APPROVED, ActionState.EXECUTED}:
                return _build_closed_problem(current, "consent")
        also: list[str] = []
        async with aclosing(self._iterate_open_questions(principal.name)) as rows:
            async for other in rows:
                is_alike = other.tool == row.tool and other.action_id != row.action_id
                if is_alike and await self._approve_if_covered(other):
                    also.append(other.action_id)
        return ConsentDecision(run_id=row.run_id, action_id=row.action_id, approved=True, also_answered=tuple(also))

    async def _approve_if_covered(self, row: ActionRow) -> bool:
        """Approve an open question if the requester's consent already covers it."""
        request = await self._try_read_request(row) if row.state is _OPEN else None
        with suppress(ConsentError):
            if request and not await self._consents.needs_consent(request.binding, request.consent):
                reason = _GIVEN_REASON.format(request.consent.provider)
                approval = Answer(approved=True, by=row.requester, reason=reason, channel="console")
                return await self._answer(row, approval)
        return False

    async def _try_read_request(self, row: ActionRow) -> ConsentRequest | None:
        """Return the request; None: its run is damaged."""
        with suppress(LogUnreadableError, IllegalTransitionError):
            return await self._read_request(row)
        return None

    async def _answer(self, row: ActionRow, answer: Answer) -> bool:
        """Answer a question. Return False if it was answered meanwhile or its run is over."""
        with suppress(DecisionConflictError, AnswerRefusedError, RunEndedError):
            await self._decide(row.run_id, row.action_id, answer)
            return True
        return False

    async def _iterate_open_questions(self, person: str | None) -> AsyncGenerator[ActionRow]:
        """Yield the open questions of one person, within bounds, or of all."""
        cursor, listed = "", 0
        while person is None or listed < _MAX_LISTED:
            page = await self._questions.list_actions(
                ActionQuery(
                    statuses=frozenset({_OPEN.name}),
                    kinds=frozenset({"consent"}),
                    person=person,
                    limit=_PAGE_SIZE,
                    cursor=cursor,
                )
            )
            for row in page.rows:
                if person in {None, row.requester}:
                    yield row
            cursor, listed = page.next_cursor, listed + len(page.rows)
            if not cursor:
                return

    async def _record(
        self, principal: Principal, action: str, target: str, outcome: AuditOutcome, **detail: str
    ) -> None:
        await self._audit_log.add(principal.name, action, target, outcome=outcome, detail=detail)


_DAMAGED_RUN = ConsentProblem(
    code="unavailable", message="The run's events are damaged, so its question cannot be answered. Nothing was changed."
)


def _to_pending_consent(row: ActionRow, request: ConsentRequest, given: tuple[GrantSummary, ...]) -> PendingConsent:
    binding, provider = request.binding, request.consent.provider
    earlier = [
        each.since
        for each in given
        if (each.agent, each.tool, each.provider) == (binding.agent, binding.tool, provider)
        and each.definition != binding.definition
    ]
    return PendingConsent(
        question=row, consent=request.consent, binding=binding, earlier_consent_at=max(earlier, default=0)
    )


def _build_closed_problem(row: ActionRow, attempted: str) -> ConsentProblem:
    return ConsentProblem(
        code="closed",
        message=f"The question is {row.status} already. Nothing was changed.",
        details={"decided": row.status, "attempted": attempted},
    )
