"""Processes below a process, found in `/proc`."""

import os
import subprocess
import sys
from collections.abc import Iterator

import pytest

from interlock.sandbox import process_tree

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
    found = process_tree.descendants(family.pid)

    assert len(found) == 2
    assert family.pid not in found
    assert set(found) < set(process_tree.descendants(os.getpid()))


def test_looking_stops_where_it_is_told_to(family: "subprocess.Popen[str]") -> None:
    assert 1 <= len(process_tree.descendants(os.getpid(), most=0)) <= len(process_tree.descendants(os.getpid()))


def test_a_process_that_is_gone_has_no_children_and_no_memory() -> None:
    gone = 2**22 + 1

    assert process_tree.descendants(gone) == []
    assert process_tree.resident_bytes([gone]) == process_tree.proportional_bytes([gone]) == 0
    assert not process_tree.is_first_of_its_own(gone)


def test_memory_is_what_a_process_holds() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS_40_MEGABYTES], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"

        resident = process_tree.resident_bytes([process.pid])
        proportional = process_tree.proportional_bytes([process.pid])
        process.kill()

    assert 40 << 20 < proportional <= resident < 120 << 20


def test_this_process_is_the_first_of_no_namespace_below_ours() -> None:
    assert not process_tree.is_first_of_its_own(os.getpid())
