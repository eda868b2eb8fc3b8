"""Interface of consents: access tokens, by user, agent, tool and definition of the tool."""

from typing import Protocol

from ..domain.tool import Consent, ConsentBinding


class ConsentProvider(Protocol):
    """Provides access tokens that users consented to."""

    @property
    def can_ask(self) -> bool:
        """True when users can be asked here. If not, a tool that needs consent is refused."""
        ...

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        """Return an access token for exactly this binding with at least these scopes, refreshed if needed. None: the
        user has to consent. Raise `ConsentError` where the provider fails: then the user is not asked, and the call
        fails.
        """
        ...


class NoConsents:
    """A provider without consents: every tool that needs one is refused."""

    can_ask = False

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        """Return None: no consent is ever granted."""
        return None
