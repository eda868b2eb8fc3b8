"""Which runs a living process has right now. Asking takes no run from anybody."""

import asyncio
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from ..domain.errors import LogError
from ..log.process import Process, is_gone, this_process

_CLAIMS = "SELECT run_id, host, boot, pid, started FROM claims WHERE pid != 0"


async def holders(path: Path) -> Mapping[str, str]:
    """By run, the process in words. One on another host counts as alive: from here nobody can tell."""
    return await asyncio.to_thread(_holders, path)


def _holders(path: Path) -> Mapping[str, str]:
    here = this_process()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            claims = [(row[0], Process(*row[1:])) for row in connection.execute(_CLAIMS)]
    except sqlite3.Error as error:
        raise LogError(f"cannot read the log {path}: {error}") from None
    return {run_id: str(process) for run_id, process in claims if not is_gone(process, here)}
