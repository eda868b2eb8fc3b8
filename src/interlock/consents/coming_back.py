"""What a browser brought back from a provider, made into tokens, or into why there are none."""

from base64 import urlsafe_b64decode

import msgspec

from ..domain.errors import ConsentError
from .flow import Callback, Flow, RefusalCode, Refused
from .provider_client import Declined, ProviderClient, error_code
from .tokens import Tokens

_MAX_CODE_CHARS = 4096


async def tokens_after(flow: Flow, callback: Callback, client: ProviderClient) -> Tokens | Refused:
    """The user's no is `denied`; every other refusal says nothing about what they want."""
    try:
        return await _refusal(flow, callback, client) or await _exchange(flow, callback, client)
    except ConsentError as error:
        return refused(flow, "unavailable", f"{error} Nothing was changed; begin again later.")


async def _refusal(flow: Flow, callback: Callback, client: ProviderClient) -> Refused | None:
    endpoints = await client.endpoints()
    # RFC 9207: a code of another provider must not be taken to this one.
    is_elsewhere = bool(callback.iss and endpoints.issuer and callback.iss != endpoints.issuer)
    if is_elsewhere or (endpoints.names_issuer and not callback.iss):
        return refused(flow, "other_issuer", "The answer is not from the provider that was asked. Begin again.")
    if callback.error == "access_denied":
        return refused(flow, "denied", f"You did not give access at {flow.provider}.")
    if callback.error:
        return refused(flow, "failed", f"{flow.provider} answered with {error_code(callback.error)}. Begin again.")
    is_code = 0 < len(callback.code) <= _MAX_CODE_CHARS and callback.code.isascii() and callback.code.isprintable()
    return None if is_code else refused(flow, "failed", f"{flow.provider} answered without a code. Begin again.")


async def _exchange(flow: Flow, callback: Callback, client: ProviderClient) -> Tokens | Refused:
    tokens = await client.exchange(callback.code, flow.scopes, flow.back)
    if isinstance(tokens, Declined):
        return refused(flow, "failed", f"{flow.provider} did not take its own code: {tokens.error}. Begin again.")
    if tokens.id_token and _nonce_in(tokens.id_token) != flow.nonce:
        return refused(flow, "failed", f"{flow.provider} answered another question than ours. Begin again.")
    return tokens


def refused(flow: Flow, code: RefusalCode, reason: str) -> Refused:
    return Refused(code=code, reason=reason, action_id=flow.action_id, user=flow.user)


def _nonce_in(id_token: str) -> object:
    """Read without a look at the signature: it came straight from the provider, and only the nonce counts here."""
    try:
        middle = id_token.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)), type=dict[str, object])
    except (IndexError, ValueError, RecursionError):
        return None
    return claims.get("nonce")
