"""The client of one provider: authorization URL, code exchange, refresh, revocation."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from ..domain.errors import ConsentError
from .connection import OAuthError, open_client
from .endpoints import Endpoints, fetch_json, resolve_endpoints
from .providers import OAuthProvider
from .tokens import Tokens

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
        url = (await self.endpoints()).token
        async with open_client(self.provider, self._secret, url) as client:
            try:
                said = await client.fetch_token(
                    url,
                    grant_type="authorization_code",
                    code=code,
                    code_verifier=back.verifier,
                    redirect_uri=back.redirect,
                    **self.provider.token_params,
                )
            except OAuthError as error:
                return TokenDenial(sanitize_error_code(error.error))
        return self._parse_tokens(said, scopes)

    async def refresh(self, tokens: Tokens) -> Tokens | TokenDenial:
        """Return new tokens. Without a new refresh token, the old one stays valid."""
        url = (await self.endpoints()).token
        async with open_client(self.provider, self._secret, url) as client:
            try:
                said = await client.refresh_token(url, refresh_token=tokens.refresh_token, **self.provider.token_params)
            except OAuthError as error:
                return TokenDenial(sanitize_error_code(error.error))
        renewed = self._parse_tokens(said, tokens.scopes)
        return msgspec.structs.replace(renewed, refresh_token=renewed.refresh_token or tokens.refresh_token)

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
        """A provider that says no scopes gave those that were asked for (RFC 6749, section 5.1)."""
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
