"""Hooks for coding agents: their built-in tools under the same policy, inbox and log."""
