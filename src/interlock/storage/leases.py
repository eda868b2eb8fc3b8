"""Lease holders: which process has a lease, and whether it is alive.

A process is identified by its host, the boot of that host, its pid and its start time, because pids are reused.
Processes on other hosts cannot be inspected: a log that knows no other way to see them counts them as alive, and only
force takes a run from them. A stopped process is alive, a zombie is not.
"""

import os
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache

import msgspec

from ..domain.errors import LogError, LogFencedError, RunClaimedError
from ..domain.event import LogEntry
from .event_log import Lease

#: Where the system describes processes. Without it a process is identified by its pid alone.
PROC = "/proc"

_DEAD = (b"Z", b"X", b"x")
_STATE, _STARTED = 0, 19  # places after the name, which is in brackets and may hold anything


class ProcessIdentity(msgspec.Struct, frozen=True):
    """A process: its host, boot id, pid and start time."""

    host: str
    boot: str
    pid: int
    started: int

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def this_process() -> ProcessIdentity:
    """Return the identity of this process."""
    return _identify(os.getpid(), PROC)


@lru_cache(maxsize=1)  # by pid: after a fork it differs
def _identify(pid: int, _source: str) -> ProcessIdentity:
    status = _read_stat(pid)
    return ProcessIdentity(os.uname().nodename, _read_boot_id(), pid, int(status[_STARTED]) if status else 0)


def is_dead(process: ProcessIdentity, here: ProcessIdentity) -> bool:
    """Return True if the process is certainly dead, as seen from `here`; False where it is unknown."""
    if process.host != here.host:
        return False
    if process.boot and here.boot and process.boot != here.boot:
        return True
    status = _read_stat(process.pid)
    if not status:
        return not _pid_exists(process.pid)
    return status[_STATE] in _DEAD or (process.started != 0 and int(status[_STARTED]) != process.started)


def _read_stat(pid: int) -> list[bytes]:
    """Return the system's data about the process; empty when there is none."""
    with suppress(OSError), open(f"{PROC}/{pid}/stat", "rb") as stat:
        return stat.read().rpartition(b")")[2].split()
    return []


def _read_boot_id() -> str:
    with suppress(OSError), open(f"{PROC}/sys/kernel/random/boot_id", encoding="ascii") as boot_id:
        return boot_id.read().strip()
    return ""


def _pid_exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except OSError as error:
        return not isinstance(error, ProcessLookupError)
    return True


#: Token of a free lease, and of a caller without one. Tokens start at 1.
NO_TOKEN = 0


def lease_token(run_id: str, lease: Lease | None) -> int:
    """Return the token of the lease if it is for this run."""
    if lease is None:
        return NO_TOKEN
    if lease.run_id != run_id:
        raise LogFencedError(f"a claim of {lease.run_id} is none of {run_id}. Nothing was written.")
    return lease.token


def check_has_entries(run_id: str, entries: Sequence[LogEntry]) -> None:
    """Raise `LogError` for an append of nothing: with it no lease begins, and none ends."""
    if not entries:
        raise LogError(f"an append of nothing cannot change the lease of {run_id}. Nothing was written.")


def fenced_error(run_id: str, token: int, holder: ProcessIdentity | None) -> LogFencedError:
    """Return the error for an append with a `token` that is not in force."""
    if holder is None:
        problem = f"the claim {token} of {run_id} was given back or lost"
        advice = "Claim the run again to move it on."
    elif token == NO_TOKEN:
        problem = f"{run_id} is claimed by {holder}, and only its claim can append"
        advice = "Claim the run to move it on."
    else:
        problem = f"{run_id} was taken over by {holder}"
        advice = "Stop here; the log has what the other one does."
    return LogFencedError(f"{problem}. Nothing was written, and nothing may be started. {advice}")


def claimed_error(run_id: str, holder: ProcessIdentity, here: ProcessIdentity) -> RunClaimedError:
    """Build the error for a run that another process holds."""
    if holder == here:
        return RunClaimedError(f"{run_id} is already owned by this process ({holder}). Nothing was written.")
    return RunClaimedError(
        f"{run_id} is owned by {holder}, which is running. Nothing was written. From here you can answer its "
        "questions, watch it, or take it over by force."
    )
