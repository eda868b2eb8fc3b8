"""Who answers, and the desk where they do."""

import os
import pwd
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from ..app import App
from ..domain.errors import ConfigurationError
from ..log.interface import EventLog
from ..runs.desk import Desk

MAX_NAME_CHARS = 200


@asynccontextmanager
async def at_desk(log: EventLog) -> AsyncGenerator[Desk]:
    """An answer is small: nothing of it is kept as an artifact, and no tool is needed."""
    app = App(log=log)
    try:
        yield Desk(log, app.artifacts, app=app)
    finally:
        await app.close()


def name_of_person(said: str) -> str:
    """What `--by` said, else the login name: recorded with the answer, and not proved by anything."""
    if len(said) > MAX_NAME_CHARS:
        raise ConfigurationError(f"--by is longer than {MAX_NAME_CHARS} characters.")
    return said or _login_name()


def _login_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"
