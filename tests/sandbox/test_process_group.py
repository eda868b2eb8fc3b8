"""A limit on processes that holds root, too."""

import os
import subprocess

import pytest

from interlock.sandbox.process_group import holds_root, make_group

needs_groups = pytest.mark.skipif(not holds_root(), reason="not root, or there are no control groups for us here")


@needs_groups
def test_a_process_in_a_group_cannot_have_more_than_its_limit() -> None:
    group = make_group(3)
    assert group is not None
    waiting = "read -r _; for i in 1 2 3 4 5; do (exec sleep 5) & done; jobs -p | wc -l; kill $(jobs -p)"
    shell = subprocess.Popen(
        ["/bin/bash", "-c", waiting], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    group.take(shell.pid)
    _, refused = shell.communicate("\n")
    group.close()

    assert "Resource temporarily unavailable" in refused


@needs_groups
def test_a_group_that_is_closed_leaves_nothing() -> None:
    group = make_group(3)
    assert group is not None
    folder = vars(group)["_folder"]
    assert os.path.isdir(folder)

    group.close()
    group.close()

    assert not os.path.exists(folder)


@needs_groups
def test_taking_a_process_that_is_over_is_no_fault() -> None:
    over = subprocess.Popen(["/bin/true"])
    over.wait()
    group = make_group(3)
    assert group is not None

    group.take(over.pid)

    group.close()


@pytest.mark.skipif(os.getuid() == 0, reason="for an ordinary user")
def test_an_ordinary_user_needs_no_group() -> None:
    assert make_group(3) is None
