"""The consents page: requested and granted consents, and how to revoke them."""

from typing import Annotated, Any
from urllib.parse import urlsplit

from fastapi import APIRouter, Form
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from ...core.consent_service import ConsentDecision, ConsentProblem, ConsentRedirect, ConsentService
from ...core.errors import ConflictError, ForbiddenError, NotFoundError, ServiceError
from ...core.service import Service
from ..rendering import PageRenderer
from ..session import Visitor, require_form_token

_Token = Annotated[str, Form(max_length=1_024)]
_AgentName = Annotated[str, Form(max_length=8_192)]
_Reason = Annotated[str, Form(max_length=500)]
_ERROR_BY_PROBLEM: dict[str, type[ServiceError]] = {
    "unknown": NotFoundError,
    "not_yours": ForbiddenError,
    "closed": ConflictError,
    "refused": ForbiddenError,
    "unavailable": ConflictError,
}
#: What was just done, by the word in the address.
NOTICES = {
    "given": "Consent was given. The run goes on.",
    "refused": "Consent was refused.",
    "revoked": "Access was taken back, here and at the provider.",
    "forgotten": "Access was forgotten here. The provider did not confirm that it was taken back there.",
}
#: Why a callback of a provider failed, by the word in the address.
PROBLEM_MESSAGES = {
    "unknown": "The question is not there any more.",
    "not_yours": "Only the person that the run acts for can give access. Nothing was changed.",
    "closed": "The question was answered before. Nothing was changed.",
    "refused": "The provider gave no access, or another browser set out for it. The run still waits.",
    "unavailable": "The provider could not be reached. The run still waits; try again later.",
}


def routes(service: Service, pages: PageRenderer) -> APIRouter:
    router, page = APIRouter(), _ConsentsPage(service, pages)
    router.add_api_route("/consents", page.show, methods=["GET"])
    router.add_api_route("/consents/{action_id}/start", page.start, methods=["POST"])
    router.add_api_route("/consents/{action_id}/refuse", page.refuse, methods=["POST"])
    router.add_api_route("/consents/{provider}/{tool}/revoke", page.revoke, methods=["POST"])
    return router


class _ConsentsPage:
    def __init__(self, service: Service, pages: PageRenderer) -> None:
        self._consent_service = service.consent_service
        self._pages = pages

    async def show(self, request: Request, visitor: Visitor, said: str = "", problem: str = "") -> Response:
        principal, consent_service = visitor.principal, self._consent_service
        values: dict[str, Any] = {
            "asked": () if consent_service is None else await consent_service.list_pending(principal),
            "given": () if consent_service is None else await consent_service.list_granted(principal),
            "said": NOTICES.get(said, ""),
            "trouble": PROBLEM_MESSAGES.get(problem, ""),
        }
        return await self._pages.render_page(request, visitor, "consents.html", **values)

    async def start(self, request: Request, visitor: Visitor, action_id: str, csrf_token: _Token) -> Response:
        """The person is shown where the way leads, and goes there by themselves: a form of ours leads nowhere else."""
        require_form_token(visitor, csrf_token)
        result = await self._require_service().start(visitor.principal, action_id, visitor.session_id)
        if isinstance(result, ConsentProblem):
            raise _to_service_error(result)
        if isinstance(result, ConsentDecision):
            return _redirect_with_notice("given")
        return await self._render_redirect(request, visitor, result)

    async def refuse(
        self, request: Request, visitor: Visitor, action_id: str, csrf_token: _Token, reason: _Reason = ""
    ) -> Response:
        require_form_token(visitor, csrf_token)
        result = await self._require_service().refuse(visitor.principal, action_id, reason)
        if isinstance(result, ConsentProblem):
            raise _to_service_error(result)
        return _redirect_with_notice("refused")

    async def revoke(
        self, visitor: Visitor, provider: str, tool: str, csrf_token: _Token, agent: _AgentName
    ) -> Response:
        require_form_token(visitor, csrf_token)
        result = await self._require_service().revoke(visitor.principal, provider, tool, agent)
        if isinstance(result, ConsentProblem):
            raise _to_service_error(result)
        return _redirect_with_notice("revoked" if result else "forgotten")

    async def _render_redirect(self, request: Request, visitor: Visitor, goto: ConsentRedirect) -> Response:
        host = urlsplit(goto.url).netloc
        return await self._pages.render_page(request, visitor, "consents_goto.html", url=goto.url, host=host)

    def _require_service(self) -> ConsentService:
        if self._consent_service is None:
            raise NotFoundError("unknown_consent", "No provider is configured, so there is nothing to consent to.")
        return self._consent_service


def _redirect_with_notice(notice: str) -> RedirectResponse:
    return RedirectResponse(f"/console/consents?said={notice}", 303)


def _to_service_error(problem: ConsentProblem) -> ServiceError:
    return _ERROR_BY_PROBLEM[problem.code](f"consent_{problem.code}", problem.message, problem.details)
