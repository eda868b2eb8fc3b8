"""The MCP client: servers, their connections and pinned tools, as a toolbox."""
