"""All forwarders of a server: created from the configuration, started, stopped, and monitored."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from time import time_ns
from typing import assert_never

from ....domain.errors import ConfigurationError
from ....storage.event_log import EventLog
from ..addresses import Resolver, resolve_with_system
from ..configured_secret import read_secret
from ..database import Database
from ..safe_http import SafeClient, create_ssl_context
from .destination import (
    Destination,
    FileDestination,
    HecDestination,
    SyslogDestination,
    WebhookDestination,
    check_destinations,
)
from .file import FileSender
from .forwarder import Forwarder, ForwarderOptions, ForwarderStatus
from .http_senders import HecSender, WebhookSender
from .interface import EventRenderer, EventSender
from .syslog import SyslogSender


def create_sender(
    destination: Destination,
    environ: Mapping[str, str],
    *,
    resolve: Resolver = resolve_with_system,
    now: Callable[[], int] = time_ns,
) -> EventSender:
    """Create the sender of a destination. Raise `ConfigurationError` when its secret or certificates are missing."""
    owner = f'The destination "{destination.name}"'
    match destination:
        case HecDestination():
            token = read_secret(owner, destination.token_env, destination.token_file, environ)
            client = SafeClient(destination.network_access, ca_file=destination.ca_file, resolve=resolve)
            return HecSender(destination, token, client, now)
        case WebhookDestination():
            secret = read_secret(owner, destination.secret_env, destination.secret_file, environ)
            client = SafeClient(destination.network_access, ca_file=destination.ca_file, resolve=resolve)
            return WebhookSender(destination, secret, client, now)
        case SyslogDestination():
            verify = create_ssl_context(destination.ca_file) if destination.transport == "tls" else None
            return SyslogSender(destination, verify, resolve)
        case FileDestination():
            return FileSender(destination)
        case _:
            assert_never(destination)


class Forwarders:
    """The forwarders of all destinations."""

    def __init__(  # noqa: PLR0913 - as a forwarder, for several
        self,
        log: EventLog,
        db: Database,
        destinations: Sequence[Destination],
        schemas: Mapping[str, EventRenderer],
        *,
        environ: Mapping[str, str],
        options: ForwarderOptions | None = None,
    ) -> None:
        check_destinations(destinations)
        self._forwarders: dict[str, Forwarder] = {}
        self._tasks: list[asyncio.Task[None]] = []
        for destination in destinations:
            if destination.schema not in schemas:
                raise ConfigurationError(f'The destination "{destination.name}" wants an unknown schema.')
            sender = create_sender(destination, environ)
            render = schemas[destination.schema]
            self._forwarders[destination.name] = Forwarder(log, db, destination, render, sender=sender, options=options)

    def get(self, name: str) -> Forwarder | None:
        return self._forwarders.get(name)

    def start(self) -> None:
        """Start sending, each in its own task."""
        self._tasks = [
            asyncio.create_task(forwarder.run(), name=f"forward:{name}") for name, forwarder in self._forwarders.items()
        ]

    def wake(self) -> None:
        for forwarder in self._forwarders.values():
            forwarder.wake()

    async def list_statuses(self) -> list[ForwarderStatus]:
        return [await forwarder.get_status() for forwarder in self._forwarders.values()]

    async def stop(self) -> None:
        """Stop; unfinished batches are sent again at the next start."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        for forwarder in self._forwarders.values():
            await forwarder.close()
