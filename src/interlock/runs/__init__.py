"""Runs of agents: `Runner`, `RunHandle`, `Inbox`, leases, children, forks, recovery."""
