"""Artifacts as files: whole or not there, private, and never something else than what was kept."""

import os
from collections.abc import Iterator
from pathlib import Path
from stat import S_IMODE

import pytest

from interlock.domain.errors import ArtifactError
from interlock.storage.artifacts import MAX_ARTIFACT_BYTES
from interlock.storage.file_artifacts import FileArtifacts
from interlock.testing.conformance.artifacts import (
    CONTENT,
    UNKNOWN_ID,
    ArtifactDeletionConformance,
    ArtifactStoreConformance,
)


@pytest.mark.requirement("R246")
class TestFileArtifacts(ArtifactStoreConformance, ArtifactDeletionConformance):
    @pytest.fixture
    def artifacts(self, tmp_path: Path) -> FileArtifacts:
        return FileArtifacts(tmp_path / "store")

    @pytest.fixture
    def deletable(self, artifacts: FileArtifacts) -> FileArtifacts:
        return artifacts


@pytest.fixture
def store(tmp_path: Path) -> FileArtifacts:
    return FileArtifacts(tmp_path / "store")


def file_of(store: FileArtifacts, tmp_path: Path, artifact_id: str) -> Path:
    return tmp_path / "store" / store.path(artifact_id)


def watched_steps(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    steps: list[str] = []
    fsync, replace = os.fsync, os.replace

    def watched_fsync(file: int) -> None:
        steps.append("flush folder" if Path(f"/proc/self/fd/{file}").is_dir() else "flush file")
        fsync(file)

    def watched_replace(source: str, target: str, *, src_dir_fd: int, dst_dir_fd: int) -> None:
        steps.append("rename")
        replace(source, target, src_dir_fd=src_dir_fd, dst_dir_fd=dst_dir_fd)

    monkeypatch.setattr("interlock.storage.file_artifacts.os.fsync", watched_fsync)
    monkeypatch.setattr("interlock.storage.file_artifacts.os.replace", watched_replace)
    return steps


def test_another_process_finds_what_was_kept(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep(CONTENT)

    assert FileArtifacts(tmp_path / "store").read(artifact_id) == CONTENT


def test_the_path_is_two_folders_and_the_digest(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep(CONTENT)
    digest = artifact_id.removeprefix("sha256:")

    assert store.path(artifact_id) == f"{digest[:2]}/{digest[2:4]}/{digest}"
    assert file_of(store, tmp_path, artifact_id).read_bytes() == CONTENT


def test_nobody_else_can_read_the_store(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = FileArtifacts(tmp_path / "deep" / "store")
        artifact_id = store.keep(CONTENT)
    finally:
        os.umask(before)
    file = tmp_path / "deep" / "store" / store.path(artifact_id)

    assert S_IMODE(file.stat().st_mode) == 0o600
    assert {S_IMODE(folder.stat().st_mode) for folder in list(file.parents)[:3]} == {0o700}


def test_keeping_leaves_nothing_but_the_artifact(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep(CONTENT)
    store.keep(CONTENT)

    files = [path for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert files == [file_of(store, tmp_path, artifact_id)]


@pytest.mark.parametrize("damage", [b"", CONTENT[:-1], CONTENT + b"x", b"X" + CONTENT[1:]])
def test_a_damaged_artifact_is_never_returned(store: FileArtifacts, tmp_path: Path, damage: bytes) -> None:
    artifact_id = store.keep(CONTENT)
    assert store.read(artifact_id, 2, 3) == CONTENT[2:5]
    file_of(store, tmp_path, artifact_id).write_bytes(damage)

    for start, size_bytes in ((0, None), (0, 4), (2, 3), (4, None)):
        with pytest.raises(ArtifactError, match="is not what was kept"):
            store.read(artifact_id, start, size_bytes)


def test_ranges_stay_right_when_the_store_forgets_what_it_checked(
    store: FileArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("interlock.storage.file_artifacts._MAX_CHECKED", 1)
    ids = [store.keep(CONTENT + bytes([number])) for number in range(3)]

    assert [store.read(artifact_id, len(CONTENT), 1) for artifact_id in ids * 2] == [b"\0", b"\1", b"\2"] * 2


def test_keeping_again_repairs_a_damaged_artifact(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep(CONTENT)
    file_of(store, tmp_path, artifact_id).write_bytes(b"damaged")

    assert store.keep(CONTENT) == artifact_id
    assert store.read(artifact_id) == CONTENT


def test_links_in_the_store_are_not_followed(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep(CONTENT)
    file = file_of(store, tmp_path, artifact_id)
    elsewhere = tmp_path / "elsewhere"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)

    with pytest.raises(ArtifactError):
        store.read(artifact_id)
    store.keep(CONTENT)
    assert not file.is_symlink()
    assert store.read(artifact_id) == CONTENT


def test_a_linked_folder_in_the_store_is_not_followed(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep(CONTENT)
    folder = file_of(store, tmp_path, artifact_id).parent
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ArtifactError):
        store.read(artifact_id)
    with pytest.raises(ArtifactError):
        store.keep(CONTENT)


def test_what_is_no_file_is_no_artifact(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep(CONTENT)
    file = file_of(store, tmp_path, artifact_id)
    file.unlink()
    os.mkfifo(file)

    with pytest.raises(ArtifactError, match="is not what was kept"):
        store.read(artifact_id)


def test_a_write_that_fails_keeps_nothing(
    store: FileArtifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def full(file: int) -> None:
        if Path(f"/proc/self/fd/{file}").is_file():
            raise OSError(28, "No space left on device")
        fsync(file)

    monkeypatch.setattr("interlock.storage.file_artifacts.os.fsync", full)
    with pytest.raises(ArtifactError, match="No space left"):
        store.keep(CONTENT)

    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == []


def test_a_stream_that_fails_leaves_nothing(
    store: FileArtifacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken() -> Iterator[bytes]:
        yield CONTENT
        raise OSError(5, "Input/output error")

    def full(_file: int) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(ArtifactError, match="Input/output error"):
        store.keep_stream(broken())
    with pytest.raises(ArtifactError, match="over the limit"):
        store.keep_stream(bytes(MAX_ARTIFACT_BYTES // 2) for _ in range(3))
    monkeypatch.setattr("interlock.storage.file_artifacts.os.fsync", full)
    with pytest.raises(ArtifactError, match="No space left"):
        store.keep_stream([CONTENT])

    assert list((tmp_path / "store").iterdir()) == []


def test_a_stream_leaves_nothing_but_the_artifact(store: FileArtifacts, tmp_path: Path) -> None:
    artifact_id = store.keep_stream([CONTENT])
    file = file_of(store, tmp_path, artifact_id)
    file.write_bytes(b"damaged")
    store.keep_stream([CONTENT])
    store.keep_stream([CONTENT, b""])

    assert [path for path in (tmp_path / "store").rglob("*") if path.is_file()] == [file]
    assert (file.read_bytes(), S_IMODE(file.stat().st_mode)) == (CONTENT, 0o600)


def test_a_stream_is_flushed_before_it_gets_its_name_and_the_name_after(
    store: FileArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = watched_steps(monkeypatch)
    store.keep_stream([CONTENT])

    assert steps == ["flush file", "flush folder", "flush folder", "rename", "flush folder"]


def test_a_file_that_is_cut_while_it_is_read_is_noticed(store: FileArtifacts, monkeypatch: pytest.MonkeyPatch) -> None:
    artifact_id = store.keep(CONTENT)

    def nothing(_file: int, _size: int, _start: int) -> bytes:
        return b""

    monkeypatch.setattr("interlock.storage.file_artifacts.os.pread", nothing)
    with pytest.raises(ArtifactError, match="cut while it was read"):
        store.read(artifact_id)


def test_content_is_flushed_before_it_gets_its_name_and_the_name_after(
    store: FileArtifacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = watched_steps(monkeypatch)
    store.keep(CONTENT)

    assert steps == ["flush folder", "flush folder", "flush file", "rename", "flush folder"]


def test_no_file_stays_open(store: FileArtifacts) -> None:
    artifact_id = store.keep(CONTENT)
    before = len(os.listdir("/proc/self/fd"))

    for _ in range(20):
        store.keep(CONTENT)
        store.keep_stream([CONTENT])
        store.read(artifact_id)
        store.read(artifact_id, 1, 2)
        with pytest.raises(ArtifactError):
            store.read(UNKNOWN_ID)

    assert len(os.listdir("/proc/self/fd")) == before


def test_a_store_that_cannot_be_made_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    with pytest.raises(ArtifactError):
        FileArtifacts(tmp_path / "file" / "store")


def test_a_store_whose_folder_is_gone_says_so(store: FileArtifacts, tmp_path: Path) -> None:
    (tmp_path / "store").rmdir()

    with pytest.raises(ArtifactError):
        store.keep(CONTENT)
    with pytest.raises(ArtifactError):
        store.read(UNKNOWN_ID)


def test_known_content_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless its file changed or is gone."""
    artifacts = FileArtifacts(tmp_path / "artifacts")
    artifact_id = artifacts.keep(b"known")
    file = tmp_path / "artifacts" / artifacts.path(artifact_id)
    synced: list[int] = []
    monkeypatch.setattr("interlock.storage.file_artifacts.os.fsync", synced.append)

    assert artifacts.keep(b"known") == artifact_id
    assert synced == []
    for damage in (file.unlink, lambda: file.write_bytes(b"other")):
        damage()
        assert artifacts.keep(b"known") == artifact_id
        assert artifacts.read(artifact_id) == b"known"
        assert synced
        synced.clear()
