"""Who may do what: all of it as tables.

A role counts for runs of the agents that its holder owns. Beside their roles, people may do some things because a run
is theirs: it acts for them, or they made it. Whoever has the role `agent` has nothing else: what an agent holds never
reaches a decision about it. What no table allows is refused.
"""

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import NamedTuple, Protocol
from unicodedata import normalize

import msgspec

from ....domain.decision import FourEyes, needs_second_person
from .principal import Principal, Role


class Operation(StrEnum):
    """A kind of request. Requests with one rule share one."""

    #: Lists, of what `visible` says.
    LIST_RUNS = "runs.list"
    LIST_QUESTIONS = "questions.list"
    #: A run with its events, state, calls, actions and artifacts; and its questions as the inbox shows them.
    READ_RUN = "runs.read"
    READ_QUESTION = "questions.read"
    #: Needs only the agent: there is no run yet.
    CREATE_RUN = "runs.create"
    CANCEL_RUN = "runs.cancel"
    #: All runs of an agent at once.
    STOP_AGENT = "agents.stop"
    #: Approve, reject; provide or refuse a value.
    DECIDE = "questions.decide"
    ANSWER = "questions.answer"
    #: Start or refuse a consent; see one's own, and take one back.
    CONSENT = "consents.give"
    OWN_CONSENTS = "consents.own"
    READ_POLICY = "policy.read"
    #: With an approval, add a rule to the agent's policy file. Needed for every agent that uses the file.
    KEEP_RULE = "policy.keep"
    EXPORT_RUN = "audit.export"
    FORWARD_RUN = "audit.forward"
    VERIFY_RUN = "audit.verify_run"
    #: Of the server as a whole.
    VERIFY_SERVER = "audit.verify"
    READ_CHECKPOINTS = "audit.checkpoints"
    READ_FORWARDERS = "audit.forwarders"
    READ_JOURNAL = "audit.journal"
    READ_KEYS = "keys.read"
    MANAGE_KEYS = "keys.manage"
    READ_ACCOUNTS = "accounts.read"
    MANAGE_ACCOUNTS = "accounts.manage"
    #: About oneself: who am I, sign out; and a person's own password and sign-ins.
    OWN_IDENTITY = "identity.own"
    OWN_ACCOUNT = "accounts.own"
    #: The API's description, and the public key of checkpoints.
    READ_PUBLISHED = "published.read"


class Reach(StrEnum):
    """How far a role goes."""

    NONE = "none"
    #: Runs of agents that they own, and only those that they made.
    MADE = "made"
    #: Runs of agents that they own.
    OWN = "own"
    #: A list, which shows what they may see.
    LIST = "list"
    #: What is not about one agent, so only for those who own all of them.
    ALL = "all"


class Bond(StrEnum):
    """What allows it without any role."""

    #: It is proved who they are.
    KNOWN = "known"
    #: And it is a person.
    PERSON = "person"
    #: The run acts for this very person.
    REQUESTER = "requester"
    #: The run acts for them, or they made it.
    INVOLVED = "involved"


def _row(agent: Reach, operator: Reach, auditor: Reach, admin: Reach) -> Mapping[Role, Reach]:
    return {Role.AGENT: agent, Role.OPERATOR: operator, Role.AUDITOR: auditor, Role.ADMIN: admin}


PERMISSIONS: Mapping[Operation, Mapping[Role, Reach]] = {
    # In this order: agent, operator, auditor, admin.
    Operation.LIST_RUNS: _row(Reach.LIST, Reach.LIST, Reach.LIST, Reach.LIST),
    Operation.LIST_QUESTIONS: _row(Reach.NONE, Reach.LIST, Reach.LIST, Reach.LIST),
    Operation.READ_RUN: _row(Reach.OWN, Reach.OWN, Reach.OWN, Reach.OWN),
    Operation.READ_QUESTION: _row(Reach.NONE, Reach.OWN, Reach.OWN, Reach.OWN),
    Operation.CREATE_RUN: _row(Reach.OWN, Reach.OWN, Reach.NONE, Reach.OWN),
    Operation.CANCEL_RUN: _row(Reach.MADE, Reach.OWN, Reach.NONE, Reach.OWN),
    Operation.STOP_AGENT: _row(Reach.NONE, Reach.OWN, Reach.NONE, Reach.OWN),
    Operation.DECIDE: _row(Reach.NONE, Reach.OWN, Reach.NONE, Reach.OWN),
    Operation.ANSWER: _row(Reach.NONE, Reach.OWN, Reach.NONE, Reach.OWN),
    Operation.CONSENT: _row(Reach.NONE, Reach.NONE, Reach.NONE, Reach.NONE),
    Operation.OWN_CONSENTS: _row(Reach.NONE, Reach.NONE, Reach.NONE, Reach.NONE),
    Operation.READ_POLICY: _row(Reach.NONE, Reach.OWN, Reach.OWN, Reach.OWN),
    Operation.KEEP_RULE: _row(Reach.NONE, Reach.OWN, Reach.NONE, Reach.OWN),
    Operation.EXPORT_RUN: _row(Reach.NONE, Reach.NONE, Reach.OWN, Reach.OWN),
    Operation.FORWARD_RUN: _row(Reach.NONE, Reach.NONE, Reach.OWN, Reach.OWN),
    Operation.VERIFY_RUN: _row(Reach.NONE, Reach.OWN, Reach.OWN, Reach.OWN),
    Operation.VERIFY_SERVER: _row(Reach.NONE, Reach.NONE, Reach.ALL, Reach.ALL),
    Operation.READ_CHECKPOINTS: _row(Reach.NONE, Reach.NONE, Reach.ALL, Reach.ALL),
    Operation.READ_FORWARDERS: _row(Reach.NONE, Reach.NONE, Reach.ALL, Reach.ALL),
    Operation.READ_JOURNAL: _row(Reach.NONE, Reach.NONE, Reach.ALL, Reach.ALL),
    Operation.READ_KEYS: _row(Reach.NONE, Reach.NONE, Reach.ALL, Reach.ALL),
    Operation.MANAGE_KEYS: _row(Reach.NONE, Reach.NONE, Reach.NONE, Reach.ALL),
    Operation.READ_ACCOUNTS: _row(Reach.NONE, Reach.NONE, Reach.ALL, Reach.ALL),
    Operation.MANAGE_ACCOUNTS: _row(Reach.NONE, Reach.NONE, Reach.NONE, Reach.ALL),
    Operation.OWN_IDENTITY: _row(Reach.NONE, Reach.NONE, Reach.NONE, Reach.NONE),
    Operation.OWN_ACCOUNT: _row(Reach.NONE, Reach.NONE, Reach.NONE, Reach.NONE),
    Operation.READ_PUBLISHED: _row(Reach.NONE, Reach.NONE, Reach.NONE, Reach.NONE),
}

