"""The process of a server: its agents, its first account, its socket, and its life until a signal ends it."""

import logging
import os
import secrets
import signal
import socket
import ssl
from collections.abc import AsyncGenerator, Generator, Sequence
from contextlib import (
    AbstractContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
    closing,
    contextmanager,
    suppress,
)
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec

from .. import lazy_module
from ..domain.errors import ConfigurationError, LogError
from ..engine.metrics import ProcessMetrics
from ..rendering.text import pluralize
from .display.output import echo
from .session.metrics_server import serve_metrics
from .session.terminal import signal_handlers

try:
    import uvicorn
    from starlette.applications import Starlette

    from ..server.console.app import mount_console
    from ..server.core.database.interface import Database
    from ..server.core.identity.principal import IdentityProblem, Role
    from ..server.core.metrics import list_gauges
    from ..server.core.retention import RetentionStorage
    from ..server.core.runs.agent_loading import load_agents
    from ..server.core.runs.demo_agents import demo_agents
    from ..server.core.runs.served_agent import ServedAgent
    from ..server.core.service import Service
    from ..server.core.settings import DatabaseTable, ServerSettings, ServerTable, read_settings
    from ..server.rest.app import create_api
    from ..server.rest.connections import BoundedHttpProtocol
except ModuleNotFoundError as missing:
    raise ConfigurationError("A server needs more than the command: pip install 'interlock[server]'") from missing

from ..engine.interface import Engine
from ..storage.artifacts import ArtifactStore
from ..storage.event_log import EventLog
from ..storage.sqlite.log import SqliteLog
from .config import artifact_stores
from .config.logs import find_database, find_run_files
from .config.server_files import ServerFiles
from .config.user_paths import find_user_paths
from .options import DATABASE_VARIABLE

if TYPE_CHECKING:
    from ..engine import postgres as engine_postgres
    from ..server.core.database import postgres as postgres_database
    from ..storage.postgres import log as postgres_log
else:
    engine_postgres = lazy_module("..engine.postgres", __package__)
    postgres_database = lazy_module("..server.core.database.postgres", __package__)
    postgres_log = lazy_module("..storage.postgres.log", __package__)

FIRST_ACCOUNT = "admin"
_MAX_HEADER_BYTES = 64 * 1024
#: Requests under way have so long when the server stops; then they are cut off.
_SHUTDOWN_GRACE_SECONDS = 3


def prepare_server(
    config: Path | None, agent_names: Sequence[str], demo: bool
) -> tuple[ServerSettings, list[ServedAgent]]:
    """Return the settings and the served agents. Raise `ConfigurationError` when there is nothing to serve."""
    settings = ServerSettings() if config is None else read_settings(config)
    served = demo_agents() if demo else []
    if settings.agents or agent_names or not demo:
        served = [*served, *load_agents(settings.agents, agent_names)]
    if not served:
        raise ConfigurationError(
            "There is no agent to serve. Name one with --agent package.module:name or in serve.toml, install a package "
            "that offers some, or take a look with --demo. Nothing was started."
        )
    return settings, served


