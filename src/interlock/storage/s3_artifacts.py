"""Artifacts in S3, or in any object store that is compatible with it: every process that has the bucket has them, too.

An artifact is one object, named by its digest: `ab/cd/abcd...` below the prefix. It is created completely, or not at
all. What is read is checked: a whole read against the digest, a range by checking the whole artifact once in this
process.
"""

import os
import re
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from math import inf
from tempfile import SpooledTemporaryFile
from typing import IO, Any, TypeVar
from urllib.parse import urlsplit

from ..domain.errors import ArtifactError, ConfigurationError
from .artifacts import (
    REMEMBERED_SECONDS,
    RememberedDigests,
    check_range,
    compute_artifact_id,
    format_artifact_id,
    limit_size,
    parse_artifact_id,
)

try:
    from obstore.exceptions import AlreadyExistsError, BaseError, PermissionDeniedError, UnauthenticatedError
    from obstore.store import S3Store
except ModuleNotFoundError as missing:
    raise ConfigurationError("Artifacts in S3 need obstore: pip install 'interlock[objects]'") from missing

_T = TypeVar("_T")
#: A request is tried again so often, and only as long as patience lasts.
MAX_RETRIES = 10
_SPOOL_BYTES = 1 << 20
_DIGEST_CHARS = 64
_MAX_ERROR_CHARS = 300
_is_prefix = re.compile(rf"[0-9a-f]{{4,{_DIGEST_CHARS}}}").fullmatch
_is_bucket = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,254}").fullmatch
#: No artifact has this name: it is asked for to find out whether the bucket can be used.
_PROBE = "interlock-probe"
#: Their values are never shown.
_SECRET_VARIABLES = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_ACCESS_KEY_ID")


