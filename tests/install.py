"""Install what the tests need beside Python packages, all at once: `python -m tests.install`, before the tests.

The network is what takes the time. Each part prints what it could not install, and which tests are skipped for it.
Meanwhile the tests are compiled: each process that runs them would do that again.
"""

import subprocess
import sys

_PARTS = (
    "tests.coding_agents.install",
    "tests.models.aimock.install",
    "tests.node.install",
    "tests.server.console.install",
    "tests.mcp.conformance.install",
    "tests.mcp.npm_servers.install",
)
#: Collecting writes what is compiled, with the assertions that pytest rewrites.
_COMPILE = (sys.executable, "-m", "pytest", "--collect-only", "-q", "--no-header", "--inline-snapshot=disable")


def main() -> int:
    """Run all parts, and return the exit code of the first that failed."""
    compiling = subprocess.Popen(_COMPILE, stdout=subprocess.DEVNULL)
    running = [subprocess.Popen([sys.executable, "-m", part]) for part in _PARTS]
    failed = next(filter(None, [process.wait() for process in running]), 0)
    compiling.wait()  # what cannot be collected fails again, and is reported, when the tests run
    return failed


if __name__ == "__main__":
    sys.exit(main())
