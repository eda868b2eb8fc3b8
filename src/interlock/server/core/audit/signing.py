"""The signing key of checkpoints: Ed25519, in a file readable by its owner only, or in the environment of servers.

In a folder, the private key is `signing.key`, as PEM; it is made on first use. Beside it, `signing.pub` has every
public key that was ever used, the oldest first, so that what an old key signed can be checked after it was replaced.
Replacing or creating the key holds a lock on the folder; a process that signs sees the new key before its next
signature.

Servers that share a database have the private key in `INTERLOCK_SIGNING_KEY`, and the public ones in the database. A
server that starts with a new key replaces the earlier one: a server that still has that can sign nothing more.
"""

import fcntl
import os
import stat
import time
from base64 import b64decode
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from secrets import token_hex
from typing import NamedTuple, Protocol

import msgspec
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from ....audit.keys import PublicKey, derive_key_id, read_keys
from ....domain.errors import ConfigurationError
from ....rendering.times import format_rfc3339
from ..database.interface import Connection, Database
from ..errors import ConflictError

SIGNING_KEY_ENV = "INTERLOCK_SIGNING_KEY"

_SELECT_KEYS = "SELECT key_id, public_key, since, until FROM signing_keys ORDER BY number"
_INSERT_KEY = "INSERT INTO signing_keys (number, key_id, public_key, since, until) VALUES (?, ?, ?, ?, '')"
_MAX_BYTES = 1 << 20
_GROUP_AND_OTHERS = stat.S_IRWXG | stat.S_IRWXO


class SigningKey(NamedTuple):
    """A key that can sign."""

    key_id: str
    public: bytes
    sign: Callable[[bytes], bytes]


class SigningKeys(Protocol):
    """The keys that checkpoints are signed with."""

    def get_current_key(self, connection: Connection | None = None) -> SigningKey:
        """Return the current key; with a connection, the one that is current in its transaction."""
        ...

    def list_keys(self) -> tuple[PublicKey, ...]:
        """Return all keys that were ever used, the oldest first. Blocks."""
        ...


class DatabaseSigner:
    """The signing key of servers that share a database."""

    def __init__(
        self, database: Database, environ: Mapping[str, str], *, now: Callable[[], int] = time.time_ns
    ) -> None:
        """Load the key of `INTERLOCK_SIGNING_KEY`. Raise `ConfigurationError` if there is none."""
        self._database = database
        self._now = now
        self._key = _to_signing_key(_parse_key(environ.get(SIGNING_KEY_ENV, "")))

    def register(self) -> None:
        """Record the key, which replaces an earlier one. Raise `ConfigurationError` if it was replaced itself."""
        at = format_rfc3339(self._now(), 6)
        if not self._database.run_now(lambda connection: _register_key(connection, self._key, at)):
            raise ConfigurationError(
                f"{SIGNING_KEY_ENV} has the key {self._key.key_id}, which another server has replaced. Set the new one."
            )

    def get_current_key(self, connection: Connection | None = None) -> SigningKey:
        """Return the key. Raise `ConflictError` if another server has replaced it."""
        if connection is not None and not _is_newest(connection, self._key.key_id):
            raise ConflictError(
                "signing_key_replaced",
                f"This server signs with the key {self._key.key_id}, which was replaced. Start it again with the new "
                f"{SIGNING_KEY_ENV}. Nothing was signed.",
            )
        return self._key

    def list_keys(self) -> tuple[PublicKey, ...]:
        """Return all keys that were ever used, the oldest first; the last one is in use."""
        rows = self._database.read_now(lambda connection: connection.execute(_SELECT_KEYS).fetchall())
        return tuple(PublicKey(key=key, public=public, since=since, until=until) for key, public, since, until in rows)


class Signer:
    """The signing keys in a folder."""

    def __init__(self, path: str | os.PathLike[str], *, now: Callable[[], int] = time.time_ns) -> None:
        """Load the key, created if there is none. Raise `ConfigurationError` if others could have read or placed it."""
        self.path = Path(path)
        self._now = now
        with _lock_folder(self.path.parent):
            if not os.path.lexists(self.path):
                _replace_file(self.path, _generate_key())
            self._loaded_version, self._key = _load_key(self.path)
            self._update_public_keys()

    @property
    def public_path(self) -> Path:
        """Path of the file with the public keys."""
        return public_keys_path(self.path)

    @property
    def own_paths(self) -> tuple[str, ...]:
        """The paths of its files, which no tool may access."""
        return str(self.path.resolve()), str(self.public_path.resolve())

    def get_current_key(self, connection: Connection | None = None) -> SigningKey:
        """Return the current key. Use the same object for id and signature: another process may rotate it."""
        with suppress(FileNotFoundError):
            if _get_file_version(os.stat(self.path, follow_symlinks=False)) != self._loaded_version:
                self._loaded_version, self._key = _load_key(self.path)
        return self._key

    def list_keys(self) -> tuple[PublicKey, ...]:
        """Return all keys that were ever used, the oldest first; the last one is in use."""
        return read_public_keys(self.public_path)

    def rotate(self) -> PublicKey:
        """Sign with a new key from now on. What the old ones signed stays valid."""
        with _lock_folder(self.path.parent):
            _replace_file(self.path, _generate_key())
            self._loaded_version, self._key = _load_key(self.path)
            self._update_public_keys()
        return self.list_keys()[-1]

    def _update_public_keys(self) -> None:
        """Update the file of public keys: the current key is in use, and no other is."""
        kept = self.list_keys()
        at = format_rfc3339(self._now(), 6)
        updated = [
            msgspec.structs.replace(key, until="" if key.key == self._key.key_id else key.until or at) for key in kept
        ]
        if self._key.key_id not in {key.key for key in kept}:
            updated.append(PublicKey(key=self._key.key_id, public=self._key.public.hex(), since=at))
        if updated != list(kept):
            _replace_file(self.public_path, b"".join(msgspec.json.encode(key) + b"\n" for key in updated))


