"""Install MCP servers that others wrote. How that is done is in `tests/node/install.py`."""

import sys
from pathlib import Path

from tests.node.install import NODE, Packages, main

NPM_SERVERS = Packages(
    name="MCP servers of npm",
    declared=Path(__file__).parent,
    folder=Path(sys.prefix) / ".cache" / "mcp-servers",
    program=Path("node_modules") / "@modelcontextprotocol" / "server-everything" / "dist" / "index.js",
)
_SCOPE = NPM_SERVERS.folder / "node_modules" / "@modelcontextprotocol"
EVERYTHING = (str(NODE), str(_SCOPE / "server-everything" / "dist" / "index.js"))
FILESYSTEM = (str(NODE), str(_SCOPE / "server-filesystem" / "dist" / "index.js"))

if __name__ == "__main__":
    main(NPM_SERVERS)
