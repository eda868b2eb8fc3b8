"""All notices of a server: created from the settings, started where the server leads, listed and retried."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from time import time_ns
from typing import assert_never

import msgspec

from ....domain.errors import ConfigurationError
from ....storage.event_log import EventLog
from ..addresses import Resolver, resolve_with_system
from ..audit_sinks.retry_loop import RetryLoop
from ..audit_sinks.senders import SendSuccess
from ..configured_secret import read_secret
from ..database.interface import Database
from ..errors import ConflictError, not_found_error
from ..identity.accounts import Accounts
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation
from ..identity.principal import Principal
from ..index.run_index import RunIndex
from ..safe_http import HttpTimeouts, SafeClient, create_ssl_context
from .channel_settings import (
    ChannelSettings,
    EmailChannel,
    NoticesTable,
    NtfyChannel,
    PushChannel,
    SlackChannel,
    TeamsChannel,
    WebhookChannel,
    get_channel_kind,
)
from .dispatcher import ChannelDispatcher, DispatcherOptions, NoticeReader
from .http_channels import NtfySender, TeamsSender, WebhookSender
from .mail import MailSender
from .notice import NoticeOutcome, NoticeSender
from .outbox import ChannelCounts, Delivery, Outbox
from .people import NoticePeople
from .planner import NoticePlanner
from .preferences import NoticePreferences, build_test_message, get_account_name
from .push import PushSender, VapidKey
from .routing import NoticeRouter
from .slack import SlackSender

#: How long a request takes at most: an attempt has to end before its delivery is handed to another server.
_TIMEOUTS = HttpTimeouts(connect_seconds=5.0, idle_seconds=15.0, total_seconds=30.0)


_TASK_PREFIX = "notices:"
#: How long an attempt that is under way may take when the server stops.
_STOP_SECONDS = 3.0
#: How often old deliveries are deleted.
_CLEAN_NS = 3_600_000_000_000


class ChannelStatus(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a channel."""

    name: str
    kind: str
    waiting_count: int
    sent_count: int
    dead_letter_count: int
    #: When something was sent last; 0: never.
    last_success_at: int
    #: What went wrong last, since the last success; empty: nothing.
    last_error: str
    last_error_at: int
    failures: int


def create_sender(
    channel: ChannelSettings,
    environ: Mapping[str, str],
    *,
    people: NoticePeople | None = None,
    resolve: Resolver = resolve_with_system,
    now: Callable[[], int] = time_ns,
) -> NoticeSender:
    """Create the sender of a channel. Raise `ConfigurationError` when its secret or certificates are missing, and for a
    push channel without `people`, whose browsers it sends to.
    """
    owner = f'The notice channel "{channel.name}"'
    if isinstance(channel, EmailChannel):
        password = read_secret(owner, channel.secret_env, channel.secret_file, environ) if channel.user else ""
        return MailSender(channel, password, create_ssl_context(channel.ca_file), resolve, now)
    client = SafeClient(channel.network_access, ca_file=channel.ca_file, resolve=resolve, timeouts=_TIMEOUTS)
    match channel:
        case WebhookChannel():
            secret = read_secret(owner, channel.secret_env, channel.secret_file, environ)
            return WebhookSender(channel, secret, client, now)
        case TeamsChannel():
            return TeamsSender(read_secret(owner, channel.url_env, channel.url_file, environ), client, now)
        case NtfyChannel():
            has_token = bool(channel.token_env or channel.token_file)
            token = read_secret(owner, channel.token_env, channel.token_file, environ) if has_token else ""
            return NtfySender(channel, token, client, now)
        case SlackChannel():
            return SlackSender(channel, read_secret(owner, channel.token_env, channel.token_file, environ), client, now)
        case PushChannel():
            if people is None:
                raise ConfigurationError(f"{owner} reaches browsers of people. Try it on the page Notices.")
            key = VapidKey(read_secret(owner, channel.secret_env, channel.secret_file, environ), owner)
            return PushSender(channel, key, people, client, now)
        case _:
            assert_never(channel)


async def send_test(
    channel: ChannelSettings, sender: NoticeSender, public_url: str, now: int, browser: str = ""
) -> NoticeOutcome:
    """Send a notice that tries a channel, to its first recipient; for a push channel, to a browser."""
    mail = (*channel.to, *channel.people.values()) if isinstance(channel, EmailChannel) else ()
    return await sender.send(build_test_message(channel.name, browser or next(iter(mail), ""), public_url, now))


