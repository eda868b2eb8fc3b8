"""The authorization flow: begun once, finished once, within ten minutes, in the same browser.

The state that travels with the user is 256 random bits. What belongs to it stays here, sealed: the user, the purpose,
the browser session, and the secrets of the exchange. A callback consumes it, valid or not, so it cannot be tried twice.
"""

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest
from secrets import token_urlsafe
from typing import Literal, TypeAlias

import msgspec

from ..domain.errors import ConfigurationError, ConsentError
from ..domain.tool import ConsentBinding
from .provider_client import ProviderClient, RedirectContext, TokenDenial, sanitize_error_code
from .tokens import FlowStore, HiddenStruct, SealedFlow, Sealer, Tokens

FLOW_TTL_NS = 600 * 1_000_000_000
_STATE = re.compile(r"[A-Za-z0-9_-]{43}")

Purpose: TypeAlias = Literal["consent", "sign-in"]
RefusalCode: TypeAlias = Literal[
    "denied",
    "unknown_state",
    "used_state",
    "other_session",
    "other_issuer",
    "insufficient",
    "failed",
    "unavailable",
    "no_account",
]


class Callback(HiddenStruct, frozen=True, kw_only=True):
    """The parameters of a callback. Untrusted."""

    state: str = ""
    code: str = ""
    error: str = ""
    iss: str = ""


class FlowRefusal(msgspec.Struct, frozen=True, kw_only=True):
    """Why a callback failed. `denied`: the user refused at the provider. `no_account`: they have no account here.
    `reason` can be shown to them.
    """

    code: RefusalCode
    reason: str
    #: Where it is known: which question it was about, and who had set out.
    action_id: str = ""
    user: str = ""


class Flow(HiddenStruct, frozen=True, kw_only=True):
    """An open authorization flow."""

    purpose: Purpose
    provider: str
    scopes: tuple[str, ...]
    redirect: str
    session_hash: str
    verifier: str = msgspec.field(default_factory=lambda: token_urlsafe(48))
    nonce: str = msgspec.field(default_factory=lambda: token_urlsafe(32))
    #: For a consent: whose, for which definition of which agent's tool, what that declared, and the question that it
    #: answers.
    user: str = ""
    agent: str = ""
    tool: str = ""
    definition: str = ""
    declared: tuple[str, ...] = ()
    action_id: str = ""

    @property
    def binding(self) -> ConsentBinding:
        """What the consent is bound to."""
        return ConsentBinding(user=self.user, agent=self.agent, tool=self.tool, definition=self.definition)

    @property
    def redirect_context(self) -> RedirectContext:
        """Values that the token request has to repeat."""
        return RedirectContext(self.redirect, self.verifier, self.nonce)


class FlowManager:
    """Begins and finishes flows."""

    def __init__(self, store: FlowStore, seal: Sealer, clock: Callable[[], int]) -> None:
        self._store = store
        self._seal = seal
        self._clock = clock

    async def begin(self, flow: Flow, owner: str, at_most: int) -> str:
        """Begin a flow and return its state, which only the user's browser gets."""
        state = token_urlsafe(32)
        key = _sha256(state)
        sealed = self._seal.seal(msgspec.json.encode(flow), _seal_context(flow.purpose, key))
        now = self._clock()
        kept = SealedFlow(state_hash=key, owner=owner, expires_at=now + FLOW_TTL_NS, sealed=sealed)
        await self._store.put_flow(kept, now, at_most)
        return state

    async def take(self, purpose: Purpose, callback: Callback, session: str) -> Flow | FlowRefusal:
        """Take the flow that a callback belongs to. Refuse unknown, used and foreign states."""
        if not _STATE.fullmatch(callback.state):
            return _UNKNOWN_STATE
        key = _sha256(callback.state)
        kept = await self._store.take_flow(key, self._clock())
        if kept == "used":
            return FlowRefusal(code="used_state", reason="This was used already. If it did not work, begin again.")
        opened = None if kept == "unknown" else self._seal.unseal(kept.sealed, _seal_context(purpose, key))
        if opened is None:
            return _UNKNOWN_STATE
        flow = msgspec.json.decode(opened, type=Flow)
        if not compare_digest(flow.session_hash, _sha256(session)):
            return refuse_flow(flow, "other_session", _OTHER_SESSION)
        return flow


def hash_session(session: str) -> str:
    """Return the hash of a session. Empty is refused: a flow without a browser could be finished by any."""
    if not session:
        raise ConfigurationError("A way to a provider has to belong to a browser session.")
    return _sha256(session)


def _sha256(text: str) -> str:
    return sha256(text.encode(errors="backslashreplace")).hexdigest()


def _seal_context(purpose: Purpose, key: str) -> tuple[str, ...]:
    return ("flow", purpose, key)


_UNKNOWN_STATE = FlowRefusal(
    code="unknown_state", reason="No consent was started here, or it is older than ten minutes. Start again."
)
_OTHER_SESSION = "This consent was started in another browser, or by another user. Start again in this one."


_MAX_CODE_CHARS = 4096


async def exchange_callback(flow: Flow, callback: Callback, client: ProviderClient) -> Tokens | FlowRefusal:
    """Exchange a callback for tokens. A refusal by the user is `denied`; every other one says nothing about their
    intent.
    """
    try:
        return await _check_callback(flow, callback, client) or await _exchange_code(flow, callback, client)
    except ConsentError as error:
        return refuse_flow(flow, "unavailable", f"{error} Nothing was changed; begin again later.")


async def _check_callback(flow: Flow, callback: Callback, client: ProviderClient) -> FlowRefusal | None:
    endpoints = await client.endpoints()
    # RFC 9207: a code of another provider must not be taken to this one.
    is_elsewhere = bool(callback.iss and endpoints.issuer and callback.iss != endpoints.issuer)
    if is_elsewhere or (endpoints.names_issuer and not callback.iss):
        return refuse_flow(flow, "other_issuer", "The answer is not from the provider that was asked. Begin again.")
    if callback.error == "access_denied":
        return refuse_flow(flow, "denied", f"You did not give access at {flow.provider}.")
    if callback.error:
        return refuse_flow(
            flow, "failed", f"{flow.provider} answered with {sanitize_error_code(callback.error)}. Begin again."
        )
    is_code = 0 < len(callback.code) <= _MAX_CODE_CHARS and callback.code.isascii() and callback.code.isprintable()
    return None if is_code else refuse_flow(flow, "failed", f"{flow.provider} answered without a code. Begin again.")


async def _exchange_code(flow: Flow, callback: Callback, client: ProviderClient) -> Tokens | FlowRefusal:
    tokens = await client.exchange(callback.code, flow.scopes, flow.redirect_context)
    if isinstance(tokens, TokenDenial):
        return refuse_flow(flow, "failed", f"{flow.provider} did not take its own code: {tokens.error}. Begin again.")
    if tokens.id_token and _read_nonce(tokens.id_token) != flow.nonce:
        return refuse_flow(flow, "failed", f"{flow.provider} answered another question than ours. Begin again.")
    return tokens


def refuse_flow(flow: Flow, code: RefusalCode, reason: str) -> FlowRefusal:
    """Build the refusal of a flow."""
    return FlowRefusal(code=code, reason=reason, action_id=flow.action_id, user=flow.user)


def _read_nonce(id_token: str) -> object:
    """Read without a look at the signature: it came straight from the provider, and only the nonce counts here."""
    try:
        middle = id_token.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(middle + "=" * (-len(middle) % 4)), type=dict[str, object])
    except (IndexError, ValueError, RecursionError):
        return None
    return claims.get("nonce")
