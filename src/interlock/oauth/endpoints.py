"""Endpoints of a provider, discovered at its issuer (OpenID Connect Discovery, RFC 8414) or configured."""

from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from ..domain.errors import ConsentError
from .connection import open_client
from .providers import OAuthProvider, find_url_problem, is_loopback

_NOT_FOUND = 404


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoints of a provider."""

    authorization: str
    token: str
    revocation: str = ""
    #: Where the keys are that identities are signed with.
    jwks: str = ""
    issuer: str = ""
    #: Whether it always names itself in the callback (RFC 9207).
    names_issuer: bool = False


class _ProviderMetadata(msgspec.Struct, frozen=True):
    """The part of a provider's metadata that is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str = ""
    jwks_uri: str = ""
    authorization_response_iss_parameter_supported: bool = False


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
    """A provider elsewhere must not have us send its requests, with our secret in them, to services of this host."""
    if is_loopback(urlsplit(url).hostname) and not is_loopback(urlsplit(issuer).hostname):
        return "is on this host, and its issuer is not."
    return ""


def _parse_metadata(provider: OAuthProvider, found: object) -> Endpoints:
    try:
        metadata = msgspec.convert(found, _ProviderMetadata)
    except msgspec.ValidationError as error:
        raise ConsentError(f"{provider.name} describes itself wrongly: {error}.") from None
    if metadata.issuer != provider.issuer:
        raise ConsentError(f"{provider.name} describes itself as another issuer than the configured one.")
    for url in (
        metadata.authorization_endpoint,
        metadata.token_endpoint,
        metadata.revocation_endpoint,
        metadata.jwks_uri,
    ):
        if url and (problem := find_url_problem(url) or _find_internal_target(url, metadata.issuer)):
            raise ConsentError(f"{provider.name} describes itself wrongly: an endpoint {problem}")
    return Endpoints(
        authorization=metadata.authorization_endpoint,
        token=metadata.token_endpoint,
        revocation=metadata.revocation_endpoint,
        jwks=metadata.jwks_uri,
        issuer=metadata.issuer,
        names_issuer=metadata.authorization_response_iss_parameter_supported,
    )
