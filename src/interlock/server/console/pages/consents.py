"""The consents page: what runs ask a person for at other services, what they gave, and how to take it back."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...core.consents import Answered, Consenting, ConsentProblem, Goto
from ...core.errors import ConflictError, NotFoundError, RefusedError, ServiceError
from ...core.service import Service
from ..rendering import Pages
from ..session import Visitor, check_form

_Token = Annotated[str, Form(max_length=1_024)]
_AgentName = Annotated[str, Form(max_length=8_192)]
_Reason = Annotated[str, Form(max_length=500)]
_PROBLEMS: dict[str, type[ServiceError]] = {
    "unknown": NotFoundError,
    "not_yours": RefusedError,
    "closed": ConflictError,
    "refused": RefusedError,
    "unavailable": ConflictError,
}
#: What was just done, by the word in the address.
SAID = {
    "given": "Consent was given. The run goes on.",
    "refused": "Consent was refused.",
    "revoked": "Access was taken back, here and at the provider.",
    "forgotten": "Access was forgotten here. The provider did not confirm that it was taken back there.",
}
#: Why somebody came back from a provider in vain, by the word in the address.
TROUBLE = {
    "unknown": "The question is not there any more.",
    "not_yours": "Only the person that the run acts for can give access. Nothing was changed.",
    "closed": "The question was answered before. Nothing was changed.",
    "refused": "The provider gave no access, or another browser set out for it. The run still waits.",
    "unavailable": "The provider could not be reached. The run still waits; try again later.",
}


def routes(service: Service, pages: Pages) -> APIRouter:
    router, page = APIRouter(), _ConsentsPage(service, pages)
    router.add_api_route("/consents", page.show, methods=["GET"])
    router.add_api_route("/consents/{action_id}/start", page.start, methods=["POST"])
    router.add_api_route("/consents/{action_id}/refuse", page.refuse, methods=["POST"])
    router.add_api_route("/consents/{provider}/{tool}/revoke", page.revoke, methods=["POST"])
    return router


class _ConsentsPage:
    def __init__(self, service: Service, pages: Pages) -> None:
        self._consenting = service.consenting
        self._pages = pages

    async def show(self, request: Request, visitor: Visitor, said: str = "", problem: str = "") -> Response:
        who, consenting = visitor.principal, self._consenting
        values: dict[str, Any] = {
            "asked": () if consenting is None else await consenting.waiting(who),
            "given": () if consenting is None else await consenting.given(who),
            "said": SAID.get(said, ""),
            "trouble": TROUBLE.get(problem, ""),
        }
        return await self._pages.page(request, visitor, "consents.html", **values)

    async def start(self, request: Request, visitor: Visitor, action_id: str, csrf_token: _Token) -> Response:
        """The person is shown where the way leads, and goes there by themselves: a form of ours leads nowhere else."""
        check_form(visitor, csrf_token)
        came = await self._there().start(visitor.principal, action_id, visitor.session_id)
        if isinstance(came, ConsentProblem):
            raise _error(came)
        if isinstance(came, Answered):
            return _done("given")
        return await self._goto(request, visitor, came)

    async def refuse(
        self, request: Request, visitor: Visitor, action_id: str, csrf_token: _Token, reason: _Reason = ""
    ) -> Response:
        check_form(visitor, csrf_token)
        came = await self._there().refuse(visitor.principal, action_id, reason)
        if isinstance(came, ConsentProblem):
            raise _error(came)
        return _done("refused")

    async def revoke(
        self, visitor: Visitor, provider: str, tool: str, csrf_token: _Token, agent: _AgentName
    ) -> Response:
        check_form(visitor, csrf_token)
        came = await self._there().revoke(visitor.principal, provider, tool, agent)
        if isinstance(came, ConsentProblem):
            raise _error(came)
        return _done("revoked" if came else "forgotten")

    async def _goto(self, request: Request, visitor: Visitor, goto: Goto) -> Response:
        host = urlsplit(goto.url).netloc
        return await self._pages.page(request, visitor, "consents_goto.html", url=goto.url, host=host)

    def _there(self) -> Consenting:
        if self._consenting is None:
            raise NotFoundError("unknown_consent", "No provider is configured, so there is nothing to consent to.")
        return self._consenting


def _done(word: str) -> RedirectResponse:
    return RedirectResponse(f"/console/consents?said={word}", 303)


def _error(problem: ConsentProblem) -> ServiceError:
    return _PROBLEMS[problem.code](f"consent_{problem.code}", problem.message, problem.details)
