"""The server core without its interfaces: everything that REST and console call, wired, started and stopped in one
place.
"""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from time import time_ns
from types import TracebackType
from typing import cast

from ... import mcp
from ...audit.archive import ArchivableLog
from ...audit.schemas import build_renderers
from ...domain.errors import ConfigurationError
from ...domain.tool import Consent, ConsentBinding
from ...engine.advance import RunAdvancer
from ...engine.interface import Engine
from ...engine.local import LocalEngine
from ...engine.switches import SwitchWatch
from ...history.fold import load_run
from ...oauth.consents import ConsentRequest, OAuthConsents
from ...oauth.interface import ConsentProvider, NoConsents
from ...pipeline.parts import Clock, RuleChange
from ...rendering.text import describe_unknown
from ...storage.artifacts import ArtifactStore
from ...storage.event_log import EventLog
from ...storage.removal import RunRemoval
from .audit.audit_log import AuditLog
from .audit.checkpoints import Checkpoints
from .audit.service import AuditService
from .audit.signing import DatabaseSigner, Signer
from .audit_sinks.forwarder import Forwarders
from .budget_service import BudgetService
from .consent_service import ConsentService
from .database.interface import Connection, Database
from .database.sqlite import SqliteDatabase
from .errors import ServiceError
from .health import HealthReporter, LogMonitor
from .identity.accounts import Accounts
from .identity.api_keys import ApiKeys
from .identity.guard import AccessGuard
from .identity.login_throttle import LoginThrottle
from .identity.oidc import OidcSignIn, SignInSettings
from .identity.passkeys import Passkeys
from .identity.principal import Principal, Role
from .identity.sessions import Sessions
from .inbox.assignments import Assignments
from .inbox.comments import Comments
from .inbox.saved_views import SavedViews
from .inbox.service import InboxService
from .index.rows import ActionRow
from .index.run_index import RunIndex
from .leader import Leadership
from .live.hub import EventHub
from .mcp_servers import McpServerService, add_mcp_tools
from .notices.service import NoticeService
from .notices.slack_interactions import SlackInteractions
from .policy_service import PolicyService
from .retention import Retention, RetentionStorage
from .runs.agent_runners import AgentRunners, build_options
from .runs.agent_switches import AgentSwitches
from .runs.approval_service import ApprovalService
from .runs.damaged_runs import DamagedRuns
from .runs.indexed_runs import IndexedRuns, ServerRules, SingleServerRules
from .runs.kept_rules import RuleKeeper
from .runs.queries import RunQueries
from .runs.run_service import NewRun, RunService
from .runs.served_agent import ServedAgent
from .runs.undo_service import UndoService
from .runs.worker import RunWorker, SharedRunWorker
from .sealing import SealingKeys, load_sealing_keys, register_sealing_keys
from .settings import ServerSettings
from .switches import Switches
from .token_table import TokenTable
from .triggers.schedules import DueRun, Schedules
from .triggers.trigger_service import TriggerService
from .triggers.webhooks import Webhooks, WebhookTrigger

logger = logging.getLogger("interlock.server")

_POLL_SECONDS = 1.0
#: After something of the background failed.
_RETRY_SECONDS = 10.0
_HEALTH_SECONDS = 20.0
_CLOSE_SECONDS = 5.0
_STATISTICS_SECONDS = 5.0
_ASSIGNMENT_SECONDS = 30.0
#: How often schedules are marked as present.
_RENEW_SCHEDULES_SECONDS = 3_600.0
_INSERT_AGENT = "INSERT INTO served_agents (name) VALUES (?) ON CONFLICT DO NOTHING"

#: In the folder for the server's own files.
TASK_FOLDER = "tasks"


