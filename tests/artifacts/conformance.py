"""What every artifact store promises. A store's test class inherits this and says how to make one."""

from collections.abc import Iterator
from hashlib import sha256

import pytest

from interlock.domain.errors import ArtifactError
from interlock.storage.artifacts import MAX_ARTIFACT_BYTES, ArtifactStore

CONTENT = b"line one\nline two\n\x00\xff caf\xc3\xa9\n"
UNKNOWN = "sha256:" + "0" * 64


class ArtifactsConformance:
    @pytest.fixture
    def artifacts(self) -> ArtifactStore:
        raise NotImplementedError

    def test_the_id_is_the_digest_of_the_content(self, artifacts: ArtifactStore) -> None:
        assert artifacts.keep(CONTENT) == "sha256:" + sha256(CONTENT).hexdigest()

    @pytest.mark.requirement("R246")
    def test_what_is_read_is_what_was_kept(self, artifacts: ArtifactStore) -> None:
        artifact_id = artifacts.keep(CONTENT)

        assert artifacts.read(artifact_id) == CONTENT
        assert artifacts.size_bytes(artifact_id) == len(CONTENT)

    def test_nothing_is_content_too(self, artifacts: ArtifactStore) -> None:
        artifact_id = artifacts.keep(b"")

        assert (artifacts.read(artifact_id), artifacts.size_bytes(artifact_id)) == (b"", 0)

    def test_keeping_twice_is_keeping_once(self, artifacts: ArtifactStore) -> None:
        assert artifacts.keep(CONTENT) == artifacts.keep(bytes(CONTENT))
        assert artifacts.read(artifacts.keep(CONTENT)) == CONTENT

    @pytest.mark.parametrize("size_bytes", [None, 0, 1, 7, len(CONTENT), 1_000])
    def test_a_range_is_that_slice_of_the_content(self, artifacts: ArtifactStore, size_bytes: int | None) -> None:
        artifact_id = artifacts.keep(CONTENT)

        for start in range(len(CONTENT) + 2):
            stop = None if size_bytes is None else start + size_bytes
            assert artifacts.read(artifact_id, start, size_bytes) == CONTENT[start:stop]

    def test_a_range_that_is_none_is_refused(self, artifacts: ArtifactStore) -> None:
        artifact_id = artifacts.keep(CONTENT)

        with pytest.raises(ArtifactError, match="no range"):
            artifacts.read(artifact_id, -1)
        with pytest.raises(ArtifactError, match="no range"):
            artifacts.read(artifact_id, 0, -1)

    def test_an_unknown_artifact_is_an_error_for_everybody(self, artifacts: ArtifactStore) -> None:
        artifacts.keep(CONTENT)

        for ask in (artifacts.read, artifacts.size_bytes, artifacts.path):
            with pytest.raises(ArtifactError, match="there is no artifact"):
                ask(UNKNOWN)

    @pytest.mark.parametrize(
        "artifact_id",
        [
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
        ],
    )
    def test_what_is_no_id_is_refused_as_such(self, artifacts: ArtifactStore, artifact_id: str) -> None:
        for ask in (artifacts.read, artifacts.size_bytes, artifacts.path):
            with pytest.raises(ArtifactError, match="is not an artifact id"):
                ask(artifact_id)

    def test_an_artifact_over_the_limit_is_refused(self, artifacts: ArtifactStore) -> None:
        with pytest.raises(ArtifactError, match="over the limit"):
            artifacts.keep(bytes(MAX_ARTIFACT_BYTES + 1))

    @pytest.mark.requirement("R246")
    @pytest.mark.parametrize("size", [1, 7, len(CONTENT), 1_000])
    def test_what_comes_bit_by_bit_is_kept_as_if_it_came_at_once(self, artifacts: ArtifactStore, size: int) -> None:
        artifact_id = artifacts.keep_stream(CONTENT[at : at + size] for at in range(0, len(CONTENT), size))

        assert artifact_id == "sha256:" + sha256(CONTENT).hexdigest()
        assert artifacts.read(artifact_id) == CONTENT
        assert artifacts.read(artifact_id, 2, 3) == CONTENT[2:5]
        assert artifacts.size_bytes(artifact_id) == len(CONTENT)

    @pytest.mark.parametrize("chunks", [[], [b""], [b"", b""]])
    def test_no_bits_are_an_empty_artifact(self, artifacts: ArtifactStore, chunks: list[bytes]) -> None:
        assert artifacts.keep_stream(chunks) == artifacts.keep(b"")

    def test_either_way_of_keeping_keeps_once(self, artifacts: ArtifactStore) -> None:
        assert artifacts.keep(CONTENT) == artifacts.keep_stream([CONTENT]) == artifacts.keep_stream([CONTENT])
        assert artifacts.read(artifacts.keep_stream([CONTENT])) == CONTENT

    def test_bits_up_to_the_limit_are_kept(self, artifacts: ArtifactStore) -> None:
        chunk = bytes(MAX_ARTIFACT_BYTES // 4)

        assert artifacts.size_bytes(artifacts.keep_stream([chunk] * 4)) == MAX_ARTIFACT_BYTES

    def test_bits_over_the_limit_are_refused_as_soon_as_they_are(self, artifacts: ArtifactStore) -> None:
        asked: list[int] = []

        def endless() -> Iterator[bytes]:
            while True:
                asked.append(1)
                yield bytes(MAX_ARTIFACT_BYTES // 4)

        with pytest.raises(ArtifactError, match="over the limit"):
            artifacts.keep_stream(endless())
        assert len(asked) == 5

    def test_bits_that_stop_with_an_error_keep_nothing(self, artifacts: ArtifactStore) -> None:
        def broken() -> Iterator[bytes]:
            yield CONTENT
            raise RuntimeError("no more")

        with pytest.raises(RuntimeError, match="no more"):
            artifacts.keep_stream(broken())
        with pytest.raises(ArtifactError, match="there is no artifact"):
            artifacts.read("sha256:" + sha256(CONTENT).hexdigest())
