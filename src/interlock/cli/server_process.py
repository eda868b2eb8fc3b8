"""The process of a server: its agents, its first account, its socket, and its life until a signal ends it."""

import logging
import secrets
import socket
from collections.abc import Sequence
from pathlib import Path

import msgspec

from ..domain.errors import ConfigurationError
from .show import say

try:
    import uvicorn
    from fastapi import FastAPI

    from ..api.app import make_api
    from ..console.site import mount_console
    from ..service.agent_loading import load_agents
    from ..service.agents import ServedAgent
    from ..service.demo_agents import demo_agents
    from ..service.principal import Role
    from ..service.service import Service
    from ..service.settings import ServerSettings, read_settings
    from ..service.trust import Refusal
except ModuleNotFoundError as missing:
    raise ConfigurationError("A server needs more than the command: pip install 'interlock[server]'") from missing

from ..artifacts.files import FileArtifacts
from ..log.sqlite import SqliteLog
from .server_files import ServerFiles

FIRST_ACCOUNT = "admin"
_SLOW_CLIENT_SECONDS = 30
_MAX_HEADER_BYTES = 64 * 1024


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


async def run_server(settings: ServerSettings, served: Sequence[ServedAgent], files: ServerFiles) -> None:
    """Until a signal. Calls under way are given a moment; every run can be gone on with."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.getLogger("uvicorn").setLevel(logging.WARNING)
    sock = _listen(settings.server.host, settings.server.port)
    settings = msgspec.structs.replace(
        settings, server=msgspec.structs.replace(settings.server, port=sock.getsockname()[1])
    )
    async with SqliteLog(files.log) as log:
        service = Service(settings, served, log=log, artifacts=FileArtifacts(files.artifacts), state=files.state)
        try:
            password = await first_account(service)
        except BaseException:
            await service.stop()
            raise
        app = make_app(service)
        server = _Server(_uvicorn_config(app, settings), service)
        say(f"Interlock serves {', '.join(service.fleet.served)} at {service.public_url}/")
        if password:
            say(f"Sign in as {FIRST_ACCOUNT} with the password {password}")
            say("It is shown only now. `interlock accounts` makes more accounts, `interlock keys` keys for programs.")
        say("Ctrl-C stops it; runs are kept and gone on with at the next start.")
        async with service:
            await server.serve(sockets=[sock])


def make_app(service: Service) -> FastAPI:
    """REST and console of a service that its owner starts and stops."""
    app = make_api(service)
    mount_console(app, service)
    return app


async def first_account(service: Service) -> str:
    """The password of the account that was made; empty where there were accounts. Elsewhere than on this machine
    nobody is let in by a password that a screen shows."""
    if await service.accounts.list():
        return ""
    if not service.settings.server.is_loopback:
        raise ConfigurationError(
            f"There is no account yet, so the server does not listen on {service.settings.server.host}. Make one "
            "first: interlock accounts add NAME --role admin. Nothing was started."
        )
    password = secrets.token_urlsafe(18)
    made = await service.accounts.create(FIRST_ACCOUNT, password, roles=(Role.ADMIN, Role.OPERATOR), by="system")
    if isinstance(made, Refusal):
        raise ConfigurationError(f"The first account could not be made: {made.field} {made.problem}.")
    return password


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, service: Service) -> None:
        super().__init__(config)
        self._service = service

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._service.hub.close()  # those who follow events would keep it from ending
        await super().shutdown(sockets)


def _uvicorn_config(app: FastAPI, settings: ServerSettings) -> uvicorn.Config:
    server = settings.server
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=True,
        lifespan="off",
        timeout_keep_alive=5,
        timeout_graceful_shutdown=int(server.stop_seconds) + 1,
        h11_max_incomplete_event_size=_MAX_HEADER_BYTES,
        proxy_headers=False,
        ssl_certfile=server.tls_certificate or None,
        ssl_keyfile=server.tls_key or None,
    )


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family, backlog=1024)
    except OSError as error:
        raise ConfigurationError(f"Cannot listen on {host} port {port}: {error.strerror or error}.") from None
