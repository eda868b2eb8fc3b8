"""Web Push: messages to browsers in which people switched it on.

A message is encrypted for its browser (RFC 8291), so the push service between them cannot read it, and signed by the
server's key (RFC 8292), so the service takes messages for that browser from no one else. Browsers choose their push
service; only those of the settings are called, whatever a browser says.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error
from collections.abc import Callable
from hashlib import sha256
from secrets import token_bytes
from typing import Any
from urllib.parse import urlsplit

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from ....domain.errors import ConfigurationError
from ..audit_sinks.senders import classify_reply
from ..safe_http import HttpReply, SafeClient, find_url_problem
from .channel_settings import PushChannel
from .notice import NoticeMessage, NoticeOutcome, RecipientGone, describe_lines
from .people import NoticePeople, PushSubscription

MAX_ENDPOINT_CHARS = 1_024
_KEY_BYTES, _POINT_BYTES, _AUTH_BYTES, _SALT_BYTES = 32, 65, 16, 16
_RECORD_BYTES = 4_096
#: Push services take 4096 bytes; the rest is header, padding and tag.
_MAX_BODY_BYTES = 2_000
_NANOSECONDS = 1_000_000_000
_TOKEN_SECONDS = 12 * 3_600
_DAY_SECONDS = 86_400
#: Push services keep messages for browsers that are not connected for 28 days at most.
_MAX_TTL_SECONDS = 28 * _DAY_SECONDS
_GONE = frozenset({404, 410})
_is_url_text = re.compile(r"[!-\[\]-~]+").fullmatch
_is_plain_host = re.compile(r"[a-z0-9.-]+(?::[0-9]{1,5})?").fullmatch
_encode = msgspec.json.encode


class PushSender:
    """Sends messages to browsers. The recipient is the id of a subscription."""

    can_update = True

    def __init__(
        self, channel: PushChannel, key: "VapidKey", people: NoticePeople, client: SafeClient, now: Callable[[], int]
    ) -> None:
        self._channel = channel
        self._key = key
        self._people = people
        self._client = client
        self._now = now

    @property
    def name(self) -> str:
        """Name of the channel."""
        return self._channel.name

    @property
    def public_key(self) -> str:
        """The key that browsers subscribe with."""
        return self._key.public_key

    async def send(self, message: NoticeMessage) -> NoticeOutcome:
        """Send the message to its browser. A browser that its push service does not know any more is forgotten."""
        browser = await self._people.get_subscription(message.recipient)
        if browser is None:
            return RecipientGone("Push was switched off in this browser.")
        if problem := find_endpoint_problem(browser.endpoint, self._channel):
            return await self._forget(browser, f"The push service of the browser cannot be used: {problem}.")
        body = encrypt_message(_encode(build_push_body(message)), browser)
        now = self._now() // _NANOSECONDS
        reply = await self._client.post(browser.endpoint, body, self._build_headers(browser, message, now))
        if isinstance(reply, HttpReply) and reply.status in _GONE:
            return await self._forget(browser, f"The push service answered {reply.status}: the browser is gone.")
        return classify_reply(reply, browser.endpoint, self._now)

    async def close(self) -> None:
        """Close the HTTP client."""
        await self._client.close()

    async def _forget(self, browser: PushSubscription, problem: str) -> RecipientGone:
        await self._people.unsubscribe(browser.subscription_id)
        return RecipientGone(problem)

    def _build_headers(self, browser: PushSubscription, message: NoticeMessage, now: int) -> dict[str, str]:
        deadline = message.notices[0].expires_at // _NANOSECONDS
        ttl = deadline - now if deadline and not message.is_digest else _DAY_SECONDS
        is_urgent = message.answer is None and any(each.is_urgent for each in message.notices)
        return {
            "authorization": self._key.sign(browser.endpoint, self._channel.subject, now),
            "content-encoding": "aes128gcm",
            "content-type": "application/octet-stream",
            "ttl": str(min(max(ttl, 60), _MAX_TTL_SECONDS)),
            "urgency": "high" if is_urgent else "normal",
            # What a browser that is not connected has not got yet is replaced by what is newer.
            "topic": _compute_tag(message),
        }


class VapidKey:
    """The key that the server signs its messages with."""

    def __init__(self, secret: str, owner: str) -> None:
        """Read a private key: 32 bytes in base64url. Raise `ConfigurationError` for others."""
        try:
            number = int.from_bytes(decode_base64(secret, _KEY_BYTES))
            self._private = ec.derive_private_key(number, ec.SECP256R1())
        except ValueError:
            raise ConfigurationError(f"{owner} needs a VAPID key: 32 bytes in base64url.") from None
        self.public_key = encode_base64(_encode_point(self._private))

    def sign(self, endpoint: str, subject: str, now: int) -> str:
        """Return the value of `Authorization` for the push service of an endpoint."""
        parts = urlsplit(endpoint)
        claims = {"aud": f"{parts.scheme}://{parts.netloc}", "exp": now + _TOKEN_SECONDS, "sub": subject}
        signed = ".".join(encode_base64(_encode(part)) for part in ({"typ": "JWT", "alg": "ES256"}, claims))
        numbers = decode_dss_signature(self._private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
        signature = b"".join(number.to_bytes(_KEY_BYTES) for number in numbers)
        return f"vapid t={signed}.{encode_base64(signature)}, k={self.public_key}"


def find_endpoint_problem(endpoint: str, channel: PushChannel) -> str:
    """Return why an endpoint that a browser named may not be called; empty: it may."""
    if len(endpoint) > MAX_ENDPOINT_CHARS or not _is_url_text(endpoint):
        return "its address is none"
    if problem := find_url_problem(endpoint, channel.network_access):
        return problem
    parts = urlsplit(endpoint)
    # With a port in it only where the settings name the port.
    if _is_plain_host(parts.netloc) and any(_matches(pattern, parts.netloc) for pattern in channel.hosts):
        return ""
    return f"{parts.netloc[:100]} is not in `hosts` of the channel"


def _matches(pattern: str, host: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern


def find_key_problem(public_key: str, auth: str) -> str:
    """Return what is wrong with the keys of a browser; empty: nothing."""
    try:
        ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode_base64(public_key, _POINT_BYTES))
        decode_base64(auth, _AUTH_BYTES)
    except ValueError:
        return "they are not those of a browser (P-256, and 16 bytes of authentication)"
    return ""


def encrypt_message(plain: bytes, browser: PushSubscription) -> bytes:
    """Encrypt a message for a browser, with a new key."""
    return encrypt(plain, browser, ec.generate_private_key(ec.SECP256R1()), token_bytes(_SALT_BYTES))


def encrypt(plain: bytes, browser: PushSubscription, private: ec.EllipticCurvePrivateKey, salt: bytes) -> bytes:
    """Encrypt a message as one record of `aes128gcm` (RFC 8188) under a key of both sides (RFC 8291)."""
    receiver, own = decode_base64(browser.public_key, _POINT_BYTES), _encode_point(private)
    shared = private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), receiver))
    auth = decode_base64(browser.auth, _AUTH_BYTES)
    key = _derive(shared, auth, b"WebPush: info\0" + receiver + own, 32)
    content_key = _derive(key, salt, b"Content-Encoding: aes128gcm\0", 16)
    nonce = _derive(key, salt, b"Content-Encoding: nonce\0", 12)
    header = salt + _RECORD_BYTES.to_bytes(4) + bytes([len(own)]) + own
    return header + AESGCM(content_key).encrypt(nonce, plain + b"\x02", None)


def build_push_body(message: NoticeMessage) -> dict[str, Any]:
    """Return what the browser shows, as plain text, and the page that a click opens."""
    notice = message.notices[0]
    lines = (
        [each.title for each in message.notices]
        if message.is_digest
        else [f"{label}: {text}" for label, text in describe_lines(notice)]
    )
    body = "\n".join(lines).encode()[:_MAX_BODY_BYTES].decode(errors="ignore")
    return {
        "title": message.subject,
        "body": body,
        "url": message.inbox_url if message.is_digest else notice.url,
        # A repetition or an answer takes the place of what is shown with the same tag.
        "tag": _compute_tag(message),
        "silent": message.answer is not None,
    }


def _compute_tag(message: NoticeMessage) -> str:
    notice = message.notices[0]
    text = message.key if message.is_digest else f"{notice.run_id}\n{notice.action_id}"
    return sha256(text.encode()).hexdigest()[:32]


def _derive(secret: bytes, salt: bytes, info: bytes, length: int) -> bytes:
    return HKDF(hashes.SHA256(), length, salt, info).derive(secret)


def _encode_point(private: ec.EllipticCurvePrivateKey) -> bytes:
    return private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)


def encode_base64(value: bytes) -> str:
    """Return base64url without padding."""
    return urlsafe_b64encode(value).rstrip(b"=").decode()


def decode_base64(text: str, length: int) -> bytes:
    """Return so many bytes from base64url, with or without padding. Raise `ValueError` for others."""
    try:
        value = urlsafe_b64decode(text.rstrip("=").encode("ascii") + b"=" * (-len(text.rstrip("=")) % 4))
    except (Base64Error, UnicodeError) as error:
        raise ValueError("not base64url") from error
    if len(value) != length:
        raise ValueError("another length")
    return value
