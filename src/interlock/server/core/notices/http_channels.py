"""Channels that take one HTTP request per message: signed webhooks, Microsoft Teams and ntfy."""

import hmac
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from hashlib import sha256
from typing import Any

import msgspec

from ....domain.errors import ConfigurationError
from ....rendering.times import format_rfc3339
from ..audit_sinks.senders import classify_reply
from ..safe_http import SafeClient
from .channel_settings import NtfyChannel, WebhookChannel
from .notice import Notice, NoticeMessage, NoticeOutcome, break_links, describe_lines

_encode = msgspec.json.encode
_SECRET_PREFIX = "whsec_"  # noqa: S105 - how such secrets begin
_MIN_KEY_BYTES = 16


class WebhookSender:
    """Sends messages as Standard Webhooks: the id is the same for every attempt, so receivers can drop repetitions."""

    can_update = True

    def __init__(self, channel: WebhookChannel, secret: str, client: SafeClient, now: Callable[[], int]) -> None:
        self._channel = channel
        self._secret = secret
        self._key = parse_webhook_secret(channel.name, secret)
        self._client = client
        self._now = now

    async def send(self, message: NoticeMessage) -> NoticeOutcome:
        """Post the message, signed."""
        body = _encode(build_webhook_body(message))
        headers = {
            "content-type": "application/json",
            **sign_webhook(self._key, f"msg_{message.key}", self._now() // 1_000_000_000, body),
        }
        return classify_reply(await self._client.post(self._channel.url, body, headers), self._secret, self._now)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.close()


def parse_webhook_secret(name: str, secret: str) -> bytes:
    """Return the key of a secret as Standard Webhooks writes it: `whsec_` and base64."""
    try:
        key = b64decode(secret.removeprefix(_SECRET_PREFIX), validate=True)
    except (Base64Error, ValueError):
        key = b""
    if not secret.startswith(_SECRET_PREFIX) or len(key) < _MIN_KEY_BYTES:
        raise ConfigurationError(
            f'The notice channel "{name}" needs a secret like whsec_... with at least {_MIN_KEY_BYTES} bytes in base64.'
        )
    return key


def sign_webhook(key: bytes, message_id: str, timestamp: int, body: bytes) -> dict[str, str]:
    """Return the headers of a signed webhook."""
    signature = hmac.new(key, f"{message_id}.{timestamp}.".encode() + body, sha256).digest()
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": f"v1,{b64encode(signature).decode()}",
    }


def build_webhook_body(message: NoticeMessage) -> dict[str, Any]:
    """Return the JSON of a message."""
    if message.is_digest:
        kind, data = "question.digest", {"questions": list(map(_to_json, message.notices)), "total": message.total}
    elif message.answer is not None:
        answer = {"status": message.answer.status, "by": message.answer.by, "at": format_rfc3339(message.answer.at, 3)}
        kind, data = "question.closed", {"question": _to_json(message.notices[0]), "answer": answer}
    else:
        kind = "notice.test" if message.notices[0].kind == "test" else "question.asked"
        data = {"question": _to_json(message.notices[0])}
    return {"type": kind, "timestamp": format_rfc3339(message.sent_at, 3), "data": data}


def _to_json(notice: Notice) -> dict[str, Any]:
    return {
        "action_id": notice.action_id,
        "run_id": notice.run_id,
        "kind": notice.kind,
        "title": notice.title,
        "agent": notice.agent,
        "tool": notice.tool,
        "risk": list(notice.risk),
        "facts": dict(notice.facts),
        "requester": notice.requester,
        "payload_hash": notice.payload_hash,
        "asked_at": format_rfc3339(notice.asked_at, 3) if notice.asked_at else None,
        "expires_at": format_rfc3339(notice.expires_at, 3) if notice.expires_at else None,
        "url": notice.url,
    }


#: Characters that mean something in the Markdown of cards.
_MARKDOWN = str.maketrans({char: f"\\{char}" for char in "\\`*_{}[]()#+-.!|<>~"})


