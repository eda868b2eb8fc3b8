"""Schedules and webhooks as people see them: what they started, what they refused, and whether they are paused.

A paused schedule starts nothing, and what was due meanwhile is not made up for. A paused webhook verifies requests as
always, and refuses them.
"""

from collections.abc import Mapping, Sequence
from typing import TypeVar

import msgspec

from ..errors import ServiceError, not_found_error
from ..identity.guard import AccessGuard
from ..identity.permissions import Operation, RunOwnershipData
from ..identity.principal import Principal
from ..index.rows import RunQuery, RunRow
from ..index.run_index import RunIndex
from ..switches import Switch, Switches
from .due_times import Schedule
from .refusals import TriggerKind, TriggerRefusal, TriggerRefusals
from .schedules import Schedules
from .webhooks import Webhook, WebhookRejection, Webhooks, WebhookTrigger

MAX_RECENT_RUNS = 5


class TriggerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule or webhook as listed."""

    name: str
    agent: str
    task: str
    #: Who paused it, and why; None: it is not paused.
    paused: Switch | None
    #: Its newest runs, the newest first.
    recent_runs: tuple[RunRow, ...]
    #: What it did not start, the newest first.
    refusals: tuple[TriggerRefusal, ...]

    @property
    def last_run(self) -> RunRow | None:
        """Its newest run; None: there is none."""
        return next(iter(self.recent_runs), None)


class ScheduleRow(TriggerRow, frozen=True, kw_only=True):
    """A schedule as listed."""

    #: Whether the settings have it enabled.
    enabled: bool
    cron: str
    every_seconds: int
    timezone: str
    #: When it is due next; 0: never, or it is paused.
    next_due_at: int
    #: Why its last run could not be started, if that was on this server; empty: it could.
    problem: str


class WebhookRow(TriggerRow, frozen=True, kw_only=True):
    """A webhook as listed."""

    path: str
    scheme: str


_Trigger = TypeVar("_Trigger", Schedule, Webhook)


class TriggerService:
    """Lists, pauses and resumes schedules and webhooks."""

    def __init__(  # noqa: PLR0913 - what it joins
        self,
        *,
        schedules: Schedules,
        webhooks: Webhooks,
        switches: Switches,
        refusals: TriggerRefusals,
        index: RunIndex,
        guard: AccessGuard,
    ) -> None:
        self._schedules = schedules
        self._webhooks = webhooks
        self._switches = switches
        self._refusals = refusals
        self._index = index
        self._guard = guard

    async def list_schedules(self, principal: Principal) -> list[ScheduleRow]:
        """List the schedules of the agents that the principal owns."""
        await self._guard.check(principal, Operation.LIST_TRIGGERS)
        paused, refusals = await self._switches.list("schedule"), await self._refusals.list("schedule")
        statuses = {status.name: status for status in self._schedules.list_statuses()}
        return [
            ScheduleRow(
                name=each.name,
                agent=each.agent,
                task=each.task,
                paused=paused.get(each.name),
                recent_runs=await self._list_recent_runs("schedule", each.name),
                refusals=refusals.get(each.name, ()),
                enabled=each.enabled,
                cron=each.cron,
                every_seconds=each.every_seconds,
                timezone=each.timezone,
                next_due_at=0 if each.name in paused else statuses[each.name].next_due_at,
                problem=statuses[each.name].problem,
            )
            for each in _list_owned(self._schedules.configured, principal)
        ]

    async def list_webhooks(self, principal: Principal) -> list[WebhookRow]:
        """List the webhooks of the agents that the principal owns."""
        await self._guard.check(principal, Operation.LIST_TRIGGERS)
        paused, refusals = await self._switches.list("webhook"), await self._refusals.list("webhook")
        return [
            WebhookRow(
                name=each.name,
                agent=each.agent,
                task=each.task,
                paused=paused.get(each.name),
                recent_runs=await self._list_recent_runs("webhook", each.name),
                refusals=refusals.get(each.name, ()),
                path=f"/hooks/{each.name}",
                scheme=each.scheme,
            )
            for each in _list_owned(self._webhooks.configured, principal)
        ]

    async def pause(self, principal: Principal, kind: TriggerKind, name: str, reason: str) -> bool:
        """Pause a trigger. Return False if it was paused already."""
        await self._check(principal, kind, name)
        return await self._switches.switch_off(kind, name, by=principal.name, reason=reason)

    async def resume(self, principal: Principal, kind: TriggerKind, name: str, reason: str) -> bool:
        """Resume a trigger. Return False if it was not paused."""
        await self._check(principal, kind, name)
        return await self._switches.switch_on(kind, name, by=principal.name, reason=reason)

    async def accept_delivery(
        self, name: str, headers: Mapping[str, str], body: bytes, now: int
    ) -> WebhookTrigger | WebhookRejection:
        """Verify a delivery of a webhook, and return what it starts. Rejections of a known webhook are counted."""
        found = self._webhooks.accept(name, headers, body, now)
        if isinstance(found, WebhookTrigger) and (paused := (await self._switches.list("webhook")).get(name)):
            found = WebhookRejection(
                "webhook_paused", f"The webhook was paused by {paused.actor}. Nothing was started; send it again later."
            )
        if isinstance(found, WebhookRejection) and self._webhooks.find(name) is not None:
            await self._refusals.record("webhook", name, found.code, found.message)
        return found

    async def record_failure(self, kind: TriggerKind, name: str, error: ServiceError) -> None:
        """Count a run that could not be started."""
        await self._refusals.record(kind, name, error.code, str(error))

    async def _check(self, principal: Principal, kind: TriggerKind, name: str) -> None:
        triggers: Sequence[Schedule | Webhook] = (
            self._schedules.configured if kind == "schedule" else self._webhooks.configured
        )
        agent = next((each.agent for each in triggers if each.name == name), None)
        if agent is None or not principal.owns(agent):
            await self._guard.check(principal, Operation.LIST_TRIGGERS)
            raise not_found_error(kind, name)
        await self._guard.check(principal, Operation.PAUSE_TRIGGER, RunOwnershipData(agent=agent), name)

    async def _list_recent_runs(self, kind: TriggerKind, name: str) -> tuple[RunRow, ...]:
        query = RunQuery(agents=frozenset(), person=f"{kind}:{name}", limit=MAX_RECENT_RUNS)
        return (await self._index.list_runs(query)).rows


def _list_owned(triggers: Sequence[_Trigger], principal: Principal) -> list[_Trigger]:
    return [each for each in triggers if principal.owns(each.agent)]
