"""The MCP gateway: one server in front of many, with policy, approvals and the log between."""
