"""MCP: a client that brings the tools of MCP servers, and a gateway that governs them for any MCP client."""
