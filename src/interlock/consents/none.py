"""Nobody can be asked for consent here, so nobody has given any."""

from ..domain.tool import Consent, ConsentBinding


class NoConsents:
    asks = False

    async def token(self, binding: ConsentBinding, consent: Consent) -> str | None:
        return None