BONDS: Mapping[Operation, Bond] = {
    Operation.LIST_RUNS: Bond.PERSON,
    Operation.LIST_QUESTIONS: Bond.PERSON,
    Operation.READ_RUN: Bond.INVOLVED,
    Operation.READ_QUESTION: Bond.INVOLVED,
    Operation.CANCEL_RUN: Bond.INVOLVED,
    Operation.CONSENT: Bond.REQUESTER,
    Operation.OWN_CONSENTS: Bond.PERSON,
    Operation.OWN_IDENTITY: Bond.KNOWN,
    Operation.OWN_ACCOUNT: Bond.PERSON,
    Operation.READ_PUBLISHED: Bond.KNOWN,
}


class AboutRun(Protocol):
    """`RunFacts`, or a row of a list."""

    @property
    def agent(self) -> str: ...
    @property
    def requester(self) -> str: ...
    @property
    def created_by(self) -> str: ...


class RunFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What of a run decides who may do what with it. For an agent without a run: only the first."""

    agent: str
    #: Who it acts for, and who made it.
    requester: str = ""
    created_by: str = ""


class Visible(NamedTuple):
    """Which runs somebody may see: those of these agents (None: of all) and those of this person."""

    agents: frozenset[str] | None
    person: str | None


def may(who: Principal, operation: Operation, run: AboutRun | None = None) -> bool:
    """May they? An operation about a run is refused without one."""
    row = PERMISSIONS[operation]
    return any(_reaches(row[role], who, run) for role in _roles(who)) or _is_bound(who, operation, run)


def visible(who: Principal) -> Visible:
    """For queries: the runs for which `READ_RUN` is allowed, and no others."""
    person = who.name if _is_person(who) else None
    if not who.roles:
        return Visible(frozenset(), person)
    return Visible(None, None) if who.agents is None else Visible(who.agents, person)


def four_eyes(  # noqa: PLR0913 - what it depends on
    who: Principal, risk: Collection[str], layer: str, run: AboutRun, setting: FourEyes, *, edited_by: str = ""
) -> str:
    """Return why they may not decide this question, though their role would let them; empty when they may."""
    if not needs_second_person(risk, layer, setting):
        return ""
    if edited_by and _same(who.name, edited_by):
        return f"The arguments were edited by {who.name}, so another person has to decide. Nothing was decided."
    if _same(who.name, run.requester):
        return f"The run acts for {who.name}, so somebody else has to decide. Nothing was decided."
    if _same(who.name, run.created_by):
        return f"The run was made by {who.name}, so somebody else has to decide. Nothing was decided."
    return ""


def _roles(who: Principal) -> frozenset[Role]:
    return frozenset((Role.AGENT,)) if Role.AGENT in who.roles else who.roles


def _is_person(who: Principal) -> bool:
    return who.kind == "person" and Role.AGENT not in who.roles


def _reaches(reach: Reach, who: Principal, run: AboutRun | None) -> bool:
    match reach:
        case Reach.NONE:
            return False
        case Reach.MADE:
            return run is not None and who.owns(run.agent) and run.created_by == who.name
        case Reach.OWN:
            return run is not None and who.owns(run.agent)
        case Reach.LIST:
            return True
        case Reach.ALL:
            return who.agents is None


def _is_bound(who: Principal, operation: Operation, run: AboutRun | None) -> bool:
    match BONDS.get(operation):
        case None:
            return False
        case Bond.KNOWN:
            return True
        case Bond.PERSON:
            return _is_person(who)
        case Bond.REQUESTER:
            return _is_person(who) and run is not None and run.requester == who.name
        case Bond.INVOLVED:
            return _is_person(who) and run is not None and who.name in (run.requester, run.created_by)


def _same(one: str, other: str) -> bool:
    return _plain(one) == _plain(other)


def _plain(name: str) -> str:
    """Whom an agent acts for is its own text: `ada`, `User:Ada` and `user:ada` are one person here. To take two for
    one costs a second opinion, to take one for two would cost the rule."""
    return normalize("NFKC", name).strip().casefold().removeprefix("user:")
