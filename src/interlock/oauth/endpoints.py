"""Where a provider is asked what, looked up at its issuer (OpenID Connect Discovery, RFC 8414) or configured."""

from typing import Any, cast
from urllib.parse import urlsplit

import msgspec

from ..domain.errors import ConsentError
from .connection import speaking
from .providers import OAuthProvider, is_loopback, url_problem

_NOT_THERE = 404


class Endpoints(msgspec.Struct, frozen=True, kw_only=True):
    authorization: str
    token: str
    revocation: str = ""
    #: Where the keys are that identities are signed with.
    jwks: str = ""
    issuer: str = ""
    #: Does it always say who it is when it sends a user back (RFC 9207)?
    names_issuer: bool = False


class _Document(msgspec.Struct, frozen=True):
    """The part of a provider's metadata that is used."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str = ""
    jwks_uri: str = ""
    authorization_response_iss_parameter_supported: bool = False


async def endpoints_of(provider: OAuthProvider) -> Endpoints:
    """What is configured counts more than what the issuer says."""
    found = await _discover(provider) if provider.issuer else Endpoints(authorization="", token="")
    return msgspec.structs.replace(
        found,
        authorization=provider.authorization_endpoint or found.authorization,
        token=provider.token_endpoint or found.token,
        revocation=provider.revocation_endpoint or found.revocation,
    )


async def get_json(provider: OAuthProvider, url: str) -> Any:
    """The document at an address of the provider; None when there is none."""
    async with speaking(provider, "", url) as client:
        response = await client.request("GET", url, withhold_token=True)
        if response.status_code == _NOT_THERE:
            return None
        response.raise_for_status()
        return msgspec.json.decode(response.content)


async def _discover(provider: OAuthProvider) -> Endpoints:
    for url in _places(provider.issuer):
        if (found := await get_json(provider, url)) is not None:
            return _read(provider, cast(object, found))
    raise ConsentError(f"{provider.name} does not say where its endpoints are: there is nothing at its issuer.")


def _places(issuer: str) -> tuple[str, str]:
    parts = urlsplit(issuer)
    own = parts._replace(path=f"/.well-known/oauth-authorization-server{parts.path.rstrip('/')}")
    return f"{issuer.rstrip('/')}/.well-known/openid-configuration", own.geturl()


def _leads_inside(url: str, issuer: str) -> str:
    """A provider elsewhere must not have us send its requests, with our secret in them, to services of this host."""
    if is_loopback(urlsplit(url).hostname) and not is_loopback(urlsplit(issuer).hostname):
        return "is on this host, and its issuer is not."
    return ""


def _read(provider: OAuthProvider, found: object) -> Endpoints:
    try:
        said = msgspec.convert(found, _Document)
    except msgspec.ValidationError as error:
        raise ConsentError(f"{provider.name} describes itself wrongly: {error}.") from None
    if said.issuer != provider.issuer:
        raise ConsentError(f"{provider.name} describes itself as another issuer than the configured one.")
    for url in (said.authorization_endpoint, said.token_endpoint, said.revocation_endpoint, said.jwks_uri):
        if url and (problem := url_problem(url) or _leads_inside(url, said.issuer)):
            raise ConsentError(f"{provider.name} describes itself wrongly: an endpoint {problem}")
    return Endpoints(
        authorization=said.authorization_endpoint,
        token=said.token_endpoint,
        revocation=said.revocation_endpoint,
        jwks=said.jwks_uri,
        issuer=said.issuer,
        names_issuer=said.authorization_response_iss_parameter_supported,
    )
