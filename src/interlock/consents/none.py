"""Nobody can be asked for consent here, so nobody has given any."""

from ..domain.consent import Consent


class NoConsents:
    asks = False

    async def token(self, user: str, tool: str, consent: Consent) -> str | None:
        return None
