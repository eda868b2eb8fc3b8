"""What a person does about consent: see what they are asked for and what they gave, give it, refuse it, take it back.

Only the person that a run acts for may answer its question, and they answer it at the provider. Once they did, every
open question that this covers is answered with it, and the runs go on. Whoever comes back in a strange way is refused,
and the journal says so. A run whose events are damaged cannot be answered, and keeps nobody from the others.
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
    LogCorruptError,
    LogError,
    RunEndedError,
)
from ...domain.state.lifecycle import ActionState
from ...domain.tool import Consent, ConsentBinding
from ...oauth.consents import ConsentRequest, OAuthConsents
from ...oauth.flow import Callback, Refused
from ...oauth.grants import Given
from ...oauth.providers import url_problem
from .audit.audit_log import Journal, Outcome
from .identity.principal import Principal
from .index.rows import ActionQuery, ActionRow, Page

_PAGE = 100
_MAX_LISTED = 1_000
_OPEN = ActionState.PENDING
_GIVEN = "Consent was given at {}."
_REFUSED = "Consent was refused."


class Questions(Protocol):
    """What the index knows about questions."""

    async def action(self, action_id: str) -> ActionRow | None: ...

    async def actions(self, query: ActionQuery) -> Page[ActionRow]: ...


class WaitingConsent(msgspec.Struct, frozen=True, kw_only=True):
    """A question that somebody is asked, and what it asks for."""

    question: ActionRow
    consent: Consent
    #: What the consent would be given for.
    binding: ConsentBinding
    #: When the person gave access to an earlier definition of the same agent's tool, in nanoseconds since 1970, which
    #: does not serve this one. 0: never.
    earlier_since: int = 0


class Goto(msgspec.Struct, frozen=True, kw_only=True):
    """Where the person's browser goes next."""

    url: str


class Answered(msgspec.Struct, frozen=True, kw_only=True):
    """The question is answered, and with it the others that are named, in whichever run."""

    run_id: str
    action_id: str
    approved: bool
    also: tuple[str, ...] = ()


#: `unknown` 404, `not_yours` 403, `closed` 409, `refused` 400, `unavailable` 503.
ProblemCode: TypeAlias = Literal["unknown", "not_yours", "closed", "refused", "unavailable"]


class ConsentProblem(msgspec.Struct, frozen=True, kw_only=True):
    """It cannot be done. With `closed` the details say what was decided, and what was attempted."""

    code: ProblemCode
    message: str
    details: dict[str, str] = {}


Decide: TypeAlias = Callable[[str, str, Answer], Awaitable[Any]]


