"""The client whose request a call is made for: what a server reports or asks during the call can be relayed to it.

A gateway sets `CALL_RELAY` around a call. Without it progress stays here, and what a server asks is refused.
"""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Protocol

from mcp_types import InputRequest, InputResponse, LoggingLevel, LoggingMessageNotificationParams


class CallRelay(Protocol):
    """The client at the other end."""

    @property
    def log_level(self) -> LoggingLevel | None:
        """The level of log messages that the client wants. None: it wants none."""
        ...

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        """Relay a log message."""
        ...

    async def report_progress(self, done: float, total: float | None, message: str | None) -> None:
        """Report how far the call is."""
        ...

    async def answer(self, server: str, requests: Mapping[str, InputRequest]) -> dict[str, InputResponse]:
        """Return what the client answers to the questions of a server, by their keys. Raise `MCPError` when it cannot
        be asked.
        """
        ...


CALL_RELAY: ContextVar[CallRelay | None] = ContextVar("interlock_mcp_call_relay", default=None)
