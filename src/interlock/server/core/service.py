"""The server without its doors: everything that REST and console call, joined, started and stopped in one place."""

import asyncio
import logging
import os
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import time_ns
from types import TracebackType

from ...audit.schemas import renderers
from ...domain.errors import ConfigurationError, InterlockError
from ...domain.tool import Consent, ConsentBinding
from ...history.fold import load
from ...oauth.consents import ConsentRequest, OAuthConsents
from ...oauth.interface import Consents, NoConsents
from ...pipeline.parts import Clock, Limits, RuleChange
from ...storage.artifacts import Artifacts
from ...storage.event_log import EventLog
from . import token_table
from .audit import audit_log, checkpoints
from .audit.audit_log import Journal
from .audit.checkpoints import Checkpoints
from .audit.service import Auditing
from .audit.signing import Signer
from .audit_sinks import positions
from .audit_sinks.forwarders import Forwarders
from .consents import Consenting
from .database import Database
from .health import Troubles
from .identity import account_rows, api_keys, sessions
from .identity.accounts import Accounts
from .identity.api_keys import ApiKeys
from .identity.attempts import Attempts
from .identity.guard import Guard
from .identity.oidc import OidcSignIn, SignInSettings
from .identity.principal import Principal, Role
from .identity.sessions import Sessions
from .index.index import Index
from .index.rows import ActionRow
from .live.hub import Hub
from .policies import Policies
from .runs.agents import ServedAgent
from .runs.approvals import Deciding
from .runs.kept_rules import RuleKeeping
from .runs.queries import Reading
from .runs.runners import Fleet
from .runs.starting import NewRun, Starting
from .runs.worker import Worker
from .sealing import SealingKeys, sealing_keys
from .settings import ServerSettings
from .token_table import TokenTable
from .triggers import schedules
from .triggers.schedules import Due, Schedules
from .triggers.webhooks import Triggered, Webhooks

logger = logging.getLogger("interlock.server")

_TABLES = (
    *account_rows.TABLES,
    *api_keys.TABLES,
    *sessions.TABLES,
    *audit_log.TABLES,
    *token_table.TABLES,
    *schedules.TABLES,
    *positions.TABLES,
    *checkpoints.TABLES,
)
_LOOK_SECONDS = 1.0
#: After something of the background failed.
_REST_SECONDS = 10.0
_TROUBLES_SECONDS = 20.0