class Consenting:
    def __init__(  # noqa: PLR0913 - what it joins
        self,
        *,
        consents: OAuthConsents,
        questions: Questions,
        consent_of: Callable[[ActionRow], Awaitable[ConsentRequest | None]],
        decide: Decide,
        journal: Journal,
        redirect: str,
    ) -> None:
        """
        Args:
            consent_of: What a question asks for, from the log.
            decide: Answers a question: run id, action id, answer.
            redirect: Where providers send people back to, as it is registered there.
        """
        if problem := url_problem(redirect):
            raise ConfigurationError(
                f"Providers send people back to {redirect}, which {problem} Set `public_url`. Nothing was started."
            )
        self._consents = consents
        self._questions = questions
        self._consent_of = consent_of
        self._decide = decide
        self._journal = journal
        self._redirect = redirect

    async def waiting(self, who: Principal) -> tuple[WaitingConsent, ...]:
        """Return what the person is asked for, oldest first."""
        found: list[WaitingConsent] = []
        given = await self.given(who)
        async with aclosing(self._open_questions(who.name)) as rows:
            async for row in rows:
                if request := await self._asks_for(row):
                    found.append(_waiting(row, request, given))
        return tuple(found)

    async def given(self, who: Principal) -> tuple[Given, ...]:
        """What the person gave. No tokens."""
        return await self._consents.given(who.name)

    async def start(self, who: Principal, action_id: str, session_id: str) -> Goto | Answered | ConsentProblem:
        """Set out for the provider. Where the person consented meanwhile, the question is answered at once."""
        row = await self._own(who, action_id)
        if isinstance(row, ConsentProblem):
            return row
        if row.state is not _OPEN:
            return _closed(row, "consent")
        request = await self._asks_for(row)
        if request is None:
            return _DAMAGED
        try:
            if not await self._consents.needs(request.binding, request.consent):
                return await self._answer_covered(who, row)
            begun = await self._consents.begin(request, self._redirect, session_id)
        except ConsentError as error:
            return ConsentProblem(code="unavailable", message=f"{error} Nothing was changed; try again later.")
        return Goto(url=begun.url)

    async def callback(self, params: Mapping[str, str], who: Principal, session_id: str) -> Answered | ConsentProblem:
        """Come back from the provider."""
        callback = Callback(**{name: params.get(name, "") for name in ("state", "code", "error", "iss")})
        came = await self._consents.finish(callback, who.name, session_id)
        if isinstance(came, Refused):
            return await self._came_back_in_vain(came, who)
        given = came.binding
        await self._record(
            who,
            "consent.given",
            given.tool,
            "done",
            provider=came.provider,
            agent=given.agent,
            definition=given.definition,
        )
        row = await self._questions.action(came.action_id)
        if row is None:
            return ConsentProblem(code="unknown", message="Access was given, but its question is gone.")
        return await self._answer_covered(who, row)

    async def refuse(self, who: Principal, action_id: str, reason: str = "") -> Answered | ConsentProblem:
        row = await self._own(who, action_id)
        if isinstance(row, ConsentProblem):
            return row
        return await self._say_no(who, row, reason or _REFUSED)

    async def revoke(self, who: Principal, provider: str, tool: str, agent: str | None = None) -> bool | ConsentProblem:
        """Take back what was given to a tool of one agent or (None) of all. False: it is forgotten here, and the
        provider did not confirm it."""
        confirmed = await self._consents.revoke(who.name, tool, provider, agent)
        if confirmed is None:
            return ConsentProblem(code="unknown", message="You have given no such access.")
        at_provider = "taken back" if confirmed else "not confirmed"
        detail = {"provider": provider, "at_provider": at_provider} | ({} if agent is None else {"agent": agent})
        await self._record(who, "consent.revoked", tool, "done", **detail)
        return confirmed

    async def catch_up(self) -> int:
        """After a restart: answer the questions whose person had consented before that was recorded. How many."""
        answered = 0
        async with aclosing(self._open_questions(None)) as rows:
            async for row in rows:
                with suppress(LogError):
                    answered += bool(row.requester) and await self._say_yes(row)
        return answered

    async def _own(self, who: Principal, action_id: str) -> ActionRow | ConsentProblem:
        row = await self._questions.action(action_id)
        if row is None or row.kind != "consent":
            return ConsentProblem(code="unknown", message="There is no such question for consent.")
        if who.kind != "person" or not row.requester or row.requester != who.name:
            await self._record(who, "consent.refused", action_id, "refused", why="not the person the run acts for")
            return ConsentProblem(
                code="not_yours", message="Only the person that the run acts for can answer this. Nothing was changed."
            )
        return row

    async def _came_back_in_vain(self, came: Refused, who: Principal) -> Answered | ConsentProblem:
        outcome: Outcome = "failed" if came.code in {"failed", "unavailable", "insufficient", "denied"} else "refused"
        await self._record(who, "consent.returned", came.action_id, outcome, why=came.code, begun_by=came.user)
        if came.code != "denied":
            code: ProblemCode = "unavailable" if came.code == "unavailable" else "refused"
            return ConsentProblem(code=code, message=came.reason)
        return await self.refuse(who, came.action_id, came.reason)

    async def _say_no(self, who: Principal, row: ActionRow, reason: str) -> Answered | ConsentProblem:
        """Saying it twice is saying it."""
        no = Answered(run_id=row.run_id, action_id=row.action_id, approved=False)
        if row.state is ActionState.REJECTED and row.decided_by == who.name:
            return no
        if row.state is not _OPEN:
            return _closed(row, "refusal")
        if await self._answer(row, Answer(approved=False, by=who.name, reason=reason)):
            return no
        return _closed(await self._questions.action(row.action_id) or row, "refusal")

    async def _answer_covered(self, who: Principal, row: ActionRow) -> Answered | ConsentProblem:
        """Answer the question, and each other one of this person about the tool that what they gave is enough for."""
        if not await self._say_yes(row):
            now = await self._questions.action(row.action_id) or row
            if now.state not in {ActionState.APPROVED, ActionState.EXECUTED}:
                return _closed(now, "consent")
        also: list[str] = []
        async with aclosing(self._open_questions(who.name)) as rows:
            async for other in rows:
                is_alike = other.tool == row.tool and other.action_id != row.action_id
                if is_alike and await self._say_yes(other):
                    also.append(other.action_id)
        return Answered(run_id=row.run_id, action_id=row.action_id, approved=True, also=tuple(also))

    async def _say_yes(self, row: ActionRow) -> bool:
        """For the person that it asks, if it is open and what they gave is enough for it."""
        request = await self._asks_for(row) if row.state is _OPEN else None
        with suppress(ConsentError):
            if request and not await self._consents.needs(request.binding, request.consent):
                yes = Answer(approved=True, by=row.requester, reason=_GIVEN.format(request.consent.provider))
                return await self._answer(row, yes)
        return False

    async def _asks_for(self, row: ActionRow) -> ConsentRequest | None:
        """None: its run is damaged, so nobody knows."""
        with suppress(LogCorruptError):
            return await self._consent_of(row)
        return None

    async def _answer(self, row: ActionRow, answer: Answer) -> bool:
        """False: it was answered meanwhile, or its run is over."""
        with suppress(DecisionConflictError, AnswerRefusedError, RunEndedError):
            await self._decide(row.run_id, row.action_id, answer)
            return True
        return False

    async def _open_questions(self, person: str | None) -> AsyncGenerator[ActionRow]:
        """Of one person, within bounds, or of everybody."""
        cursor, listed = "", 0
        while person is None or listed < _MAX_LISTED:
            page = await self._questions.actions(
                ActionQuery(
                    statuses=frozenset({_OPEN.name}),
                    kinds=frozenset({"consent"}),
                    person=person,
                    limit=_PAGE,
                    cursor=cursor,
                )
            )
            for row in page.rows:
                if person in {None, row.requester}:
                    yield row
            cursor, listed = page.next_cursor, listed + len(page.rows)
            if not cursor:
                return

    async def _record(self, who: Principal, action: str, target: str, outcome: Outcome, **detail: str) -> None:
        await self._journal.add(who.name, action, target, outcome=outcome, detail=detail)


_DAMAGED = ConsentProblem(
    code="unavailable", message="The run's events are damaged, so its question cannot be answered. Nothing was changed."
)


def _waiting(row: ActionRow, request: ConsentRequest, given: tuple[Given, ...]) -> WaitingConsent:
    binding, provider = request.binding, request.consent.provider
    earlier = [
        each.since
        for each in given
        if (each.agent, each.tool, each.provider) == (binding.agent, binding.tool, provider)
        and each.definition != binding.definition
    ]
    return WaitingConsent(question=row, consent=request.consent, binding=binding, earlier_since=max(earlier, default=0))


def _closed(row: ActionRow, attempted: str) -> ConsentProblem:
    return ConsentProblem(
        code="closed",
        message=f"The question is {row.status} already. Nothing was changed.",
        details={"decided": row.status, "attempted": attempted},
    )
