"""Artifacts in an object store."""

import logging
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer
from obstore.store import S3Store

from interlock import Attachment, Runner, SqliteLog
from interlock.audit.erase import ErasureOptions, erase_run
from interlock.domain.errors import ArtifactError, ConfigurationError
from interlock.storage.artifacts import compute_artifact_id
from interlock.storage.s3_artifacts import S3Artifacts
from interlock.testing.conformance.artifacts import CONTENT, ArtifactDeletionConformance, ArtifactStoreConformance
from tests.each import each
from tests.runs.support import agent_of

SECRET = "s3cr3t-access-key"


def request(server: str, method: str, path: str, body: bytes = b"") -> None:
    connection = HTTPConnection(server.removeprefix("http://"))
    connection.request(method, path, body)
    assert connection.getresponse().status == 200
    connection.close()


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    yield f"http://{host}:{port}"
    running.stop()


@pytest.fixture
def endpoint(server: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A server with an empty bucket."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key-id")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    request(server, "POST", "/moto-api/reset")
    request(server, "PUT", "/runs")
    return server


@pytest.fixture
def artifacts(endpoint: str) -> S3Artifacts:
    return S3Artifacts("runs", prefix="a/b", endpoint=endpoint)


@pytest.fixture
def deletable(artifacts: S3Artifacts) -> S3Artifacts:
    return artifacts


@pytest.mark.requirement("R246")
class TestS3Artifacts(ArtifactStoreConformance, ArtifactDeletionConformance):
    """All that every store promises."""


def test_another_process_reads_and_finds_it(endpoint: str, artifacts: S3Artifacts) -> None:
    artifact_id, other = artifacts.keep(CONTENT), S3Artifacts("runs", prefix="/a/b/", endpoint=endpoint)
    digest = artifact_id.removeprefix("sha256:")

    assert [other.read(artifact_id, 2, 3) for _ in range(2)] == [CONTENT[2:5]] * 2
    assert (other.find(digest[:4]), other.find(digest), other.find("0000"), other.find("x")) == ([artifact_id],) * 2 + (
        [],
        [],
    )
    assert S3Artifacts("runs", endpoint=endpoint).find(digest) == []


def test_a_known_artifact_needs_no_request(endpoint: str, artifacts: S3Artifacts) -> None:
    artifact_id = artifacts.keep(CONTENT)
    request(endpoint, "POST", "/moto-api/reset")  # from now on every request is refused

    assert artifacts.keep(CONTENT) == artifacts.keep_stream([CONTENT]) == artifact_id
    assert artifacts.path(artifact_id) == ""


def test_stored_content_is_not_written_again(endpoint: str, artifacts: S3Artifacts) -> None:
    artifact_id = artifacts.keep(CONTENT)
    name = f"a/b/{artifact_id[7:9]}/{artifact_id[9:11]}/{artifact_id[7:]}"
    S3Store("runs", endpoint=endpoint, client_options={"allow_http": True}).put(name, b"something else")

    other = S3Artifacts("runs", prefix="a/b", endpoint=endpoint)
    assert other.keep(CONTENT) == artifact_id
    for start in (0, 3):
        with pytest.raises(ArtifactError, match="is not what was kept"):
            other.read(artifact_id, start)


def test_missing_bucket_is_named(endpoint: str) -> None:
    with pytest.raises(ArtifactError, match=r"no bucket other at http://.*Create it, or name another one"):
        S3Artifacts("other", endpoint=endpoint)


def test_missing_rights_are_explained(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    artifacts = S3Artifacts("runs", endpoint=endpoint)
    for variable in ("key-id", SECRET):
        assert variable not in repr(artifacts)
    request(endpoint, "POST", "/moto-api/reset-auth", b"0")  # from now on credentials are checked
    try:
        with pytest.raises(ArtifactError, match=r"no right to use .*s3:PutObject") as refused:
            artifacts.keep(CONTENT)
    finally:
        request(endpoint, "POST", "/moto-api/reset-auth", b"inf")

    assert SECRET not in str(refused.value)
    assert refused.value.__suppress_context__


async def test_artifacts_of_an_erased_run_are_deleted(artifacts: S3Artifacts, tmp_path: Path) -> None:
    attachment = Attachment(b"%PDF-1.4 of one run")
    async with (
        SqliteLog(tmp_path / "runs.db") as log,
        Runner(agent_of("Done.", "Done."), log=log, artifacts=artifacts) as runner,
    ):
        for run_id, task in {"run_1": ["Look.", attachment], "run_2": ["Go."]}.items():
            await (await runner.start(task, run_id=run_id)).result()
        erasure = await erase_run(log, "run_1", ErasureOptions(by="ann", reason="asked for", artifacts=artifacts))

    assert erasure.deleted_artifacts == 1
    assert artifacts.find(compute_artifact_id(attachment.content).removeprefix("sha256:")) == []


def test_unreachable_store_is_explained(endpoint: str) -> None:
    with pytest.raises(ArtifactError, match=r"cannot be used: .*Check `endpoint` and the network") as refused:
        S3Artifacts("runs", endpoint="http://127.0.0.1:9", patience_seconds=0.1)

    assert SECRET not in str(refused.value)


INVALID_ENDPOINTS = (
    "minio.example.com",
    "ftp://minio.example.com",
    "https://",
    "https://minio:port",
    f"https://key:{SECRET}@minio.example.com",
    "https://minio example",
)


@each("endpoint", INVALID_ENDPOINTS)
def test_invalid_endpoint_is_refused(endpoint: str) -> None:
    with pytest.raises(ConfigurationError, match="is not a URL") as refused:
        S3Artifacts("runs", endpoint=endpoint)

    assert SECRET not in str(refused.value)


@pytest.mark.parametrize("bucket", ["", "a", "../x", "runs/x", "x" * 300])
def test_invalid_bucket_is_refused(bucket: str) -> None:
    with pytest.raises(ConfigurationError, match="is not the name of a bucket"):
        S3Artifacts(bucket)
