"""The gateway at `/mcp`: who calls it, before the protocol of MCP begins.

A client sends an API key, or an access token that the provider of `[sign_in]` issued for this address. Neither goes any
further: what a server behind the gateway needs, it gets from the consents of the user. A request without credentials
learns where to get them.
"""

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from ...mcp.gateway.clients import PRINCIPAL_KEY
from ...mcp.gateway.http import PATH
from ..core.identity.permissions import Operation, RunOwnershipData
from ..core.identity.principal import Principal
from ..core.service import Service
from .caller import count_request, get_address, get_service
from .errors import ApiError
from .responses import json_response

#: Principals that own only some agents need this one to use the gateway.
GATEWAY_AGENT = "gateway"
METADATA_PATH = f"/.well-known/oauth-protected-resource{PATH}"
_MAX_TOKEN_CHARS = 8_000
_BEARER = "bearer "


def mount_gateway(app: Starlette, endpoint: ASGIApp) -> None:
    """Mount a gateway beside the API."""
    app.routes.extend([Route(PATH, _Guarded(endpoint)), Route(METADATA_PATH, _show_metadata)])


class _Guarded:
    """Authenticates clients of the gateway."""

    def __init__(self, endpoint: ASGIApp) -> None:
        self._endpoint = endpoint

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        principal = await _authenticate(request)
        count_request(request, principal.name)
        ownership = RunOwnershipData(agent=GATEWAY_AGENT)
        await get_service(request).guard.check(principal, Operation.CREATE_RUN, ownership, GATEWAY_AGENT)
        token = AccessToken(token="", client_id=principal.name, scopes=[])
        headers = [(name, value) for name, value in scope["headers"] if name not in (b"authorization", b"cookie")]
        user = AuthenticatedUser(token)
        await self._endpoint({**scope, "headers": headers, "user": user, PRINCIPAL_KEY: principal.name}, receive, send)


async def _authenticate(request: Request) -> Principal:
    """Return the principal of a bearer token. Raise `ApiError` 401 without a valid one."""
    service, headers = get_service(request), request.headers.getlist("authorization")
    token = headers[0][len(_BEARER) :].strip() if headers and headers[0].lower().startswith(_BEARER) else ""
    if len(headers) == 1 and 0 < len(token) <= _MAX_TOKEN_CHARS:
        principal = await service.api_keys.authenticate(token)
        if principal is None and service.sign_in is not None and token.count(".") == 2:  # noqa: PLR2004 - a JWT
            account = await service.sign_in.authenticate(token, _resource(service))
            principal = None if account is None else account.principal
        if principal is not None:
            return principal
    request.app.state.rate_limiter.acquire(f"address:{get_address(request)}")
    raise ApiError(
        401,
        "no_credentials",
        "Authentication required: send an API key, or an access token for this address, as a bearer token.",
        headers={"WWW-Authenticate": f'Bearer resource_metadata="{service.public_url}{METADATA_PATH}"'},
    )


def _resource(service: Service) -> str:
    return f"{service.public_url}{PATH}"


async def _show_metadata(request: Request) -> Response:
    """Show where access tokens for the gateway come from."""
    service = get_service(request)
    sign_in = service.settings.sign_in
    servers = [] if sign_in is None else [sign_in.provider.issuer]
    document = {"resource": _resource(service), "bearer_methods_supported": ["header"]}
    return json_response({**document, **({"authorization_servers": servers} if servers else {})})
