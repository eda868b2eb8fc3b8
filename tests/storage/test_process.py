"""Is the process that has a claim still there?"""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from signal import SIGKILL, SIGSTOP

import msgspec
import pytest

from interlock.storage import leases
from interlock.storage.leases import ProcessIdentity, is_dead, this_process
from tests.patience import HANG_SECONDS

HERE = this_process()
needs_proc = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="the system has no /proc")


@pytest.fixture
def child() -> "Iterator[subprocess.Popen[bytes]]":
    """A process that sleeps, whose name is made to confuse."""
    code = (
        "import pathlib, time; pathlib.Path('/proc/self/comm').write_text(') Z 1 ('); print(flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as sleeping:
        assert sleeping.stdout
        sleeping.stdout.readline()
        yield sleeping
        sleeping.kill()


def known_as(pid: int) -> ProcessIdentity:
    started = int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19])
    return ProcessIdentity(HERE.host, HERE.boot, pid, started)


@needs_proc
def test_this_process_is_known_by_its_host_its_boot_its_number_and_its_start() -> None:
    assert this_process() == known_as(os.getpid())
    assert HERE.boot
    assert HERE.started > 0
    assert not is_dead(HERE, HERE)


@needs_proc
def test_a_process_is_gone_when_it_was_killed_even_before_its_parent_collects_it(
    child: "subprocess.Popen[bytes]",
) -> None:
    running = known_as(child.pid)
    assert not is_dead(running, HERE)

    os.kill(child.pid, SIGKILL)
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert is_dead(running, HERE)

    child.wait()
    assert is_dead(running, HERE)


@needs_proc
def test_a_stopped_process_is_alive(child: "subprocess.Popen[bytes]") -> None:
    os.kill(child.pid, SIGSTOP)
    os.waitid(os.P_PID, child.pid, os.WSTOPPED)

    assert not is_dead(known_as(child.pid), HERE)


@needs_proc
@pytest.mark.parametrize(
    ("changed", "gone"),
    [
        ({"started": HERE.started + 1}, True),
        ({"boot": "another boot"}, True),
        ({"host": "elsewhere"}, False),
        ({"host": "elsewhere", "boot": "another boot", "pid": 2**22 + 1}, False),
        ({"boot": ""}, False),
        ({"started": 0}, False),
    ],
)
def test_what_was_known_decides(changed: dict[str, str | int], gone: bool) -> None:
    assert is_dead(msgspec.structs.replace(HERE, **changed), HERE) is gone


def test_where_the_system_says_nothing_about_processes_their_numbers_decide(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, child: "subprocess.Popen[bytes]"
) -> None:
    monkeypatch.setattr(leases, "PROC", tmp_path / "nowhere")
    here = this_process()
    running = ProcessIdentity(here.host, "", child.pid, 0)

    assert here == ProcessIdentity(HERE.host, "", os.getpid(), 0)
    assert not is_dead(running, here)
    assert not is_dead(ProcessIdentity(here.host, "", 1, 0), here), "a process of somebody else"
    child.kill()
    child.wait()
    assert is_dead(running, here)


@pytest.mark.parametrize("error", [None, PermissionError, ProcessLookupError])
def test_a_process_is_looked_for_without_a_signal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, error: type[OSError] | None
) -> None:
    sent: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        sent.append((pid, number))
        if error is not None:
            raise error

    monkeypatch.setattr(leases, "PROC", tmp_path / "nowhere")
    monkeypatch.setattr(os, "kill", kill)

    assert is_dead(ProcessIdentity(HERE.host, "", 17, 0), HERE) is (error is ProcessLookupError)
    assert sent == [(17, 0)]


@needs_proc
def test_a_process_is_alive_where_the_boot_is_unknown() -> None:
    assert not is_dead(HERE, msgspec.structs.replace(HERE, boot=""))


FORK = """
import os
from interlock.storage.leases import this_process
before = this_process()
if os.fork():
    os.wait()
else:
    print(this_process() == before)
"""


def test_a_fork_is_another_process() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, text=True, check=True, timeout=HANG_SECONDS
    )

    assert ended.stdout == "False\n"