class Service:
    """All services of a server."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        settings: ServerSettings,
        served_agents: Sequence[ServedAgent],
        *,
        log: EventLog,
        artifacts: ArtifactStore,
        state_folder: Path,
        database: Database | None = None,
        own_paths: Iterable[str] = (),
        environ: Mapping[str, str] = os.environ,
        now: Callable[[], int] = time_ns,
        engine: Engine | None = None,
        is_worker: bool = True,
        owner: RetentionStorage | None = None,
    ) -> None:
        """Set up the service. `state_folder` is for the server's own files; `own_paths` are more that no tool may
        touch, such as the configuration. `engine` is that of a log that many hosts share; by default, this process
        alone continues the runs. Without `is_worker` it leaves all runs to other processes. The log and the artifacts
        are closed by their owner. `database` is one that several servers share, and is closed with the service; by
        default, it is a file in the folder. `owner` has the log and the artifacts with the right to delete, where
        those of the server have not.
        """
        self.settings = settings
        self._own_paths = (str(state_folder), *own_paths, *settings.own_paths)
        self.state_folder = state_folder
        self.log = log
        self.artifacts = artifacts
        self.now = now
        self.is_started = False
        self._tasks: list[asyncio.Task[None]] = []
        self._unsubscribe: Callable[[], None] = lambda: None
        self._health = HealthReporter()
        self._failed_jobs: dict[str, str] = {}
        self._engine = engine
        self._is_worker = is_worker
        self._owner = owner
        self.database: Database = database or SqliteDatabase(state_folder / "server.db")
        self.leadership = Leadership(self.database.create_leader_lock(), self._begin_leading, self._end_leading)
        self._is_caught_up = False
        self._schedules_renewed_at = 0
        try:
            self._create_components(served_agents, environ)
        except BaseException:
            self.database.close()
            raise

    def _create_components(self, served_agents: Sequence[ServedAgent], environ: Mapping[str, str]) -> None:
        settings, state_folder, now = self.settings, self.state_folder, self.now
        self.audit_log = AuditLog(self.database, now)
        self.retention = self._create_retention()
        self.accounts = Accounts(self.database, now)
        self.api_keys = ApiKeys(self.database, now)
        self.sessions = Sessions(self.database, now)
        self.passkeys = Passkeys(self.database, self.public_url, now)
        self.login_throttle = LoginThrottle(self.database, lambda: now() / 1e9)
        self.index = RunIndex(state_folder / "index.db", self.log)
        self.hub = EventHub(self.index, max_readers=settings.server.max_readers)
        key_file = None if self.database.is_shared else state_folder / "sealing.key"
        tokens, seal = TokenTable(self.database, now), load_sealing_keys(key_file, environ)
        self._oauth = OAuthConsents(settings.providers, tokens, seal, now, environ) if settings.providers else None
        served_agents = add_mcp_tools(served_agents, settings.mcp, str(state_folder))
        self.runners = self._create_runners(served_agents)
        self.hub.outputs.list_live = lambda: {handle.run_id for handle in self.runners.list_active_handles()}
        self.guard = AccessGuard(self.index, self.audit_log, settings.server.four_eyes)
        self.damaged_runs = DamagedRuns(self.database, self.index, self.log, now)
        self.switches = Switches(self.database, now)
        self._switch_watch = SwitchWatch(self.switches.list_agents, self.runners.by_agent)
        max_live_runs = settings.server.max_live_runs
        self.worker = self._create_worker() if self._engine is None else self._create_shared_worker(self._engine)
        self._log_monitor = LogMonitor(self.log, self.worker.engine.retry_waiting)
        self.run_service = RunService(
            self.runners, self.index, self.guard, self.worker, self.damaged_runs, self.switches, max_live_runs
        )
        self.agent_switches = AgentSwitches(
            self.switches, self.runners, self.index, self.guard, self.run_service, self.worker.engine
        )
        self.rule_keeper = RuleKeeper(self.runners, self.guard)
        self.approval_service = ApprovalService(self.runners, self.guard, self.rule_keeper, self.damaged_runs)
        self.undo_service = UndoService(self.runners, self.index, self.guard, self.damaged_runs)
        self.run_queries = RunQueries(
            self.runners,
            self.index,
            self.guard,
            self.rule_keeper,
            self.damaged_runs,
            self.switches,
            self.worker.engine,
        )
        self.inbox = InboxService(
            queries=self.run_queries,
            approvals=self.approval_service,
            accounts=self.accounts,
            guard=self.guard,
            index=self.index,
            assignments=Assignments(self.database, now),
            comments=Comments(self.database, now),
            views=SavedViews(self.database, now),
        )
        self.policy_service = PolicyService(self.runners, self.index, self.guard)
        self.budgets = BudgetService(self.runners, self.guard)
        self.mcp_servers = self._create_mcp_servers()
        self.consent_service = None if self._oauth is None else self._create_consent_service(self._oauth)
        self.sign_in = (
            None if settings.sign_in is None else self._create_oidc_sign_in(settings.sign_in, tokens, seal, environ)
        )
        self._check_triggers()
        self.schedules = Schedules(self.database, settings.schedules, self._start_scheduled_run, now)
        self.webhooks = Webhooks(settings.webhooks, environ)
        self.trigger_service = TriggerService(
            schedules=self.schedules,
            webhooks=self.webhooks,
            switches=self.switches,
            refusals=self.schedules.refusals,
            index=self.index,
            guard=self.guard,
        )
        self.forwarders = Forwarders(self.log, self.database, settings.forward, build_renderers(), environ=environ)
        self.notices = NoticeService(
            settings.notices,
            log=self.log,
            index=self.index,
            database=self.database,
            accounts=self.accounts,
            guard=self.guard,
            public_url=lambda: self.public_url,
            environ=environ,
            now=now,
        )
        self.slack_interactions = SlackInteractions(
            settings.notices,
            log=self.log,
            database=self.database,
            accounts=self.accounts,
            guard=self.guard,
            approvals=self.approval_service,
            notices=self.notices,
            environ=environ,
            now=now,
        )
        self.signer = (
            DatabaseSigner(self.database, environ, now=now)
            if self.database.is_shared
            else Signer(state_folder / "signing.key", now=now)
        )
        if isinstance(self.signer, DatabaseSigner):  # both keys can be read, so nothing is recorded of half a pair
            register_sealing_keys(self.database, seal, now)
            self.signer.register()
        self.checkpoints = self._create_checkpoints()
        self.audit_service = AuditService(
            guard=self.guard,
            log=self.log,
            audit_log=self.audit_log,
            checkpoints=self.checkpoints,
            signer=self.signer,
            forwarders=self.forwarders,
        )

    @property
    def public_url(self) -> str:
        """The URL of the server for people."""
        server = self.settings.server
        scheme = "https" if server.tls_certificate else "http"
        host = f"[{server.host}]" if ":" in server.host else server.host
        return server.public_url.rstrip("/") or f"{scheme}://{host}:{server.port}"

    async def start(self) -> None:
        """Catch up with the log and start all background work."""
        await self.index.catch_up()
        await self.damaged_runs.open()
        self.runners.removed_agents = await self.database.run(self._record_served_agents)
        await self.worker.start()
        await self.leadership.check()
        self._tasks = [asyncio.create_task(self._run_periodically("Leading", self.leadership.check))]
        await self._answer_covered_questions()
        self.mcp_servers.start()
        self._unsubscribe = self.hub.subscribe(lambda page: self._wake_senders())
        jobs = {
            "Schedules": self._start_due_runs,
            "Switches": self._switch_watch.check,
            "Checkpoints": self._take_checkpoint,
            "Consents": self._answer_covered_questions,
            "Statistics": self._refresh_statistics,
            "Retention": self._apply_retention,
            "Assignments": self._close_assignments,
            "Health reports": self._report_health,
            "Watching the event log": self._log_monitor.check,
            "Watching readiness": self._check_readiness,
        }
        self._tasks += [asyncio.create_task(self._run_periodically(name, job)) for name, job in jobs.items()]
        self.is_started = True

    async def stop(self) -> None:
        """Stop the server. Running calls get a moment to end; runs stay resumable."""
        was_started, self.is_started = self.is_started, False
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.worker.stop(self.settings.server.stop_seconds)
        if was_started and self.leadership.is_leading:
            with suppress(Exception):  # the next start signs it
                await self.checkpoints.take()
        self._unsubscribe()
        await self.leadership.stop()
        await self.forwarders.stop()
        await self.notices.stop()
        await self.hub.close()
        await self.mcp_servers.stop()
        await self.runners.close()
        await self.worker.engine.stop(_CLOSE_SECONDS)  # runs that were cut off are handed to others
        if self._oauth is not None:
            await self._oauth.close()
        await self.index.close()
        await asyncio.to_thread(self.database.close)

    async def find_readiness_problems(self) -> list[str]:
        """Return why it is not ready, without internal details; empty when it is. The server's log has the rest."""
        found = [] if self.is_started else ["The server is starting or stopping."]
        if problem := self.log.problem:
            found.append(f"The event log cannot be written: {problem.partition(':')[0]}.")
        if self.worker.problem:
            found.append("Runs are not continued here.")
        if self.hub.last_error:
            found.append("Events cannot be read from the log.")
        database_problem = await self.database.check()
        if database_problem:
            found.append("The server's database cannot be used.")
        details = {
            "Following the log": self.hub.last_error,
            "The server's database": database_problem,
            "Continuing runs": self.worker.problem,
        }
        self._health.report({name: text for name, text in details.items() if text and self.is_started}, "readiness")
        return found

    async def start_webhook_run(self, trigger: WebhookTrigger) -> str:
        """Start the run of a webhook trigger, and return its id."""
        principal = Principal(name=f"webhook:{trigger.webhook}", kind="system", roles=frozenset((Role.OPERATOR,)))
        new = NewRun(agent=trigger.agent, task=trigger.task)
        try:
            row, _ = await self.run_service.create(principal, new, trigger.run_id)
        except ServiceError as error:
            await self.trigger_service.record_failure("webhook", trigger.webhook, error)
            raise
        return row.run_id

    async def __aenter__(self) -> "Service":
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def _start_scheduled_run(self, due: DueRun) -> None:
        schedule = due.schedule
        principal = Principal(name=f"schedule:{schedule.name}", kind="system", roles=frozenset((Role.OPERATOR,)))
        await self.run_service.create(principal, NewRun(agent=schedule.agent, task=schedule.task), due.run_id)

    async def _begin_leading(self) -> None:
        await self._renew_schedules()
        self._is_caught_up = False
        self.forwarders.start()
        await self.notices.start()

    async def _end_leading(self) -> None:
        await self.forwarders.pause()
        await self.notices.pause()

    def _wake_senders(self) -> None:
        self.forwarders.wake()
        self.notices.wake()

    async def _answer_covered_questions(self) -> float:
        """Answer questions whose consent was given while no server led: once each time that this one begins to."""
        if self.leadership.is_leading and not self._is_caught_up:
            if self.consent_service is not None:
                await self.consent_service.answer_covered_questions()
            self._is_caught_up = True
        return _POLL_SECONDS

    async def _refresh_statistics(self) -> float:
        """Count events that a shared log got from other processes. One that is behind continues at once."""
        is_complete = not self.leadership.is_leading or await self.index.refresh_rollups()
        return _STATISTICS_SECONDS if is_complete else 0.0

    async def _apply_retention(self) -> float:
        """Archive and erase runs by their age, a few at a time."""
        if self.retention is None or not self.leadership.is_leading:
            return _POLL_SECONDS
        return await self.retention.step()

    async def _close_assignments(self) -> float:
        """Mark assignments of questions that were answered."""
        if not self.leadership.is_leading:
            return _POLL_SECONDS
        await self.inbox.close_answered()
        return _ASSIGNMENT_SECONDS

    async def _renew_schedules(self) -> None:
        await self.schedules.open()
        self._schedules_renewed_at = self.now()

    async def _start_due_runs(self) -> float:
        if not self.leadership.is_leading:
            return _POLL_SECONDS
        if self.now() - self._schedules_renewed_at > _RENEW_SCHEDULES_SECONDS * 1e9:
            await self._renew_schedules()
        due = self.schedules.get_next_due()
        if due is not None and due <= self.now():
            await self.schedules.start_due_runs(self.now())
        return _POLL_SECONDS if due is None else min(_POLL_SECONDS, max(0.05, (due - self.now()) / 1e9))

    async def _run_periodically(self, name: str, job: Callable[[], Awaitable[float]]) -> None:
        """Run a job forever. It returns the seconds until its next run; a failed one is retried."""
        while True:
            try:
                seconds = await job()
                self._failed_jobs.pop(name, None)
            except Exception as error:
                self._failed_jobs[name], seconds = f"{type(error).__name__}: {error}", _RETRY_SECONDS
            self._health.report(self._failed_jobs, "jobs")
            await asyncio.sleep(seconds)

    def _record_served_agents(self, connection: Connection) -> frozenset[str]:
        """Remember the served agents, and return those that were served before and are no longer. Where servers share
        a database, another one may serve them.
        """
        names = self.runners.served_agents
        connection.executemany(_INSERT_AGENT, [(name,) for name in names])
        known = connection.execute("SELECT name FROM served_agents").fetchall()
        return frozenset() if self.database.is_shared else frozenset(name for (name,) in known) - names.keys()

    async def _take_checkpoint(self) -> float:
        if not self.leadership.is_leading:
            return _POLL_SECONDS
        await self.checkpoints.take()
        return self.settings.server.checkpoint_seconds

    async def _check_readiness(self) -> float:
        """Report problems also when no load balancer asks."""
        await self.find_readiness_problems()
        return _POLL_SECONDS

    async def _report_health(self) -> float:
        found = {
            f"Forwarding to {each.name}": each.last_error
            for each in await self.forwarders.list_statuses()
            if each.failures
        }
        found |= {f"Notices by {name}": problem for name, problem in self.notices.list_failures().items()}
        found |= {f"The schedule {each.name}": each.problem for each in self.schedules.list_statuses() if each.problem}
        if self.retention is not None and self.retention.problem:
            found["Retention"] = self.retention.problem
        if self.checkpoints.copy_problem:
            found["The checkpoint file"] = self.checkpoints.copy_problem
        self._health.report(found)
        return _HEALTH_SECONDS

    def _check_triggers(self) -> None:
        triggers = [("schedule", each.name, each.agent) for each in self.settings.schedules if each.enabled]
        triggers += [("webhook", each.name, each.agent) for each in self.settings.webhooks]
        for kind, name, agent in triggers:
            if agent not in self.runners.served_agents:
                unknown = describe_unknown("agent", agent, self.runners.served_agents)
                raise ConfigurationError(f'The {kind} "{name}" cannot start: {unknown}')

    async def _read_consent_request(self, row: ActionRow) -> ConsentRequest | None:
        """Return what a question asks for, as the log has it."""
        action = (await load_run(self.log, row.run_id)).ledger.actions.get(row.action_id)
        if action is None or action.question.kind != "consent":
            return None
        asked = action.question
        binding = ConsentBinding(
            user=row.requester, agent=asked.agent, tool=asked.tool_name, definition=asked.bound.tool_definition
        )
        return ConsentRequest(binding, Consent(provider=asked.provider, scopes=asked.scopes), row.action_id)

    def _create_runners(self, served_agents: Sequence[ServedAgent]) -> AgentRunners:
        consents: ConsentProvider = self._oauth or NoConsents()
        options = build_options(self.settings) | {"clock": Clock(now=self.now), "record_rule": self._record_rule}
        options["on_output"] = self.hub.outputs.take
        runners = AgentRunners(served_agents, self.log, self.artifacts, consents, **options)
        runners.protect_paths(self._own_paths)
        runners.use_task_folder(str(self.state_folder / TASK_FOLDER))
        return runners

    def _create_worker(self) -> RunWorker:
        """Create the worker of a log that only this server serves."""
        rules = SingleServerRules(self.runners, self.index, self.damaged_runs, self.switches, self.now)
        return RunWorker(
            LocalEngine(IndexedRuns(self.log, self.index, self.hub, self.now)),
            RunAdvancer(self.runners.by_agent, rules),
            concurrency=self.settings.server.max_live_runs,
        )

    def _create_shared_worker(self, engine: Engine) -> RunWorker:
        """Create one of many workers of a log, or none that works."""
        worker = self.settings.worker
        return SharedRunWorker(
            engine,
            RunAdvancer(self.runners.by_agent, ServerRules(self.index, self.damaged_runs, self.switches)),
            queues=worker.queues if self._is_worker else (),
            concurrency=worker.concurrency,
            queue_of_agent={name: each.queue for name, each in self.runners.served_agents.items()},
        )

    def _create_mcp_servers(self) -> McpServerService:
        service = McpServerService(self.guard)
        for agent, runner in self.runners.by_agent.items():
            for box in runner.app.toolboxes:
                if box.is_dynamic and isinstance(box, mcp.McpTools):
                    service.add(box, agent)
        return service

    async def _record_rule(self, change: RuleChange) -> None:
        await self.rule_keeper.record_change(self.audit_log, change)

    def _create_retention(self) -> Retention | None:
        """Create what removes runs by their age. Without `owner` that is possible for a log that is not shared."""
        owner = self._owner
        if owner is None and not self.database.is_shared and isinstance(self.log, RunRemoval):
            owner = RetentionStorage(cast(ArchivableLog, self.log), self.artifacts)
        if owner is None:
            if self.settings.retention.is_active:
                raise ConfigurationError("[retention] needs a log that runs can be removed from.")
            return None
        return Retention(self.settings.retention, owner, database=self.database, audit_log=self.audit_log, now=self.now)

    def _create_checkpoints(self) -> Checkpoints:
        copy_to = self.settings.server.checkpoint_file or None
        return Checkpoints(
            self.database,
            self.log,
            self.signer,
            read_audit_log_head=self.audit_log.read_head,
            read_audit_log_hash=self.audit_log.read_hash,
            copy_to=copy_to,
            is_copying=lambda: self.leadership.is_leading,
            now=self.now,
        )

    def _create_consent_service(self, oauth: OAuthConsents) -> ConsentService:
        return ConsentService(
            consents=oauth,
            questions=self.index,
            read_request=self._read_consent_request,
            decide=self.approval_service.record_consent,
            audit_log=self.audit_log,
            redirect_url=f"{self.public_url}/consents/callback",
        )

    def _create_oidc_sign_in(
        self, settings: SignInSettings, tokens: TokenTable, seal: SealingKeys, environ: Mapping[str, str]
    ) -> OidcSignIn:
        return OidcSignIn(
            settings,
            store=tokens,
            seal=seal,
            accounts=self.accounts,
            redirect_url=f"{self.public_url}/session/callback",
            clock=self.now,
            environment=environ,
        )
