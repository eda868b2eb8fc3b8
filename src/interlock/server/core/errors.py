"""Errors of the server's operations. Each has a code and a message; nothing was executed."""

from collections.abc import Mapping
from typing import Any

from ...domain.errors import InterlockError

_NO_DETAILS: Mapping[str, Any] = {}


class ServiceError(InterlockError):
    """Base of the server's errors. `code` is for programs, the message for people, `details` for both."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] = _NO_DETAILS) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details)


class NotFoundError(ServiceError):
    """The object does not exist, or the caller may not see it."""


class ForbiddenError(ServiceError):
    """The caller may not do this."""


class ConflictError(ServiceError):
    """Conflicts with an earlier decision or with the current state. Details name both sides."""


class RemovedError(ServiceError):
    """The run was archived or erased: the log has no events of it."""


class InvalidRequestError(ServiceError):
    """Validation failed. `details["fields"]` says which field, and why."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__("invalid_request", f"{field}: {problem}", {"fields": [{"field": field, "problem": problem}]})


class UnavailableError(ServiceError):
    """Temporarily unavailable: too many requests at once."""


class StorageError(ServiceError):
    """The server's database cannot be used now: locked, full or failing. `details["changed"]` says `no`, or `unknown`
    where the disk did not confirm a change.
    """


def not_found_error(kind: str, name: str, suggestion: str = "") -> NotFoundError:
    """Build the error for something that does not exist or must not be seen. `suggestion`: of what may be seen."""
    message = f"Unknown {kind} {name[:80]!r}, or it is not visible to you. {suggestion}"
    return NotFoundError(f"unknown_{kind}", message.rstrip(), {kind: name[:200]})