async def run_server(  # noqa: PLR0913 - every keyword is explicit
    settings: ServerSettings,
    served: Sequence[ServedAgent],
    files: ServerFiles,
    own_paths: Sequence[str] = (),
    *,
    is_worker: bool = True,
    metrics_port: int | None = None,
) -> None:
    """Serve until a signal. Calls under way are given a moment; every run can be resumed.

    `own_paths` are files that no tool may access, beside those of the server and those that settings name. Without
    `is_worker` all runs are left to other processes.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # Signals are handled until all is stopped, so they are left last.
    with _listening_socket(settings.server) as sock, ExitStack() as signals:
        port = sock.getsockname()[1]
        settings = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, port=port))
        async with AsyncExitStack() as opened:
            with _reporting_failed_start():
                storage = await opened.enter_async_context(_open_storage(settings, files))
                service = Service(
                    settings,
                    served,
                    log=storage.log,
                    artifacts=storage.artifacts,
                    state_folder=files.state,
                    database=storage.database,
                    own_paths=own_paths,
                    engine=storage.engine,
                    is_worker=is_worker,
                    owner=storage.owner,
                )
                opened.push_async_callback(service.stop)
                app = create_app(service)
                config = _uvicorn_config(app, settings.server)
                await require_account(service)
            await service.start()
            if settings.gateway is not None:
                with _reporting_failed_start():  # the SDK of MCP is loaded only where there is a gateway
                    served_gateway = import_module("interlock.cli.served_gateway")
                    gateway = served_gateway.serve_gateway(app, service, settings.gateway, files.state)
                    await opened.enter_async_context(gateway)
            if metrics_port is not None:
                metrics = ProcessMetrics(service.log, *list_gauges(service))
                port = await opened.enter_async_context(serve_metrics(metrics, metrics_port))
                echo(f"Metrics are at http://127.0.0.1:{port}/metrics.")
            password = await create_first_account(service)  # last of all: a password that was never shown is useless
            server = _Server(config, service)
            signals.enter_context(server.stop_on_signals())
            _echo_welcome(service, password)
            await server.serve(sockets=[sock])
        _try_echo("Stopped.")


def use_database(settings: ServerSettings, log: Path) -> ServerSettings:
    """Return the settings with the database of `--log postgres:`."""
    with _reporting_failed_start():
        _, schema = find_database(log)
    table = msgspec.structs.replace(settings.database or DatabaseTable(), url_env=DATABASE_VARIABLE, schema=schema)
    return msgspec.structs.replace(settings, database=table)


class _Storage(NamedTuple):
    log: EventLog
    artifacts: ArtifactStore
    #: None: files of this server alone.
    database: Database | None = None
    engine: Engine | None = None
    #: With the right to delete, where `[retention]` needs it.
    owner: RetentionStorage | None = None


@asynccontextmanager
async def _open_storage(settings: ServerSettings, files: ServerFiles) -> AsyncGenerator[_Storage]:
    """Open log and artifacts, in files or in the database that servers share."""
    table = settings.database
    if table is None or files.runs is not None:
        runs = files.runs or find_run_files(None, find_user_paths())
        async with SqliteLog(runs.log) as log:
            yield _Storage(log, artifact_stores.open_for_file(settings.artifacts, runs.artifacts))
        return
    for name in ("procrastinate", "psycopg.pool"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # the engine reports what matters
    url, schema, readers = table.read_url(os.environ), table.schema, table.readers
    patience = settings.worker.patience_seconds
    # First: it says what the role may not do.
    database = postgres_database.PostgresDatabase(url, schema, readers)
    artifacts = artifact_stores.open_for_database(settings.artifacts, url, schema, patience)
    with closing(database), closing(artifacts):
        async with postgres_log.PostgresLog(
            url,
            schema=schema,
            readers=readers,
            lease_seconds=settings.worker.lease_seconds,
            patience_seconds=patience,
        ) as log:
            engine = engine_postgres.PostgresEngine(log, name=f"{os.uname().nodename}:{os.getpid()}")
            async with _open_owner(settings, schema) as owner:
                yield _Storage(log, artifacts, database, engine, owner)


@asynccontextmanager
async def _open_owner(settings: ServerSettings, schema: str) -> AsyncGenerator[RetentionStorage | None]:
    """Open log and artifacts with the role that owns the tables, if runs are to be removed."""
    if not settings.retention.is_active:
        yield None
        return
    url, patience = settings.retention.read_owner_url(os.environ), settings.worker.patience_seconds
    with closing(artifact_stores.open_for_database(settings.artifacts, url, schema, patience)) as artifacts:
        async with postgres_log.PostgresLog(url, schema=schema, readers=1, patience_seconds=patience) as log:
            if not await log.can_remove_runs():
                raise ConfigurationError(
                    f"[retention] removes events, which the role in {settings.retention.owner_url_env} cannot. Use "
                    "the URL of the role that owns the tables."
                )
            yield RetentionStorage(log, artifacts)


@contextmanager
def _reporting_failed_start() -> Generator[None]:
    """Report a failed start together with what that means."""
    try:
        yield
    except (ConfigurationError, LogError) as error:
        message = str(error)
        if "Nothing was started" not in message:
            message = f"{message.rstrip('.')}. Nothing was started."
        raise ConfigurationError(message) from error


def create_app(service: Service) -> Starlette:
    """Create REST and console for a service that its owner starts and stops."""
    app = create_api(service)
    mount_console(app, service)
    return app


async def require_account(service: Service) -> None:
    """Raise `ConfigurationError` where an account has to be created first: on other hosts, no password shown on a
    screen is accepted.
    """
    server = service.settings.server
    if not server.is_loopback and service.sign_in is None and not await service.accounts.list():
        raise ConfigurationError(
            f"There is no account yet, so the server does not listen on {server.host}. Make one first: "
            "interlock accounts add NAME --role admin. Nothing was started."
        )


async def create_first_account(service: Service) -> str:
    """Create the first account, and return its password; empty where none was created."""
    if not service.settings.server.is_loopback or await service.accounts.list():
        return ""
    password = secrets.token_urlsafe(18)
    created = await service.accounts.create(FIRST_ACCOUNT, password, roles=(Role.ADMIN, Role.OPERATOR), by="system")
    if isinstance(created, IdentityProblem) and created.kind == "conflict":
        return ""  # another server that shares the database was faster
    if isinstance(created, IdentityProblem):
        raise ConfigurationError(f"The first account could not be made: {created.field} {created.problem}.")
    return password


def _echo_welcome(service: Service, password: str) -> None:
    server = service.settings.server
    echo(f"Interlock serves {', '.join(service.runners.served_agents)} at {service.public_url}/")
    if password:
        echo(f"Sign in as {FIRST_ACCOUNT} with the password {password}")
        echo("It is shown only now. `interlock accounts` makes more accounts, `interlock keys` keys for programs.")
    if not (server.is_loopback or server.tls_certificate or server.public_url.startswith("https:")):
        echo(
            f"Warning: {server.host} can be reached from elsewhere, and passwords and keys are sent as they are. Set "
            "tls_certificate and tls_key, or public_url to the https address of a proxy in front.",
            error=True,
        )
    echo("Ctrl-C stops the server. Runs are kept and resumed at the next start.")


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    def stop_on_signals(self) -> AbstractContextManager[None]:
        """Stop in order on a signal, also when the terminal is gone. Enter it before the server can be found."""
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
        return signal_handlers({number: partial(self.handle_exit, number, None) for number in numbers})

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        """Leave signals alone: uvicorn would send them again afterwards, while runs are still being stopped."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        active = len(self._service.runners.list_live_handles())
        seconds = self._service.settings.server.stop_seconds
        under_way = f" {pluralize(active, 'run')} under way: calls have up to {seconds:g} s." if active else ""
        _try_echo(f"Stopping.{under_way}")
        await self._service.hub.close()  # subscribers of events would keep it from ending
        await super().shutdown(sockets)


