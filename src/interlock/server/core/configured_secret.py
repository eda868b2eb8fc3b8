"""Secrets referenced by the configuration: the name of an environment variable, or a file."""

from collections.abc import Mapping
from pathlib import Path

from ...domain.errors import ConfigurationError

MIN_SECRET_CHARS = 16
_MAX_SECRET_BYTES = 4096


def read_secret(owner: str, env: str, file: str, environ: Mapping[str, str]) -> str:
    """Return the secret of `owner` (as in `The webhook "ci"`). `ConfigurationError` says what is missing, never what is
    there.

    It may stand in a header, so it is visible ASCII; one of a few characters could be guessed."""
    if bool(env) == bool(file):
        raise ConfigurationError(f"{owner} needs its secret from one place: an environment variable or a file.")
    source = f"the environment variable {env}" if env else f"the file {file}"
    secret = environ.get(env, "") if env else _read_secret_file(owner, file)
    secret = secret.strip()
    if not secret:
        raise ConfigurationError(f"{owner} needs a secret, and {source} has none.")
    if len(secret) < MIN_SECRET_CHARS or not (secret.isascii() and secret.isprintable() and " " not in secret):
        raise ConfigurationError(
            f"{owner} needs a secret of at least {MIN_SECRET_CHARS} visible ASCII characters, and {source} has another."
        )
    return secret


def _read_secret_file(owner: str, file: str) -> str:
    try:
        with Path(file).open("rb") as opened:
            return opened.read(_MAX_SECRET_BYTES).decode()
    except (OSError, UnicodeDecodeError, ValueError) as error:
        problem = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigurationError(f"{owner} needs a secret, and the file {file} cannot be read: {problem}.") from None
