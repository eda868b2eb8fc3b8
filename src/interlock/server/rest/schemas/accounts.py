"""REST schemas of keys, accounts, sessions and consents. No secrets, except that of a new key."""

from ...core.consent_service import GrantSummary, PendingConsent
from ...core.identity.account_rows import Account
from ...core.identity.api_keys import ApiKey, NewApiKey
from ...core.identity.principal import Principal
from ..times import format_optional_time, format_time
from .runs import ActionResponse, ResponseModel


class ApiKeyResponse(ResponseModel, frozen=True, kw_only=True):
    """An API key, without its secret."""

    key_id: str
    name: str
    roles: list[str]
    #: Null: all of them.
    agents: list[str] | None
    created_by: str
    created_at: str
    expires_at: str | None
    last_used_at: str | None
    revoked_at: str | None

    @classmethod
    def from_domain(cls, key: ApiKey) -> "ApiKeyResponse":
        return cls(
            key_id=key.key_id,
            name=key.name,
            roles=sorted(key.roles),
            agents=_sort_agents(key.agents),
            created_by=key.created_by,
            created_at=format_time(key.created_at),
            expires_at=format_optional_time(key.expires_at),
            last_used_at=format_optional_time(key.last_used_at),
            revoked_at=format_optional_time(key.revoked_at),
        )


class ApiKeyList(ResponseModel, frozen=True, kw_only=True):
    """API keys."""

    keys: list[ApiKeyResponse]


class NewApiKeyResponse(ResponseModel, frozen=True, kw_only=True):
    """A new API key with its secret."""

    key: ApiKeyResponse
    #: Shown only once; it cannot be recovered later.
    secret: str

    @classmethod
    def from_domain(cls, new: NewApiKey) -> "NewApiKeyResponse":
        return cls(key=ApiKeyResponse.from_domain(new.key), secret=new.secret)


class AccountResponse(ResponseModel, frozen=True, kw_only=True):
    """An account."""

    name: str
    roles: list[str]
    agents: list[str] | None
    disabled: bool
    created_at: str
    has_password: bool
    #: The identity provider; empty for local accounts.
    issuer: str

    @classmethod
    def from_domain(cls, account: Account) -> "AccountResponse":
        return cls(
            name=account.name,
            roles=sorted(account.roles),
            agents=_sort_agents(account.agents),
            disabled=account.disabled,
            created_at=format_time(account.created_at),
            has_password=account.has_password,
            issuer=account.issuer,
        )


class AccountList(ResponseModel, frozen=True, kw_only=True):
    """Accounts."""

    accounts: list[AccountResponse]


class MeResponse(ResponseModel, frozen=True, kw_only=True):
    """The current principal."""

    name: str
    kind: str
    roles: list[str]
    agents: list[str] | None
    #: For a browser: what it must send back with everything that changes something. Null for keys.
    csrf: str | None
    signed_in_until: str | None

    @classmethod
    def from_domain(cls, principal: Principal, csrf: str | None = None, until: int = 0) -> "MeResponse":
        return cls(
            name=principal.name,
            kind=principal.kind,
            roles=sorted(principal.roles),
            agents=_sort_agents(principal.agents),
            csrf=csrf,
            signed_in_until=format_optional_time(until),
        )


class PendingConsentResponse(ResponseModel, frozen=True, kw_only=True):
    """A requested consent."""

    action: ActionResponse
    #: What the consent would be given for: this definition of this agent's tool, and no other.
    agent: str
    tool: str
    definition: str
    provider: str
    scopes: list[str]
    #: When you gave access to an earlier definition of the tool, which does not serve this one.
    earlier_since: str | None

    @classmethod
    def from_domain(cls, waiting: PendingConsent) -> "PendingConsentResponse":
        return cls(
            action=ActionResponse.from_domain(waiting.question),
            agent=waiting.binding.agent,
            tool=waiting.binding.tool,
            definition=waiting.binding.definition,
            provider=waiting.consent.provider,
            scopes=list(waiting.consent.scopes),
            earlier_since=format_optional_time(waiting.earlier_since),
        )


class GrantedConsentResponse(ResponseModel, frozen=True, kw_only=True):
    """A granted consent."""

    provider: str
    agent: str
    tool: str
    definition: str
    scopes: list[str]
    since: str | None
    expires_at: str | None

    @classmethod
    def from_domain(cls, given: GrantSummary) -> "GrantedConsentResponse":
        return cls(
            provider=given.provider,
            agent=given.agent,
            tool=given.tool,
            definition=given.definition,
            scopes=list(given.scopes),
            since=format_optional_time(given.since),
            expires_at=format_optional_time(given.expires_at),
        )


class ConsentList(ResponseModel, frozen=True, kw_only=True):
    """Requested and granted consents."""

    waiting: list[PendingConsentResponse]
    given: list[GrantedConsentResponse]


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
    also: list[str]


class ConsentRevocationResponse(ResponseModel, frozen=True, kw_only=True):
    """The result of revoking a consent."""

    #: False: it is forgotten here, and the provider did not confirm it.
    confirmed: bool


def _sort_agents(agents: frozenset[str] | None) -> list[str] | None:
    return None if agents is None else sorted(agents)
