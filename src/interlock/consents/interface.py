"""Access that users gave to tools: tokens, by user and tool. Whoever asks gets one that is good now, or none."""

from typing import Protocol

from ..domain.consent import Consent


class Consents(Protocol):
    @property
    def asks(self) -> bool:
        """Can a user be asked here? If not, a tool that needs consent is refused."""
        ...

    async def token(self, user: str, tool: str, consent: Consent) -> str | None:
        """An access token with at least these scopes, renewed silently where that is needed. None: the user has to
        consent, for the first time or again. Raises `ConsentError` where the provider cannot be reached or says
        something else than no: then nobody is asked, and the call fails."""
        ...
