"""Reports background problems in the server's log: once when one begins, and once when it is over.

A receiver that is down is retried for as long as it takes; logging every attempt would be noise, and logging none would
hide it.
"""

import logging
from collections.abc import Mapping

logger = logging.getLogger("interlock.server")


class HealthReporter:
    """Logs the beginning and the end of background problems."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def report(self, problems: Mapping[str, str]) -> None:
        """Report the current problems. Those that are missing are over."""
        for component in problems.keys() - self._reported:
            logger.warning("%s does not work, and is tried again: %s", component, problems[component])
        for component in self._reported - problems.keys():
            logger.warning("%s works again.", component)
        self._reported = set(problems)
