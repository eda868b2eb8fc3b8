"""Errors of the client.

ClientError
├── ApiError                     the server answered with an error: `code`, `message`, `details`, `status`
│   ├── AuthenticationError      401: the key is missing, unknown, expired or revoked
│   ├── PermissionDeniedError    403: the role of the key does not allow it
│   ├── NotFoundError            404 and 410: it does not exist, is not visible to the key, or was removed
│   ├── ConflictError            409: it conflicts with an earlier decision or the current state; see `details`
│   ├── InvalidRequestError      400, 413, 415, 422: the request is invalid; see `details`
│   ├── RateLimitedError         429: too many requests
│   └── ServerUnavailableError   5xx: the server could not answer
├── ConnectionFailedError        no answer: what was sent may or may not have been done
└── UnexpectedResponseError      the answer is not one of an Interlock server
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from ..domain.errors import InterlockError

_MAX_TEXT_CHARS = 2_000


class ClientError(InterlockError):
    """Base of all errors of the client."""


class ApiError(ClientError):
    """An error response of the server. `code` is for programs and does not change."""

    def __init__(self, status: int, code: str, message: str, details: Mapping[str, Any] | None = None) -> None:
        super().__init__(f"{message} (HTTP {status}, {code})")
        self.status, self.code, self.message = status, code, message
        self.details: dict[str, Any] = dict(details or {})


class AuthenticationError(ApiError):
    """The key is missing, unknown, expired or revoked."""


class PermissionDeniedError(ApiError):
    """The role of the key does not allow the request. Nothing was done."""


class NotFoundError(ApiError):
    """What was asked for does not exist, is not visible to the key, or was removed."""


class ConflictError(ApiError):
    """The request conflicts with an earlier decision or with the current state; see `details`."""


class InvalidRequestError(ApiError):
    """The request is invalid; see `details`. Nothing was done."""


class RateLimitedError(ApiError):
    """There were too many requests, and the client waited as long as its `RetryPolicy` says."""


class ServerUnavailableError(ApiError):
    """The server could not answer now."""


class ConnectionFailedError(ClientError):
    """There was no answer. What was sent may or may not have been done."""


class UnexpectedResponseError(ClientError):
    """The answer is not one of an Interlock server that this client can read."""


class _ErrorBody(msgspec.Struct, frozen=True):
    code: str
    message: str
    details: dict[str, Any] = {}


class _ErrorResponse(msgspec.Struct, frozen=True):
    error: _ErrorBody


_KINDS: Mapping[int, type[ApiError]] = {
    400: InvalidRequestError,
    401: AuthenticationError,
    403: PermissionDeniedError,
    404: NotFoundError,
    409: ConflictError,
    410: NotFoundError,
    413: InvalidRequestError,
    415: InvalidRequestError,
    422: InvalidRequestError,
    429: RateLimitedError,
}
_decode = msgspec.json.Decoder(_ErrorResponse).decode


def to_api_error(status: int, body: bytes) -> ApiError:
    """Return the error of a response. One without a code of the server, as of a proxy, has the code `http_<status>`."""
    kind = _KINDS.get(status, ServerUnavailableError if status >= 500 else ApiError)  # noqa: PLR2004
    try:
        error = _decode(body).error
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return kind(
            status, f"http_{status}", "The answer is not an error of an Interlock server: is the address right?"
        )
    return kind(status, error.code[:_MAX_TEXT_CHARS], error.message[:_MAX_TEXT_CHARS], error.details)
