"""The two ways to open a file beneath a folder, for tests that hold for both."""

import pytest

from interlock.sandbox.host.beneath import has_fd_links, has_openat2, open_real_path_by_kernel, open_real_path_by_walk

_MISSING = pytest.mark.skipif(not (has_openat2() and has_fd_links()), reason="this kernel has no openat2")

both_ways = pytest.mark.parametrize(
    "reach",
    [
        pytest.param(open_real_path_by_kernel, id="kernel", marks=_MISSING),
        pytest.param(open_real_path_by_walk, id="walk"),
    ],
)
