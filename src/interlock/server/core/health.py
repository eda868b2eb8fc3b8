"""What goes wrong in the background, in the server's log: once when it begins, and once when it is over.

A receiver that is away is called again for as long as it takes. Nobody wants a line for each time, and nobody wants to
find out after a week.
"""

import logging
from collections.abc import Mapping

logger = logging.getLogger("interlock.server")


class HealthReporter:
    def __init__(self) -> None:
        self._reported: set[str] = set()

    def report(self, problems: Mapping[str, str]) -> None:
        """`now`: what does not work, and why. What is not in it works."""
        for component in problems.keys() - self._reported:
            logger.warning("%s does not work, and is tried again: %s", component, problems[component])
        for component in self._reported - problems.keys():
            logger.warning("%s works again.", component)
        self._reported = set(problems)
