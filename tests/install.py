"""Install what the tests need beside Python packages, all at once: `python -m tests.install`, before the tests.

The network is what takes the time. Each part prints what it could not install, and which tests are skipped for it.
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


def main() -> int:
    """Run all parts, and return the exit code of the first that failed."""
    running = [subprocess.Popen([sys.executable, "-m", part]) for part in _PARTS]
    return next(filter(None, [process.wait() for process in running]), 0)


if __name__ == "__main__":
    sys.exit(main())
