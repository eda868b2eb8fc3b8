"""Permissions as tables.

A role applies to runs of the agents that its holder owns. Beside their roles, people may do some things because a run
is theirs: it acts for them, or they created it. The role `agent` excludes everything else: agent credentials can never
approve anything. What no table allows is refused.
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

    #: Lists, filtered by `get_visibility`.
    LIST_RUNS = "runs.list"
    LIST_QUESTIONS = "questions.list"
    #: Figures of the agents that they have a role for.
    READ_STATISTICS = "statistics.read"
    #: A run with its events, state, calls, actions and artifacts; and its questions as the inbox shows them.
    READ_RUN = "runs.read"
    READ_QUESTION = "questions.read"
    #: Needs only the agent: there is no run yet.
    CREATE_RUN = "runs.create"
    CANCEL_RUN = "runs.cancel"
    #: The next message of a conversation: only by those who began it, or for whom it acts.
    SEND_MESSAGE = "runs.message"
    #: All runs of an agent at once.
    STOP_AGENT = "agents.stop"
    #: Refuse new runs of an agent, or of all agents, until it is switched on again.
    SWITCH_AGENT = "agents.switch"
    SWITCH_ALL_AGENTS = "agents.switch_all"
    #: Schedules and webhooks of one's agents: the list; pause one, and resume it.
    LIST_TRIGGERS = "triggers.list"
    PAUSE_TRIGGER = "triggers.pause"
    #: Approve, reject; provide or refuse input.
    DECIDE = "questions.decide"
    ANSWER = "questions.answer"
    #: Say who is to answer a question, and note something about it. Neither reaches the run.
    ASSIGN = "questions.assign"
    COMMENT = "questions.comment"
    #: Put back what a run changed in its workspace, and preview that.
    UNDO_RUN = "runs.undo"
    #: Start or refuse a consent; see one's own, and take one back.
    CONSENT = "consents.give"
    OWN_CONSENTS = "consents.own"
    READ_POLICY = "policy.read"
    #: With an approval, add a rule to the agent's policy file. Needed for every agent that uses the file.
    KEEP_RULE = "policy.keep"
    #: MCP servers: the list, one with its tools, and accepting definitions that changed.
    LIST_SERVERS = "mcp.list"
    READ_SERVERS = "mcp.read"
    ACCEPT_TOOLS = "mcp.accept"
    EXPORT_RUN = "audit.export"
    FORWARD_RUN = "audit.forward"
    VERIFY_RUN = "audit.verify_run"
    #: Of the server as a whole.
    VERIFY_SERVER = "audit.verify"
    READ_CHECKPOINTS = "audit.checkpoints"
    READ_FORWARDERS = "audit.forwarders"
    RETRY_DEAD_LETTERS = "audit.retry"
    READ_JOURNAL = "audit.journal"
    #: Channels of notices and their deliveries; trying a channel, and sending dead letters again.
    READ_NOTICES = "notices.read"
    MANAGE_NOTICES = "notices.manage"
    READ_KEYS = "keys.read"
    MANAGE_KEYS = "keys.manage"
    READ_ACCOUNTS = "accounts.read"
    MANAGE_ACCOUNTS = "accounts.manage"
    #: About oneself: who am I, sign out; and a person's own password and sign-ins.
    OWN_IDENTITY = "identity.own"
    OWN_ACCOUNT = "accounts.own"
    #: The API's description, and the public key of checkpoints.
    READ_PUBLISHED = "published.read"


class PermissionScope(StrEnum):
    """The scope of a role."""

    NONE = "none"
    #: Runs of agents that they own, and only those that they made.
    CREATED = "made"
    #: Runs of agents that they own.
    OWN = "own"
    #: A list, which shows what they may see.
    LIST = "list"
    #: What is not about one agent, so only for those who own all of them.
    ALL = "all"


class Relationship(StrEnum):
    """What permits an operation without a role."""

    #: It is proved who they are.
    AUTHENTICATED = "known"
    #: And it is a person.
    PERSON = "person"
    #: The run acts for this very person.
    REQUESTER = "requester"
    #: The run acts for them, or they made it.
    INVOLVED = "involved"


def _build_row(
    agent: PermissionScope, operator: PermissionScope, auditor: PermissionScope, admin: PermissionScope
) -> Mapping[Role, PermissionScope]:
    return {Role.AGENT: agent, Role.OPERATOR: operator, Role.AUDITOR: auditor, Role.ADMIN: admin}


PERMISSIONS: Mapping[Operation, Mapping[Role, PermissionScope]] = {
    # In this order: agent, operator, auditor, admin.
    Operation.LIST_RUNS: _build_row(
        PermissionScope.LIST, PermissionScope.LIST, PermissionScope.LIST, PermissionScope.LIST
    ),
    Operation.LIST_QUESTIONS: _build_row(
        PermissionScope.NONE, PermissionScope.LIST, PermissionScope.LIST, PermissionScope.LIST
    ),
    Operation.READ_STATISTICS: _build_row(
        PermissionScope.NONE, PermissionScope.LIST, PermissionScope.LIST, PermissionScope.LIST
    ),
    Operation.READ_RUN: _build_row(PermissionScope.OWN, PermissionScope.OWN, PermissionScope.OWN, PermissionScope.OWN),
    Operation.READ_QUESTION: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.OWN, PermissionScope.OWN
    ),
    Operation.CREATE_RUN: _build_row(
        PermissionScope.OWN, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.CANCEL_RUN: _build_row(
        PermissionScope.CREATED, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.SEND_MESSAGE: _build_row(
        PermissionScope.CREATED, PermissionScope.CREATED, PermissionScope.NONE, PermissionScope.CREATED
    ),
    Operation.STOP_AGENT: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.SWITCH_AGENT: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.SWITCH_ALL_AGENTS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL
    ),
    Operation.LIST_TRIGGERS: _build_row(
        PermissionScope.NONE, PermissionScope.LIST, PermissionScope.LIST, PermissionScope.LIST
    ),
    Operation.PAUSE_TRIGGER: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.DECIDE: _build_row(PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN),
    Operation.ANSWER: _build_row(PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN),
    Operation.ASSIGN: _build_row(PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN),
    Operation.COMMENT: _build_row(PermissionScope.NONE, PermissionScope.OWN, PermissionScope.OWN, PermissionScope.OWN),
    Operation.UNDO_RUN: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.CONSENT: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE
    ),
    Operation.OWN_CONSENTS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE
    ),
    Operation.READ_POLICY: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.OWN, PermissionScope.OWN
    ),
    Operation.KEEP_RULE: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.LIST_SERVERS: _build_row(
        PermissionScope.NONE, PermissionScope.LIST, PermissionScope.LIST, PermissionScope.LIST
    ),
    Operation.READ_SERVERS: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.OWN, PermissionScope.OWN
    ),
    Operation.ACCEPT_TOOLS: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.NONE, PermissionScope.OWN
    ),
    Operation.EXPORT_RUN: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.OWN, PermissionScope.OWN
    ),
    Operation.FORWARD_RUN: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.OWN, PermissionScope.OWN
    ),
    Operation.VERIFY_RUN: _build_row(
        PermissionScope.NONE, PermissionScope.OWN, PermissionScope.OWN, PermissionScope.OWN
    ),
    Operation.VERIFY_SERVER: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL, PermissionScope.ALL
    ),
    Operation.READ_CHECKPOINTS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL, PermissionScope.ALL
    ),
    Operation.READ_FORWARDERS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL, PermissionScope.ALL
    ),
    Operation.RETRY_DEAD_LETTERS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL
    ),
    Operation.READ_JOURNAL: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL, PermissionScope.ALL
    ),
    Operation.READ_NOTICES: _build_row(
        PermissionScope.NONE, PermissionScope.ALL, PermissionScope.ALL, PermissionScope.ALL
    ),
    Operation.MANAGE_NOTICES: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL
    ),
    Operation.READ_KEYS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL, PermissionScope.ALL
    ),
    Operation.MANAGE_KEYS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL
    ),
    Operation.READ_ACCOUNTS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL, PermissionScope.ALL
    ),
    Operation.MANAGE_ACCOUNTS: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.ALL
    ),
    Operation.OWN_IDENTITY: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE
    ),
    Operation.OWN_ACCOUNT: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE
    ),
    Operation.READ_PUBLISHED: _build_row(
        PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE, PermissionScope.NONE
    ),
}

RELATIONSHIPS: Mapping[Operation, Relationship] = {
    Operation.LIST_RUNS: Relationship.PERSON,
    Operation.LIST_QUESTIONS: Relationship.PERSON,
    Operation.READ_STATISTICS: Relationship.PERSON,
    Operation.READ_RUN: Relationship.INVOLVED,
    Operation.READ_QUESTION: Relationship.INVOLVED,
    Operation.COMMENT: Relationship.INVOLVED,
    Operation.CANCEL_RUN: Relationship.INVOLVED,
    Operation.SEND_MESSAGE: Relationship.INVOLVED,
    Operation.CONSENT: Relationship.REQUESTER,
    Operation.OWN_CONSENTS: Relationship.PERSON,
    Operation.OWN_IDENTITY: Relationship.AUTHENTICATED,
    Operation.OWN_ACCOUNT: Relationship.PERSON,
    Operation.READ_PUBLISHED: Relationship.AUTHENTICATED,
}


class RunOwnership(Protocol):
    """The fields of a run that permissions depend on: `RunOwnershipData`, or a row of a list."""

    @property
    def agent(self) -> str: ...
    @property
    def requester(self) -> str: ...
    @property
    def created_by(self) -> str: ...


class RunOwnershipData(msgspec.Struct, frozen=True, kw_only=True):
    """Agent, requester and creator of a run. For an agent without a run: only the first."""

    agent: str
    #: The user that it acts for, and who created it.
    requester: str = ""
    created_by: str = ""


class RunVisibility(NamedTuple):
    """The visible runs: those of these agents (None: of all) and those of this person."""

    agents: frozenset[str] | None
    person: str | None


def is_allowed(principal: Principal, operation: Operation, run: RunOwnership | None = None) -> bool:
    """Return True if the principal may do this. An operation about a run is refused without one."""
    row = PERMISSIONS[operation]
    return any(
        _is_in_scope(row[role], principal, run) for role in _get_effective_roles(principal)
    ) or _has_relationship(principal, operation, run)


def get_visibility(principal: Principal) -> RunVisibility:
    """Return the filter for queries: the runs for which `READ_RUN` is allowed, and no others."""
    person = principal.name if _is_person(principal) else None
    if not principal.roles:
        return RunVisibility(frozenset(), person)
    return RunVisibility(None, None) if principal.agents is None else RunVisibility(principal.agents, person)


def find_four_eyes_problem(  # noqa: PLR0913 - what it depends on
    principal: Principal,
    risk: Collection[str],
    layer: str,
    run: RunOwnership,
    setting: FourEyes,
    *,
    edited_by: str = "",
) -> str:
    """Return why they may not decide this question, though their role would let them; empty when they may."""
    if not needs_second_person(risk, layer, setting):
        return ""
    if edited_by and _is_same_person(principal.name, edited_by):
        return f"The arguments were edited by {principal.name}, so another person has to decide. Nothing was decided."
    if _is_same_person(principal.name, run.requester):
        return f"The run acts for {principal.name}, so another person has to decide. Nothing was decided."
    if _is_same_person(principal.name, run.created_by):
        return f"The run was created by {principal.name}, so another person has to decide. Nothing was decided."
    return ""


def _get_effective_roles(principal: Principal) -> frozenset[Role]:
    return frozenset((Role.AGENT,)) if Role.AGENT in principal.roles else principal.roles


def _is_person(principal: Principal) -> bool:
    return principal.kind == "person" and Role.AGENT not in principal.roles


def _is_in_scope(scope: PermissionScope, principal: Principal, run: RunOwnership | None) -> bool:
    match scope:
        case PermissionScope.NONE:
            return False
        case PermissionScope.CREATED:
            return run is not None and principal.owns(run.agent) and run.created_by == principal.name
        case PermissionScope.OWN:
            return run is not None and principal.owns(run.agent)
        case PermissionScope.LIST:
            return True
        case PermissionScope.ALL:
            return principal.agents is None


def _has_relationship(principal: Principal, operation: Operation, run: RunOwnership | None) -> bool:
    match RELATIONSHIPS.get(operation):
        case None:
            return False
        case Relationship.AUTHENTICATED:
            return True
        case Relationship.PERSON:
            return _is_person(principal)
        case Relationship.REQUESTER:
            return _is_person(principal) and run is not None and run.requester == principal.name
        case Relationship.INVOLVED:
            return _is_person(principal) and run is not None and principal.name in (run.requester, run.created_by)


def _is_same_person(one: str, other: str) -> bool:
    return _normalize_name(one) == _normalize_name(other)


def _normalize_name(name: str) -> str:
    """Normalize a name: `ada`, `User:Ada` and `user:ada` are one person. Merging two costs a second opinion, splitting
    one would break the rule.
    """
    return normalize("NFKC", name).strip().casefold().removeprefix("user:")
