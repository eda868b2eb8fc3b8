"""Memory that no process has mapped ends a command at its limit, too."""

import os
import sys
from pathlib import Path

import pytest

from interlock.sandbox.commands.bubblewrap import BubblewrapSandbox
from interlock.sandbox.host.cgroups import create_cgroup
from interlock.sandbox.host.programs import find_bwrap, python_folders
from interlock.sandbox.interface import CommandLimits

from .commands import Outcome, run
from .hoards import HELD_BYTES, HOARDS, MEGABYTE
from .ordinary_user import pytest_as_ordinary_user

LIMIT = 100 * MEGABYTE


@pytest.fixture
def sandbox() -> BubblewrapSandbox:
    bwrap = find_bwrap()
    assert bwrap is not None
    return BubblewrapSandbox(bwrap.path)


def has_memory_groups() -> bool:
    group = create_cgroup(10, LIMIT)
    if group is None:
        return False
    group.close()
    return group.can_limit_memory


async def python(sandbox: BubblewrapSandbox, program: str, workspace: Path) -> Outcome:
    limits = CommandLimits(memory_bytes=LIMIT, temporary_bytes=HELD_BYTES, grace_seconds=0.1)
    words = (sys.executable, "-I", "-c", program)
    return await run(sandbox, words, workspace, timeout=30, readable=python_folders(), limits=limits)


@pytest.mark.parametrize("kind", HOARDS)
async def test_held_memory_ends_a_command(sandbox: BubblewrapSandbox, tmp_path: Path, kind: str) -> None:
    if kind not in ("memfd", "deleted file") and not has_memory_groups():
        pytest.skip("only control groups count this kind of memory, and there are none for us")

    outcome = await python(sandbox, HOARDS[kind], tmp_path)

    assert outcome.ended.reason == "memory_limit"
    assert outcome.ended.peak_memory_bytes > LIMIT


async def test_memory_below_the_limit_ends_nothing(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    mapped_and_held = """
import mmap, os
fd = os.memfd_create("x")
os.ftruncate(fd, 60 << 20)
held = mmap.mmap(fd, 60 << 20)
for megabyte in range(60):
    held[megabyte << 20 : megabyte + 1 << 20] = bytes(1 << 20)
print(len(held))
"""

    outcome = await python(sandbox, mapped_and_held, tmp_path)

    assert (outcome.ended.reason, outcome.stdout) == ("exited", f"{60 * MEGABYTE}\n")


async def test_a_large_system_v_segment_is_refused(sandbox: BubblewrapSandbox, tmp_path: Path) -> None:
    program = """
import ctypes, errno
get = ctypes.CDLL(None, use_errno=True).shmget
for size in (56, 1 << 16, (1 << 16) + 1, 1 << 32):
    ctypes.set_errno(0)
    print(get(0, ctypes.c_size_t(size), 0o1600) >= 0, errno.errorcode.get(ctypes.get_errno()))
"""

    outcome = await python(sandbox, program, tmp_path)

    assert outcome.stdout.splitlines() == ["True None", "True None", "False EINVAL", "False EINVAL"]


def test_all_of_this_holds_for_an_ordinary_user() -> None:
    if os.geteuid() != 0:
        pytest.skip("this is one")
    pytest_as_ordinary_user(__file__)