def public_keys_path(key_path: Path) -> Path:
    """Return the path of the public keys that belongs to a key file."""
    return key_path.with_suffix(".pub")


def read_public_keys(path: Path) -> tuple[PublicKey, ...]:
    """Return the public keys; none when there is no file. Raise `ConfigurationError` when it is invalid."""
    try:
        return read_keys(_read_private_file(path))
    except FileNotFoundError:
        return ()
    except ValueError as error:
        raise ConfigurationError(f"{path} cannot be used: {error}. Restore it from a copy.") from None


def is_signature(public: bytes, document: bytes, signature: bytes) -> bool:
    """Return True if an Ed25519 signature is valid."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, document)
    except (InvalidSignature, ValueError):
        return False
    return True


def _generate_key() -> bytes:
    return Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


_FileVersion = tuple[int, int, int]


def _get_file_version(found: os.stat_result) -> _FileVersion:
    return found.st_ino, found.st_mtime_ns, found.st_size


def _load_key(path: Path) -> tuple[_FileVersion, SigningKey]:
    try:
        version, written = _get_file_version(os.stat(path, follow_symlinks=False)), _read_private_file(path)
    except OSError as error:
        raise ConfigurationError(f"The key {path} cannot be read: {error.strerror or error}.") from None
    try:
        private = load_pem_private_key(written, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        private = None
    if not isinstance(private, Ed25519PrivateKey):
        raise ConfigurationError(f"{path} is no Ed25519 key. Restore it from a copy, or move it away to have one made.")
    return version, _to_signing_key(private)


def _to_signing_key(private: Ed25519PrivateKey) -> SigningKey:
    public = private.public_key().public_bytes_raw()
    return SigningKey(derive_key_id(public), public, private.sign)


def _parse_key(configured: str) -> Ed25519PrivateKey:
    """Parse a key from the environment: 32 bytes in base64, or PEM. What cannot be read is not repeated."""
    text = configured.strip()
    with suppress(ValueError, TypeError, UnsupportedAlgorithm):
        if text.startswith("-----BEGIN"):
            private = load_pem_private_key(text.encode(), None)
        else:
            plain = text.rstrip("=").replace("-", "+").replace("_", "/")
            seed = b64decode(plain + "=" * (-len(plain) % 4), validate=True)
            private = Ed25519PrivateKey.from_private_bytes(seed)
        if isinstance(private, Ed25519PrivateKey):
            return private
    found = "has another" if text else "is not set"
    raise ConfigurationError(
        f"Servers that share a database sign with one Ed25519 key: 32 random bytes in base64, or PEM. "
        f"{SIGNING_KEY_ENV} {found}. `openssl rand -base64 32` makes one."
    )


def _register_key(connection: Connection, key: SigningKey, at: str) -> bool:
    """Add a new key, which replaces the others. Return False for one that was replaced."""
    rows = connection.execute("SELECT number, key_id FROM signing_keys ORDER BY number").fetchall()
    if key.key_id in [known for _, known in rows]:
        return rows[-1][1] == key.key_id
    connection.execute("UPDATE signing_keys SET until = ? WHERE until = ''", (at,))
    number = rows[-1][0] + 1 if rows else 1
    connection.execute(_INSERT_KEY, (number, key.key_id, key.public.hex(), at))
    return True


def _is_newest(connection: Connection, key_id: str) -> bool:
    row = connection.execute("SELECT key_id FROM signing_keys ORDER BY number DESC LIMIT 1").fetchone()
    return row is not None and row[0] == key_id


def _read_private_file(path: Path) -> bytes:
    """Read a file that only its owner can access: reading or writing the key would allow signing."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror or error}.") from None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise ConfigurationError(f"{path} is not a file.")
        if found.st_uid != os.geteuid():
            raise ConfigurationError(f"{path} belongs to user {found.st_uid}. What signs has to be yours.")
        if found.st_mode & _GROUP_AND_OTHERS:
            raise ConfigurationError(
                f"Others may get at {path}. Do `chmod 600 {path}`; if they could read the key, replace it."
            )
        return os.read(descriptor, _MAX_BYTES)
    finally:
        os.close(descriptor)


def _replace_file(path: Path, content: bytes) -> None:
    """Replace a file atomically, readable by its owner only."""
    new = path.with_name(f".{path.name}.{token_hex(8)}")
    try:
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)
    except OSError as error:
        with suppress(OSError):
            os.unlink(new)
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from None


@contextmanager
def _lock_folder(folder: Path) -> Generator[None]:
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be used for a key: {error.strerror or error}.") from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
