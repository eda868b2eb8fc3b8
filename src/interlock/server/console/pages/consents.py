"""The consents page: requested and granted consents, and how to revoke them."""

from typing import Annotated, TypeVar
from urllib.parse import urlsplit

from msgspec import Meta
from starlette.responses import RedirectResponse, Response

from ...core.consent_service import ConsentDecision, ConsentProblem, ConsentService
from ...core.errors import ConflictError, ForbiddenError, NotFoundError, ServiceError
from ..session import Pages, Visit

_T = TypeVar("_T")
_ERROR_BY_PROBLEM: dict[str, type[ServiceError]] = {
    "unknown": NotFoundError,
    "not_yours": ForbiddenError,
    "closed": ConflictError,
    "refused": ForbiddenError,
    "unavailable": ConflictError,
}
#: What was just done, by the word in the address.
NOTICES = {
    "given": "Consent granted. The run resumes.",
    "rejected": "Consent rejected.",
    "revoked": "Access revoked, here and at the provider.",
    "forgotten": "Access revoked here. The provider did not confirm the revocation.",
}
#: Why a callback of a provider failed, by the word in the address.
PROBLEM_MESSAGES = {
    "unknown": "The request for consent no longer exists.",
    "not_yours": "Only the person that the run acts for can give access. Nothing was changed.",
    "closed": "The question was answered before. Nothing was changed.",
    "refused": "The provider gave no access, or another browser set out for it. The run still waits.",
    "unavailable": "The provider could not be reached. The run still waits; try again later.",
}


page = Pages()


@page("GET", "/consents")
async def show(visit: Visit, said: str = "", problem: str = "") -> Response:
    """Render pending and granted consents."""
    consents, principal = visit.service.consent_service, visit.principal
    return await visit.render(
        "consents.html",
        asked=() if consents is None else await consents.list_pending(principal),
        given=() if consents is None else await consents.list_granted(principal),
        said=NOTICES.get(said, ""),
        trouble=PROBLEM_MESSAGES.get(problem, ""),
    )


@page("POST", "/consents/{action_id}/start")
async def start(visit: Visit, action_id: str) -> Response:
    """Render the link to the provider, which the person follows themselves: our forms lead nowhere else."""
    consents = _require_service(visit)
    result = _require(await consents.start(visit.principal, action_id, visit.session.session_id))
    if isinstance(result, ConsentDecision):
        return _redirect_with_notice("given")
    return await visit.render("consents_goto.html", url=result.url, host=urlsplit(result.url).netloc)


@page("POST", "/consents/{action_id}/reject")
async def reject(visit: Visit, action_id: str, reason: Annotated[str, Meta(max_length=500)] = "") -> Response:
    """Reject a pending consent."""
    _require(await _require_service(visit).reject(visit.principal, action_id, reason))
    return _redirect_with_notice("rejected")


@page("POST", "/consents/{provider}/{tool}/revoke")
async def revoke(visit: Visit, provider: str, tool: str, agent: Annotated[str, Meta(max_length=8_192)]) -> Response:
    """Revoke a granted consent."""
    revoked = _require(await _require_service(visit).revoke(visit.principal, provider, tool, agent))
    return _redirect_with_notice("revoked" if revoked else "forgotten")


def _require_service(visit: Visit) -> ConsentService:
    if visit.service.consent_service is None:
        raise NotFoundError("unknown_consent", "No provider is configured, so there is nothing to consent to.")
    return visit.service.consent_service


def _require(result: _T | ConsentProblem) -> _T:
    if isinstance(result, ConsentProblem):
        raise _ERROR_BY_PROBLEM[result.code](f"consent_{result.code}", result.message, result.details)
    return result


def _redirect_with_notice(notice: str) -> RedirectResponse:
    return RedirectResponse(f"/console/consents?said={notice}", 303)
