"""Health of the server: what is reported in its own log, and what happens when the event log cannot be written.

A problem is reported once when it begins and once when it is over: a receiver that is down is retried for as long as it
takes; logging every attempt would be noise, and logging none would hide it.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress

from ...storage.event_log import EventLog

logger = logging.getLogger("interlock.server")

_POLL_SECONDS = 0.1
#: After the log could not be opened again.
_RETRY_SECONDS = 0.5


class HealthReporter:
    """Logs the beginning and the end of background problems."""

    def __init__(self) -> None:
        self._reported: dict[str, set[str]] = {}

    def report(self, problems: Mapping[str, str], source: str = "") -> None:
        """Report the current problems of a source. Those that are missing are over."""
        reported = self._reported.get(source, set())
        for component in problems.keys() - reported:
            logger.warning("%s does not work, and is tried again: %s", component, problems[component])
        for component in reported - problems.keys():
            logger.warning("%s works again.", component)
        self._reported[source] = set(problems)


class LogMonitor:
    """Owns what happens when the event log cannot be written.

    As long as the log has a problem the server is not ready and nothing starts: every start checks the log first.
    The monitor reports the problem once, opens the log again until it can be written, and then lets the runs that wait
    for it continue.
    """

    def __init__(self, log: EventLog, on_recovered: Callable[[], None]) -> None:
        self._log = log
        self._on_recovered = on_recovered
        self._is_failing = False

    async def check(self) -> float:
        """Check the log once, and return the seconds until the next time."""
        problem = self._log.problem
        if problem and not self._is_failing:
            logger.error("The event log cannot be written: %s. Nothing is started until it can be.", problem)
        if problem:
            with suppress(Exception):  # `problem` says why
                await self._log.reopen()
        elif self._is_failing:
            logger.warning("The event log can be written again.")
            self._on_recovered()
        self._is_failing = bool(problem)
        return _RETRY_SECONDS if self._log.problem else _POLL_SECONDS
