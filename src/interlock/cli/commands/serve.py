"""`interlock serve`: REST, console and the worker behind them, in files or in a shared database."""

import asyncio
from collections.abc import Generator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from ...domain.errors import ConfigurationError
from ..config.logs import is_in_database
from ..config.server_files import (
    ServerFiles,
    ServerLogOption,
    lock_replica_folder,
    lock_server,
    prepare_server_files,
)
from ..config.user_paths import find_user_paths
from ..options import create_app

app = create_app()

_EXITS = "Exit codes: 0 stopped by a signal; 2 the server could not start."


@app.command(epilog=_EXITS)
def serve(  # noqa: PLR0913, PLR0917 - the options of the command
    config: Annotated[
        Path | None,
        typer.Option(
            "--config", "-c", metavar="FILE", help="Server settings. Default: serve.toml in the config directory."
        ),
    ] = None,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", "-a", metavar="PLACE", help="Agent to serve, as package.module:name. Repeatable."),
    ] = None,
    demo: Annotated[bool, typer.Option("--demo", help="Serve two agents that need no model and no network.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: 127.0.0.1.")] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port to listen on; 0 chooses a free one. Default: 8321.")
    ] = None,
    log: ServerLogOption = None,
    no_worker: Annotated[
        bool, typer.Option("--no-worker", help="Leave all runs of a log in Postgres to `interlock worker`.")
    ] = False,
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=0,
            max=65535,
            help="Serve /metrics and /health on this port of the loopback interface, too. Default: not at all.",
        ),
    ] = None,
) -> None:
    """Serve runs to people and programs: REST, console, approvals, audit.

    The first start creates the account `admin` and shows its password once.
    """
    changes: dict[str, Any] = {key: value for key, value in (("host", host), ("port", port)) if value is not None}
    process = import_module("interlock.cli.server_process")  # all of a server, which help does not need
    folder = find_user_paths().config
    if config is None and folder is not None and (folder / "serve.toml").exists():
        config = folder / "serve.toml"
    settings, served = process.prepare_server(config, agents or [], demo)
    settings = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, **changes))
    if is_in_database(log):
        settings = process.use_database(settings, log)
    if no_worker and settings.database is None:
        raise ConfigurationError(
            "--no-worker needs a log in Postgres, such as --log postgres:. Only this server would continue the runs "
            "of a file. Nothing was started."
        )
    own_paths = (*find_user_paths().own_paths, *(() if config is None else (str(config),)))
    with _lock_files(log, "" if settings.database is None else settings.database.schema) as files:
        asyncio.run(
            process.run_server(settings, served, files, own_paths, is_worker=not no_worker, metrics_port=metrics_port)
        )


@contextmanager
def _lock_files(log: Path | None, schema: str) -> Generator[ServerFiles]:
    """Lock the files of this server: those beside its log, or a folder for one that shares a database."""
    if schema:
        with lock_replica_folder(schema) as files:
            yield files
        return
    files = prepare_server_files(log)
    with lock_server(files.state):
        yield files
