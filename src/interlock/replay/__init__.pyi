"""Replay recorded runs: step by step, with a model, as a dry run, as a fork, or as a test."""

from ..runs.fork import fork
from .dry_run import DryRun, dry_run
from .export_test import export_test
from .model import ModelReplay, replay_model
from .trace import Replay

__all__ = [
    "DryRun",
    "ModelReplay",
    "Replay",
    "dry_run",
    "export_test",
    "fork",
    "replay_model",
]
