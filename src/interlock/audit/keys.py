"""Public keys for signature checks. A key is identified by the beginning of its SHA-256."""

from collections.abc import Iterable
from hashlib import sha256

import msgspec

PUBLIC_BYTES = 32
_KEY_ID_CHARS = 16


class PublicKey(msgspec.Struct, frozen=True, kw_only=True):
    """A public key. Its times are for display: the order of keys and checkpoints decides which key may sign."""

    key: str
    #: In hex.
    public: str
    since: str = ""
    #: Empty: it is the one in use.
    until: str = ""

    @property
    def raw(self) -> bytes:
        """The 32 bytes of the key."""
        return bytes.fromhex(self.public)


_decode = msgspec.json.Decoder(PublicKey).decode


def derive_key_id(public: bytes) -> str:
    """Return the id of a public key: the beginning of its SHA-256."""
    return sha256(public).hexdigest()[:_KEY_ID_CHARS]


def read_keys(written: bytes) -> tuple[PublicKey, ...]:
    """Read stored keys, one per line, the oldest first. Raise `ValueError` for a line that is no key."""
    keys: list[PublicKey] = []
    for number, line in enumerate(written.splitlines(), start=1):
        try:
            keys.append(key := _decode(line))
            is_valid = len(key.raw) == PUBLIC_BYTES and key.key == derive_key_id(key.raw)
        except (msgspec.MsgspecError, ValueError, RecursionError):
            is_valid = False
        if not is_valid:
            raise ValueError(f"line {number} is no public key")
    return tuple(keys)


def parse_public_key(public: str) -> PublicKey | None:
    """Parse a key in hex; None for anything else."""
    try:
        raw = bytes.fromhex(public.strip())
    except ValueError:
        return None
    return PublicKey(key=derive_key_id(raw), public=raw.hex()) if len(raw) == PUBLIC_BYTES else None


def keys_by_id(keys: Iterable[PublicKey]) -> dict[str, PublicKey]:
    """Return the keys by id, in the order of their use."""
    return {key.key: key for key in keys}
