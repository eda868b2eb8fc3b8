"""The heartbeat of a log: a thread with its own connection, so that nothing else can delay it.

It shows every quarter of the lease that this process is alive, unless the event loop that has leases is stuck. It
listens for writes of other processes, and notifies them of ours: at most every 20 ms, and never in the transaction of
an append, because all transactions that notify wait for each other. A notification that is lost costs one beat: the
answer to a beat shows what was written meanwhile.
"""

import asyncio
import os
import select
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import Any

import psycopg

from .changes import ChangeSignal
from .connection import RETRY_SECONDS, Connection, Connector, execute
from .operations import ProcessLeases
from .queries import QUERIES

_NOTIFY_SECONDS = 0.02
_BEATS_PER_LEASE = 4
#: An event loop that did nothing for so long is stuck, and its runs are for others.
STUCK_SECONDS = 300.0


class Heartbeat:
    """Beats, listens and notifies for one open log."""

    def __init__(self, connector: Connector, leases: ProcessLeases, changes: ChangeSignal) -> None:
        self._connector = connector
        self._process = leases.process
        self._leases = leases
        self._changes = changes
        self._channel = f"interlock_{connector.schema}"
        self._is_ending = False
        self._has_written = False
        self._marks: tuple[Any, ...] | None = None
        self._next_notify = 0.0
        #: The event loop that acquired the newest lease, and when it was last seen to work.
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ticked_at = 0.0
        # Before anything is written: what others write from now on is heard.
        connection = self._listen()
        self._woken, self._wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = Thread(target=self._run, args=(connection,), name="interlock-heartbeat", daemon=True)
        self._thread.start()

    def report_write(self) -> None:
        """Count a write of this process, and notify the others soon."""
        self._changes.bump()
        if not self._has_written:
            self._has_written = True
            self._poke()

    def watch_loop(self) -> None:
        """Beat only as long as the running event loop works."""
        self._loop, self._ticked_at = asyncio.get_running_loop(), monotonic()

    def end(self) -> None:
        """Stop beating soon: a process that cannot append must not look alive."""
        self._is_ending = True
        self._poke()

    def stop(self) -> None:
        """Stop beating, so that the leases of this log are free. Blocks; may be called twice."""
        self.end()
        self._thread.join()
        for file in (self._woken, self._wake):
            with suppress(OSError):
                os.close(file)

    def _poke(self) -> None:
        with suppress(OSError):  # full: it wakes all the same
            os.write(self._wake, b".")

    def _run(self, connection: Connection | None) -> None:
        while True:
            try:
                connection = connection or self._listen()
                self._wait_for_beat(connection)
                if self._is_ending:
                    self._notify(connection)
                    execute(connection, QUERIES["stop_beating"], (self._process,))
                    connection.close()
                    return
                self._beat(connection)
            except (psycopg.Error, OSError):
                if connection is not None:
                    connection.close()
                if self._is_ending:
                    return  # the lease ends by itself
                connection = None
                sleep(RETRY_SECONDS)

    def _listen(self) -> Connection:
        connection = self._connector.connect("interlock-heartbeat")
        connection.add_notify_handler(self._on_notify)
        connection.execute(f'LISTEN "{self._channel}"'.encode())
        self._beat(connection)
        return connection

    def _is_stuck(self) -> bool:
        loop = self._loop
        if loop is None or loop.is_closed() or not self._leases.claims:
            return False
        with suppress(RuntimeError):  # it was closed just now
            loop.call_soon_threadsafe(self._tick)
        return monotonic() - self._ticked_at > STUCK_SECONDS

    def _tick(self) -> None:
        self._ticked_at = monotonic()

    def _beat(self, connection: Connection) -> None:
        if self._is_stuck():
            return
        marks = execute(connection, QUERIES["beat"], (self._process,)).fetchone()
        if marks != self._marks:  # written by this process, or by one that did not notify
            self._marks = marks
            self._changes.bump()

    def _wait_for_beat(self, connection: Connection) -> None:
        """Listen and notify until the next beat is due."""
        next_beat = monotonic() + self._connector.lease_seconds / _BEATS_PER_LEASE
        looking = select.poll()
        looking.register(connection.fileno(), select.POLLIN)
        looking.register(self._woken, select.POLLIN)
        while not self._is_ending and (left := next_beat - monotonic()) > 0:
            ready = {file for file, _ in looking.poll(left * 1000)}
            if connection.fileno() in ready:
                connection.pgconn.consume_input()
                while (notification := connection.pgconn.notifies()) is not None:
                    self._hear(notification.extra)
            if self._woken in ready:
                os.read(self._woken, 1024)
                self._notify(connection)

    def _notify(self, connection: Connection) -> None:
        if self._has_written:
            sleep(max(0.0, self._next_notify - monotonic()))
            self._has_written, self._next_notify = False, monotonic() + _NOTIFY_SECONDS
            execute(connection, QUERIES["notify"], (self._channel, str(self._process)))

    def _on_notify(self, notification: psycopg.Notify) -> None:
        self._hear(notification.payload.encode())

    def _hear(self, process: bytes) -> None:
        if process != b"%d" % self._process:
            self._changes.bump()
