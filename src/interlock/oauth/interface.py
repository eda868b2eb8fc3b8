"""Access that users gave to tools: tokens, by user, agent, tool and definition of the tool."""

from typing import Protocol

from ..domain.tool import Consent, ConsentBinding


class ConsentProvider(Protocol):
    @property
    def can_ask(self) -> bool:
        """Can a user be asked here? If not, a tool that needs consent is refused."""
        ...

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        """Return an access token that was given for exactly this binding and has at least these scopes, renewed
        silently where that is needed. None: the user has to consent, for the first time or again. Raises
        `ConsentError` where the provider cannot be reached or says something else than no: then nobody is asked, and
        the call fails."""
        ...


class NoConsents:
    can_ask = False

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        return None
