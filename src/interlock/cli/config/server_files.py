"""The server's files beside the log: one private folder, used by one server at a time. A log in Postgres is shared by
servers, each with a folder of its own.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer

from ...domain.errors import ConfigurationError
from .logs import find_database, find_run_files, is_in_database
from .user_paths import find_user_paths, make_private_folder

#: `--log`, for commands about a server.
ServerLogOption: TypeAlias = Annotated[
    Path | None,
    typer.Option(
        "--log",
        envvar="INTERLOCK_LOG",
        metavar="FILE",
        help="Log of the server's runs: a file, or postgres:SCHEMA. Default: the user's own.",
    ),
]


class ServerFiles(msgspec.Struct, frozen=True):
    """The files of a server."""

    log: Path
    artifacts: Path
    #: Accounts, keys, the index, keys to sign and to seal with.
    state: Path
    #: Where the log and the artifacts are in Postgres.
    database_url: str = ""
    database_schema: str = ""


def prepare_server_files(log_path: Path | None) -> ServerFiles:
    """Create missing folders, and return the files. For the user's default log they are beside it, with the signing key
    of `interlock audit`.
    """
    user_paths = find_user_paths()
    if log_path is not None and is_in_database(log_path):
        url, schema = find_database(log_path)
        state = make_private_folder(user_paths.make_state_folder() / f"{schema}.server")
        return ServerFiles(log_path, state / "artifacts", state, url, schema)
    files = find_run_files(log_path, user_paths)
    if log_path is None:
        return ServerFiles(files.log, files.artifacts, user_paths.make_state_folder())
    return ServerFiles(files.log, files.artifacts, make_private_folder(files.log.with_name(f"{files.log.name}.server")))


@contextmanager
def lock_server(state: Path) -> Generator[None]:
    """Lock the folder. Raise `ConfigurationError` when another server uses it, or it cannot be locked."""
    path = state / "server.lock"
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be opened: {error.strerror}. Nothing was started.") from None
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(
                f"A server with the files in {state} is already running. Nothing was started. Pass another --log."
            ) from None
        yield
    finally:
        os.close(descriptor)
