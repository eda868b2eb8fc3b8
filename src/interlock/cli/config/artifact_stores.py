"""The store of artifacts that settings name."""

from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from ... import lazy_module
from ...domain.errors import ArtifactError, ConfigurationError
from ...storage.file_artifacts import FileArtifacts

if TYPE_CHECKING:
    from ...server.core.settings import ArtifactsTable
    from ...storage import s3_artifacts
    from ...storage.postgres import artifacts as postgres_artifacts
    from ...storage.postgres.artifacts import PostgresArtifacts
    from ...storage.s3_artifacts import S3Artifacts
else:
    s3_artifacts = lazy_module("...storage.s3_artifacts", __package__)
    postgres_artifacts = lazy_module("...storage.postgres.artifacts", __package__)

SharedStore: TypeAlias = "PostgresArtifacts | S3Artifacts"


def open_for_file(settings: "ArtifactsTable", folder: Path) -> "FileArtifacts | S3Artifacts":
    """Open the store of a server whose log is a file. `folder` is beside that log."""
    if settings.kind == "postgres":
        raise ConfigurationError('[artifacts] kind = "postgres" needs a log in Postgres, and this log is a file.')
    return _open_s3(settings) if settings.kind == "s3" else FileArtifacts(settings.folder or folder)


def open_for_database(settings: "ArtifactsTable", url: str, schema: str, patience_seconds: float) -> SharedStore:
    """Open the store of a process whose log is in Postgres: other hosts have it, too."""
    if settings.kind == "files":
        raise ConfigurationError(
            '[artifacts] kind = "files" is for a log in a file: other hosts do not have them. Nothing was started.'
        )
    if settings.kind == "s3":
        return _open_s3(settings, patience_seconds)
    return postgres_artifacts.PostgresArtifacts(url, schema=schema, patience_seconds=patience_seconds)


def _open_s3(settings: "ArtifactsTable", patience_seconds: float = 20.0) -> "S3Artifacts":
    try:
        return s3_artifacts.S3Artifacts(
            settings.bucket,
            prefix=settings.prefix,
            endpoint=settings.endpoint,
            region=settings.region,
            patience_seconds=patience_seconds,
        )
    except ArtifactError as error:
        raise ConfigurationError(f"[artifacts] {error}.") from None