class TeamsSender:
    """Sends messages as Adaptive Cards to a workflow of Teams.

    A workflow answers before the card is shown and gives no id, so a card cannot be updated, and one whose request was
    cut off may be there twice: the second says so. Its only button opens the console.
    """

    can_update = False

    def __init__(self, url: str, client: SafeClient, now: Callable[[], int]) -> None:
        self._url = url
        self._client = client
        self._now = now

    async def send(self, message: NoticeMessage) -> NoticeOutcome:
        """Post the message as a card."""
        body = _encode(build_teams_body(message))
        headers = {"content-type": "application/json"}
        return classify_reply(await self._client.post(self._url, body, headers), self._url, self._now)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.close()


def build_teams_body(message: NoticeMessage) -> dict[str, Any]:
    """Return the JSON of a message with one card."""
    blocks: list[dict[str, Any]] = [_text_block(message.subject, size="Medium", weight="Bolder")]
    if message.is_digest:
        blocks += [_text_block(f"{notice.title} ({notice.agent})") for notice in message.notices]
        blocks += [_text_block(f"And {left} more.")] if (left := message.total - len(message.notices)) else []
    else:
        facts = describe_lines(message.notices[0])
        # Facts are Markdown, too.
        shown = [{"title": _escape_markdown(label), "value": _escape_markdown(text)} for label, text in facts]
        blocks += [{"type": "FactSet", "facts": shown}] if shown else []
    if message.is_repeated:
        blocks.append(_text_block("Sent again: it is not known whether the first card arrived.", isSubtle=True))
    url = message.inbox_url if message.is_digest else message.notices[0].url
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": blocks,
        "actions": [{"type": "Action.OpenUrl", "title": "Open in the console", "url": url}],
    }
    content_type = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": content_type, "contentUrl": None, "content": card}]}


def _text_block(text: str, **style: Any) -> dict[str, Any]:
    return {"type": "TextBlock", "text": _escape_markdown(text), "wrap": True, **style}


def _escape_markdown(text: str) -> str:
    """Return a text that cards show as it is: no links, no emphasis, no `{{DATE()}}`, no mention (`<at>`)."""
    return break_links(text).translate(_MARKDOWN)


#: ntfy turns a longer message into a file.
_MAX_NTFY_BYTES = 4_000
_DEFAULT_PRIORITY, _HIGH_PRIORITY, _LOW_PRIORITY = 3, 4, 2


class NtfySender:
    """Publishes messages to ntfy, as JSON: nothing of a notice is in a header. Messages of one question are one
    sequence, so a repetition or an answer replaces what is on the phone.
    """

    can_update = True

    def __init__(self, channel: NtfyChannel, token: str, client: SafeClient, now: Callable[[], int]) -> None:
        self._channel = channel
        self._token = token
        self._client = client
        self._now = now

    async def send(self, message: NoticeMessage) -> NoticeOutcome:
        """Publish the message."""
        body = _encode(build_ntfy_body(message, self._channel.topic))
        headers = {"content-type": "application/json"}
        if self._token:
            headers["authorization"] = f"Bearer {self._token}"
        reply = await self._client.post(self._channel.url, body, headers)
        return classify_reply(reply, self._token or self._channel.topic, self._now)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.close()


def build_ntfy_body(message: NoticeMessage, topic: str) -> dict[str, Any]:
    """Return the JSON of a message. It is plain text: ntfy reads Markdown only on request."""
    notice = message.notices[0]
    lines = (
        [each.title for each in message.notices]
        if message.is_digest
        else [f"{label}: {text}" for label, text in describe_lines(notice)]
    )
    is_urgent = any(each.is_urgent for each in message.notices)
    priority = _LOW_PRIORITY if message.answer else _HIGH_PRIORITY if is_urgent else _DEFAULT_PRIORITY
    text = break_links("\n".join(lines) or message.subject).encode()
    sequence = message.key if message.is_digest else sha256(f"{notice.run_id}\n{notice.action_id}".encode()).hexdigest()
    return {
        "topic": topic,
        "title": break_links(message.subject),
        "message": text.decode()
        if len(text) <= _MAX_NTFY_BYTES
        else f"{text[:_MAX_NTFY_BYTES].decode(errors='ignore')}…",
        "priority": priority,
        "click": message.inbox_url if message.is_digest else notice.url,
        "sequence_id": sequence[:32],
    }
