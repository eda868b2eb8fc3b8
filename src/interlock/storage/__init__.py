"""Event logs and artifact stores."""

from .. import lazy_package

_NAMES = {
    "domain.event": ("Event", "LogEntry"),
    "storage.artifacts": ("ArtifactStore",),
    "storage.budgets": ("BudgetLedger",),
    "storage.event_log": ("EventLog",),
    "storage.file_artifacts": ("FileArtifacts",),
    "storage.memory": ("MemoryLog",),
    "storage.memory_artifacts": ("MemoryArtifacts",),
    "storage.postgres.artifacts": ("PostgresArtifacts",),
    "storage.postgres.log": ("PostgresLog",),
    "storage.s3_artifacts": ("S3Artifacts",),
    "storage.sqlite.log": ("SqliteLog",),
}

lazy_package(__name__, _NAMES)
