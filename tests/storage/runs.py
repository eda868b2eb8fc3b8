"""Runs to append, under the short names that the tests of logs use."""

from interlock.testing.log_entries import append_entries as append
from interlock.testing.log_entries import chain_entries as chain
from interlock.testing.log_entries import make_entries as chained

__all__ = ["append", "chain", "chained"]
