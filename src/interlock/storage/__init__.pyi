"""Event logs and artifact stores."""

from ..domain.event import Event, LogEntry
from .artifacts import ArtifactStore
from .budgets import BudgetLedger
from .event_log import EventLog
from .file_artifacts import FileArtifacts
from .memory import MemoryLog
from .memory_artifacts import MemoryArtifacts
from .postgres.artifacts import PostgresArtifacts
from .postgres.log import PostgresLog
from .s3_artifacts import S3Artifacts
from .sqlite.log import SqliteLog

__all__ = [
    "ArtifactStore",
    "BudgetLedger",
    "Event",
    "EventLog",
    "FileArtifacts",
    "LogEntry",
    "MemoryArtifacts",
    "MemoryLog",
    "PostgresArtifacts",
    "PostgresLog",
    "S3Artifacts",
    "SqliteLog",
]
