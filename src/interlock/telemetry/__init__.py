"""Measurements and traces of calls."""
