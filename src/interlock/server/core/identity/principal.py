"""Who speaks to the server: a person, a key, or the server itself."""

from enum import StrEnum
from typing import Literal, TypeAlias

import msgspec


class Role(StrEnum):
    """What somebody is trusted with. One may have several; a person without any sees their own runs."""

    AGENT = "agent"
    OPERATOR = "operator"
    AUDITOR = "auditor"
    ADMIN = "admin"


PrincipalKind: TypeAlias = Literal["person", "key", "system"]


class Principal(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whose identity was proved by a key or a sign-in, never by what a request says."""

    #: `user:ada`, `key:billing-bot`, `schedule:nightly`, `webhook:github`: unique, and what the log says did it.
    name: str
    kind: PrincipalKind
    roles: frozenset[Role] = frozenset()
    #: The agents that they own, for whose runs their roles count. None: all of them.
    agents: frozenset[str] | None = None

    def owns(self, agent: str) -> bool:
        return self.agents is None or agent in self.agents
