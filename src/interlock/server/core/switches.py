"""Switches of agents, schedules and webhooks, in the server's database: they hold on every server that shares it, and
after a restart. Every change is written with its row in the audit log, and with a reason.
"""

from collections.abc import Callable
from functools import partial
from time import time_ns
from typing import Literal, TypeAlias

import msgspec

from ...domain.json import escape_surrogates
from ...engine.switches import ALL_AGENTS, SwitchedOffAgent, find_switch
from .audit.audit_log import AuditEvent, append_event
from .database.interface import Connection, Database
from .errors import ConflictError, InvalidRequestError

MAX_REASON_CHARS = 2_000

SwitchKind: TypeAlias = Literal["agent", "schedule", "webhook"]
_OFF_ACTION = {"agent": "agent.switched_off", "schedule": "schedule.paused", "webhook": "webhook.paused"}
_ON_ACTION = {"agent": "agent.switched_on", "schedule": "schedule.resumed", "webhook": "webhook.resumed"}
_SELECT = "SELECT name, actor, reason, at FROM switches WHERE kind = ? ORDER BY name"
_INSERT = "INSERT INTO switches (kind, name, actor, reason, at) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING"
_DELETE = "DELETE FROM switches WHERE kind = ? AND name = ?"


class Switch(msgspec.Struct, frozen=True, kw_only=True):
    """What was switched off or paused, by whom, when, and why."""

    name: str
    actor: str
    reason: str
    #: Nanoseconds since 1970.
    at: int


class Switches:
    """Reads and changes switches. They are read from the database each time."""

    def __init__(self, database: Database, now: Callable[[], int] = time_ns) -> None:
        self._database = database
        self._now = now

    async def list(self, kind: SwitchKind) -> dict[str, Switch]:
        """Return what is off, by name."""
        rows = await self._database.look_up(_SELECT, (kind,))
        return {row[0]: Switch(name=row[0], actor=row[1], reason=row[2], at=row[3]) for row in rows}

    async def list_agents(self) -> tuple[SwitchedOffAgent, ...]:
        """Return the agents that are switched off."""
        found = await self.list("agent")
        return tuple(SwitchedOffAgent(name=e.name, actor=e.actor, reason=e.reason, at=e.at) for e in found.values())

    async def require_agent(self, agent: str) -> None:
        """Raise `ConflictError` if the agent is switched off."""
        switch = find_switch(await self.list_agents(), agent)
        if switch is not None:
            raise ConflictError(
                "agent_switched_off",
                f"{switch.describe(agent)} Nothing was started.",
                {"agent": agent, "by": switch.actor, "reason": switch.reason, "all_agents": switch.name == ALL_AGENTS},
            )

    async def switch_off(self, kind: SwitchKind, name: str, *, by: str, reason: str) -> bool:
        """Switch off. Return False if it was off already: who did that first, and why, stays."""
        check_reason(reason)
        row = (kind, name, by, escape_surrogates(reason.strip()), self._now())
        return await self._database.run(partial(_insert_switch, row=row))

    async def switch_on(self, kind: SwitchKind, name: str, *, by: str, reason: str) -> bool:
        """Switch on. Return False if it was on already."""
        check_reason(reason)
        row = (kind, name, by, escape_surrogates(reason.strip()), self._now())
        return await self._database.run(partial(_delete_switch, row=row))


def check_reason(reason: str) -> None:
    """Raise `InvalidRequestError` without a reason, or for one that is too long."""
    if not 0 < len(reason.strip()) <= MAX_REASON_CHARS:
        raise InvalidRequestError("reason", f"has to say why, in up to {MAX_REASON_CHARS} characters")


def _insert_switch(connection: Connection, row: tuple[SwitchKind, str, str, str, int]) -> bool:
    if not connection.execute(_INSERT, row).rowcount:
        return False
    _record(connection, _OFF_ACTION[row[0]], row)
    return True


def _delete_switch(connection: Connection, row: tuple[SwitchKind, str, str, str, int]) -> bool:
    if not connection.execute(_DELETE, row[:2]).rowcount:
        return False
    _record(connection, _ON_ACTION[row[0]], row)
    return True


def _record(connection: Connection, action: str, row: tuple[SwitchKind, str, str, str, int]) -> None:
    kind, name, by, reason, at = row
    target = name or f"every {kind}"
    append_event(connection, at, AuditEvent(by=by, action=action, target=target, detail={"reason": reason}))
