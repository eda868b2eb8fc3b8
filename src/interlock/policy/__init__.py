"""Decide whether a call may start."""
