"""A file that a command writes for a person: never over another one, for its owner only, whole or not at all."""

import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from ...domain.errors import ConfigurationError


def write_new_file(path: Path, parts: Iterable[bytes]) -> None:
    try:
        with open(path, "xb", opener=_open_private) as file:
            try:
                file.writelines(parts)
            except BaseException:
                with suppress(OSError):
                    os.unlink(path)
                raise
    except FileExistsError:
        raise ConfigurationError(f"{path} is there already; name a new file.") from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}.") from None


def _open_private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