class Service:
    def __init__(  # noqa: PLR0913 - what it joins
        self,
        settings: ServerSettings,
        served: Sequence[ServedAgent],
        *,
        log: EventLog,
        artifacts: Artifacts,
        state: Path,
        own_paths: Iterable[str] = (),
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], int] = time_ns,
    ) -> None:
        """`state` is the folder of the server's own files; `own_paths` are more that no tool may touch, such as the
        configuration. The log and the artifacts are their owner's to close."""
        self.settings = settings
        self._own_paths = (str(state), *own_paths, *settings.own_paths)
        self.state = state
        self.log = log
        self.artifacts = artifacts
        self.now = now
        self.started = False
        self._tasks: list[asyncio.Task[None]] = []
        self._deaf: Callable[[], None] = lambda: None
        self._troubles = Troubles()
        self.database = Database(state / "server.db", _TABLES)
        try:
            self._join(served, environ)
        except BaseException:
            self.database.close()
            raise

    def _join(self, served: Sequence[ServedAgent], environ: Mapping[str, str]) -> None:
        settings, state, now = self.settings, self.state, self.now
        self.journal = Journal(self.database, now)
        self.accounts = Accounts(self.database, now)
        self.keys = ApiKeys(self.database, now)
        self.sessions = Sessions(self.database, now)
        self.attempts = Attempts()
        self.index = Index(state / "index.db", self.log)
        self.hub = Hub(self.index, max_readers=settings.server.max_readers)
        tokens, seal = TokenTable(self.database), sealing_keys(state / "sealing.key", environ)
        self._oauth = OAuthConsents(settings.providers, tokens, seal, now, environ) if settings.providers else None
        self.fleet = self._fleet(served)
        self.guard = Guard(self.index, self.journal, settings.server.four_eyes)
        self.worker = Worker(self.fleet, self.index, self.hub, now)
        self.starting = Starting(self.fleet, self.index, self.guard, self.worker, settings.server.max_live_runs)
        self.keeping = RuleKeeping(self.fleet, self.guard)
        self.deciding = Deciding(self.fleet, self.guard, self.keeping)
        self.reading = Reading(self.fleet, self.index, self.guard, self.keeping)
        self.policies = Policies(self.fleet, self.index, self.guard)
        self.consenting = None if self._oauth is None else self._consenting(self._oauth)
        self.sign_in = None if settings.sign_in is None else self._sign_in(settings.sign_in, tokens, seal, environ)
        self._check_triggers()
        self.schedules = Schedules(self.database, settings.schedules, self._fire, now)
        self.webhooks = Webhooks(settings.webhooks, environ)
        self.forwarders = Forwarders(self.log, self.database, settings.forward, renderers(), environ=environ)
        self.signer = Signer(state / "signing.key", now=now)
        self.checkpoints = self._checkpoints()
        self.auditing = Auditing(
            guard=self.guard,
            log=self.log,
            journal=self.journal,
            checkpoints=self.checkpoints,
            signer=self.signer,
            forwarders=self.forwarders,
        )

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
        chores = {
            "Schedules": self._fire_schedules,
            "Checkpoints": self._take_checkpoint,
            "Reports of troubles": self._tell_troubles,
        }
        self._tasks = [asyncio.create_task(_for_ever(name, chore)) for name, chore in chores.items()]
        self.started = True

    async def stop(self) -> None:
        """What runs is given a moment to end, and everything is kept as it is."""
        was_started, self.started = self.started, False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.worker.stop(self.settings.server.stop_seconds)
        if was_started:
            with suppress(Exception):  # the next start signs it
                await self.checkpoints.take()
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
        with suppress(InterlockError, OSError, sqlite3.Error):
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

    async def _fire_schedules(self) -> float:
        due = self.schedules.next_due()
        if due is not None and due <= self.now():
            await self.schedules.fire_due(self.now())
        return _LOOK_SECONDS if due is None else min(_LOOK_SECONDS, max(0.05, (due - self.now()) / 1e9))

    async def _take_checkpoint(self) -> float:
        await self.checkpoints.take()
        return self.settings.server.checkpoint_seconds

    async def _tell_troubles(self) -> float:
        found = {
            f"Forwarding to {each.name}": each.last_error for each in await self.forwarders.statuses() if each.failures
        }
        found |= {f"The schedule {each.name}": each.problem for each in self.schedules.statuses() if each.problem}
        if self.checkpoints.copy_problem:
            found["The checkpoint file"] = self.checkpoints.copy_problem
        self._troubles.tell(found)
        return _TROUBLES_SECONDS

    def _check_triggers(self) -> None:
        triggers = [("schedule", each.name, each.agent) for each in self.settings.schedules if each.enabled]
        triggers += [("webhook", each.name, each.agent) for each in self.settings.webhooks]
        for kind, name, agent in triggers:
            if agent not in self.fleet.served:
                raise ConfigurationError(
                    f'The {kind} "{name}" is for the agent "{agent}", which is not served. There are: '
                    f"{', '.join(self.fleet.served)}."
                )

    async def _consent_of(self, row: ActionRow) -> ConsentRequest | None:
        """Return what a question asks for, as the log has it."""
        action = (await load(self.log, row.run_id)).ledger.actions.get(row.action_id)
        if action is None or action.question.kind != "consent":
            return None
        asked = action.question
        binding = ConsentBinding(
            user=row.requester, agent=asked.agent, tool=asked.tool_name, definition=asked.bound.tool_definition
        )
        return ConsentRequest(binding, Consent(provider=asked.provider, scopes=asked.scopes), row.action_id)

    def _fleet(self, served: Sequence[ServedAgent]) -> Fleet:
        consents: Consents = self._oauth or NoConsents()
        server = self.settings.server
        limits = Limits(
            approval_seconds=server.approval_seconds,
            consent_seconds=server.consent_seconds,
            max_open_questions=server.max_open_questions,
            four_eyes=server.four_eyes,
        )
        options = {"limits": limits, "clock": Clock(now=self.now), "record_rule": self._record_rule}
        fleet = Fleet(served, self.log, self.artifacts, consents, **options)
        fleet.keep_off(self._own_paths)
        return fleet

    async def _record_rule(self, change: RuleChange) -> None:
        await self.keeping.record(self.journal, change)

    def _checkpoints(self) -> Checkpoints:
        copy_to = self.settings.server.checkpoint_file or None
        return Checkpoints(
            self.database,
            self.log,
            self.signer,
            journal=self.journal.head,
            journal_hash=self.journal.hash_of,
            copy_to=copy_to,
            now=self.now,
        )

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


async def _for_ever(name: str, chore: Callable[[], Awaitable[float]]) -> None:
    """It says how long until the next time. One that failed is tried again."""
    while True:
        try:
            seconds = await chore()
        except Exception as error:
            logger.warning("%s failed, and are tried again: %s: %s", name, type(error).__name__, error)
            seconds = _REST_SECONDS
        await asyncio.sleep(seconds)
