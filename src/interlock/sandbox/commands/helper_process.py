"""The helper of this process: it mounts covers for it, and ends sandboxes that this process left unfinished.

Bubblewrap's child waits for its parent, and is bound to the parent's life only when the sandbox is made. If this
process is killed before that, the kernel kills the parent and the child would wait for ever. So what is being started
is noted in a table that the helper shares. When this process is gone, the helper kills what is in the table.
"""

import array
import atexit
import os
import socket
import sys
from contextlib import suppress
from threading import Lock, Thread

from ..host.process_tree import read_bytes
from ..host.spawn import spawn_program
from . import sandbox_helper


class HelperProcess:
    """The helper, which is started when it is needed first, and again when it is gone."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._channel: socket.socket | None = None
        self._owner = 0
        self._table = -1
        self._free_rows: list[int] = []
        self._num_rows = 0

    def send(self, fds: tuple[int, ...]) -> None:
        """Send a request: see `sandbox_helper`. Raise `OSError` when the helper is gone; the next call starts one."""
        with self._lock:
            channel = self._ensure_started()
            try:
                channel.sendmsg([b"\n"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])
            except OSError:
                channel.close()
                self._channel = None
                raise

    def watch(self, pid: int) -> "WatchedLaunch":
        """Arrange that a launched process, which leads its session, is killed when this process is gone."""
        with self._lock:
            self._ensure_started()
            row = self._free_rows.pop() if self._free_rows else self._num_rows
            self._num_rows = max(self._num_rows, row + 1)
        watched = WatchedLaunch(self, self._table, row)
        watched.add(pid)
        return watched

    def release(self, table: int, row: int) -> None:
        """Clear a row of the table."""
        with self._lock:
            if table == self._table and self._owner == os.getpid():
                os.pwrite(table, bytes(sandbox_helper.ROW_BYTES), row * sandbox_helper.ROW_BYTES)
                self._free_rows.append(row)

    def _ensure_started(self) -> socket.socket:
        if self._owner != os.getpid():
            # A forked process: the helper would not see the end of the one that it belongs to.
            if self._channel is not None:
                self._channel.close()
                os.close(self._table)
            self._owner, self._channel, self._table = os.getpid(), None, os.memfd_create("launches")
            self._free_rows, self._num_rows = [], 0
        if self._channel is None:
            self._channel = self._start()
        return self._channel

    def _start(self) -> socket.socket:
        channel, its_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        table = os.dup(self._table)
        try:
            atexit.register(channel.close)
            words = (sys.executable, "-I", "-S", sandbox_helper.__file__, str(its_end.fileno()), str(table))
            pid = spawn_program(words, {}, (its_end.fileno(), table))
        except OSError:
            channel.close()
            raise
        finally:
            its_end.close()
            os.close(table)
        # It ends at once: the helper is its child, and none of ours.
        Thread(target=os.waitpid, args=(pid, 0), daemon=True, name="interlock-helper").start()
        return channel


class WatchedLaunch:
    """A row of the table: the launched process, and the first one inside."""

    def __init__(self, helper: HelperProcess, table: int, row: int) -> None:
        self._helper = helper
        self._table = table
        self._row = row
        self._words: list[str] = []

    def add(self, pid: int) -> None:
        """Add a process."""
        with suppress(OSError):  # it has ended
            self._words += sandbox_helper.identify(read_bytes(f"/proc/{pid}/stat"))
            row = " ".join(self._words).encode().ljust(sandbox_helper.ROW_BYTES, b"\0")
            os.pwrite(self._table, row, self._row * sandbox_helper.ROW_BYTES)

    def close(self) -> None:
        """Forget it: it has ended."""
        self._helper.release(self._table, self._row)


helper_process = HelperProcess()
