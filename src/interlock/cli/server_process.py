"""The process of a server: its agents, its first account, its socket, and its life until a signal ends it."""

import logging
import secrets
import signal
import socket
import ssl
from collections.abc import Generator, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import msgspec

from ..domain.errors import ConfigurationError, LogError
from .display.output import count, say
from .session.signals import signal_handlers

try:
    import uvicorn
    from fastapi import FastAPI

    from ..server.console.site import mount_console
    from ..server.core.identity.principal import Role
    from ..server.core.identity.trust import Refusal
    from ..server.core.runs.agent_loading import load_agents
    from ..server.core.runs.agents import ServedAgent
    from ..server.core.runs.demo_agents import demo_agents
    from ..server.core.service import Service
    from ..server.core.settings import ServerSettings, ServerTable, read_settings
    from ..server.rest.app import make_api
    from ..server.rest.connections import Connection
except ModuleNotFoundError as missing:
    raise ConfigurationError("A server needs more than the command: pip install 'interlock[server]'") from missing

from ..storage.file_artifacts import FileArtifacts
from ..storage.sqlite.log import SqliteLog
from .config.server_files import ServerFiles

FIRST_ACCOUNT = "admin"
_MAX_HEADER_BYTES = 64 * 1024
#: Requests under way have so long when the server stops; then they are cut off.
_LAST_REQUESTS_SECONDS = 3


def prepare(config: Path | None, named: Sequence[str], demo: bool) -> tuple[ServerSettings, list[ServedAgent]]:
    """What is served, and how. `ConfigurationError` when there is nothing to serve."""
    settings = ServerSettings() if config is None else read_settings(config)
    served = demo_agents() if demo else []
    if settings.agents or named or not demo:
        served = [*served, *load_agents(settings.agents, named)]
    if not served:
        raise ConfigurationError(
            "There is no agent to serve. Name one with --agent package.module:name or in serve.toml, install a package "
            "that offers some, or take a look with --demo. Nothing was started."
        )
    return settings, served


async def run_server(
    settings: ServerSettings, served: Sequence[ServedAgent], files: ServerFiles, own_paths: Sequence[str] = ()
) -> None:
    """Serve until a signal. Calls under way are given a moment; every run can be resumed.

    `own_paths` are files that no tool may touch, beside those of the server and those that settings name.
    """
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    # Signals are handled until all is stopped, so they are left last.
    with _listening(settings.server) as sock, ExitStack() as signals:
        port = sock.getsockname()[1]
        settings = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, port=port))
        async with AsyncExitStack() as opened:
            with _nothing_started():
                log = await opened.enter_async_context(SqliteLog(files.log))
                artifacts = FileArtifacts(files.artifacts)
                service = Service(
                    settings, served, log=log, artifacts=artifacts, state=files.state, own_paths=own_paths
                )
                opened.push_async_callback(service.stop)
                config = _uvicorn_config(make_app(service), settings.server)
                await check_accounts(service)
            await service.start()
            password = await first_account(service)  # last of all: a password that nobody was shown lets nobody in
            server = _Server(config, service)
            signals.enter_context(server.stop_on_signals())
            _greet(service, password)
            await server.serve(sockets=[sock])
        _say_if_heard("Stopped.")


@contextmanager
def _nothing_started() -> Generator[None]:
    """Whatever keeps a server from starting is told together with what that means."""
    try:
        yield
    except (ConfigurationError, LogError) as error:
        words = str(error)
        if "Nothing was started" not in words:
            words = f"{words.rstrip('.')}. Nothing was started."
        raise ConfigurationError(words) from error


def make_app(service: Service) -> FastAPI:
    """REST and console of a service, which its owner starts and stops."""
    app = make_api(service)
    mount_console(app, service)
    return app