class NoticeService:
    """Plans and sends notices, and shows what became of them."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        table: NoticesTable,
        *,
        log: EventLog,
        index: RunIndex,
        database: Database,
        accounts: Accounts,
        guard: AccessGuard,
        public_url: Callable[[], str],
        environ: Mapping[str, str],
        now: Callable[[], int] = time_ns,
        options: DispatcherOptions | None = None,
        resolve: Resolver = resolve_with_system,
    ) -> None:
        self._now = now
        self._guard = guard
        self._table = table
        self._public_url = public_url
        options = options or DispatcherOptions(now=now)
        self.people = NoticePeople(database, now)
        self.outbox = Outbox(database, now)
        self._router = NoticeRouter(table, accounts, self.people)
        self.reader = reader = NoticeReader(log, index, public_url, table.urgent_risks)
        self._dispatchers: dict[str, ChannelDispatcher] = {}
        for channel in table.channels:
            sender = create_sender(channel, environ, people=self.people, resolve=resolve, now=now)
            self._dispatchers[channel.name] = ChannelDispatcher(
                channel, sender, self.outbox, reader, self._router, options=options
            )
        self.preferences = NoticePreferences(
            {name: (each.channel, each.sender) for name, each in self._dispatchers.items()},
            self.people,
            guard,
            public_url,
            now,
        )
        self._planner = NoticePlanner(
            log,
            index,
            database,
            self.outbox,
            self._router,
            delays={channel.name: channel.digest_seconds for channel in table.channels},
            updating=frozenset(name for name, each in self._dispatchers.items() if each.sender.can_update),
            now=now,
        )
        self._planning = RetryLoop(options)
        self._cleaned_at = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Start planning and sending, where the last server stopped."""
        if not self._dispatchers:
            return
        await self._planner.open()
        await self.outbox.open(self._dispatchers)
        runs = {":plan": self._planning.run(self._plan)} | {
            name: each.run() for name, each in self._dispatchers.items()
        }
        self._tasks = [asyncio.create_task(run, name=f"{_TASK_PREFIX}{name}") for name, run in runs.items()]

    def wake(self) -> None:
        """Look for new questions."""
        self._planning.wake()

    async def pause(self) -> None:
        """Stop until the next start. What is being sent gets a moment to end; then it is sent again, by the next."""
        for task in self._tasks:
            if (dispatcher := self._dispatchers.get(task.get_name().removeprefix(_TASK_PREFIX))) is not None:
                await _wait_for_attempt(dispatcher)
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def stop(self) -> None:
        """Stop for good."""
        await self.pause()
        for dispatcher in self._dispatchers.values():
            await dispatcher.sender.close()

    async def list_statuses(self) -> list[ChannelStatus]:
        """List the state of every channel."""
        counts = await self.outbox.count_by_channel() if self._dispatchers else {}
        return [_to_status(each, counts.get(name, ChannelCounts())) for name, each in self._dispatchers.items()]

    def list_failures(self) -> dict[str, str]:
        """Return what goes wrong now, by channel."""
        return {name: each.loop.last_error for name, each in self._dispatchers.items() if each.loop.failures}

    def get_sender(self, name: str) -> NoticeSender:
        """Return the sender of a channel."""
        return self._get(name).sender

    async def list_channels(self, principal: Principal) -> list[ChannelStatus]:
        """List the state of every channel, for those who may see it."""
        await self._guard.check(principal, Operation.READ_NOTICES)
        return await self.list_statuses()

    async def list_deliveries(
        self, principal: Principal, *, channel: str, state: str, before: int, limit: int
    ) -> list[Delivery]:
        """List deliveries, newest first."""
        await self._guard.check(principal, Operation.READ_NOTICES)
        return await self.outbox.list_deliveries(channel=channel, state=state, before=before, limit=limit)

    async def retry(self, principal: Principal, number: int) -> Delivery:
        """Let a dead letter be sent again."""
        await self._guard.check(principal, Operation.MANAGE_NOTICES)
        if await self.outbox.retry(number):
            await self._guard.record_operation(principal, Operation.MANAGE_NOTICES, str(number), {"done": "retry"})
            for dispatcher in self._dispatchers.values():
                dispatcher.loop.wake()
        elif (known := await self.outbox.get(number)) is not None:
            message = f"Notice {number} is {known.state}; only a dead letter can be sent again. Nothing was changed."
            raise ConflictError("not_dead", message, {"current": known.state})
        found = await self.outbox.get(number)
        if found is None:
            raise not_found_error("notice", str(number))
        return found

    async def test(self, principal: Principal, name: str) -> tuple[str, str]:
        """Send a test notice through a channel; for a push channel, to the newest browser of the caller. Return its
        name, and what went wrong; empty: nothing.
        """
        await self._guard.check(principal, Operation.MANAGE_NOTICES)
        dispatcher, browser = self._get(name), ""
        if isinstance(dispatcher.channel, PushChannel):
            own = await self.people.list_subscriptions(channel=name, account=get_account_name(principal))
            if not own:
                return name, "You have switched push on in no browser."
            browser = own[-1].subscription_id
        outcome = await send_test(dispatcher.channel, dispatcher.sender, self._public_url(), self._now(), browser)
        await self._guard.record_operation(principal, Operation.MANAGE_NOTICES, name, {"done": "test"})
        return name, "" if isinstance(outcome, SendSuccess) else outcome.problem

    def _get(self, name: str) -> ChannelDispatcher:
        found = self._dispatchers.get(name)
        if found is None:
            raise not_found_error("channel", name)
        return found

    async def _plan(self) -> float | None:
        if self._now() - self._cleaned_at > _CLEAN_NS:
            await self.outbox.delete_old(self._table.keep_seconds)
            self._cleaned_at = self._now()
        if not await self._planner.plan_page():
            return None
        for dispatcher in self._dispatchers.values():
            dispatcher.loop.wake()
        return 0.0


async def _wait_for_attempt(dispatcher: ChannelDispatcher) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(_STOP_SECONDS), dispatcher.attempt_lock:
            pass  # nothing else runs before the caller cancels it: there is no await in between


def _to_status(dispatcher: ChannelDispatcher, counts: ChannelCounts) -> ChannelStatus:
    return ChannelStatus(
        name=dispatcher.name,
        kind=get_channel_kind(dispatcher.channel),
        waiting_count=counts.waiting + counts.sending,
        sent_count=counts.sent,
        dead_letter_count=counts.dead,
        last_success_at=counts.last_sent_at,
        # Another server may be the one that sends.
        last_error=dispatcher.loop.last_error or counts.last_error,
        last_error_at=dispatcher.loop.last_error_at or counts.last_error_at,
        failures=dispatcher.loop.failures or counts.failures,
    )
