"""Principals: a person, a key, or the server itself."""

import re
from collections.abc import Iterable
from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec

from ....domain.ids import is_valid_name


class Role(StrEnum):
    """The roles of a principal. One may have several; a person without any sees their own runs."""

    AGENT = "agent"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    ADMIN = "admin"


PrincipalKind: TypeAlias = Literal["person", "key", "system"]


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated identity: by a key or a sign-in, never by the content of a request."""

    #: `user:ada`, `key:billing-bot`, `schedule:nightly`, `webhook:github`: unique, and what the log says did it.
    name: str
    kind: PrincipalKind
    roles: frozenset[Role] = frozenset()
    #: The agents that they own, for whose runs their roles count. None: all of them.
    agents: frozenset[str] | None = None

    def owns(self, agent: str) -> bool:
        """Return True if the principal is responsible for an agent."""
        return self.agents is None or agent in self.agents


MAX_AGENTS = 1_000

#: The first is a letter or a digit, so that a name is never `.` or `..` in a path.
_is_principal_name = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}").fullmatch

_encode = msgspec.json.Encoder().encode
_decode_roles = msgspec.json.Decoder(frozenset[Role]).decode
_decode_agents = msgspec.json.Decoder(frozenset[str]).decode

#: `invalid`: the field can never be so. `conflict`: not in the current state. `unknown`: there is no such thing.
IdentityProblemKind: TypeAlias = Literal["invalid", "conflict", "unknown"]


class IdentityProblem(msgspec.Struct, frozen=True):
    """Why nothing was changed."""

    field: str
    problem: str
    kind: IdentityProblemKind = "invalid"


def check_name(name: str) -> IdentityProblem | None:
    """Return the problem with a name, or None."""
    if _is_principal_name(name):
        return None
    return IdentityProblem("name", "must be 1 to 64 of a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit")


def check_agents(agents: frozenset[str] | None) -> IdentityProblem | None:
    """Return the problem with a set of agents, or None."""
    if agents is None:
        return None
    if len(agents) > MAX_AGENTS:
        return IdentityProblem("agents", f"names {len(agents)} agents, at most {MAX_AGENTS} are possible")
    if not all(map(is_valid_name, agents)):
        return IdentityProblem("agents", "holds something that cannot be the name of an agent")
    return None


def encode_roles(roles: Iterable[Role]) -> str:
    """Encode roles for the database."""
    return _encode(sorted(roles)).decode()


def encode_agents(agents: frozenset[str] | None) -> str | None:
    """Encode a set of agents for the database; None means all."""
    return None if agents is None else _encode(sorted(agents)).decode()


def decode_roles(column: str) -> frozenset[Role]:
    """Decode roles from the database."""
    return _decode_roles(column)


def decode_agents(column: str | None) -> frozenset[str] | None:
    """Decode a set of agents from the database; None means all."""
    return None if column is None else _decode_agents(column)


def describe_grants(roles: Iterable[Role], agents: frozenset[str] | None) -> dict[str, str]:
    """Return roles and agents for the audit log."""
    return {
        "roles": ", ".join(sorted(roles)) or "none",
        "agents": "all" if agents is None else ", ".join(sorted(agents)) or "none",
    }
