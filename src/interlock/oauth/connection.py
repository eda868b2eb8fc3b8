"""Connections to OAuth providers: with timeouts and size limits, no redirects, no compression.

A client of `authlib` for each exchange. Any failure is a `ConsentError` whose message holds nothing that was sent or
received; a denial by the provider is left to the caller, as `OAuthError`.
"""

import asyncio
from base64 import b64encode
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, MutableMapping
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, Protocol, cast
from urllib.parse import quote_plus, urlsplit

import httpx2
from authlib.integrations import httpx_client

from ..domain.errors import ConsentError
from .providers import OAuthProvider, find_url_problem, is_loopback

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
    """RFC 6749, section 2.3.1: both are encoded as in a form. `authlib` sends them as they are."""
    both = f"{quote_plus(client.client_id)}:{quote_plus(client.client_secret)}"
    headers["Authorization"] = f"Basic {b64encode(both.encode()).decode()}"
    return uri, headers, body


async def _limit_response(response: httpx2.Response) -> None:
    if response.headers.get("content-encoding", "identity").strip().lower() not in {"", "identity"}:
        raise ValueError("compressed, which nobody asked for")
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
