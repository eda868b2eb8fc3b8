"""The client of one provider: authorization URL, code exchange, refresh, revocation.

Endpoints are discovered at the provider's issuer (OpenID Connect Discovery, RFC 8414) or configured. Connections have
timeouts and size limits, follow no redirects and take no compression: a client of `authlib` for each exchange. Any
failure is a `ConsentError` whose message holds nothing that was sent or received.
"""

import asyncio
import math
import re
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, MutableMapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Literal, NamedTuple, Protocol, cast
from urllib.parse import quote_plus, urlsplit

import httpx2
import msgspec
from authlib.integrations import httpx_client

from ..domain.errors import ConsentError
from .providers import OAuthProvider, find_url_problem, is_loopback
from .tokens import Tokens

MAX_ANSWER_BYTES = 256 << 10
_SECONDS = 15.0

#: A denial by the provider. `error` is its code.
OAuthError = httpx_client.OAuthError
#: What reading an answer may raise: not JSON, too deep, numbers that are none, endpoints that are none.
_INVALID_RESPONSE_ERRORS = (ValueError, TypeError, AttributeError, OverflowError, RecursionError, httpx2.InvalidURL)


class OAuthClient(Protocol):
    """The part of `authlib`'s client that is used here."""

    def create_authorization_url(
        self, url: str, *, state: str, code_verifier: str, **extra: str
    ) -> tuple[str, object]: ...

    async def fetch_token(self, url: str, **form: str) -> Mapping[str, Any]: ...

    async def refresh_token(self, url: str, *, refresh_token: str, **form: str) -> Mapping[str, Any]: ...

    async def revoke_token(self, url: str, *, token: str, token_type_hint: str) -> httpx2.Response: ...

    async def request(self, method: str, url: str, *, withhold_token: bool) -> httpx2.Response: ...


@asynccontextmanager
async def open_client(provider: OAuthProvider, secret: str, url: str) -> AsyncGenerator[OAuthClient]:
    """Open a client for one exchange with one address of the provider."""
    if problem := find_url_problem(url):
        raise ConsentError(f"{provider.name}: an address {problem}")
    try:
        async with asyncio.timeout(_SECONDS), _create_client(provider, secret, url) as client:
            yield cast(OAuthClient, client)
    except httpx2.HTTPStatusError as error:
        raise ConsentError(f"{provider.name} answered with status {error.response.status_code}.") from None
    except (httpx2.HTTPError, TimeoutError, OSError) as error:
        raise ConsentError(f"{provider.name} could not be reached ({type(error).__name__}).") from None
    except _INVALID_RESPONSE_ERRORS as error:
        raise ConsentError(
            f"{provider.name} answered something that makes no sense ({type(error).__name__})."
        ) from None


def _create_client(provider: OAuthProvider, secret: str, url: str) -> httpx2.AsyncClient:
    method = f"client_secret_{provider.client_auth}" if secret else "none"
    client = cast(Any, httpx_client.AsyncOAuth2Client)(
        client_id=provider.client_id,
        client_secret=secret or None,
        token_endpoint_auth_method=method,
        revocation_endpoint_auth_method=method,
        code_challenge_method="S256",
        verify=_ssl_context(),
        timeout=_SECONDS,
        follow_redirects=False,
        trust_env=not is_loopback(urlsplit(url).hostname),
        headers={"accept-encoding": "identity"},
        event_hooks={"response": [_limit_response]},
    )
    client.register_client_auth_method(("client_secret_basic", _add_basic_auth))
    return client


#: Reading the certificates of the system takes tens of milliseconds, and all providers are trusted by the same.
_ssl_context = cache(httpx2.create_ssl_context)


class _Credentials(Protocol):
    client_id: str
    client_secret: str


def _add_basic_auth(
    client: _Credentials, method: str, uri: str, headers: MutableMapping[str, str], body: str
) -> tuple[str, MutableMapping[str, str], str]:
    """Add credentials encoded as in a form (RFC 6749, section 2.3.1). `authlib` sends them unencoded."""
    both = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    headers["Authorization"] = f"Basic {b64encode(both.encode()).decode()}"
    return uri, headers, body


async def _limit_response(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise ValueError("compressed, which was not requested")
    response.stream = _LimitedStream(cast(httpx2.AsyncByteStream, response.stream))


class _LimitedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream) -> None:
        self._stream = stream

    async def __aiter__(self) -> AsyncIterator[bytes]:
        left = MAX_ANSWER_BYTES
        async for chunk in self._stream:
            left -= len(chunk)
            if left < 0:
                raise ValueError("longer than any answer of a provider")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


