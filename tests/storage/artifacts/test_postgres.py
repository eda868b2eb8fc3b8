"""Artifacts in Postgres."""

from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from interlock.domain.errors import ArtifactError, LogError
from interlock.storage.postgres.artifacts import PART_BYTES, PostgresArtifacts
from interlock.testing.conformance.artifacts import CONTENT, ArtifactDeletionConformance, ArtifactStoreConformance
from tests.postgres.server import PostgresServer

#: Three parts, the last one short.
LARGE = bytes(range(256)) * (2 * PART_BYTES // 256) + b"the end"


@pytest.fixture
def schema(postgres: PostgresServer) -> str:
    return postgres.empty_schema()


@pytest.fixture
def open_store(postgres: PostgresServer, schema: str) -> Iterator[Callable[[], PostgresArtifacts]]:
    opened: list[PostgresArtifacts] = []

    def open_() -> PostgresArtifacts:
        opened.append(PostgresArtifacts(postgres.worker_url, schema=schema))
        return opened[-1]

    yield open_
    for store in opened:
        store.close()


@pytest.fixture
def artifacts(open_store: Callable[[], PostgresArtifacts]) -> PostgresArtifacts:
    return open_store()


@pytest.fixture
def deletable(postgres: PostgresServer, schema: str) -> Iterator[PostgresArtifacts]:
    with closing(PostgresArtifacts(postgres.url, schema=schema)) as store:
        yield store


@pytest.mark.requirement("R246")
class TestPostgresArtifacts(ArtifactStoreConformance, ArtifactDeletionConformance):
    """All that every store promises."""


def test_workers_cannot_delete(artifacts: PostgresArtifacts) -> None:
    artifact_id = artifacts.keep(CONTENT)

    with pytest.raises(ArtifactError, match="permission denied"):
        artifacts.delete(artifact_id)
    assert artifacts.read(artifact_id) == CONTENT


def test_ranges_cross_parts(open_store: Callable[[], PostgresArtifacts]) -> None:
    artifact_id, other = open_store().keep(LARGE), open_store()

    for start, size in ((PART_BYTES - 2, 4), (0, 1), (2 * PART_BYTES, None), (len(LARGE) - 3, 9), (PART_BYTES, 0)):
        end = None if size is None else start + size
        assert other.read(artifact_id, start, size) == LARGE[start:end]
    assert (other.read(artifact_id), other.size_bytes(artifact_id)) == (LARGE, len(LARGE))
    assert other.keep_stream([LARGE[:5], LARGE[5:]]) == artifact_id


@pytest.mark.parametrize("start", [0, 3])
def test_changed_content_is_refused(
    postgres: PostgresServer, schema: str, open_store: Callable[[], PostgresArtifacts], start: int
) -> None:
    artifact_id = open_store().keep(CONTENT)
    postgres.execute("UPDATE artifact_parts SET content = 'something else'", schema)

    with pytest.raises(ArtifactError, match="is not what was kept"):
        open_store().read(artifact_id, start)


def test_ended_connections_are_opened_again(postgres: PostgresServer, artifacts: PostgresArtifacts) -> None:
    artifact_id = artifacts.keep(CONTENT)
    postgres.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'interlock-%'")

    assert artifacts.read(artifact_id) == CONTENT
    assert artifacts.read(artifacts.keep(LARGE)) == LARGE


def test_missing_tables_are_refused(postgres: PostgresServer) -> None:
    with pytest.raises(LogError, match="interlock database migrate"):
        PostgresArtifacts(postgres.url, schema="never_migrated")