async def check_accounts(service: Service) -> None:
    """`ConfigurationError` where somebody has to make an account first: elsewhere than on this machine nobody is let in
    by a password that a screen shows."""
    server = service.settings.server
    if not server.is_loopback and service.sign_in is None and not await service.accounts.list():
        raise ConfigurationError(
            f"There is no account yet, so the server does not listen on {server.host}. Make one first: "
            "interlock accounts add NAME --role admin. Nothing was started."
        )


async def first_account(service: Service) -> str:
    """The password of the account that was made; empty where none was."""
    if not service.settings.server.is_loopback or await service.accounts.list():
        return ""
    password = secrets.token_urlsafe(18)
    made = await service.accounts.create(FIRST_ACCOUNT, password, roles=(Role.ADMIN, Role.OPERATOR), by="system")
    if isinstance(made, Refusal):
        raise ConfigurationError(f"The first account could not be made: {made.field} {made.problem}.")
    return password


def _greet(service: Service, password: str) -> None:
    server = service.settings.server
    say(f"Interlock serves {', '.join(service.fleet.served)} at {service.public_url}/")
    if password:
        say(f"Sign in as {FIRST_ACCOUNT} with the password {password}")
        say("It is shown only now. `interlock accounts` makes more accounts, `interlock keys` keys for programs.")
    if not (server.is_loopback or server.tls_certificate or server.public_url.startswith("https:")):
        say(
            f"Warning: {server.host} can be reached from elsewhere, and passwords and keys are sent as they are. Set "
            "tls_certificate and tls_key, or public_url to the https address of a proxy in front.",
            error=True,
        )
    say("Ctrl-C stops it; runs are kept and gone on with at the next start.")


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
        """uvicorn would send a signal to the process again afterwards, while runs are still being given a moment."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        moving = len(self._service.fleet.live())
        seconds = self._service.settings.server.stop_seconds
        _say_if_heard(
            f"Stopping. {count(moving, 'run')} under way: calls have up to {seconds:g} s." if moving else "Stopping."
        )
        await self._service.hub.close()  # those who follow events would keep it from ending
        await super().shutdown(sockets)


def _say_if_heard(words: str) -> None:
    """A terminal that is gone must not keep a server from stopping in order."""
    with suppress(OSError, ValueError):
        say(words)


def _uvicorn_config(app: FastAPI, server: ServerTable) -> uvicorn.Config:
    """`ConfigurationError` for a certificate that cannot be used."""
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
        timeout_graceful_shutdown=_LAST_REQUESTS_SECONDS,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        http=Connection,
        ws="none",
        proxy_headers=bool(server.trusted_proxies),
        forwarded_allow_ips=list(server.trusted_proxies),
        ssl_certfile=server.tls_certificate or None,
        ssl_keyfile=server.tls_key or None,
    )
    config.load()
    return config


def _check_certificate(server: ServerTable) -> None:
    """Before uvicorn does, which would ask the terminal for a pass phrase."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(
            server.tls_certificate, server.tls_key, password=lambda: ""
        )
    except OSError as error:
        why = error.strerror or error
        if isinstance(error, ssl.SSLError):
            why = "both have to be PEM, belong together, and need no pass phrase"
        raise ConfigurationError(
            f"The certificate {server.tls_certificate} with the key {server.tls_key} cannot be used: {why}. "
            "Nothing was started."
        ) from None


@contextmanager
def _listening(server: ServerTable) -> Generator[socket.socket]:
    family = socket.AF_INET6 if ":" in server.host else socket.AF_INET
    try:
        sock = socket.create_server((server.host, server.port), family=family, backlog=1024)
        # A small answer does not wait for more. asyncio sets this only for sockets that it makes itself.
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    except (OSError, UnicodeError) as error:
        why = str(getattr(error, "strerror", None) or error).partition(" (while attempting")[0]
        raise ConfigurationError(
            f"Cannot listen on {server.host} port {server.port}: {why}. Nothing was started. --host and --port name "
            "another place."
        ) from None
    with sock:
        yield sock
