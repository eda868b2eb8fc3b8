"""Processes below a process, found in `/proc`."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from interlock.sandbox.host import process_tree

HOLDS_40_MEGABYTES = "held = bytearray(b'x' * (40 << 20)); print('held', flush=True); input()"


@pytest.fixture
def family() -> "Iterator[subprocess.Popen[str]]":
    """A shell with a child and a grandchild, all waiting for a line."""
    script = "bash -c '(echo up; exec sleep 1000) & wait; :' & wait; :"
    with subprocess.Popen(
        ["bash", "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as shell:
        assert shell.stdout is not None
        assert shell.stdout.readline() == "up\n"
        yield shell
        os.killpg(shell.pid, 9)


def test_children_are_found_and_the_process_itself_is_not(family: "subprocess.Popen[str]") -> None:
    found = process_tree.list_descendants(family.pid)

    assert len(found) == 2
    assert family.pid not in found
    assert set(found) < set(process_tree.list_descendants(os.getpid()))


def test_looking_stops_where_it_is_told_to(family: "subprocess.Popen[str]") -> None:
    assert (
        1 <= len(process_tree.list_descendants(os.getpid(), limit=0)) <= len(process_tree.list_descendants(os.getpid()))
    )


def test_a_process_that_is_gone_has_no_children_and_no_memory() -> None:
    gone = 2**22 + 1

    assert process_tree.list_descendants(gone) == []
    assert process_tree.sum_resident_bytes([gone]) == process_tree.sum_proportional_bytes([gone]) == 0
    assert not process_tree.is_namespace_init(gone)


def test_memory_is_what_a_process_holds() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_40_MEGABYTES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        resident = process_tree.sum_resident_bytes([process.pid])
        proportional = process_tree.sum_proportional_bytes([process.pid])
        process.kill()

    assert 40 << 20 < proportional <= resident < 120 << 20


def test_this_process_is_the_first_of_no_namespace_below_ours() -> None:
    assert not process_tree.is_namespace_init(os.getpid())


#: Of 60 megabytes in a file without a name, 40 are written.
HOLDS_A_FILE = """
import mmap, os
fd = os.memfd_create("x")
os.ftruncate(fd, 60 << 20)
os.pwrite(fd, bytes(40 << 20), 0)
held = mmap.mmap(fd, 40 << 20) if {mapped} else b""
sum(held[::4096])
others = [os.open("/dev/null", os.O_RDONLY) for _ in range(100)]
print("held", flush=True)
input()
"""


def holder(*, mapped: bool) -> "subprocess.Popen[str]":
    program = HOLDS_A_FILE.format(mapped=mapped)
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    return process


@pytest.mark.parametrize("mapped", [True, False])
def test_a_held_file_counts_once(mapped: bool) -> None:
    with holder(mapped=mapped) as process:
        shared = process_tree.SharedMemoryCounter()
        pids = [process.pid, process.pid]
        held = shared.scan(pids)
        used = process_tree.measure_used_bytes([process.pid], 50 << 20, shared)
        process.kill()

    assert held == 40 << 20
    assert 40 << 20 < used < 80 << 20


def test_a_process_that_ends_while_it_is_measured_counts_nothing_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    measure = process_tree.sum_proportional_bytes

    def measure_and_end(pids: Iterable[int]) -> int:
        total = measure(pids)
        process.kill()
        process.wait()
        return total

    monkeypatch.setattr(process_tree, "sum_proportional_bytes", measure_and_end)
    with holder(mapped=True) as process:
        used = process_tree.measure_used_bytes([process.pid], 50 << 20, process_tree.SharedMemoryCounter())

    assert used == 40 << 20


def test_many_descriptors_do_not_hide_a_file() -> None:
    with holder(mapped=False) as process:
        shared = process_tree.SharedMemoryCounter(max_descriptors=10)
        looks = [shared.scan([process.pid]) for _ in range(25)]
        process.kill()
        process.wait()
        after = [shared.scan([]) for _ in range(25)]

    assert looks[-1] == 40 << 20
    assert after[-1] == 0


def test_files_on_disk_are_not_memory(tmp_path: Path) -> None:
    before = process_tree.SharedMemoryCounter().scan([os.getpid()])
    with (tmp_path / "x").open("wb") as file:
        file.write(bytes(1 << 20))

        assert process_tree.SharedMemoryCounter().scan([os.getpid()]) == before
