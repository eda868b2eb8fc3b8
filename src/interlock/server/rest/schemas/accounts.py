"""REST schemas of keys, accounts, sessions and consents. No secrets, except that of a new key."""

from typing import Any

from msgspec import field

from ..responses import Merged, Names, OptionalNames, OptionalTime, ResponseModel, Time
from .runs import ApprovalResponse


class ApiKeyResponse(ResponseModel, frozen=True, kw_only=True):
    """An API key, without its secret."""

    key_id: str
    name: str
    roles: Names
    #: Null: all of them.
    agents: OptionalNames
    created_by: str
    created_at: Time
    expires_at: OptionalTime
    last_used_at: OptionalTime
    revoked_at: OptionalTime


class ApiKeyList(ResponseModel, frozen=True, kw_only=True):
    """API keys."""

    keys: list[ApiKeyResponse]


class NewApiKeyResponse(ResponseModel, frozen=True, kw_only=True):
    """A new API key with its secret."""

    key: ApiKeyResponse
    #: Shown only once; it cannot be recovered later.
    secret: str


class AccountResponse(ResponseModel, frozen=True, kw_only=True):
    """An account."""

    name: str
    roles: Names
    agents: OptionalNames
    disabled: bool
    created_at: Time
    has_password: bool
    #: The identity provider; empty for local accounts.
    issuer: str


class AccountList(ResponseModel, frozen=True, kw_only=True):
    """Accounts."""

    accounts: list[AccountResponse]


class MeResponse(ResponseModel, frozen=True, kw_only=True):
    """The current principal."""

    name: str
    kind: str
    roles: Names
    agents: OptionalNames
    #: For a browser: what it must send back with everything that changes something. Null for keys.
    csrf_token: str | None
    session_expires_at: OptionalTime

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Merge the principal with its session."""
        principal, csrf, until = row
        return Merged(principal, {"csrf_token": csrf, "session_expires_at": until})


class SessionResponse(ResponseModel, frozen=True, kw_only=True):
    """A session of a browser."""

    #: Names the session, and opens nothing.
    session_id: str
    started_at: Time
    #: To the minute.
    used_at: Time
    ends_at: Time
    #: Whether this request is part of it.
    is_current: bool


class SessionList(ResponseModel, frozen=True, kw_only=True):
    """Sessions."""

    sessions: list[SessionResponse]


class EndedSessions(ResponseModel, frozen=True, kw_only=True):
    """How many sessions ended."""

    ended: int


class PasskeyResponse(ResponseModel, frozen=True, kw_only=True):
    """A passkey."""

    credential_id: str
    name: str
    created_at: Time
    used_at: OptionalTime


class PasskeyList(ResponseModel, frozen=True, kw_only=True):
    """Passkeys."""

    passkeys: list[PasskeyResponse]


class RemovedPasskeys(ResponseModel, frozen=True, kw_only=True):
    """How many passkeys were removed."""

    removed: int


class PendingConsentResponse(ResponseModel, frozen=True, kw_only=True):
    """A requested consent."""

    action: ApprovalResponse = field(name="approval")
    #: What the consent would be given for: this definition of this agent's tool, and no other.
    agent: str
    tool: str
    definition: str
    provider: str
    scopes: list[str]
    #: When you gave access to an earlier definition of the tool, which does not serve this one.
    earlier_consent_at: OptionalTime

    @classmethod
    def view_row(cls, row: Any) -> Any:
        """Merge the question with what consent it needs."""
        return Merged({"action": row.question}, row, row.binding, row.consent)


class GrantedConsentResponse(ResponseModel, frozen=True, kw_only=True):
    """A granted consent."""

    provider: str
    agent: str
    tool: str
    definition: str
    scopes: list[str]
    since: OptionalTime = field(name="granted_at")
    expires_at: OptionalTime


class ConsentList(ResponseModel, frozen=True, kw_only=True):
    """Requested and granted consents."""

    pending: list[PendingConsentResponse]
    granted: list[GrantedConsentResponse]


class ConsentStartResponse(ResponseModel, frozen=True, kw_only=True):
    """Where the browser goes to give a consent."""

    #: Where the person's browser goes next; null: it was given before, and the question is answered.
    url: str | None
    run_id: str
    action_id: str


class ConsentAnswerResponse(ResponseModel, frozen=True, kw_only=True):
    """The answer to a consent."""

    run_id: str
    action_id: str
    approved: bool
    #: Other questions that were answered with it.
    also_answered: list[str]


class ConsentRevocationResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of revoking a consent."""

    #: False: it is forgotten here, and the provider did not confirm it.
    confirmed: bool
