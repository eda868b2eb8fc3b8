"""A disk that fails under another process: its system calls that write files are answered here.

    python -m tests.server.core.failing_disk SOCKET PROGRAM...

The program runs under a seccomp filter that stops it at every `pwrite64`, `fsync`, `fdatasync` and `ftruncate` and asks
the test (`SECCOMP_RET_USER_NOTIF`), which lets the call through or answers with an error, as a kernel does whose disk
is broken or full. Nothing in the program knows. Linux only; no privileges are needed.
"""

import ctypes
import fcntl
import os
import platform
import select
import socket
import struct
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Event, Thread
from typing import Any

#: By machine: what the kernel calls it, and the numbers of the stopped calls and of `seccomp`.
_MACHINES = {
    "x86_64": (0xC000003E, {18: "pwrite64", 74: "fsync", 75: "fdatasync", 77: "ftruncate"}, 317),
    "aarch64": (0xC00000B7, {68: "pwrite64", 82: "fsync", 83: "fdatasync", 46: "ftruncate"}, 277),
}
_PR_SET_NO_NEW_PRIVS = 38
_SET_MODE_FILTER, _NEW_LISTENER = 1, 8
_ALLOW, _USER_NOTIF = 0x7FFF0000, 0x7FC00000
_CONTINUE = 1
#: struct seccomp_notif (id, pid, flags, data) and struct seccomp_notif_resp (id, val, error, flags).
_REQUEST, _RESPONSE = struct.Struct("=QIIiIQ6Q"), struct.Struct("=QqiI")
_RECEIVE = 3 << 30 | _REQUEST.size << 16 | ord("!") << 8
_SEND = 3 << 30 | _RESPONSE.size << 16 | ord("!") << 8 | 1

is_available = sys.platform == "linux" and platform.machine() in _MACHINES


class FailingDisk:
    """Answers the writing system calls of one process: they work until `break_at`, and fail then until `repair`.

    Args:
        fails_for: Return whether a file of this name is on the disk.
        on_break: Called before the first call that fails is answered.
    """

    def __init__(self, fails_for: Callable[[str], bool], on_break: Callable[[], None] = lambda: None) -> None:
        #: Set with the first call that fails; where none shall fail, with the first that might have.
        self.is_broken = Event()
        #: How many calls there were.
        self.calls = 0
        self._fails_for, self._on_break = fails_for, on_break
        self._code, self._left = 0, -1
        self._ours, self._theirs = socket.socketpair()

    @property
    def launcher(self) -> list[str]:
        """The words in front of the program, which has to inherit `descriptor`."""
        return [sys.executable, "-m", "tests.server.core.failing_disk", str(self.descriptor)]

    @property
    def descriptor(self) -> int:
        return self._theirs.fileno()

    def start(self) -> None:
        """Answer until the program ends. Call it before the program is started, which stops at its first call."""
        Thread(target=self._serve, name="failing-disk", daemon=True).start()

    def break_at(self, number: int, code: int) -> None:
        """Let so many calls through, then fail with the error code. With 0 none fails, but `is_broken` is set."""
        self.is_broken.clear()
        self._code, self._left = code, number

    def repair(self) -> None:
        """Let every call through again."""
        self._left = -1

    def _serve(self) -> None:
        with self._ours, self._theirs:
            _, (listener,), *_ = socket.recv_fds(self._ours, 1, 1)
        poller = select.poll()
        poller.register(listener, select.POLLIN)
        try:
            while poller.poll()[0][1] == select.POLLIN:
                with suppress(OSError):  # the thread that made the call is gone
                    self._answer_one(listener)
        finally:
            os.close(listener)

    def _answer_one(self, listener: int) -> None:
        notification = bytearray(_REQUEST.size)
        fcntl.ioctl(listener, _RECEIVE, notification)
        number, thread, *_, descriptor, _, _, _, _, _ = _REQUEST.unpack(notification)
        code = self._choose(os.readlink(f"/proc/{thread}/fd/{descriptor}"))
        response = _RESPONSE.pack(number, 0, -code, 0 if code else _CONTINUE)
        fcntl.ioctl(listener, _SEND, response)

    def _choose(self, path: str) -> int:
        """Return the error code of a call, or 0 to let it through."""
        if not self._fails_for(os.path.basename(path)):
            return 0
        self.calls += 1
        if self._left != 0:
            self._left -= self._left > 0
            return 0
        if not self.is_broken.is_set():
            self._on_break()
            self.is_broken.set()
        return self._code


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_void_p))


def _listen() -> int:
    """Install the filter for this process and all that it starts, and return the descriptor of its listener."""
    architecture, numbers, seccomp = _MACHINES[platform.machine()]
    load, equal, give = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 4), (equal, 0, len(numbers) + 1, architecture), (load, 0, 0, 0)]
    steps += [(equal, len(numbers) - at, 0, number) for at, number in enumerate(numbers)]
    steps += [(give, 0, 0, _ALLOW), (give, 0, 0, _USER_NOTIF)]
    code = b"".join(struct.pack("=HBBI", *step) for step in steps)
    buffer = ctypes.create_string_buffer(code, len(code))
    program = _Program(len(steps), ctypes.addressof(buffer))
    libc: Any = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
    listener = libc.syscall(seccomp, _SET_MODE_FILTER, _NEW_LISTENER, ctypes.byref(program))
    if listener < 0:
        raise OSError(ctypes.get_errno(), "seccomp")
    return listener


if __name__ == "__main__":
    with socket.socket(fileno=int(sys.argv[1])) as test:
        listener = _listen()
        socket.send_fds(test, [b"x"], [listener])
    os.close(listener)
    os.execv(sys.argv[2], sys.argv[2:])  # noqa: S606 - the program to test
