"""API keys of models: from the environment or a keyring, never from or into a file of ours.

A key is for its issuer: with a custom address (`base_url`), the keys in the provider's variables are not sent there.
`INTERLOCK_API_KEY` is a key for whatever is set.
"""

import os
from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from urllib.parse import urlsplit

import msgspec

KEY_VARIABLE = "INTERLOCK_API_KEY"
#: By provider.
PROVIDER_VARIABLES: Mapping[str, str] = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY"}
_KEYRING_SERVICE = "interlock"


class ModelKey(msgspec.Struct, frozen=True):
    """An API key, and where it comes from."""

    value: str
    #: Which variable, or which entry of the keyring.
    origin: str

    def __repr__(self) -> str:
        return f"Key(from {self.origin})"


def find_key(provider: str, base_url: str = "", environ: Mapping[str, str] = os.environ) -> ModelKey | None:
    """Find the API key of a provider in the environment, then in the keyring."""
    variables = (KEY_VARIABLE,) if base_url else (KEY_VARIABLE, PROVIDER_VARIABLES.get(provider, ""))
    for variable in variables:
        if value := environ.get(variable, "").strip():
            return ModelKey(value, variable)
    entry = urlsplit(base_url).hostname or provider
    value = _read_keyring(entry)
    return ModelKey(value, f"keyring entry {_KEYRING_SERVICE}/{entry}") if value else None


def get_key_variable(provider: str, base_url: str = "") -> str:
    """Return the variable to name when there is no key."""
    return KEY_VARIABLE if base_url else PROVIDER_VARIABLES.get(provider, KEY_VARIABLE)


def _read_keyring(entry: str) -> str:
    """Read a key from the keyring; empty without the package `keyring`, a keyring or an entry."""
    if find_spec("keyring") is None:
        return ""
    try:
        found = import_module("keyring").get_password(_KEYRING_SERVICE, entry)
    except Exception:
        return ""
    return found if isinstance(found, str) else ""
