"""What a tool needs of a user before it may act for them elsewhere: their consent, given at a provider."""

import msgspec

from .checked import check_fields


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """Declared by a tool. A call of it waits until the user it acts for has consented to all of the scopes."""

    #: As the server's configuration names it.
    provider: str
    scopes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_fields(self)
