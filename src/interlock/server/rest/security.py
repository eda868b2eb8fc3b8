"""What every request passes before any route sees it, and every answer on its way out. Pure ASGI, in one place:

1. a request id, security headers, and an error without internals for unexpected exceptions;
2. `Host` has to be one of this server's names: a page that made its own name point here (DNS rebinding) gets no answer;
3. what changes something and comes from a browser has to come from a page of this server (`Origin`, `Sec-Fetch-Site`);
4. a body that is too long, or has two lengths, is not read; concurrent requests are limited (`limits`).
"""

import logging
from collections.abc import Iterable, Mapping
from secrets import token_hex
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..core.service import Service
from .body import MAX_BODY_BYTES, body_too_large_error
from .caller import SAFE_METHODS
from .errors import ApiError, error_response
from .limits import ConcurrencyLimiter, LimitedReceive

logger = logging.getLogger("interlock.server")

_LOOPBACK_HOSTS = ("localhost", "127.0.0.1", "[::1]")
_SAME_SITE_VALUES = frozenset({"same-origin", "none"})
_DEFAULT_PORTS = {"http": 80, "https": 443}

#: On every answer that does not say otherwise itself. The console has its own policy.
SECURITY_HEADERS: Mapping[str, str] = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
    "Cache-Control": "no-store",
}
_HSTS = "max-age=31536000"
#: A browser would keep to it for every port of this machine.
_NO_HSTS_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})


class SecurityMiddleware:
    """The outermost middleware of the server."""

    def __init__(self, app: ASGIApp, service: Service, limiter: ConcurrencyLimiter) -> None:
        self._app = app
        self._hosts = get_allowed_hosts(service)
        headers = dict(SECURITY_HEADERS)
        if service.public_url.startswith("https://") and urlsplit(service.public_url).hostname not in _NO_HSTS_HOSTS:
            headers["Strict-Transport-Security"] = _HSTS
        #: As they are sent.
        self._headers = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
        self._limiter = limiter

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            elif scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008})
            return
        request_id, has_started = token_hex(8), False

        async def sending(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "http.response.start":
                has_started = True
                self._add_headers(message, request_id)
            await send(message)

        has_room = self._limiter.begin(scope)
        try:
            await self._serve(scope, receive, sending, has_room)
        except ClientDisconnect:
            logger.info("Request %s was aborted by its client", request_id)
        except Exception:
            logger.exception("Request %s failed: %s %s", request_id, scope["method"], _to_printable(scope["path"]))
            if has_started:  # nothing true can be said any more: the connection is cut
                raise
            await error_response(_internal_error(request_id))(scope, receive, sending)
        finally:
            self._limiter.finish(scope)

    async def _serve(self, scope: Scope, receive: Receive, send: Send, has_room: bool) -> None:
        try:
            headers = Headers(scope=scope)
            self._hosts.check(headers)
            if scope["method"] not in SAFE_METHODS:
                self._hosts.check_origin(headers)
            _check_length(headers)
            if not has_room:
                raise ApiError(
                    503,
                    "busy",
                    "Too many concurrent requests. Nothing was done; try again.",
                    headers={"Retry-After": "1"},
                )
        except ApiError as error:
            await error_response(error)(scope, receive, send)
            return
        await self._app(scope, LimitedReceive(scope, headers, receive, self._limiter), send)

    def _add_headers(self, message: Message, request_id: str) -> None:
        headers = list(message["headers"])
        present = {name.lower() for name, _ in headers}
        headers += [header for header in self._headers if header[0] not in present]
        message["headers"] = [*headers, (b"x-request-id", request_id.encode())]


class AllowedHosts:
    """The host names of this server. With a port, that port; without one, any."""

    def __init__(self, names: Iterable[str], own_origin: str) -> None:
        self._names = frozenset(name.lower() for name in names)
        self._own_origin = own_origin.lower()

    def check(self, headers: Headers) -> None:
        """Raise `ApiError` if the Host header is not one of the server's names."""
        hosts = headers.getlist("host")
        if len(hosts) != 1:
            raise ApiError(400, "bad_host", "Expected exactly one Host header. Nothing was done.")
        if not self._is_allowed(hosts[0]):
            raise ApiError(
                421,
                "unknown_host",
                "The Host header is not a name of this server; add it to [server] hosts. Nothing was done.",
            )

    def check_origin(self, headers: Headers) -> None:
        """Check the origin of a change. Programs send neither header; browsers send both, and pages cannot change
        them.
        """
        origins, sites = headers.getlist("origin"), headers.getlist("sec-fetch-site")
        host = headers.get("host", "").lower()
        is_same_origin = all(self._is_same_origin(origin.lower(), host) for origin in origins)
        if is_same_origin and len(origins) <= 1 and set(sites) <= _SAME_SITE_VALUES:
            return
        raise ApiError(
            403, "foreign_origin", "The request comes from a page of another site (Origin). Nothing was done."
        )

    def _is_allowed(self, host: str) -> bool:
        host = host.lower()
        return host in self._names or _without_port(host) in self._names

    def _is_same_origin(self, origin: str, host: str) -> bool:
        """Return True for the public origin, or the host of this request: another port is another site. Where the
        public origin uses TLS, a page without it is another site, too.
        """
        schemes = ("https",) if self._own_origin.startswith("https:") else ("http", "https")
        return origin in (self._own_origin, *(f"{scheme}://{host}" for scheme in schemes))


def get_allowed_hosts(service: Service) -> AllowedHosts:
    """Collect the names under which the server can be reached."""
    server, public_url = service.settings.server, urlsplit(service.public_url)
    names = {*server.hosts, public_url.netloc if server.port or server.public_url else public_url.hostname or ""}
    if public_url.port == _DEFAULT_PORTS.get(public_url.scheme):
        names.add(public_url.hostname or "")
    if server.is_loopback:
        names |= {f"{name}:{server.port}" if server.port else name for name in _LOOPBACK_HOSTS}
    return AllowedHosts(names, f"{public_url.scheme}://{public_url.netloc}")


def _without_port(host: str) -> str:
    name, colon, port = host.rpartition(":")
    return name if colon and port.isascii() and port.isdigit() and not name.endswith(":") else host


def _check_length(headers: Headers) -> None:
    length = headers.get("content-length", "0")
    if (
        "content-length" in headers and "transfer-encoding" in headers
    ):  # a proxy in front may have believed the other one
        raise ApiError(
            400,
            "bad_length",
            "The request has both Content-Length and Transfer-Encoding. Nothing was done.",
            headers={"Connection": "close"},
        )
    if not (length.isascii() and length.isdigit()):
        raise ApiError(400, "bad_length", "Content-Length is not a number. Nothing was done.")
    if len(length) > 18 or int(length) > MAX_BODY_BYTES:  # noqa: PLR2004 - digits; more are no length
        raise body_too_large_error(MAX_BODY_BYTES)


def _internal_error(request_id: str) -> ApiError:
    return ApiError(
        500,
        "unexpected",
        f"Internal error. The request may have been executed in part. The server log has details under {request_id}.",
        {"id": request_id},
    )


def _to_printable(path: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in path[:200])
