"""The gate: Interlock's decisions, approvals and log around the tools of an agent that somebody else runs."""
