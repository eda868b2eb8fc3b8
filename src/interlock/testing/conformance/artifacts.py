"""What every artifact store promises."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

import pytest

from ...domain.errors import ArtifactError
from ...storage.artifacts import MAX_ARTIFACT_BYTES, ArtifactStore, DeletableArtifacts
from .suite import ConformanceSuite

CONTENT = b"line one\nline two\n\x00\xff caf\xc3\xa9\n"
UNKNOWN_ID = "sha256:" + "0" * 64
#: Not ids of artifacts; some of them are paths in disguise.
INVALID_IDS = (
    "",
    "0" * 64,
    "sha256:" + "0" * 63,
    "sha256:" + "0" * 64 + "\n",
    "sha256:" + "A" * 64,
    "sha256:" + "\u0660" * 64,
    "sha256:../../etc/passwd",
    "sha256:" + "../" * 21 + "a",
    "md5:" + "0" * 64,
    "/etc/passwd",
    "\ud800",
)


class ArtifactStoreConformance(ConformanceSuite):
    """Define the fixture `artifacts`: an empty store."""

    def test_id_is_the_digest_of_the_content(self, artifacts: ArtifactStore) -> None:
        assert artifacts.keep(CONTENT) == "sha256:" + sha256(CONTENT).hexdigest()

    def test_content_reads_back(self, artifacts: ArtifactStore) -> None:
        artifact_id = artifacts.keep(CONTENT)

        assert artifacts.read(artifact_id) == CONTENT
        assert artifacts.size_bytes(artifact_id) == len(CONTENT)

    def test_empty_content_is_kept(self, artifacts: ArtifactStore) -> None:
        artifact_id = artifacts.keep(b"")

        assert (artifacts.read(artifact_id), artifacts.size_bytes(artifact_id)) == (b"", 0)

    def test_content_can_be_kept_twice(self, artifacts: ArtifactStore) -> None:
        assert artifacts.keep(CONTENT) == artifacts.keep(bytes(CONTENT))
        assert artifacts.read(artifacts.keep(CONTENT)) == CONTENT

    @pytest.mark.parametrize("size_bytes", [None, 0, 1, 7, len(CONTENT), 1_000])
    def test_range_is_a_slice_of_the_content(self, artifacts: ArtifactStore, size_bytes: int | None) -> None:
        artifact_id = artifacts.keep(CONTENT)

        for start in range(len(CONTENT) + 2):
            stop = None if size_bytes is None else start + size_bytes
            assert artifacts.read(artifact_id, start, size_bytes) == CONTENT[start:stop]

    def test_negative_range_is_refused(self, artifacts: ArtifactStore) -> None:
        artifact_id = artifacts.keep(CONTENT)

        with pytest.raises(ArtifactError):
            artifacts.read(artifact_id, -1)
        with pytest.raises(ArtifactError):
            artifacts.read(artifact_id, 0, -1)

    def test_unknown_artifact_is_refused(self, artifacts: ArtifactStore) -> None:
        artifacts.keep(CONTENT)

        for method in (artifacts.read, artifacts.size_bytes, artifacts.path):
            with pytest.raises(ArtifactError):
                method(UNKNOWN_ID)

    @pytest.mark.parametrize("artifact_id", INVALID_IDS)
    def test_invalid_id_is_refused(self, artifacts: ArtifactStore, artifact_id: str) -> None:
        for method in (artifacts.read, artifacts.size_bytes, artifacts.path):
            with pytest.raises(ArtifactError):
                method(artifact_id)

    def test_content_over_the_limit_is_refused(self, artifacts: ArtifactStore) -> None:
        with pytest.raises(ArtifactError):
            artifacts.keep(bytes(MAX_ARTIFACT_BYTES + 1))

    @pytest.mark.parametrize("size", [1, 7, len(CONTENT), 1_000])
    def test_stream_is_kept_like_content(self, artifacts: ArtifactStore, size: int) -> None:
        artifact_id = artifacts.keep_stream(CONTENT[at : at + size] for at in range(0, len(CONTENT), size))

        assert artifact_id == "sha256:" + sha256(CONTENT).hexdigest()
        assert artifacts.read(artifact_id) == CONTENT
        assert artifacts.read(artifact_id, 2, 3) == CONTENT[2:5]
        assert artifacts.size_bytes(artifact_id) == len(CONTENT)

    @pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
    def test_empty_stream_is_empty_content(self, artifacts: ArtifactStore, chunks: list[bytes]) -> None:
        assert artifacts.keep_stream(chunks) == artifacts.keep(b"")

    def test_content_and_stream_have_one_id(self, artifacts: ArtifactStore) -> None:
        assert artifacts.keep(CONTENT) == artifacts.keep_stream([CONTENT]) == artifacts.keep_stream([CONTENT])
        assert artifacts.read(artifacts.keep_stream([CONTENT])) == CONTENT

    def test_stream_of_the_maximum_size_is_kept(self, artifacts: ArtifactStore) -> None:
        chunk = bytes(MAX_ARTIFACT_BYTES // 4)

        assert artifacts.size_bytes(artifacts.keep_stream([chunk] * 4)) == MAX_ARTIFACT_BYTES

    def test_stream_is_read_no_further_than_the_limit(self, artifacts: ArtifactStore) -> None:
        chunks_read = 0

        def read_endless_stream() -> Iterator[bytes]:
            nonlocal chunks_read
            while True:
                chunks_read += 1
                yield bytes(MAX_ARTIFACT_BYTES // 4)

        with pytest.raises(ArtifactError):
            artifacts.keep_stream(read_endless_stream())
        assert chunks_read == 5

    def test_threads_use_it_at_once(self, artifacts: ArtifactStore) -> None:
        def work(number: int) -> bool:
            content = CONTENT + bytes([number % 3])
            artifact_id = artifacts.keep(content)
            return artifacts.keep_stream([content]) == artifact_id and artifacts.read(artifact_id) == content

        with ThreadPoolExecutor(4) as threads:
            assert all(threads.map(work, range(12)))

    def test_failed_stream_keeps_nothing(self, artifacts: ArtifactStore) -> None:
        def read_broken_stream() -> Iterator[bytes]:
            yield CONTENT
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            artifacts.keep_stream(read_broken_stream())
        with pytest.raises(ArtifactError):
            artifacts.read("sha256:" + sha256(CONTENT).hexdigest())


class ArtifactDeletionConformance(ConformanceSuite):
    """Define the fixture `deletable`: an empty store, with the right to delete."""

    def test_deleted_artifact_is_unknown(self, deletable: DeletableArtifacts) -> None:
        artifact_id, other = deletable.keep(CONTENT), deletable.keep(b"other")
        deletable.delete(artifact_id)

        for use in (deletable.read, deletable.size_bytes, deletable.path):
            with pytest.raises(ArtifactError):
                use(artifact_id)
        assert deletable.read(other) == b"other"

    def test_deleted_content_can_be_kept_again(self, deletable: DeletableArtifacts) -> None:
        deletable.delete(deletable.keep(CONTENT))

        assert deletable.read(deletable.keep(CONTENT), 0, 4) == CONTENT[:4]

    def test_unknown_artifact_can_be_deleted(self, deletable: DeletableArtifacts) -> None:
        deletable.delete(UNKNOWN_ID)

    @pytest.mark.parametrize("artifact_id", INVALID_IDS)
    def test_only_ids_are_deleted(self, deletable: DeletableArtifacts, artifact_id: str) -> None:
        with pytest.raises(ArtifactError):
            deletable.delete(artifact_id)
