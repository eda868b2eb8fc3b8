"""What the server answers when it does not do what was asked. Each says what was wrong; none executed anything."""

from collections.abc import Mapping
from typing import Any

from ...domain.errors import InterlockError

_NO_DETAILS: Mapping[str, Any] = {}


class ServiceError(InterlockError):
    """`code` is for programs, the message for people, `details` for both."""

    def __init__(self, code: str, message: str, details: Mapping[str, Any] = _NO_DETAILS) -> None:
        super().__init__(message)
        self.code = code
        self.details = dict(details)


class NotFoundError(ServiceError):
    """There is no such thing, or none that they may see."""


class ForbiddenError(ServiceError):
    """They may not do this."""


class ConflictError(ServiceError):
    """It was done otherwise before, or cannot be done in this state. Details name both sides."""


class InvalidRequestError(ServiceError):
    """What was sent cannot be that. `details["fields"]` says which field, and why."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__("invalid_request", f"{field}: {problem}", {"fields": [{"field": field, "problem": problem}]})


class UnavailableError(ServiceError):
    """Not now: too many at once."""


def not_found_error(kind: str, name: str) -> NotFoundError:
    return NotFoundError(f"unknown_{kind}", f"There is no {kind} {name[:80]!r} that you may see.", {kind: name[:200]})
