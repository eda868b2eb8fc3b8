"""Errors of providers, as messages without keys, and whether a retry may help.

Both SDKs raise errors of the same shape under their own names: `SdkErrors` has the names, everything else is shared.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from math import isfinite
from typing import Any, NamedTuple, cast

import httpx2
import msgspec

from ..domain.errors import ModelError
from ..domain.json import escape_surrogates
from ..rendering.text import end_sentence, shorten_line

_MAX_SHOWN_CHARS = 500
_HIDDEN = "[key]"
#: Statuses below 500 that say "not now".
_RETRYABLE_STATUSES = frozenset({408, 409, 425, 429})
#: What providers call faults that stay, whatever the status, also in the middle of a stream.
_PERMANENT_ERRORS = frozenset(
    {
        "authentication_error",
        "billing_error",
        "context_length_exceeded",
        "insufficient_quota",
        "invalid_api_key",
        "invalid_request_error",
        "model_not_found",
        "not_found_error",
        "permission_error",
        "request_too_large",
    }
)
_NEXT_STEPS: Mapping[int, str] = {
    401: "Check the API key.",
    403: "Check what the API key may be used for.",
    404: "Check the model's name and the address.",
    413: "The conversation is too long for this provider.",
    429: "Wait, or ask the provider for a higher limit.",
}


class SdkErrors(NamedTuple):
    """The exceptions of one SDK, the narrow ones first."""

    status: type[Exception]
    timeout: type[Exception]
    connection: type[Exception]
    #: Something that the server said in the middle of a stream.
    said: type[Exception]
    any: type[Exception]


#: What the SDKs and our own reading raise when a stream is not what it should be: not JSON, not UTF-8, a number of
#: more digits than Python reads, another shape, too deep.
_DECODE_ERRORS = (ValueError, msgspec.ValidationError, RecursionError)


@contextmanager
def translate_errors(sdk: SdkErrors, provider: str, key: Callable[[], str]) -> Generator[None]:
    """Convert all exceptions to `ModelError`, without any that hold a request with its headers."""
    try:
        yield
    except ModelError:
        raise
    except sdk.status as error:
        raise _status_error(provider, cast(Any, error), key()) from None
    except (sdk.timeout, httpx2.TimeoutException):
        raise _transient_error(provider, "did not answer in time") from None
    except (sdk.connection, httpx2.TransportError) as error:
        if isinstance(error.__cause__, ModelError):  # one SDK wraps whatever is raised while it reads
            raise error.__cause__ from None
        raise _transient_error(provider, _describe_cause(error)) from None
    except sdk.said as error:
        raise _stream_error(provider, cast(Any, error), key()) from None
    except _DECODE_ERRORS as error:
        raise _transient_error(provider, f"sent an answer that cannot be read ({type(error).__name__})") from None
    except TimeoutError:
        raise _transient_error(provider, "did not begin to answer in time") from None
    except (sdk.any, httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
        raise ModelError(f"{provider} could not be asked ({type(error).__name__}). Nothing was executed.") from None


def interrupted_error(provider: str) -> ModelError:
    return _transient_error(provider, "broke off its answer before the end")


def _transient_error(provider: str, what: str) -> ModelError:
    return ModelError(f"{provider} {what}. Nothing was executed.", retryable=True)


def _describe_cause(error: Exception) -> str:
    """Whether there was a connection at all. The SDK's error has the real one as its cause."""
    real = error.__cause__ or error
    return "could not be reached" if isinstance(real, httpx2.ConnectError) else "was cut off"


def _status_error(provider: str, error: Any, key: str) -> ModelError:
    status: int = error.status_code
    kinds = _error_kinds(error.body)
    retryable = _is_retryable(status, kinds)
    words = [f"{provider} answered {status}: {_error_message(error, key)}", "Nothing was executed."]
    return ModelError(
        " ".join([*words, *filter(None, [_NEXT_STEPS.get(status)])]),
        retryable=retryable,
        retry_after_seconds=_parse_retry_after(error.response.headers) if retryable else None,
    )


def _is_retryable(status: int, kinds: set[str]) -> bool:
    if status == HTTPStatus.OK:  # said in the middle of a stream that began well
        return not kinds & _PERMANENT_ERRORS
    return "insufficient_quota" not in kinds and (
        status in _RETRYABLE_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR
    )


def _stream_error(provider: str, error: Any, key: str) -> ModelError:
    message = f"{provider} reported an error: {_error_message(error, key)} Nothing was executed."
    return ModelError(message, retryable=not _error_kinds(getattr(error, "body", None)) & _PERMANENT_ERRORS)


def _error_object(body: Any) -> dict[str, Any]:
    """`{"error": {...}}`, or what is inside, as the SDKs hand it on."""
    if not isinstance(body, dict):
        return {}
    outer = cast(dict[str, Any], body)
    inner: Any = outer.get("error")
    return cast(dict[str, Any], inner) if isinstance(inner, dict) else outer


def _error_kinds(body: Any) -> set[str]:
    found = _error_object(body)
    return {value for value in (found.get("type"), found.get("code")) if isinstance(value, str)}


def _error_message(error: Any, key: str) -> str:
    found: Any = _error_object(getattr(error, "body", None)).get("message")
    text = found if isinstance(found, str) and found else "no reason was given"
    if key:
        text = text.replace(key, _HIDDEN)
    return end_sentence(shorten_line(escape_surrogates(text), _MAX_SHOWN_CHARS))


def _parse_retry_after(headers: Mapping[str, str]) -> float | None:
    for name, per_second in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        value = headers.get(name, "").strip()
        try:
            seconds = float(value) / per_second
        except ValueError:
            continue
        return max(0.0, seconds) if isfinite(seconds) else None
    return _seconds_until(headers.get("retry-after", ""))


def _seconds_until(date: str) -> float | None:
    try:
        moment = parsedate_to_datetime(date)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    except (ValueError, TypeError, OverflowError):
        return None
    return max(0.0, seconds)
