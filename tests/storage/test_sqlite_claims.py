"""Claims between real processes: whoever is alive keeps a run, whoever died loses it, whoever lost it is fenced."""

import asyncio
import os
import sqlite3
import subprocess
from pathlib import Path
from signal import SIGCONT, SIGSTOP
from typing import Any
from unittest.mock import patch

import msgspec
import pytest

from interlock.domain.errors import LogError, LogFencedError, LogWriteError, RunClaimedError
from interlock.storage.event_log import Lease
from interlock.storage.leases import this_process
from interlock.storage.sqlite import leases
from interlock.storage.sqlite.log import SqliteLog
from tests.patience import HANG_SECONDS
from tests.sandbox.ordinary_user import pytest_as_ordinary_user

from .child import start
from .runs import append, chained
from .watched import watched

REWRITE = """
    UPDATE claims SET token = coalesce(?, token), host = coalesce(?, host), boot = coalesce(?, boot),
    pid = coalesce(?, pid), started = coalesce(?, started)
"""


def hear(child: "subprocess.Popen[str]") -> str:
    assert child.stdout
    return child.stdout.readline()


def is_free(path: Path) -> bool:
    """Does nobody write just now?"""
    connection = sqlite3.connect(path, timeout=0, isolation_level=None)
    try:
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        return False
    finally:
        connection.close()
    return True


def stop_between_writes(child: "subprocess.Popen[str]", path: Path) -> None:
    """A process that is stopped while it writes holds up everybody, which is not what is looked at here."""
    while True:
        child.send_signal(SIGSTOP)
        os.waitid(os.P_PID, child.pid, os.WSTOPPED)
        if is_free(path):
            return
        child.send_signal(SIGCONT)


def kill(child: "subprocess.Popen[str]", collected: bool) -> None:
    """Dead when this returns; not collected, it is still among the processes."""
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    if collected:
        child.wait()


@pytest.mark.parametrize("more", [0, 3])
async def test_a_process_that_was_stopped_and_lost_its_run_is_fenced_and_writes_nothing(
    tmp_path: Path, more: int
) -> None:
    log = SqliteLog(tmp_path / "log")
    with start("append_until_fenced", tmp_path / "log") as child:
        lost = int(hear(child))
        assert [int(hear(child)) for _ in range(3)] == [0, 1, 2]
        stop_between_writes(child, tmp_path / "log")

        claim = await log.acquire("run", force=True)
        before = await log.read("run")
        after = chained("run", len(before) + more)
        await append(log, "run", after[len(before) :], claim)
        child.send_signal(SIGCONT)
        said = child.communicate(timeout=HANG_SECONDS)[0]

    assert claim.token > lost
    last = said.splitlines()[-1]
    assert last.startswith(f"run was taken over by process {os.getpid()} on {os.uname().nodename}. Nothing was written")
    assert await log.read("run") == after
    assert child.returncode == 0
    await log.close()


@pytest.mark.parametrize("collected", [False, True])
async def test_a_run_whose_process_was_killed_can_be_claimed_at_once(tmp_path: Path, collected: bool) -> None:
    log, run = SqliteLog(tmp_path / "log"), chained("run", 2)
    with start("hold_until_killed", tmp_path / "log") as child:
        token = int(hear(child))
        kill(child, collected)

        claim = await log.acquire("run")
        with pytest.raises(LogFencedError):
            await append(log, "run", run[1:], Lease("run", token))
        await append(log, "run", run[1:], claim)

    assert claim.token > token
    assert await log.read("run") == run
    await log.close()


async def test_a_run_of_a_living_process_is_refused_in_words_and_taken_over_by_force(tmp_path: Path) -> None:
    log, run = SqliteLog(tmp_path / "log"), chained("run", 2)
    with start("hold_until_killed", tmp_path / "log") as child:
        token = int(hear(child))
        with pytest.raises(RunClaimedError) as refused:
            await log.acquire("run")
        with pytest.raises(LogFencedError, match=f"is claimed by process {child.pid}"):
            await append(log, "run", run[1:])
        version = log.version()

        claim = await log.acquire("run", force=True)
        await append(log, "run", run[1:], claim)
        child.kill()

    assert str(refused.value) == (
        f"run is owned by process {child.pid} on {os.uname().nodename}, which is running. Nothing was written."
        " From here you can answer its questions, watch it, or take it over by force."
    )
    assert claim.token == token + 1, "a refused claim used up no token"
    assert log.version() != version
    await log.close()


def rewrite_claim(path: Path, **values: str | int) -> None:
    """As if another process had made it."""
    names = ("token", "host", "boot", "pid", "started")
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute(REWRITE, [values.get(name) for name in names])
    connection.close()


#: As two containers on one host see each other: with another host name, or with other process numbers.
CONTAINERS = [{"host": "container-2", "pid": 2**22 + 1}, {"host": "container-2"}, {"pid": 2**22 + 1, "started": 7}]


