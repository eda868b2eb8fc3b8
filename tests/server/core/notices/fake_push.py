"""Browsers and their push service on loopback: it checks who sent a message, and the browser decrypts it."""

from base64 import urlsafe_b64decode
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from interlock.server.core.identity.principal import Principal, Role
from interlock.server.core.notices.preferences import NewBrowser, OwnBrowser
from interlock.server.core.notices.push import encode_base64
from interlock.server.core.service import Service
from tests.server.core.receiver import Receiver, Request, answer, receiving

from .channels import add_account

CREATED = answer(201)


def decode(text: str) -> bytes:
    return urlsafe_b64decode(text + "=" * (-len(text) % 4))


class FakeBrowser:
    """A browser that is subscribed at the service."""

    def __init__(self, service: "FakePush", name: str) -> None:
        self.path = f"/push/{name}"
        self.endpoint = f"http://127.0.0.1:{service.receiver.port}{self.path}"
        self._service = service
        self._private = ec.generate_private_key(ec.SECP256R1())
        self._public = self._private.public_key().public_bytes(Encoding.X962, PublicFormat.UncompressedPoint)
        self._auth = b"0123456789abcdef"

    @property
    def keys(self) -> dict[str, str]:
        return {"p256dh": encode_base64(self._public), "auth": encode_base64(self._auth)}

    @property
    def messages(self) -> list[dict[str, Any]]:
        """What it got, decrypted."""
        return [msgspec.json.decode(self.decrypt(request.body)) for request in self._service.get_requests(self.path)]

    async def subscribe(self, service: Service, principal: Principal) -> OwnBrowser:
        new = NewBrowser(
            channel="browsers", endpoint=self.endpoint, public_key=self.keys["p256dh"], auth=self.keys["auth"]
        )
        found = await service.notices.preferences.subscribe(principal, new)
        assert isinstance(found, OwnBrowser)
        return found

    def decrypt(self, body: bytes) -> bytes:
        """Read one record as RFC 8291 says, written from the side of the browser."""
        salt, size, length = body[:16], int.from_bytes(body[16:20]), body[20]
        sender, sealed = body[21 : 21 + length], body[21 + length :]
        assert (size, len(body) <= size) == (4_096, True)
        shared = self._private.exchange(ec.ECDH(), ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), sender))
        info = b"WebPush: info\x00" + self._public + sender
        key = HKDF(hashes.SHA256(), 32, self._auth, info).derive(shared)
        content_key = HKDF(hashes.SHA256(), 16, salt, b"Content-Encoding: aes128gcm\x00").derive(key)
        nonce = HKDF(hashes.SHA256(), 12, salt, b"Content-Encoding: nonce\x00").derive(key)
        plain = AESGCM(content_key).decrypt(nonce, sealed, None).rstrip(b"\x00")
        assert plain.endswith(b"\x02")
        return plain[:-1]


class FakePush:
    """The push service. `statuses` are what it answers next, instead of 201."""

    def __init__(self, receiver: Receiver) -> None:
        self.receiver = receiver
        self.statuses: list[int] = []
        receiver.answers = [self._answer] * 1_000

    def get_requests(self, path: str) -> list[Request]:
        return [request for request in self.receiver.requests if request.target == path]

    async def _answer(self, request: Request) -> bytes:
        check_vapid(request, f"http://127.0.0.1:{self.receiver.port}")
        assert request.headers["content-encoding"] == "aes128gcm"
        assert int(request.headers["ttl"]) > 0
        assert len(request.headers["topic"]) <= 32
        return answer(self.statuses.pop(0)) if self.statuses else CREATED


def check_vapid(request: Request, origin: str) -> dict[str, Any]:
    """Check who sent a message, as RFC 8292 says; return what the sender says of itself."""
    scheme, _, parameters = request.headers["authorization"].partition(" ")
    values = dict(each.strip().split("=", 1) for each in parameters.split(","))
    signed, _, signature = values["t"].rpartition(".")
    header, claims = (msgspec.json.decode(decode(part)) for part in signed.split("."))
    raw = decode(signature)
    der = encode_dss_signature(int.from_bytes(raw[:32]), int.from_bytes(raw[32:]))
    key = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), decode(values["k"]))
    key.verify(der, signed.encode(), ec.ECDSA(hashes.SHA256()))
    assert (scheme, header["alg"], claims["aud"]) == ("vapid", "ES256", origin)
    return claims


@asynccontextmanager
async def faking_push() -> AsyncGenerator[FakePush]:
    async with receiving() as receiver:
        yield FakePush(receiver)


async def add_person(service: Service, name: str, *roles: Role) -> Principal:
    """An account, and the person who has it."""
    await add_account(service, name, *roles)
    return Principal(name=f"user:{name}", kind="person", roles=frozenset(roles))
