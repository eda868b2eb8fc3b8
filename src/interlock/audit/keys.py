"""The public keys that signatures are checked with. A key is known by the beginning of its SHA-256."""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

PUBLIC_BYTES = 32
_KEY_ID_CHARS = 16


class PublicKey(msgspec.Struct, frozen=True, kw_only=True):
    """The times are for people: which key may sign which checkpoint is told by the order of both."""

    key: str
    #: In hex.
    public: str
    since: str = ""
    #: Empty: it is the one in use.
    until: str = ""

    @property
    def raw(self) -> bytes:
        return bytes.fromhex(self.public)


_decode = msgspec.json.Decoder(PublicKey).decode


def derive_key_id(public: bytes) -> str:
    return sha256(public).hexdigest()[:_KEY_ID_CHARS]


def read_keys(written: bytes) -> tuple[PublicKey, ...]:
    """As they are kept, one on a line, the oldest first. `ValueError` in words for a line that is no key."""
    found = [_read_key(line) for line in written.splitlines()]
    if None in found:
        raise ValueError(f"line {found.index(None) + 1} is no public key")
    return tuple(key for key in found if key is not None)


def _read_key(line: bytes) -> PublicKey | None:
    """None for what has another name than its own, too."""
    try:
        found = _decode(line)
        right = len(found.raw) == PUBLIC_BYTES and found.key == derive_key_id(found.raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    return found if right else None


def parse_public_key(public: str) -> PublicKey | None:
    """As a person has it, in hex; None for what is none."""
    try:
        raw = bytes.fromhex(public.strip())
    except ValueError:
        return None
    return PublicKey(key=derive_key_id(raw), public=raw.hex()) if len(raw) == PUBLIC_BYTES else None


def keys_by_id(keys: Iterable[PublicKey]) -> dict[str, PublicKey]:
    """In the order of their use, the oldest first."""
    return {key.key: key for key in keys}
