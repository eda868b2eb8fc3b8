"""An authenticator in software: makes one passkey, and answers for it, also wrongly."""

import base64
import json
from hashlib import sha256
from typing import Any

import cbor2
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

ORIGIN, HOST = "https://agents.example.com", "agents.example.com"
PRESENT, VERIFIED, ATTESTED = 1, 4, 64


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


class Authenticator:
    """`flags`, `origin` and `host` are what it signs."""

    def __init__(self, name: bytes = b"passkey-1") -> None:
        self.id = _text(name)
        self.count = 0
        self.flags, self.origin, self.host = PRESENT | VERIFIED, ORIGIN, HOST
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = name

    def create(self, options: dict[str, Any]) -> dict[str, Any]:
        numbers = self._key.public_key().public_numbers()
        point = {-2: numbers.x.to_bytes(32, "big"), -3: numbers.y.to_bytes(32, "big")}
        key = cbor2.dumps({1: 2, 3: -7, -1: 1, **point})
        attested = bytes(16) + len(self._name).to_bytes(2, "big") + self._name + key
        data = self._data(self.flags | ATTESTED) + attested
        statement = cbor2.dumps({"fmt": "none", "attStmt": {}, "authData": data})
        client = self._client("webauthn.create", options["challenge"])
        return self._answer(clientDataJSON=_text(client), attestationObject=_text(statement))

    def get(self, options: dict[str, Any]) -> dict[str, Any]:
        self.count += 1
        client, data = self._client("webauthn.get", options["challenge"]), self._data(self.flags)
        signature = self._key.sign(data + sha256(client).digest(), ec.ECDSA(SHA256()))
        return self._answer(
            clientDataJSON=_text(client), authenticatorData=_text(data), signature=_text(signature), userHandle=None
        )

    def _data(self, flags: int) -> bytes:
        return sha256(self.host.encode()).digest() + bytes([flags]) + self.count.to_bytes(4, "big")

    def _client(self, kind: str, challenge: str) -> bytes:
        return json.dumps({"type": kind, "challenge": challenge, "origin": self.origin}).encode()

    def _answer(self, **response: str | None) -> dict[str, Any]:
        return {"id": self.id, "rawId": self.id, "type": "public-key", "response": response}
