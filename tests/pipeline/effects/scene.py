"""A bank that pays refunds, a tool that asks it to, and processes that die right after it paid."""

from collections.abc import Callable, Sequence
from threading import Event
from typing import Any

import msgspec
import pytest

from interlock import (
    CallbackInteractionProvider,
    EventLog,
    HeadlessInteractionProvider,
    MemoryLog,
    Rule,
    RulePolicy,
    ToolDefinition,
    ToolRuntime,
    tool,
)
from interlock.domain.errors import LogError, LogWriteError
from interlock.domain.event import LogEntry
from interlock.storage.event_log import Lease
from tests.log_around import LogAround
from tests.support import call

ALLOW = RulePolicy([Rule(id="all", verdict="allow")])
ASK = RulePolicy([Rule(id="all", verdict="ask")])
OPEN = HeadlessInteractionProvider("wait")
NOBODY = HeadlessInteractionProvider()
APPROVES = CallbackInteractionProvider(lambda question: True)


def no_key(arguments: dict[str, Any]) -> None:
    """Return no key: the function of a tool whose calls have no effect that others share."""


class MortalLog(LogAround):
    """A log whose process can die: nothing is written any more."""

    def __init__(self, inner: EventLog) -> None:
        super().__init__(inner)
        self.is_dead = False

    def append(self, run_id: str, entries: Sequence[LogEntry], lease: Lease | None = None) -> Any:
        if self.is_dead:
            raise LogWriteError("the process died")
        return super().append(run_id, entries, lease)


class Bank:
    """Pays refunds. `on_paid` is called after each one."""

    def __init__(self, log: EventLog | None = None) -> None:
        self.log = log or MemoryLog()
        self.paid: list[Any] = []
        self.on_paid: Callable[[], object] = lambda: None

    def plain_tool(self) -> ToolDefinition:
        """Return the tool as somebody else declares it, without a key."""
        return msgspec.structs.replace(self.refund_tool(), effect=None)

    def refund_tool(self, **options: Any) -> ToolDefinition:
        def refund(order: int | str, amount: int = 10) -> str:
            self.paid.append(order)
            self.on_paid()
            return f"paid {amount} for {order}"

        given: dict[str, Any] = {"risk": "network", "effect": "refund:{order}", **options}
        return tool(refund, **given)

    def runtime(self, run_id: str = "", *, log: EventLog | None = None, **options: Any) -> ToolRuntime:
        declared: dict[str, Any] = options.pop("declared", {})
        tools = options.pop("tools", None) or [self.refund_tool(**declared)]
        given: dict[str, Any] = {"policy": ALLOW, "interaction": NOBODY, "tools": tools, **options}
        return ToolRuntime(log=log or self.log, run_id=run_id, **given)

    async def refund(self, run_id: str, call_id: str, order: Any = 4711, **options: Any) -> str:
        """Propose a refund in a run of its own process, and return the code of its outcome, or `waiting`."""
        async with self.runtime(run_id, **options) as runtime:
            result = await runtime.execute([call(call_id, "refund", order=order)])
            return "waiting" if result.waiting else result.observations[0].code

    def hang(self) -> Callable[[], None]:
        """Let the next refund hang after it was paid, until the returned function is called."""
        released = Event()
        self.on_paid = released.wait

        def release() -> None:
            self.on_paid = lambda: None
            released.set()

        return release

    async def refund_and_die(self, run_id: str, call_id: str, order: Any = 4711, **options: Any) -> None:
        """Pay a refund in a process that dies before the end of the call is recorded."""
        log = MortalLog(self.log)

        def die() -> None:
            log.is_dead = True

        self.on_paid = die
        with pytest.raises(LogError):
            await self.refund(run_id, call_id, order, log=log, **options)
        self.on_paid = lambda: None
