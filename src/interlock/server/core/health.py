"""What goes wrong in the background, in the server's log: once when it begins, and once when it is over.

A receiver that is away is called again for as long as it takes. Nobody wants a line for each time, and nobody wants to
find out after a week.
"""

import logging
from collections.abc import Mapping

logger = logging.getLogger("interlock.server")


class Troubles:
    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, now: Mapping[str, str]) -> None:
        """`now`: what does not work, and why. What is not in it works."""
        for what in now.keys() - self._told:
            logger.warning("%s does not work, and is tried again: %s", what, now[what])
        for what in self._told - now.keys():
            logger.warning("%s works again.", what)
        self._told = set(now)
