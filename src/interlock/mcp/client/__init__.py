"""MCP client: the tools of MCP servers in the runtime."""
