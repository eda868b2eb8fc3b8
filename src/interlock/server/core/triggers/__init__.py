"""Runs that schedules and webhooks start."""
