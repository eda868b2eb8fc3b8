"""Replay recorded runs: step by step, with a model, as a dry run, as a fork, or as a test."""

from .. import lazy_package

_NAMES = {
    "replay.dry_run": ("DryRun", "dry_run"),
    "replay.export_test": ("export_test",),
    "replay.model": ("ModelReplay", "replay_model"),
    "replay.trace": ("Replay",),
    "runs.fork": ("fork",),
}

lazy_package(__name__, _NAMES)
