"""Verify, read and export the events of runs."""

from ..domain.event import Event, LogEntry
from ..domain.observation import ToolExecutionRecord
from ..history.actions import Action
from ..history.run_view import RunEvent, to_run_events
from .export import read_export, to_json, to_ndjson
from .verify import ChainFlaw, ChainVerification, Checkpoint, verify

__all__ = [
    "Action",
    "ChainFlaw",
    "ChainVerification",
    "Checkpoint",
    "Event",
    "LogEntry",
    "RunEvent",
    "ToolExecutionRecord",
    "read_export",
    "to_json",
    "to_ndjson",
    "to_run_events",
    "verify",
]
