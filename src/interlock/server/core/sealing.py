"""Secrets at rest: AES-256-GCM, with keys that lie in the environment or in a file of their owner's.

A sealed value is a version, the key's id, a nonce and the ciphertext. The words that it is bound to are authenticated
with it and not stored, so a value that was moved to another row does not open. Several keys are for rotation: the first
one seals, and all of them open. Losing the keys loses the tokens, and users are asked again.

Servers that share a database record there which key they seal with. One that could not open what the others seal does
not start: its users would be asked again and again.
"""

import os
import stat
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from secrets import token_bytes, token_hex
from time import time_ns

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ...domain.errors import ConfigurationError
from ...rendering.times import format_rfc3339
from .database.interface import Connection, Database

SEALING_KEY_ENV = "INTERLOCK_SEALING_KEY"

_VERSION = b"\x01"
_KEY_BYTES = 32
_ID_BYTES = 8
_NONCE_BYTES = 12
_HEAD_BYTES = len(_VERSION) + _ID_BYTES + _NONCE_BYTES
_MAX_FILE_BYTES = 4096
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SealingKeys:
    """Implementation of the consents' `Sealer`."""

    def __init__(self, keys: Sequence[bytes]) -> None:
        """Set up the keys. The first one seals."""
        if not keys or any(len(key) != _KEY_BYTES for key in keys):
            raise ConfigurationError(f"A sealing key is {_KEY_BYTES} bytes, and there has to be one.")
        self._keys = {_compute_key_id(key): AESGCM(key) for key in keys}
        self._current = _compute_key_id(keys[0])

    def __repr__(self) -> str:
        return f"SealingKeys({', '.join(key.hex() for key in self._keys)})"

    @property
    def key_ids(self) -> tuple[str, ...]:
        """The ids of all keys. The first one seals."""
        return self._current.hex(), *(key.hex() for key in self._keys if key != self._current)

    def seal(self, plain: bytes, bound: Sequence[str]) -> bytes:
        """Encrypt data with the current key, bound to its context."""
        nonce = token_bytes(_NONCE_BYTES)
        head = _VERSION + self._current + nonce
        return head + self._keys[self._current].encrypt(nonce, plain, _encode_associated_data(head, bound))

    def unseal(self, sealed: bytes, bound: Sequence[str]) -> bytes | None:
        """Decrypt data. Return None if the key is unknown or the context is another."""
        head, body = sealed[:_HEAD_BYTES], sealed[_HEAD_BYTES:]
        key = self._keys.get(head[len(_VERSION) : -_NONCE_BYTES])
        if len(head) < _HEAD_BYTES or not head.startswith(_VERSION) or key is None:
            return None
        try:
            return key.decrypt(head[-_NONCE_BYTES:], body, _encode_associated_data(head, bound))
        except InvalidTag:
            return None


def load_sealing_keys(path: str | os.PathLike[str] | None, environment: Mapping[str, str] | None = None) -> SealingKeys:
    """Load keys from `INTERLOCK_SEALING_KEY`, or else from the file, which is created with a new key where there is
    none. Servers on several hosts share no file, so they pass None.
    """
    configured = (os.environ if environment is None else environment).get(SEALING_KEY_ENV, "")
    if configured.strip():
        return SealingKeys(_parse_keys(configured, SEALING_KEY_ENV))
    if path is None:
        raise ConfigurationError(
            f"Servers that share a database seal with one key: {_KEY_BYTES} random bytes in base64. {SEALING_KEY_ENV} "
            f"is not set. `openssl rand -base64 {_KEY_BYTES}` makes one."
        )
    try:
        if not os.path.lexists(path):
            _create_key_file(Path(path))
        return SealingKeys(_parse_keys(_read_key_file(path), str(path)))
    except OSError as error:
        raise ConfigurationError(f"The sealing key {path} cannot be used: {error.strerror}.") from error


def register_sealing_keys(database: Database, keys: SealingKeys, now: Callable[[], int] = time_ns) -> None:
    """Record the key that this server seals with. Raise `ConfigurationError` if it lacks the key of the others."""

    def register(connection: Connection) -> str:
        newest, *others = keys.key_ids
        row = connection.execute("SELECT number, key_id FROM sealing_keys ORDER BY number DESC LIMIT 1").fetchone()
        number, recorded = row or (0, newest)
        if recorded not in (newest, *others):
            return recorded
        if row is None or recorded != newest:
            values = (number + 1, newest, format_rfc3339(now(), 6))
            connection.execute("INSERT INTO sealing_keys (number, key_id, since) VALUES (?, ?, ?)", values)
        return ""

    if missing := database.run_now(register):
        raise ConfigurationError(
            f"{SEALING_KEY_ENV} lacks the key {missing}, which other servers of this database seal with. Set the same "
            "value for all of them; to replace a key, write the new one before it, with a comma between them."
        )


def generate_sealing_key() -> str:
    """Return a new key in the format of the variable and the file."""
    return urlsafe_b64encode(token_bytes(_KEY_BYTES)).decode().rstrip("=")


def _parse_keys(text: str, source: str) -> list[bytes]:
    """Keys in base64, with white space or commas between them. What cannot be read is not repeated."""
    try:
        return [_decode_key(word) for word in text.replace(",", " ").split()]
    except ValueError:
        raise ConfigurationError(
            f"{source} has to be {_KEY_BYTES} random bytes in base64, or several of those with commas between them."
        ) from None


def _decode_key(word: str) -> bytes:
    plain = word.rstrip("=").replace("+", "-").replace("/", "_")
    key = urlsafe_b64decode(plain + "=" * (-len(plain) % 4))
    if len(key) != _KEY_BYTES or urlsafe_b64encode(key).decode().rstrip("=") != plain:
        raise ValueError("not a key")
    return key


def _create_key_file(path: Path) -> None:
    """Create the key file atomically, by one process only, however many start at once."""
    temporary = path.with_name(f"{path.name}.{token_hex(8)}.new")
    file = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
    try:
        with os.fdopen(file, "w") as writing:
            writing.write(generate_sealing_key() + "\n")
            writing.flush()
            os.fsync(writing.fileno())
        try:
            os.link(temporary, path)
        except FileExistsError:
            return
    finally:
        temporary.unlink()
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _read_key_file(path: str | os.PathLike[str]) -> str:
    file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(file, "rb") as reading:
        found = os.fstat(file)
        if not stat.S_ISREG(found.st_mode) or found.st_mode & _GROUP_AND_OTHERS or found.st_uid != os.geteuid():
            raise ConfigurationError(f"{path} must be a regular file of this user with mode 0600.")
        return reading.read(_MAX_FILE_BYTES).decode("ascii", errors="replace")


def _compute_key_id(key: bytes) -> bytes:
    return sha256(b"interlock sealing key\n" + key).digest()[:_ID_BYTES]


def _encode_associated_data(head: bytes, words: Sequence[str]) -> bytes:
    """Encode the words with their lengths, so that no two lists of words are the same bytes."""
    parts = (word.encode(errors="backslashreplace") for word in words)
    return head + b"".join(len(part).to_bytes(8, "big") + part for part in parts)
