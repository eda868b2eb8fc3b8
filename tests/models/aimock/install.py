"""Installs aimock, an independent fake of the providers' wire formats. How that is done is in `tests/node/install.py`.

`python -m tests.models.aimock.install` does it before the tests; otherwise the first test that needs it does.
"""

import sys
from pathlib import Path

from tests.node.install import NoRegistryError, Packages, installed, main

__all__ = ("NoRegistryError", "installed_aimock")

_AIMOCK = Packages(
    name="aimock",
    declared=Path(__file__).parent,
    folder=Path(sys.prefix) / ".cache" / "aimock",
    program=Path("node_modules") / "@copilotkit" / "aimock" / "dist" / "cli.js",
)


def installed_aimock() -> Path:
    return installed(_AIMOCK)


if __name__ == "__main__":
    main(_AIMOCK, *sys.argv[1:2])
