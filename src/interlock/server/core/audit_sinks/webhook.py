"""A signed POST with one event per line."""

from collections.abc import Callable

from ..safe_http import SafeClient
from ..triggers.webhook_signature import build_signed_headers
from .destination import WebhookDestination
from .http_reply import classify_reply
from .interface import EventBatch, SendOutcome

_NANOSECONDS_PER_SECOND = 1_000_000_000


class WebhookSender:
    def __init__(
        self, destination: WebhookDestination, secret: str, client: SafeClient, now: Callable[[], int]
    ) -> None:
        self._url = destination.url
        self._secret = secret
        self._client = client
        self._now = now

    async def send(self, batch: EventBatch) -> SendOutcome:
        body = b"".join(item.line + b"\n" for item in batch.items)
        signed = build_signed_headers(self._secret, self._now() // _NANOSECONDS_PER_SECOND, batch.delivery, body)
        headers = {"content-type": "application/x-ndjson", **signed}
        return classify_reply(await self._client.post(self._url, body, headers), self._secret, self._now)

    async def close(self) -> None:
        await self._client.close()
