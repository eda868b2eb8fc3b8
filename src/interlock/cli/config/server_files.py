"""The files of a server: one private folder, used by one server at a time.

A server with a log in a file has everything there. One that shares a database has only folders of
background tasks. Several of them on one host take the first folder that is free.
"""

import fcntl
import os
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated, TypeAlias

import msgspec
import typer

from ...domain.errors import ConfigurationError
from .logs import RunFiles, find_run_files
from .user_paths import find_user_paths, make_private_folder

#: On one host.
_MAX_REPLICAS = 100

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


class ServerRunningError(ConfigurationError):
    """Another server uses the folder."""


class ServerFiles(msgspec.Struct, frozen=True):
    """The files of a server."""

    #: None: in a database.
    runs: RunFiles | None
    #: Accounts, keys, the index, keys to sign and to seal with.
    state: Path


def prepare_server_files(log_path: Path | None) -> ServerFiles:
    """Create missing folders, and return the files. For the user's default log they are beside it, with the signing key
    of `interlock audit`.
    """
    user_paths = find_user_paths()
    files = find_run_files(log_path, user_paths)
    if log_path is None:
        return ServerFiles(files, user_paths.make_state_folder())
    return ServerFiles(files, make_private_folder(files.log.with_name(f"{files.log.name}.server")))


@contextmanager
def lock_replica_folder(schema: str) -> Generator[ServerFiles]:
    """Create and lock a folder for a server that shares a database."""
    parent = find_user_paths().make_state_folder()
    for number in range(1, _MAX_REPLICAS + 1):
        state = make_private_folder(parent / f"server-{schema}-{number}")
        with ExitStack() as stack:
            try:
                stack.enter_context(lock_server(state))
            except ServerRunningError:
                continue
            yield ServerFiles(None, state)
            return
    raise ConfigurationError(f"{_MAX_REPLICAS} servers are already running here. Nothing was started.")


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
            raise ServerRunningError(
                f"A server with the files in {state} is already running. Nothing was started. Pass another --log."
            ) from None
        yield
    finally:
        os.close(descriptor)
