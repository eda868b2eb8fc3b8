"""The keys of `interlock audit`: those named on the command line, else those of this user's server."""

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import typer

from ...audit.keys import PublicKey, keys_by_id, parse_public_key, read_keys
from ...domain.errors import ConfigurationError
from .user_paths import find_user_paths

_PRIVATE_KEY_FILE = "signing.key"
_PUBLIC_KEYS_FILE = "signing.pub"


def load_keys(public_keys: Sequence[str]) -> dict[str, PublicKey]:
    """Return the keys by id, the oldest first; none where nothing was ever signed here."""
    return keys_by_id(map(_parse_key, public_keys) if public_keys else read_own_keys())


def read_own_keys() -> tuple[PublicKey, ...]:
    """Read the public keys that this user has signed with. Return none if there is no such file."""
    state = find_user_paths().state
    if state is None or not (path := state / _PUBLIC_KEYS_FILE).is_file():
        return ()
    try:
        return read_keys(path.read_bytes())
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise ConfigurationError(f"{path} cannot be used: {reason}. Name the key with --key.") from None


def load_signing() -> tuple[Any, Path]:
    """Return the signer, and the path of its key."""
    try:
        return import_module(".audit_signing", __package__), find_user_paths().make_state_folder() / _PRIVATE_KEY_FILE
    except ImportError as missing:
        raise ConfigurationError(
            f"Signing needs the package {(missing.name or '').partition('.')[0]!r}, which is not installed: "
            "pip install 'interlock[server]'"
        ) from missing


def _parse_key(public: str) -> PublicKey:
    found = parse_public_key(public)
    if found is None:
        raise typer.BadParameter(
            "a public key is 64 hex digits, as `interlock audit key` prints it", param_hint="--key"
        )
    return found
