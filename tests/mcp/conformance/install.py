"""Install the conformance suite of MCP. How that is done is in `tests/node/install.py`."""

import sys
from pathlib import Path

from tests.node.install import Packages, main

CONFORMANCE = Packages(
    name="the conformance suite of MCP",
    declared=Path(__file__).parent,
    folder=Path(sys.prefix) / ".cache" / "mcp-conformance",
    program=Path("node_modules") / "@modelcontextprotocol" / "conformance" / "dist" / "index.js",
)

if __name__ == "__main__":
    main(CONFORMANCE)
