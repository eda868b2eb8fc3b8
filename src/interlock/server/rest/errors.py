"""Error responses: `{"error": {"code", "message", "details"}}`.

A table maps errors of the server to a status. Unexpected errors reveal nothing but an id that is also in the server's
log.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from ...domain.errors import ArtifactError, IllegalTransitionError, LogCorruptError, LogError, LogVersionError
from ..core.errors import (
    ConflictError,
    ForbiddenError,
    InvalidRequestError,
    NotFoundError,
    RemovedError,
    ServiceError,
    StorageError,
    UnavailableError,
)
from ..core.index.run_index import BadCursorError, IndexUnavailableError
from ..core.live.hub import TooManyReadersError

ErrorHandler: TypeAlias = Callable[[Request, Exception], Awaitable[Response]]
_encode = msgspec.json.Encoder().encode
_MAX_FIELDS = 20
_MAX_PROBLEM_CHARS = 300


class ErrorBody(msgspec.Struct, frozen=True, kw_only=True):
    """The code, message and details of an error."""

    #: For programs; it does not change.
    code: str
    #: For people: what happened, whether anything was done, what to do next.
    message: str
    details: dict[str, Any] = {}


class ErrorResponse(msgspec.Struct, frozen=True, kw_only=True):
    """An error response."""

    error: ErrorBody


class ApiError(Exception):
    """An error response of the REST layer itself."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message
        self.details, self.headers = dict(details or {}), dict(headers or {})


class FieldProblem(msgspec.Struct, frozen=True):
    """An invalid field of a request."""

    field: str
    problem: str


#: In this order: the first that fits.
STATUS_BY_ERROR: tuple[tuple[type[ServiceError], int], ...] = (
    (NotFoundError, 404),
    (ForbiddenError, 403),
    (ConflictError, 409),
    (RemovedError, 410),
    (InvalidRequestError, 422),
    (UnavailableError, 429),
    (StorageError, 503),
)
RETRY_AFTER_SECONDS = "1"

_HTTP_ERRORS: Mapping[int, tuple[str, str]] = {
    404: ("unknown_path", "Unknown path. Paths begin with /v1; /openapi.json lists all of them."),
    405: (
        "wrong_method",
        "This path does not support the method; /openapi.json lists which it supports. Nothing was done.",
    ),
}


def invalid_request(*problems: FieldProblem) -> ApiError:
    """Build the error for invalid fields."""
    first = problems[0]
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return ApiError(
        422,
        "invalid_request",
        f"{first.field}: {first.problem}{more}. Nothing was done.",
        {"fields": msgspec.to_builtins(problems[:_MAX_FIELDS])},
    )


def error_response(error: ApiError) -> Response:
    """Build the response for an error."""
    body = ErrorResponse(error=ErrorBody(code=error.code, message=error.message, details=error.details))
    return Response(_encode(body), error.status, error.headers, "application/json")


def from_service_error(error: ServiceError) -> ApiError:
    """Convert an error of the service to one with an HTTP status."""
    status = next((status for kind, status in STATUS_BY_ERROR if isinstance(error, kind)), 409)
    headers = {"Retry-After": RETRY_AFTER_SECONDS} if status in {429, 503} else {}
    return ApiError(status, error.code, str(error), error.details, headers)


def install_error_handlers(app: Starlette, handle: ErrorHandler) -> None:
    """Install a handler for every exception that `to_api_error` converts."""
    for kind in _CONVERTERS:
        app.add_exception_handler(kind, handle)


async def respond_with_error(_: Request, error: Exception) -> Response:
    """Handle an exception with an error response."""
    return error_response(to_api_error(error))


def to_api_error(error: Exception) -> ApiError:
    """Convert an exception to the error response that it stands for."""
    return next(_CONVERTERS[kind] for kind in type(error).__mro__ if kind in _CONVERTERS)(error)


def _from_http_exception(error: HTTPException) -> ApiError:
    code, message = _HTTP_ERRORS.get(error.status_code, ("refused", str(error.detail)[:_MAX_PROBLEM_CHARS]))
    return ApiError(error.status_code, code, message, headers=error.headers)


def _from_reader_limit(error: TooManyReadersError) -> ApiError:
    """Return 429 where the reader has too many streams, 503 where all have together."""
    return ApiError(429 if error.is_of_owner else 503, "too_many_readers", str(error), headers={"Retry-After": "5"})


def _from_log_damage(error: Exception) -> ApiError:
    """Return the error for a valid request that fails because the run's log or store is damaged."""
    return ApiError(
        409, "log_damaged", f"{error}. Nothing was done. To see what is damaged: GET /v1/runs/{{run_id}}/audit/verify)."
    )


_INDEX_UNAVAILABLE = (
    "The server cannot keep its lists now; what was sent may have been done all the same. Try again: with the same "
    "Idempotency-Key nothing is done twice."
)
_CONVERTERS: Mapping[type, Callable[[Any], ApiError]] = {
    ApiError: lambda error: error,
    ServiceError: from_service_error,
    HTTPException: _from_http_exception,
    BadCursorError: lambda error: invalid_request(FieldProblem("cursor", str(error).rstrip("."))),
    IndexUnavailableError: lambda _: ApiError(
        503, "index_unavailable", _INDEX_UNAVAILABLE, headers={"Retry-After": "5"}
    ),
    TooManyReadersError: _from_reader_limit,
    LogVersionError: lambda error: ApiError(409, "log_newer", f"{error}. Nothing was done."),
    LogCorruptError: _from_log_damage,
    IllegalTransitionError: _from_log_damage,
    ArtifactError: _from_log_damage,
    LogError: lambda error: ApiError(
        503, "log_unavailable", f"{error}. Nothing is known to be done. Try again.", headers={"Retry-After": "1"}
    ),
}
