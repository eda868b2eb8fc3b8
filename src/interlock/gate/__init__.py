"""The gate: Interlock's decisions, approvals and log around the tools of an agent that another framework runs."""
