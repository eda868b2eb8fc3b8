"""Adapters: the gate in front of the tools of other frameworks. Each imports its framework; nothing imports them."""
