"""Audit events on their way to other systems: in order, at least once, and never dropped in silence."""