def _try_echo(message: str) -> None:
    """Print a message. Ignore a closed terminal, which must not prevent an orderly stop."""
    with suppress(OSError, ValueError):
        echo(message)


def _uvicorn_config(app: Starlette, server: ServerTable) -> uvicorn.Config:
    """Build the configuration of uvicorn. Raise `ConfigurationError` for an unusable certificate."""
    if server.tls_certificate:
        _check_certificate(server)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="off",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=_SHUTDOWN_GRACE_SECONDS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        http=BoundedHttpProtocol,
        ws="none",
        proxy_headers=bool(server.trusted_proxies),
        forwarded_allow_ips=list(server.trusted_proxies),
        ssl_certfile=server.tls_certificate or None,
        ssl_keyfile=server.tls_key or None,
    )
    config.load()
    return config


def _check_certificate(server: ServerTable) -> None:
    """Check the certificate before uvicorn does, which would ask the terminal for a pass phrase."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            server.tls_certificate, server.tls_key, password=lambda: ""
        )
    except OSError as error:
        reason = error.strerror or error
        if isinstance(error, ssl.SSLError):
            reason = "both have to be PEM, belong together, and need no pass phrase"
        raise ConfigurationError(
            f"The certificate {server.tls_certificate} with the key {server.tls_key} cannot be used: {reason}. "
            "Nothing was started."
        ) from None


@contextmanager
def _listening_socket(server: ServerTable) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    try:
        sock = socket.create_server((server.host, server.port), family=family, backlog=1024)
        # A small answer does not wait for more. asyncio sets this only for sockets that it makes itself.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, UnicodeError) as error:
        reason = str(getattr(error, "strerror", None) or error).partition(" (while attempting")[0]
        raise ConfigurationError(
            f"Cannot listen on {server.host} port {server.port}: {reason}. Nothing was started. --host and --port name "
            "another place."
        ) from None
    with sock:
        yield sock