_NOT_FOUND = 404


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoints of a provider."""

    authorization: str = msgspec.field(name="authorization_endpoint")
    token: str = msgspec.field(name="token_endpoint")
    revocation: str = msgspec.field(name="revocation_endpoint", default="")
    #: Where the keys are that identities are signed with.
    jwks: str = msgspec.field(name="jwks_uri", default="")
    issuer: str = ""
    #: Whether it always names itself in the callback (RFC 9207).
    names_issuer: bool = msgspec.field(name="authorization_response_iss_parameter_supported", default=False)


async def resolve_endpoints(provider: OAuthProvider) -> Endpoints:
    """Return the endpoints. Configured ones override discovered ones."""
    found = await _discover(provider) if provider.issuer else Endpoints(authorization="", token="")
    return msgspec.structs.replace(
        found,
        authorization=provider.authorization_endpoint or found.authorization,
        token=provider.token_endpoint or found.token,
        revocation=provider.revocation_endpoint or found.revocation,
    )


async def fetch_json(provider: OAuthProvider, url: str) -> Any:
    """Return the document at an address of the provider; None when there is none."""
    async with open_client(provider, "", url) as client:
        response = await client.request("GET", url, withhold_token=True)
        if response.status_code == _NOT_FOUND:
            return None
        response.raise_for_status()
        return msgspec.json.decode(response.content)


async def _discover(provider: OAuthProvider) -> Endpoints:
    for url in _metadata_urls(provider.issuer):
        if (found := await fetch_json(provider, url)) is not None:
            return _parse_metadata(provider, cast(object, found))
    raise ConsentError(f"{provider.name} does not say where its endpoints are: there is nothing at its issuer.")


def _metadata_urls(issuer: str) -> tuple[str, str]:
    parts = urlsplit(issuer)
    own = parts._replace(path=f"/.well-known/oauth-authorization-server{parts.path.rstrip('/')}")
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration", own.geturl()


def _find_internal_target(url: str, issuer: str) -> str:
    """Return why a remote provider must not make us send requests, with our secret, to this host; else empty."""
    if is_loopback(urlsplit(url).hostname) and not is_loopback(urlsplit(issuer).hostname):
        return "is on this host, and its issuer is not."
    return ""


def _parse_metadata(provider: OAuthProvider, found: object) -> Endpoints:
    try:
        endpoints = msgspec.convert(found, Endpoints)
    except msgspec.ValidationError as error:
        raise ConsentError(f"{provider.name} describes itself wrongly: {error}.") from None
    if endpoints.issuer != provider.issuer:
        raise ConsentError(f"{provider.name} describes itself as another issuer than the configured one.")
    for url in (endpoints.authorization, endpoints.token, endpoints.revocation, endpoints.jwks):
        if url and (problem := find_url_problem(url) or _find_internal_target(url, endpoints.issuer)):
            raise ConsentError(f"{provider.name} describes itself wrongly: an endpoint {problem}")
    return endpoints


_SECOND = 1_000_000_000
#: How long what an issuer says about itself is believed.
_METADATA_TTL_NS = 3600 * _SECOND
_MAX_TOKEN_CHARS = 64 << 10
_MAX_LIFETIME_SECONDS = 10 * 365 * 86400
_ERROR = re.compile(r"[a-z_]{1,64}")


class TokenDenial(NamedTuple):
    """A denial by the provider: its error code, without its texts."""

    error: str


class RedirectContext(NamedTuple):
    """What must match between the authorization request and the callback."""

    redirect: str
    verifier: str
    nonce: str


class ProviderClient:
    """The OAuth client of one provider."""

    def __init__(self, provider: OAuthProvider, secret: str, clock: Callable[[], int]) -> None:
        self.provider = provider
        self._secret = secret
        self._clock = clock
        self._endpoints: Endpoints | None = None
        self._metadata_expires_at = 0

    async def endpoints(self) -> Endpoints:
        """Return the endpoints of the provider, discovered again when they expire."""
        if self._endpoints is None or self._clock() >= self._metadata_expires_at:
            self._endpoints = await resolve_endpoints(self.provider)
            self._metadata_expires_at = self._clock() + _METADATA_TTL_NS
        return self._endpoints

    async def authorization_url(self, scopes: tuple[str, ...], state: str, back: RedirectContext) -> str:
        """Return the authorization URL. Always with PKCE (S256), and a nonce where an identity is requested."""
        url = (await self.endpoints()).authorization
        extra = {"nonce": back.nonce} if "openid" in scopes else {}
        async with open_client(self.provider, "", url) as client:
            full, _ = client.create_authorization_url(
                url,
                state=state,
                code_verifier=back.verifier,
                redirect_uri=back.redirect,
                scope=" ".join(scopes),
                **self.provider.authorize_params,
                **extra,
            )
        return full

    async def exchange(self, code: str, scopes: tuple[str, ...], back: RedirectContext) -> Tokens | TokenDenial:
        """Exchange an authorization code for tokens."""
        form = {"grant_type": "authorization_code", "code": code}
        back_form = {"code_verifier": back.verifier, "redirect_uri": back.redirect}
        return await self._request_tokens("fetch_token", {**form, **back_form}, scopes)

    async def refresh(self, tokens: Tokens) -> Tokens | TokenDenial:
        """Return new tokens. Without a new refresh token, the old one stays valid."""
        form = {"refresh_token": tokens.refresh_token}
        renewed = await self._request_tokens("refresh_token", form, tokens.scopes)
        if isinstance(renewed, TokenDenial):
            return renewed
        return msgspec.structs.replace(renewed, refresh_token=renewed.refresh_token or tokens.refresh_token)

    async def _request_tokens(
        self, method: Literal["fetch_token", "refresh_token"], form: Mapping[str, str], asked: tuple[str, ...]
    ) -> Tokens | TokenDenial:
        url = (await self.endpoints()).token
        async with open_client(self.provider, self._secret, url) as client:
            try:
                said = await getattr(client, method)(url, **form, **self.provider.token_params)
            except OAuthError as error:
                return TokenDenial(sanitize_error_code(error.error))
        return self._parse_tokens(said, asked)

    async def revoke(self, tokens: Tokens) -> bool:
        """Revoke the tokens. Return True if the provider confirmed; some cannot."""
        url = (await self.endpoints()).revocation
        if not url:
            return False
        kind = "refresh_token" if tokens.refresh_token else "access_token"
        async with open_client(self.provider, self._secret, url) as client:
            response = await client.revoke_token(
                url, token=tokens.refresh_token or tokens.access_token, token_type_hint=kind
            )
            return response.is_success

    async def keys(self) -> Any:
        """Return the provider's published signing keys."""
        url = (await self.endpoints()).jwks
        return await fetch_json(self.provider, url) if url else None

    def _parse_tokens(self, response: Mapping[str, Any], asked: tuple[str, ...]) -> Tokens:
        """Parse the tokens of a response. Without scopes, those requested were granted (RFC 6749, section 5.1)."""
        scope = response.get("scope")
        granted = scope.split(self.provider.scope_separator) if isinstance(scope, str) else asked
        kind = response.get("token_type", "bearer")
        if not isinstance(kind, str) or kind.lower() != "bearer":
            raise ConsentError(f"{self.provider.name} gave a kind of token that cannot be used here.")
        return Tokens(
            access_token=self._read_token(response, "access_token", needed=True),
            refresh_token=self._read_token(response, "refresh_token"),
            id_token=self._read_token(response, "id_token"),
            scopes=tuple(sorted({one.strip() for one in granted} - {""})),
            expires_at=self._compute_expiry(response.get("expires_in")),
        )

    def _read_token(self, response: Mapping[str, Any], name: str, *, needed: bool = False) -> str:
        token = response.get(name) or ""
        is_sound = isinstance(token, str) and len(token) <= _MAX_TOKEN_CHARS and token.isascii() and token.isprintable()
        if not is_sound or (needed and not token):
            raise ConsentError(f"{self.provider.name} gave no usable {name}.")
        return token

    def _compute_expiry(self, seconds: object) -> int:
        try:
            life = float(seconds) if isinstance(seconds, str | int | float) else 0.0
        except (ValueError, OverflowError):
            life = 0.0
        if not math.isfinite(life) or life <= 0:
            return 0
        return self._clock() + int(min(life, _MAX_LIFETIME_SECONDS) * _SECOND)


def sanitize_error_code(said: object) -> str:
    """Return a provider's error code, if it looks like one. Its descriptions are never repeated."""
    return said if isinstance(said, str) and _ERROR.fullmatch(said) else "an error without a code"
