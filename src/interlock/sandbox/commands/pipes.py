"""The pipes and processes of a command, watched by the event loop."""

import asyncio
import fcntl
import os
import signal
from collections.abc import Callable
from contextlib import suppress

CHUNK_BYTES = 1 << 16
#: Room for what is printed during a pause.
_BULK_PIPE_BYTES = 1 << 20


class PipeReader:
    """One pipe, read as it fills. With a pause, it is read in larger pieces: see `CommandSpec.has_bulk_output`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        receive: Callable[[bytes], None],
        on_close: Callable[[], None] = lambda: None,
        *,
        pause_seconds: float = 0.0,
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._receive = receive
        self._on_close = on_close
        self._pause_seconds = pause_seconds
        self._pause: asyncio.TimerHandle | None = None
        os.set_blocking(fd, False)
        if pause_seconds:
            with suppress(OSError):  # the user's share of pipes is used up: then it blocks sooner
                fcntl.fcntl(fd, fcntl.F_SETPIPE_SZ, _BULK_PIPE_BYTES)

    def watch(self) -> None:
        """Read the pipe whenever it has data."""
        self._loop.add_reader(self._fd, self._read_and_pause if self._pause_seconds else self._read)

    def unwatch(self) -> None:
        """Stop reading the pipe."""
        self._loop.remove_reader(self._fd)

    def _read_and_pause(self) -> None:
        for _ in range(_BULK_PIPE_BYTES // CHUNK_BYTES):
            if not self._read():
                break
        else:
            return  # it fills faster than it is read
        if self._fd >= 0:
            self.unwatch()
            self._pause = self._loop.call_later(self._pause_seconds, self.watch)

    def _read(self) -> bool:
        try:
            chunk = os.read(self._fd, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if chunk:
            self._receive(chunk)
        else:
            self.close()
            self._on_close()
        return bool(chunk)

    def drain(self) -> None:
        """Read what is left in the pipe: all writers are dead, or are not waited for."""
        while self._fd >= 0 and self._read():
            pass

    def close(self) -> None:
        """Stop reading and close the pipe."""
        if self._fd >= 0:
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1


class ProcessWatcher:
    """A process identified beyond its pid, which may be reused."""

    def __init__(self, loop: asyncio.AbstractEventLoop, pid: int) -> None:
        self._loop = loop
        self.has_exited = asyncio.Event()
        try:
            self._fd = os.pidfd_open(pid)
        except ProcessLookupError:
            self._fd = -1
            self.has_exited.set()
        else:
            loop.add_reader(self._fd, self._on_exit)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._fd)
        self.has_exited.set()

    def send(self, number: int) -> None:
        """Send a signal to the process if it still exists."""
        if self._fd >= 0:
            with suppress(ProcessLookupError, PermissionError):
                signal.pidfd_send_signal(self._fd, number)

    def close(self) -> None:
        """Stop watching and close the descriptor of the process."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
