"""A signed POST with one event per line."""

from collections.abc import Callable

from ..safe_http import SafeClient
from ..triggers.webhook_signature import signed_headers
from .destination import WebhookDestination
from .http_reply import outcome_of
from .interface import Batch, Outcome

_NANOSECONDS = 1_000_000_000


class WebhookSender:
    def __init__(
        self, destination: WebhookDestination, secret: str, client: SafeClient, now: Callable[[], int]
    ) -> None:
        self._url = destination.url
        self._secret = secret
        self._client = client
        self._now = now

    async def send(self, batch: Batch) -> Outcome:
        body = b"".join(item.line + b"\n" for item in batch.items)
        signed = signed_headers(self._secret, self._now() // _NANOSECONDS, batch.delivery, body)
        headers = {"content-type": "application/x-ndjson", **signed}
        return outcome_of(await self._client.post(self._url, body, headers), self._secret, self._now)

    async def close(self) -> None:
        await self._client.close()