class S3Artifacts:
    """Store artifacts in a bucket. Credentials come from the environment: `AWS_ACCESS_KEY_ID` and
    `AWS_SECRET_ACCESS_KEY`, or the role of the host.

    Args:
        bucket: The bucket, which has to exist.
        prefix: The folder in it, such as `interlock/artifacts`.
        endpoint: The URL of a compatible store, such as `https://minio.example.com`. Default: AWS.
        region: The region of the bucket. Default: `AWS_REGION`, else `us-east-1`.
        patience_seconds: How long the store may be away before a call fails.
    """

    def __init__(
        self,
        bucket: str,
        *,
        prefix: str = "",
        endpoint: str = "",
        region: str = "",
        patience_seconds: float = 20.0,
    ) -> None:
        if not _is_bucket(bucket):
            raise ConfigurationError(f"{bucket[:80]!r} is not the name of a bucket.")
        if endpoint:
            _check_endpoint(endpoint)
        self._place = f"bucket {bucket} at {endpoint or 'AWS'}"
        self._bucket = bucket
        self._store = S3Store(
            bucket,
            prefix=prefix.strip("/") or None,
            region=region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1",
            client_options={
                "allow_http": endpoint.startswith("http://"),
                "connect_timeout": timedelta(seconds=min(5.0, patience_seconds)),
                "timeout": timedelta(seconds=max(30.0, patience_seconds)),
            },
            retry_config={"max_retries": MAX_RETRIES, "retry_timeout": timedelta(seconds=patience_seconds)},
            config={"endpoint": endpoint, "virtual_hosted_style_request": False} if endpoint else {},
        )
        self._stored = RememberedDigests()
        self._checked = RememberedDigests(inf)
        self._find(_PROBE, lambda: self._store.get(_PROBE))

    def keep(self, content: bytes) -> str:
        """Store content durably. Return its id."""
        artifact_id = compute_artifact_id(content)
        digest = bytes.fromhex(parse_artifact_id(artifact_id))
        if digest not in self._stored:
            self._create(artifact_id, lambda: content)
            self._stored.add(digest)
        return artifact_id

    def keep_stream(self, chunks: Iterable[bytes]) -> str:
        """Store content that arrives in chunks. Return its id."""
        computing = sha256()
        with SpooledTemporaryFile[bytes](max_size=_SPOOL_BYTES) as file:
            for chunk in limit_size(chunks):
                computing.update(chunk)
                file.write(chunk)
            artifact_id = format_artifact_id(computing.hexdigest())
            if computing.digest() not in self._stored:
                self._create(artifact_id, lambda: _rewind(file))
                self._stored.add(computing.digest())
        return artifact_id

    def read(self, artifact_id: str, start: int = 0, size_bytes: int | None = None) -> bytes:
        """Read an artifact, or a part of it."""
        check_range(start, size_bytes)
        name, digest = _name_of(artifact_id), bytes.fromhex(parse_artifact_id(artifact_id))
        is_whole = start == 0 and size_bytes is None
        if not is_whole and digest in self._checked:
            total = self.size_bytes(artifact_id)
            end = total if size_bytes is None else min(total, start + size_bytes)
            if start >= end:
                return b""
            return bytes(self._require(artifact_id, lambda: self._store.get_range(name, start=start, end=end)))
        content = bytes(self._require(artifact_id, lambda: self._store.get(name).bytes()))
        if sha256(content).digest() != digest:
            raise ArtifactError(f"artifact {artifact_id} is not what was kept")
        self._checked.add(digest)
        return content[start:] if size_bytes is None else content[start : start + size_bytes]

    def size_bytes(self, artifact_id: str) -> int:
        """Return the size of an artifact."""
        name = _name_of(artifact_id)
        return self._require(artifact_id, lambda: self._store.head(name))["size"]

    def path(self, artifact_id: str) -> str:
        """Return an empty path: objects are no files."""
        if bytes.fromhex(parse_artifact_id(artifact_id)) not in self._stored:
            self.size_bytes(artifact_id)
        return ""

    def find(self, prefix: str) -> list[str]:
        """Return the ids whose digest begins so: of 4 hexadecimal digits or more."""
        if not _is_prefix(prefix):
            return []
        with self._errors("artifacts"):
            store: Any = self._store  # one of the two types of its lists is not known
            names = [each["path"][6:] for page in store.list(f"{prefix[:2]}/{prefix[2:4]}") for each in page]
        found = [name for name in names if name.startswith(prefix) and len(name) == _DIGEST_CHARS]
        return sorted(map(format_artifact_id, found))

    def delete(self, artifact_id: str) -> None:
        """Delete an artifact. Its older versions stay where the bucket keeps them."""
        name, digest = _name_of(artifact_id), bytes.fromhex(parse_artifact_id(artifact_id))
        self._find(artifact_id, lambda: self._store.delete(name))
        self._stored.discard(digest)
        self._checked.discard(digest)

    def close(self) -> None:
        """Do nothing: there is nothing to close."""

    def _create(self, artifact_id: str, content: Callable[[], bytes | IO[bytes]]) -> None:
        name = _name_of(artifact_id)
        with self._errors(artifact_id):
            try:
                self._store.put(name, content(), mode="create", use_multipart=False)
            except AlreadyExistsError:
                # Rules of a bucket may remove what is old, and this is in use again.
                if _age_seconds(self._store.head(name)["last_modified"]) > REMEMBERED_SECONDS:
                    self._store.put(name, content(), use_multipart=False)

    def _require(self, artifact_id: str, request: Callable[[], _T]) -> _T:
        found = self._find(artifact_id, request)
        if found is None:
            raise ArtifactError(f"there is no artifact {artifact_id}")
        return found

    def _find(self, what: str, request: Callable[[], _T]) -> _T | None:
        """Return what a request finds; None when there is no such object."""
        with self._errors(what):
            try:
                return request()
            except FileNotFoundError as error:
                if "NoSuchBucket" in str(error):
                    raise
                return None

    @contextmanager
    def _errors(self, what: str) -> Generator[None]:
        """Raise what the store answers as `ArtifactError`, with what to do and without secrets."""
        try:
            yield
        except FileNotFoundError:
            raise ArtifactError(
                f"{what}: there is no {self._place}. Create it, or name another one with `bucket`"
            ) from None
        except (PermissionDeniedError, UnauthenticatedError):
            raise ArtifactError(
                f"{what}: the credentials have no right to use the {self._place}. Check AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY, and allow s3:GetObject, s3:PutObject and s3:ListBucket, and to delete "
                "s3:DeleteObject"
            ) from None
        except (BaseError, OSError) as error:
            raise ArtifactError(
                f"{what}: the {self._place} cannot be used: {_describe(error)}. Check `endpoint` and the network"
            ) from None


def _check_endpoint(endpoint: str) -> None:
    try:
        parts = urlsplit(endpoint)
        is_valid = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_valid, parts = False, urlsplit("")
    if not is_valid or parts.username is not None or parts.query or not endpoint.isascii() or " " in endpoint:
        raise ConfigurationError(
            "The endpoint of artifacts is not a URL such as https://minio.example.com. Credentials belong into the "
            "environment: AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
        )


def _name_of(artifact_id: str) -> str:
    digest = parse_artifact_id(artifact_id)
    return f"{digest[:2]}/{digest[2:4]}/{digest}"


def _rewind(file: IO[bytes]) -> IO[bytes]:
    file.seek(0)
    return file


def _age_seconds(modified_at: datetime) -> float:
    return (datetime.now(UTC) - modified_at).total_seconds()


def _describe(error: Exception) -> str:
    text = str(error).partition("\n")[0].strip()
    for name in _SECRET_VARIABLES:
        if value := os.environ.get(name):
            text = text.replace(value, f"[{name}]")
    return text[:_MAX_ERROR_CHARS]
