"""Senders over HTTP: Splunk's HTTP Event Collector, and signed webhooks.

The collector gets envelopes one after the other, not in a list. Acknowledgements are not requested: what it answers 200
to is indexed or in its queue.
"""

from collections.abc import Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import msgspec

from ....domain.rendering import neutralize
from ..safe_http import HttpFailure, HttpReply, SafeClient
from ..triggers.webhook_signature import build_signed_headers
from .destination import HecDestination, WebhookDestination
from .interface import EventBatch, SendDelay, SendOutcome, SendRejection, SendSuccess

#: Statuses about credentials and URL, not about these events: they can be sent once that is fixed.
_RETRYABLE_CLIENT_ERRORS = frozenset({401, 402, 403, 404, 405, 407, 408, 410, 421, 423, 425, 426, 429, 451})
MAX_RETRY_AFTER_SECONDS = 3600.0
_MAX_EXCERPT_CHARS = 200


def classify_reply(reply: HttpReply | HttpFailure, secret: str, now: Callable[[], int]) -> SendOutcome:
    """Classify a reply. The result never holds the secret, even if the receiver echoes it."""
    if isinstance(reply, HttpFailure):
        return SendDelay(reply.problem.replace(secret, "***"))
    if 200 <= reply.status < 300:  # noqa: PLR2004 - as the RFC writes them
        return SendSuccess()
    problem = f"The receiver answered {reply.status}{_format_body_excerpt(reply.body, secret)}"
    if 400 <= reply.status < 500 and reply.status not in _RETRYABLE_CLIENT_ERRORS:  # noqa: PLR2004
        return SendRejection(problem)
    if 300 <= reply.status < 400:  # noqa: PLR2004
        problem += " Redirects are not followed: put the final URL in the configuration."
    return SendDelay(problem, parse_retry_after(reply.headers.get("retry-after", ""), now()))


def parse_retry_after(value: str, now: int) -> float:
    """Parse `Retry-After`, up to an hour: seconds, or a date. 0 for invalid values."""
    value = value.strip()
    if value.isascii() and value.isdigit():
        return min(float(value[:9]), MAX_RETRY_AFTER_SECONDS)
    try:
        date = parsedate_to_datetime(value)
        seconds = (date.replace(tzinfo=date.tzinfo or UTC) - datetime.fromtimestamp(now / 1e9, UTC)).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError):
        return 0.0
    return min(max(seconds, 0.0), MAX_RETRY_AFTER_SECONDS)


def _format_body_excerpt(body: bytes, secret: str) -> str:
    text = body[:4096].decode(errors="replace").replace(secret, "***")
    line = " ".join(neutralize(text).split())
    return f": {line[:_MAX_EXCERPT_CHARS]}" if line else "."


_decode_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


class HecSender:
    """Sends batches to Splunk's HTTP Event Collector."""

    def __init__(self, destination: HecDestination, token: str, client: SafeClient, now: Callable[[], int]) -> None:
        self._destination = destination
        self._token = token
        self._client = client
        self._now = now

    async def send(self, batch: EventBatch) -> SendOutcome:
        body = b"\n".join(self._add_index(item.line) for item in batch.items)
        headers = {"authorization": f"Splunk {self._token}", "content-type": "application/json"}
        return classify_reply(await self._client.post(self._destination.url, body, headers), self._token, self._now)

    async def close(self) -> None:
        await self._client.close()

    def _add_index(self, envelope: bytes) -> bytes:
        """With the index, beside the event and not in it."""
        if not self._destination.index:
            return envelope
        return _encode({**_decode_envelope(envelope), "index": self._destination.index})


_NANOSECONDS_PER_SECOND = 1_000_000_000


class WebhookSender:
    """Sends batches to a webhook."""

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
