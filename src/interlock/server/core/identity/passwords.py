"""Passwords, kept as scrypt hashes: `scrypt$n$r$p$salt$hash`.

A hash costs 32 MiB and a tenth of a second, so these functions belong in a thread, and only few at a time. To check a
password against `DUMMY_HASH` costs what any check costs: timing does not reveal whether a name exists.
"""

import base64
import hmac
from hashlib import scrypt
from secrets import token_bytes
from unicodedata import normalize

MIN_CHARS = 12
MAX_BYTES = 1_024

_N, _R, _P = 2**15, 8, 1
_SALT_BYTES = _HASH_BYTES = 32
#: For what is read back: a row that was edited by hand costs no more than this.
_MAX_MEMORY_BYTES = 128 * 2**20
_PARTS = 6


def find_password_problem(password: str, name: str) -> str:
    """Return why this cannot be the password of that account; empty when it can."""
    if len(password) < MIN_CHARS:
        return f"must have at least {MIN_CHARS} characters"
    if len(password) > MAX_BYTES or len(_normalize_password(password)) > MAX_BYTES:
        return f"must have at most {MAX_BYTES} bytes"
    if password.strip().casefold() == name.casefold():
        return "must not be the name of the account"
    return ""


def hash_password(password: str) -> str:
    """Hash a password with scrypt and a new salt."""
    salt = token_bytes(_SALT_BYTES)
    return _encode_hash(salt, _derive_hash(_normalize_password(password), salt, _N, _R, _P))


def verify_password(password: str, stored_hash: str) -> bool:
    """Return True if it is the hashed password. Takes equally long either way."""
    if len(password) > MAX_BYTES or len(given := _normalize_password(password)) > MAX_BYTES:
        return False
    try:
        n, r, p, salt, expected = _decode_hash(stored_hash)
        return hmac.compare_digest(_derive_hash(given, salt, n, r, p), expected)
    except (ValueError, OverflowError):  # not a hash that was written here
        return False


def _normalize_password(password: str) -> bytes:
    """Normalize a password, so that it is the same bytes on every system."""
    return normalize("NFKC", password).encode(errors="surrogatepass")


def _derive_hash(password: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    return scrypt(password, salt=salt, n=n, r=r, p=p, maxmem=_MAX_MEMORY_BYTES, dklen=_HASH_BYTES)


def _encode_hash(salt: bytes, hashed: bytes) -> str:
    return "$".join(
        ("scrypt", str(_N), str(_R), str(_P), *(base64.b64encode(part).decode() for part in (salt, hashed)))
    )


def _decode_hash(stored_hash: str) -> tuple[int, int, int, bytes, bytes]:
    parts = stored_hash.split("$")
    if len(parts) != _PARTS or parts[0] != "scrypt":
        raise ValueError("not a hash of scrypt")
    salt, expected = (base64.b64decode(part, validate=True) for part in parts[4:])
    return int(parts[1]), int(parts[2]), int(parts[3]), salt, expected


#: The hash of no password.
DUMMY_HASH = _encode_hash(bytes(_SALT_BYTES), bytes(_HASH_BYTES))
