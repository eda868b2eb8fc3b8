"""Verify, read and export the events of runs."""

from .. import lazy_package

_NAMES = {
    "audit.export": ("read_export", "to_json", "to_ndjson"),
    "audit.verify": ("ChainFlaw", "ChainVerification", "Checkpoint", "verify"),
    "domain.event": ("Event", "LogEntry"),
    "domain.observation": ("ToolExecutionRecord",),
    "history.actions": ("Action",),
    "history.run_view": ("RunEvent", "to_run_events"),
}

lazy_package(__name__, _NAMES)
