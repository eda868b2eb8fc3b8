"""Rules compiled and applied to a call."""
