"""Configuration of OAuth providers.

Nothing here is secret: the client's secret is named by where it is found. Addresses are https, except on this host.
"""

import re
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from ..domain.errors import ConfigurationError
from ..domain.json import validate_fields
from ..domain.tool import Consent

_MAX_SECRET_BYTES = 4096
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
#: RFC 6749, section 3.3.
_SCOPE = re.compile(r"[!#-\[\]-~]{1,256}")
#: What a flow says itself; configuration must not say it for it.
_RESERVED_PARAMETERS = frozenset(
    (
        *("client_id", "client_secret", "code", "code_challenge", "code_challenge_method", "code_verifier"),
        *("grant_type", "nonce", "redirect_uri", "refresh_token", "response_mode", "response_type", "scope", "state"),
    )
)
_ADDRESSES = ("issuer", "authorization_endpoint", "token_endpoint", "revocation_endpoint")


class OAuthProvider(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An OAuth provider: either `issuer`, whose endpoints are discovered, or the endpoints themselves."""

    #: As tools name it.
    name: str
    client_id: str
    #: Where its secret is, if it has one: a variable of the environment, or a file.
    client_secret_env: str = ""
    client_secret_file: str = ""
    #: How the secret is sent. `basic` is what every provider must understand; some understand `post` only.
    client_auth: Literal["basic", "post"] = "basic"
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    revocation_endpoint: str = ""
    #: What the provider calls the scopes that tools declare, where it calls them something else.
    scopes: dict[str, str] = {}
    #: Scopes that are asked for beside those of the tool, such as `openid` and `offline_access`.
    always: tuple[str, ...] = ()
    #: What is between two scopes in the provider's answers. RFC 6749 says a space; some use a comma.
    scope_separator: Literal[" ", ","] = " "
    #: Said in addition: to the authorization endpoint (`prompt`, `access_type`, `audience`, `resource`), and to the
    #: token endpoint (`audience`, `resource`).
    authorize_params: dict[str, str] = {}
    token_params: dict[str, str] = {}

    def __post_init__(self) -> None:
        validate_fields(self)
        for problem in _find_problems(self):
            raise ConfigurationError(f"OAuth provider {self.name[:64]!r}: {problem}")

    def required_scopes(self, consent: Consent) -> frozenset[str]:
        """Return the scopes that a token must have, in the provider's terms."""
        return frozenset(self.scopes.get(scope, scope) for scope in consent.scopes)

    def requested_scopes(self, consent: Consent) -> tuple[str, ...]:
        """Return the scopes to request, without duplicates."""
        return tuple(dict.fromkeys((*self.always, *sorted(self.required_scopes(consent)))))


def _find_problems(provider: OAuthProvider) -> list[str]:
    urls = ((name, getattr(provider, name)) for name in _ADDRESSES)
    problems = [f"{name} {problem}" for name, url in urls if url and (problem := find_url_problem(url))]
    if not _NAME.fullmatch(provider.name):
        problems.append("name must be letters, digits, '.', '_' and '-', at most 64 of them.")
    if not provider.client_id:
        problems.append("client_id is missing.")
    if not provider.issuer and not (provider.authorization_endpoint and provider.token_endpoint):
        problems.append("it needs an issuer, or both authorization_endpoint and token_endpoint.")
    if provider.client_secret_env and provider.client_secret_file:
        problems.append("client_secret_env and client_secret_file cannot both say where the secret is.")
    if wrong := [scope for scope in (*provider.always, *provider.scopes.values()) if not _SCOPE.fullmatch(scope)]:
        problems.append(f"{wrong[0][:80]!r} is not a scope.")
    if reserved := sorted(_RESERVED_PARAMETERS & {*provider.authorize_params, *provider.token_params}):
        problems.append(f"{reserved[0]} is not a parameter that can be configured.")
    return problems


def find_url_problem(url: str) -> str:
    """Return why nothing may be sent there; empty when it may."""
    parts = _split_url(url)
    if parts is None or not parts.hostname or parts.scheme not in {"https", "http"}:
        return "must be an https URL."
    if parts.username is not None or parts.password is not None or parts.fragment:
        return "must have neither a user name nor a fragment."
    if parts.scheme == "http" and not is_loopback(parts.hostname):
        return "must be an https URL, because it is on another host."
    return ""


def is_loopback(host: str | None) -> bool:
    """Return True if a host is this machine."""
    if host == "localhost":
        return True
    try:
        return bool(host) and ip_address(host or "").is_loopback
    except ValueError:
        return False


def _split_url(url: str) -> SplitResult | None:
    if not url.isascii() or not url.isprintable() or " " in url:
        return None
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return None
    return parts


def load_client_secret(provider: OAuthProvider, environment: Mapping[str, str]) -> str:
    """Return the client secret from its configured location; empty for a public client."""
    if provider.client_secret_env:
        secret = environment.get(provider.client_secret_env, "")
        where = f"the variable {provider.client_secret_env}"
    elif provider.client_secret_file:
        secret, where = _read_secret_file(provider), provider.client_secret_file
    else:
        return ""
    if not secret or len(secret) > _MAX_SECRET_BYTES or not secret.isprintable():
        raise ConfigurationError(f"OAuth provider {provider.name!r}: there is no client secret in {where}.")
    return secret


def _read_secret_file(provider: OAuthProvider) -> str:
    try:
        with Path(provider.client_secret_file).open("rb") as file:
            return file.read(_MAX_SECRET_BYTES + 1).decode().strip()
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"OAuth provider {provider.name!r}: {provider.client_secret_file} cannot be read: {error}."
        ) from error
