"""Connections whose statements a test sees, holds up or fails."""

import sqlite3
import threading
from collections.abc import Callable
from typing import Any

from tests.patience import HANG_SECONDS


def watched(see: Callable[[sqlite3.Connection, str], None]) -> type[sqlite3.Connection]:
    """A class of connections that shows every statement to `see` before it is executed."""

    class Watched(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
            see(self, sql)
            return super().execute(sql, parameters)

    return Watched


class Gate:
    """Counts commits, and holds up every commit while it is shut."""

    def __init__(self) -> None:
        self.commits = 0
        self.reached = threading.Event()
        self._open = threading.Event()
        self._open.set()
        self.connections = watched(self._see)

    def shut(self) -> None:
        self.commits = 0
        self.reached.clear()
        self._open.clear()

    def open(self) -> None:
        self._open.set()

    def _see(self, connection: sqlite3.Connection, sql: str) -> None:
        if sql == "COMMIT":
            self.commits += 1
            self.reached.set()
            assert self._open.wait(HANG_SECONDS)
