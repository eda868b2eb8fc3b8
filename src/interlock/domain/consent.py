"""What a tool needs of a user before it may act for them elsewhere: their consent, given at a provider."""

from collections.abc import Sequence

import msgspec

from .checked import check_fields


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """Declared by a tool. A call of it waits until the user it acts for has consented to all of the scopes."""

    #: As the server's configuration names it.
    provider: str
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)


class ConsentBinding(msgspec.Struct, frozen=True, kw_only=True):
    """What a consent is given for. It serves no other user, agent, tool or definition of the tool."""

    user: str
    #: The agent whose tool it is; for one inside others, with the agents around it: `support > mailer`.
    agent: str
    tool: str
    #: The digest of everything that the tool declares.
    definition: str


def agent_path(names: Sequence[str]) -> str:
    """Return the names of nested agents as one, outermost first. No two lists give the same text."""
    return " > ".join(name.replace("\\", "\\\\").replace(">", "\\>") for name in names)
