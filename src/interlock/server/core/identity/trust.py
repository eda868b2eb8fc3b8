"""What accounts and keys have in common: a name, roles, and the agents for whose runs these count.

A wrong wish is answered with a `Refusal`, which names the field; nothing was changed then.
"""

import re
from collections.abc import Iterable
from typing import Literal, TypeAlias

import msgspec

from ....domain.ids import is_valid_name
from .principal import Role

MAX_AGENTS = 1_000

#: The first is a letter or a digit, so that a name is never `.` or `..` in a path.
_is_principal_name = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}").fullmatch

_encode = msgspec.json.Encoder().encode
_decode_roles = msgspec.json.Decoder(frozenset[Role]).decode
_decode_agents = msgspec.json.Decoder(frozenset[str]).decode

#: `invalid`: the field can never be so. `conflict`: not as things stand. `unknown`: there is no such thing.
IdentityProblemKind: TypeAlias = Literal["invalid", "conflict", "unknown"]


class IdentityProblem(msgspec.Struct, frozen=True):
    """Nothing was changed, and why."""

    field: str
    problem: str
    kind: IdentityProblemKind = "invalid"


def check_name(name: str) -> IdentityProblem | None:
    if _is_principal_name(name):
        return None
    return IdentityProblem("name", "must be 1 to 64 of a-z, 0-9, `.`, `_` and `-`, and begin with a letter or a digit")


def check_agents(agents: frozenset[str] | None) -> IdentityProblem | None:
    if agents is None:
        return None
    if len(agents) > MAX_AGENTS:
        return IdentityProblem("agents", f"names {len(agents)} agents, at most {MAX_AGENTS} are possible")
    if not all(map(is_valid_name, agents)):
        return IdentityProblem("agents", "holds something that cannot be the name of an agent")
    return None


def encode_roles(roles: Iterable[Role]) -> str:
    return _encode(sorted(roles)).decode()


def encode_agents(agents: frozenset[str] | None) -> str | None:
    return None if agents is None else _encode(sorted(agents)).decode()


def decode_roles(column: str) -> frozenset[Role]:
    return _decode_roles(column)


def decode_agents(column: str | None) -> frozenset[str] | None:
    return None if column is None else _decode_agents(column)


def describe_grants(roles: Iterable[Role], agents: frozenset[str] | None) -> dict[str, str]:
    """For the journal."""
    return {
        "roles": ", ".join(sorted(roles)) or "none",
        "agents": "all" if agents is None else ", ".join(sorted(agents)) or "none",
    }
