"""Who there is, as REST shows it: keys, accounts, sign-ins and consents. No secret, but that of a key just made."""

from ...core.consents import Given, WaitingConsent
from ...core.identity.account_rows import Account
from ...core.identity.api_keys import ApiKey, NewKey
from ...core.identity.principal import Principal
from ..times import moment, when
from .runs import ActionShape, Shape


class KeyShape(Shape, frozen=True, kw_only=True):
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
    def of(cls, key: ApiKey) -> "KeyShape":
        return cls(
            key_id=key.key_id,
            name=key.name,
            roles=sorted(key.roles),
            agents=_agents(key.agents),
            created_by=key.created_by,
            created_at=moment(key.created_at),
            expires_at=when(key.expires_at),
            last_used_at=when(key.last_used_at),
            revoked_at=when(key.revoked_at),
        )


class ApiKeyList(Shape, frozen=True, kw_only=True):
    keys: list[KeyShape]


class NewKeyShape(Shape, frozen=True, kw_only=True):
    key: KeyShape
    #: Shown this once; nobody can find it out later.
    secret: str

    @classmethod
    def of(cls, new: NewKey) -> "NewKeyShape":
        return cls(key=KeyShape.of(new.key), secret=new.secret)


class AccountShape(Shape, frozen=True, kw_only=True):
    name: str
    roles: list[str]
    agents: list[str] | None
    disabled: bool
    created_at: str
    has_password: bool
    #: Who vouches for them; empty for local accounts.
    issuer: str

    @classmethod
    def of(cls, account: Account) -> "AccountShape":
        return cls(
            name=account.name,
            roles=sorted(account.roles),
            agents=_agents(account.agents),
            disabled=account.disabled,
            created_at=moment(account.created_at),
            has_password=account.has_password,
            issuer=account.issuer,
        )


class AccountList(Shape, frozen=True, kw_only=True):
    accounts: list[AccountShape]


class MeShape(Shape, frozen=True, kw_only=True):
    name: str
    kind: str
    roles: list[str]
    agents: list[str] | None
    #: For a browser: what it must send back with everything that changes something. Null for keys.
    csrf: str | None
    signed_in_until: str | None

    @classmethod
    def of(cls, who: Principal, csrf: str | None = None, until: int = 0) -> "MeShape":
        return cls(
            name=who.name,
            kind=who.kind,
            roles=sorted(who.roles),
            agents=_agents(who.agents),
            csrf=csrf,
            signed_in_until=when(until),
        )


class WaitingShape(Shape, frozen=True, kw_only=True):
    action: ActionShape
    #: What the consent would be given for: this definition of this agent's tool, and no other.
    agent: str
    tool: str
    definition: str
    provider: str
    scopes: list[str]
    #: When you gave access to an earlier definition of the tool, which does not serve this one.
    earlier_since: str | None

    @classmethod
    def of(cls, waiting: WaitingConsent) -> "WaitingShape":
        return cls(
            action=ActionShape.of(waiting.question),
            agent=waiting.binding.agent,
            tool=waiting.binding.tool,
            definition=waiting.binding.definition,
            provider=waiting.consent.provider,
            scopes=list(waiting.consent.scopes),
            earlier_since=when(waiting.earlier_since),
        )


class GivenShape(Shape, frozen=True, kw_only=True):
    provider: str
    agent: str
    tool: str
    definition: str
    scopes: list[str]
    since: str | None
    expires_at: str | None

    @classmethod
    def of(cls, given: Given) -> "GivenShape":
        return cls(
            provider=given.provider,
            agent=given.agent,
            tool=given.tool,
            definition=given.definition,
            scopes=list(given.scopes),
            since=when(given.since),
            expires_at=when(given.expires_at),
        )


class ConsentList(Shape, frozen=True, kw_only=True):
    waiting: list[WaitingShape]
    given: list[GivenShape]


class ConsentStarted(Shape, frozen=True, kw_only=True):
    #: Where the person's browser goes next; null: it was given before, and the question is answered.
    url: str | None
    run_id: str
    action_id: str


class ConsentAnswered(Shape, frozen=True, kw_only=True):
    run_id: str
    action_id: str
    approved: bool
    #: Other questions that were answered with it.
    also: list[str]


class ConsentRevoked(Shape, frozen=True, kw_only=True):
    #: False: it is forgotten here, and the provider did not confirm it.
    confirmed: bool


def _agents(agents: frozenset[str] | None) -> list[str] | None:
    return None if agents is None else sorted(agents)
