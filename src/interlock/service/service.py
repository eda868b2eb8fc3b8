"""The server without its doors: everything that REST and console call, joined, started and stopped in one place."""

import asyncio
import logging
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import time_ns
from types import TracebackType

from ..artifacts.interface import Artifacts
from ..consents.interface import Consents
from ..consents.none import NoConsents
from ..consents.oauth import OAuthConsents
from ..domain.consent import Consent
from ..domain.errors import InterlockError
from ..history.exports.schemas import renderers
from ..history.fold import load
from ..log.interface import EventLog
from ..pipeline.parts import Clock, Limits
from . import account_rows, api_keys, journal, schedules, sessions, token_table
from .accounts import Accounts
from .agents import ServedAgent
from .api_keys import ApiKeys
from .attempts import Attempts
from .consenting import Consenting
from .database import Database
from .deciding import Deciding
from .fleet import Fleet
from .forwarding import positions
from .forwarding.forwarders import Forwarders
from .guard import Guard
from .hub import Hub
from .index import Index
from .journal import Journal
from .principal import Principal, Role
from .rows import ActionRow
from .schedules import Due, Schedules
from .sealing import SealingKeys, sealing_keys
from .sessions import Sessions
from .settings import ServerSettings
from .sign_in_oidc import OidcSignIn, SignInSettings
from .starting import NewRun, Starting
from .token_table import TokenTable
from .webhooks import Triggered, Webhooks
from .worker import Worker

logger = logging.getLogger("interlock.server")

_TABLES = (
    *account_rows.TABLES,
    *api_keys.TABLES,
    *sessions.TABLES,
    *journal.TABLES,
    *token_table.TABLES,
    *schedules.TABLES,
    *positions.TABLES,
)
_LOOK_SECONDS = 1.0


class Service:
    def __init__(  # noqa: PLR0913 - what it joins
        self,
        settings: ServerSettings,
        served: Sequence[ServedAgent],
        *,
        log: EventLog,
        artifacts: Artifacts,
        state: Path,
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], int] = time_ns,
    ) -> None:
        """`state` is the folder of the server's own files. The log and the artifacts are their owner's to close."""
        self.settings = settings
        self.state = state
        self.log = log
        self.artifacts = artifacts
        self.now = now
        self.database = Database(state / "server.db", _TABLES)
        self.journal = Journal(self.database, now)
        self.accounts = Accounts(self.database, now)
        self.keys = ApiKeys(self.database, now)
        self.sessions = Sessions(self.database, now)
        self.attempts = Attempts()
        self.index = Index(state / "index.db", log)
        self.hub = Hub(self.index, max_readers=settings.server.max_readers)
        tokens, seal = TokenTable(self.database), sealing_keys(state / "sealing.key", environ)
        self._oauth = OAuthConsents(settings.providers, tokens, seal, now, environ) if settings.providers else None
        consents: Consents = self._oauth or NoConsents()
        limits = Limits(
            approval_seconds=settings.server.approval_seconds, consent_seconds=settings.server.consent_seconds
        )
        self.fleet = Fleet(served, log, artifacts, consents, limits=limits, clock=Clock(now=now))
        self.fleet.keep_off([str(state)])
        self.guard = Guard(self.index, self.journal, settings.server.four_eyes)
        self.worker = Worker(self.fleet, self.index, self.hub, now)
        self.starting = Starting(self.fleet, self.index, self.guard, self.worker, settings.server.max_live_runs)
        self.deciding = Deciding(self.fleet, self.guard, self.worker)
        self.consenting = None if self._oauth is None else self._consenting(self._oauth)
        self.sign_in = None if settings.sign_in is None else self._sign_in(settings.sign_in, tokens, seal, environ)
        self.schedules = Schedules(self.database, settings.schedules, self._fire, now)
        self.webhooks = Webhooks(settings.webhooks, environ)
        self.forwarders = Forwarders(log, self.database, settings.forward, renderers(), environ=environ)
        self._tasks: list[asyncio.Task[None]] = []
        self._deaf: Callable[[], None] = lambda: None
        self.started = False

    @property
    def public_url(self) -> str:
        """Where people find it."""
        server = self.settings.server
        scheme = "https" if server.tls_certificate else "http"
        host = f"[{server.host}]" if ":" in server.host else server.host
        return server.public_url.rstrip("/") or f"{scheme}://{host}:{server.port}"

    async def start(self) -> None:
        await self.index.catch_up()
        await self.schedules.open()
        await self.worker.start()
        if self.consenting is not None:
            await self.consenting.catch_up()
        self.forwarders.start()
        self._deaf = self.hub.on_change(lambda page: self.forwarders.wake())
        self._tasks = [asyncio.create_task(self._fire_schedules())]
        self.started = True

    async def stop(self) -> None:
        """What runs is given a moment to end, and everything is kept as it is."""
        self.started = False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.worker.stop(self.settings.server.stop_seconds)
        self._deaf()
        await self.forwarders.stop()
        await self.hub.close()
        await self.fleet.close()
        if self._oauth is not None:
            await self._oauth.close()
        await self.index.close()
        await asyncio.to_thread(self.database.close)

    async def trouble(self) -> list[str]:
        """Why it is not ready; empty: it is."""
        found = [] if self.started else ["The server is starting or stopping."]
        if self.hub.trouble:
            found.append(f"Events are not followed: {self.hub.trouble}")
        with suppress(InterlockError, OSError):
            await self.journal.head()
            return found
        return [*found, "The server's database cannot be read."]

    async def trigger(self, wish: Triggered) -> str:
        """Another system said that something happened. The run that this is."""
        who = Principal(name=f"webhook:{wish.webhook}", kind="system", roles=frozenset((Role.OPERATOR,)))
        row, _ = await self.starting.create(who, NewRun(agent=wish.agent, task=wish.task), wish.run_id)
        return row.run_id

    async def __aenter__(self) -> "Service":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _fire(self, due: Due) -> None:
        schedule = due.schedule
        who = Principal(name=f"schedule:{schedule.name}", kind="system", roles=frozenset((Role.OPERATOR,)))
        await self.starting.create(who, NewRun(agent=schedule.agent, task=schedule.task), due.run_id)

    async def _fire_schedules(self) -> None:
        while True:
            due = self.schedules.next_due()
            if due is not None and due <= self.now():
                await self.schedules.fire_due(self.now())
            left = _LOOK_SECONDS if due is None else (due - self.now()) / 1e9
            await asyncio.sleep(min(_LOOK_SECONDS, max(0.05, left)))

    async def _consent_of(self, row: ActionRow) -> Consent | None:
        """What a question asks for, as the log has it."""
        action = (await load(self.log, row.run_id)).ledger.actions.get(row.action_id)
        if action is None or action.question.kind != "consent":
            return None
        return Consent(provider=action.question.provider, scopes=action.question.scopes)

    def _consenting(self, oauth: OAuthConsents) -> Consenting:
        return Consenting(
            consents=oauth,
            questions=self.index,
            consent_of=self._consent_of,
            decide=self.deciding.consent,
            journal=self.journal,
            redirect=f"{self.public_url}/consents/callback",
        )

    def _sign_in(
        self, settings: SignInSettings, tokens: TokenTable, seal: SealingKeys, environ: Mapping[str, str]
    ) -> OidcSignIn:
        return OidcSignIn(
            settings,
            store=tokens,
            seal=seal,
            accounts=self.accounts,
            redirect=f"{self.public_url}/session/callback",
            clock=self.now,
            environment=environ,
        )
