"""Splunk's HTTP Event Collector: envelopes one after the other, not in a list. No acknowledgement is asked for later:
what it answers 200 to is indexed or in its queue."""

from collections.abc import Callable

import msgspec

from ..safe_http import SafeClient
from .destination import HecDestination
from .http_reply import classify_reply
from .interface import EventBatch, SendOutcome

_decode_envelope = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.encode


class HecSender:
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
