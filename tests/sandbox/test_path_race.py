"""Folders and files that become links while tools work: nothing outside is read, listed or written."""

import os
import sys
from pathlib import Path

import pytest

from interlock.sandbox.host.beneath import OpenedPath, PathOpener
from tests.sandbox.race import race
from tests.sandbox.ways import both_ways

pytestmark = [
    pytest.mark.requirement("R229"),
    pytest.mark.skipif(sys.platform != "linux", reason="nothing else swaps two names at once"),
]


@both_ways
def test_nothing_leaks_while_folders_and_links_are_swapped(reach: PathOpener, tmp_path: Path) -> None:
    acts = ("read a file", "read in a folder", "list", "write in a folder")
    wanted = {(act, outcome) for act in acts for outcome in ("done", "refused")}

    found = race(tmp_path, reach, seconds=1, enough=lambda found: wanted <= found.met.keys())

    assert found.wrong == []
    assert found.flips > 100
    assert found.takes > 0
    assert wanted <= found.met.keys()


def test_an_opener_that_looks_first_and_opens_afterwards_is_caught(tmp_path: Path) -> None:
    def looks_first(root_fd: int, path: str, flags: int, mode: int = 0) -> OpenedPath:
        os.stat(path, dir_fd=root_fd, follow_symlinks=False)
        return OpenedPath(os.open(path, flags, mode, dir_fd=root_fd), path)

    assert race(tmp_path, looks_first, seconds=0, enough=lambda found: found.wrong != []).wrong != []
