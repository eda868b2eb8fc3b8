"""The store of artifacts that settings name."""

from pathlib import Path

import pytest

from interlock import FileArtifacts
from interlock.cli.config.artifact_stores import open_for_database, open_for_file
from interlock.domain.errors import ConfigurationError
from interlock.server.core.settings import ArtifactsTable


def test_files_are_beside_the_log_or_where_settings_say(tmp_path: Path) -> None:
    beside = open_for_file(ArtifactsTable(), tmp_path / "beside")
    elsewhere = open_for_file(ArtifactsTable(kind="files", folder=str(tmp_path / "other")), tmp_path / "beside")

    assert isinstance(beside, FileArtifacts)
    assert isinstance(elsewhere, FileArtifacts)
    assert (beside.own_paths, elsewhere.own_paths) == ((str(tmp_path / "beside"),), (str(tmp_path / "other"),))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (ArtifactsTable(kind="postgres"), "needs a log in Postgres"),
        (ArtifactsTable(kind="s3", bucket="runs", endpoint="minio"), "is not a URL"),
    ],
)
def test_a_store_that_cannot_be_used_is_refused(tmp_path: Path, settings: ArtifactsTable, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        open_for_file(settings, tmp_path)


def test_an_unreachable_store_is_refused_at_the_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "key")
    monkeypatch.setattr("interlock.storage.s3_artifacts.MAX_RETRIES", 0)

    with pytest.raises(ConfigurationError, match=r"\[artifacts\] .*Check `endpoint`"):
        open_for_file(ArtifactsTable(kind="s3", bucket="runs", endpoint="http://127.0.0.1:9"), tmp_path)


def test_files_of_one_host_are_refused_with_a_shared_log() -> None:
    with pytest.raises(ConfigurationError, match="other hosts do not have them"):
        open_for_database(ArtifactsTable(kind="files"), "postgresql://nowhere", "interlock", 1.0)