@pytest.mark.parametrize("changed", CONTAINERS)
async def test_a_holder_in_another_container_is_seen(tmp_path: Path, changed: dict[str, Any]) -> None:
    """While it lives it keeps the run, and when it is gone the run is free at once."""
    elsewhere = msgspec.structs.replace(this_process(), **changed)
    with patch.object(leases, "this_process", lambda: elsewhere):
        holder = SqliteLog(tmp_path / "log")
        await holder.acquire("run")
    async with SqliteLog(tmp_path / "log") as log:
        with pytest.raises(RunClaimedError, match="which is running"):
            await log.acquire("run")
        assert list(await log.lease_holders()) == ["run"]
        await holder.close()
        assert await log.lease_holders() == {}
        assert (await log.acquire("run")).token == 2


@pytest.mark.parametrize("changed", [{"boot": "before the machine was started again"}, {"started": 1}])
async def test_a_run_from_before_a_restart_or_of_a_number_that_is_used_again_can_be_claimed(
    tmp_path: Path, changed: dict[str, str | int]
) -> None:
    log = SqliteLog(tmp_path / "log")
    await log.acquire("run")
    rewrite_claim(tmp_path / "log", **{"pid": os.getppid(), **changed})

    assert (await log.acquire("run")).token == 2
    await log.close()


async def test_a_claim_of_a_log_that_failed_is_free_for_this_very_process_and_for_no_other(tmp_path: Path) -> None:
    full = False

    def see(connection: sqlite3.Connection, sql: str) -> None:
        if full and sql == "COMMIT":
            raise sqlite3.OperationalError("database or disk is full")

    failing, run = SqliteLog(tmp_path / "log", factory=watched(see)), chained("run", 2)
    lost = await failing.acquire("run")
    await append(failing, "run", run[:1], lost)
    full = True
    with pytest.raises(LogWriteError, match="disk is full"):
        await append(failing, "run", run[1:], lost)

    async with SqliteLog(tmp_path / "log") as log:
        assert await log.lease_holders() == {}
        with start("try_claim", tmp_path / "log") as other:
            assert "is running" in hear(other)
        claim = await log.acquire("run")
        await append(log, "run", run[1:], claim)

        assert claim.token > lost.token
        assert await log.read("run") == run
    await failing.close()


async def test_a_claim_of_another_open_log_of_this_process_is_in_force_until_that_is_closed(tmp_path: Path) -> None:
    async with SqliteLog(tmp_path / "log") as ours:
        async with SqliteLog(tmp_path / "log") as theirs:
            await theirs.acquire("run")
            with pytest.raises(RunClaimedError, match="owned by this process"):
                await ours.acquire("run")
            assert list(await ours.lease_holders()) == ["run"]

        await ours.acquire("run")


async def test_a_claim_made_by_somebody_else_between_two_appends_is_seen_although_heads_are_remembered(
    tmp_path: Path,
) -> None:
    log, run = SqliteLog(tmp_path / "log"), chained("run", 3)
    claim = await log.acquire("run")
    await append(log, "run", run[:1], claim)
    await append(log, "run", run[1:2], claim)
    rewrite_claim(tmp_path / "log", token=claim.token + 1)

    with pytest.raises(LogFencedError):
        await append(log, "run", run[2:], claim)

    assert await log.read("run") == run[:2]
    await log.close()


async def test_a_claim_whose_caller_stopped_waiting_is_given_back(tmp_path: Path) -> None:
    log, run = SqliteLog(tmp_path / "log"), chained("run", 2)
    caller = asyncio.ensure_future(log.acquire("run"))
    await asyncio.wait({caller}, timeout=0)

    caller.cancel()
    await asyncio.wait({caller})
    await append(log, "run", run[:1])
    newest = await log.acquire("run")

    assert caller.cancelled()
    assert newest.token == 2
    await append(log, "run", run[1:], newest)
    await log.close()


class Fault:
    """The error of every look at the version, once there is one."""

    def __init__(self) -> None:
        self.code = 0
        self.connections = watched(self._see)

    def _see(self, connection: sqlite3.Connection, sql: str) -> None:
        if self.code and sql == "PRAGMA data_version":
            error = sqlite3.OperationalError("something about the file")
            error.sqlite_errorcode = self.code
            raise error


async def test_the_version_is_what_it_was_while_somebody_has_the_file_to_themselves(tmp_path: Path) -> None:
    fault = Fault()
    log = SqliteLog(tmp_path / "log", factory=fault.connections)
    await append(log, "run", chained("run", 1))
    before = log.version()

    fault.code = sqlite3.SQLITE_BUSY_RECOVERY

    assert log.version() == before
    fault.code = 0
    await log.close()


async def test_a_version_that_cannot_be_read_is_an_error_of_the_log(tmp_path: Path) -> None:
    fault = Fault()
    log = SqliteLog(tmp_path / "log", factory=fault.connections)

    fault.code = sqlite3.SQLITE_IOERR
    with pytest.raises(LogError, match="cannot read the log"):
        log.version()
    fault.code = 0
    await log.close()
    with pytest.raises(LogError, match="cannot read the log"):
        log.version()


def test_an_ordinary_user_can_do_all_this() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user("tests/storage/test_sqlite_claims.py")
