"""Requests of the client: what each operation sends, and when it may be sent again. No I/O here."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from random import random
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlsplit
from uuid import uuid4

import msgspec

from .errors import ConnectionFailedError, UnexpectedResponseError, to_api_error
from .models import (
    ApprovalKind,
    ApprovalPage,
    ApprovalReview,
    ApprovalStatus,
    Assignment,
    BudgetList,
    DecisionReceipt,
    EventPage,
    MessageReceipt,
    Period,
    Run,
    RunPage,
    RunStatus,
    Scope,
    StatisticsReport,
)

MAX_RESPONSE_BYTES = 64 << 20
#: A stream says something at least every 15 seconds.
STREAM_SECONDS = 60.0
_OK_STATUSES = range(200, 300)
_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
ResultT = TypeVar("ResultT")
_encode = msgspec.json.Encoder().encode


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """How often, and after how long, a request is sent again. Every request of the client can be repeated safely.

    Args:
        attempts: How often a request is sent at most when there is no answer, or 429, 502, 503 or 504.
        reconnects: How often a stream is opened again at most without receiving anything in between.
        base_seconds: The first delay. Each further one is twice as long, with some chance in it.
        max_seconds: The longest delay, also where the server asks for a longer one.
    """

    attempts: int = 3
    reconnects: int = 10
    base_seconds: float = 0.25
    max_seconds: float = 30.0

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.reconnects < 0 or self.base_seconds < 0 or self.max_seconds < 0:
            raise ValueError("RetryPolicy: attempts must be 1 or more, and the others 0 or more.")

    def delay(self, failures: int, asked_seconds: float = 0.0) -> float:
        """Return how many seconds to wait after so many failures."""
        backoff = self.base_seconds * 2.0 ** min(failures - 1, 16) * (0.5 + random() / 2)  # noqa: S311 - spreads load
        return min(max(backoff, asked_seconds), self.max_seconds)


class ApiRequest(msgspec.Struct, Generic[ResultT], frozen=True, kw_only=True):
    """A request, and the type of its answer."""

    method: str
    path: str
    returns: type[ResultT]
    params: Sequence[tuple[str, str]] = ()
    body: bytes | None = None
    headers: Mapping[str, str] = {}

    def read(self, body: bytes) -> ResultT:
        """Return the answer. Raise `UnexpectedResponseError` if it is not one."""
        try:
            return msgspec.json.decode(body, type=self.returns)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise UnexpectedResponseError(
                f"{self.method} {self.path}: the answer cannot be read: {error}. "
                "Is the address that of an Interlock server of this version?"
            ) from None


def check_base_url(url: str) -> str:
    """Return the address of a server without a final slash. Raise `ValueError` if it is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"base_url must be like https://interlock.example.com, not {url!r}.")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError("base_url must have no user, password, query or fragment. Pass the key as `key`.")
    return url.rstrip("/")


def check_key(key: str) -> str:
    """Return the value of the Authorization header. Raise `ValueError` if the key cannot be one."""
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValueError("key must be an API key as printed by `interlock keys add`. It is not shown here.")
    return f"Bearer {key}"


class Attempts:
    """How often a request was sent, and whether it is sent again."""

    def __init__(self, request: ApiRequest[Any], policy: RetryPolicy) -> None:
        self._request, self._policy = request, policy
        self._failures = 0

    def miss(self, error: Exception) -> float:
        """Return how long to wait after no answer. Raise `ConnectionFailedError` after too many."""
        self._failures += 1
        if self._failures >= self._policy.attempts:
            raise ConnectionFailedError(
                f"{self._request.method} {self._request.path}: no answer ({type(error).__name__}: {error}). "
                "It may have been done all the same; the same request again does nothing twice."
            ) from error
        return self._policy.delay(self._failures)

    def find_delay(self, status: int, body: bytes, retry_after: str) -> float | None:
        """Return how long to wait after an answer; None: it is the result. Raise the error of one that is final."""
        if status in _OK_STATUSES:
            return None
        self._failures += 1
        if not is_retried(status) or self._failures >= self._policy.attempts:
            raise to_api_error(status, body)
        return self._policy.delay(self._failures, float(retry_after) if retry_after.isdecimal() else 0.0)


def is_retried(status: int) -> bool:
    """Return True if a request with this answer may be sent again."""
    return status in _RETRIED_STATUSES


def start_run(agent: str, task: str, on_behalf_of: str, chat: bool, key: str | None) -> ApiRequest[Run]:
    """Build the request that starts a run."""
    body = {"agent": agent, "task": task, "on_behalf_of": on_behalf_of, "chat": chat}
    return _post("/v1/runs", Run, body, _idempotency(key))


def send_message(run_id: str, text: str, key: str | None) -> ApiRequest[MessageReceipt]:
    """Build the request that continues a conversation."""
    return _post(f"/v1/runs/{_segment(run_id)}/messages", MessageReceipt, {"text": text}, _idempotency(key))


def cancel_run(run_id: str, reason: str) -> ApiRequest[Run]:
    """Build the request that cancels a run."""
    return _post(f"/v1/runs/{_segment(run_id)}/cancel", Run, {"reason": reason})


def get_run(run_id: str) -> ApiRequest[Run]:
    """Build the request for a run."""
    return _get(f"/v1/runs/{_segment(run_id)}", Run)


def list_runs(  # noqa: PLR0913, PLR0917 - what the server takes
    status: Sequence[RunStatus], agent: str | None, requester: str | None, text: str | None, limit: int, cursor: str
) -> ApiRequest[RunPage]:
    """Build the request for a page of runs."""
    return _get(
        "/v1/runs", RunPage, status=status, agent=agent, requester=requester, q=text, limit=limit, cursor=cursor or None
    )


def list_events(run_id: str, after_seq: int, limit: int) -> ApiRequest[EventPage]:
    """Build the request for a page of events."""
    return _get(f"/v1/runs/{_segment(run_id)}/events", EventPage, after_seq=after_seq, limit=limit)


def stream_request(run_id: str, after_seq: int, deltas: bool, last_id: str) -> ApiRequest[Any]:
    """Build the request for the stream of a run."""
    params = {"after_seq": after_seq, "deltas": "true" if deltas else None}
    request = _get(f"/v1/runs/{_segment(run_id)}/events/stream", object, **params)
    headers = {"Accept": "text/event-stream"} | ({"Last-Event-ID": last_id} if last_id else {})
    return msgspec.structs.replace(request, headers=headers)


def list_approvals(  # noqa: PLR0913, PLR0917 - what the server takes
    status: Sequence[ApprovalStatus],
    kind: Sequence[ApprovalKind],
    agent: str | None,
    run_id: str | None,
    limit: int,
    cursor: str,
) -> ApiRequest[ApprovalPage]:
    """Build the request for a page of approvals."""
    return _get(
        "/v1/approvals",
        ApprovalPage,
        status=status,
        kind=kind,
        agent=agent,
        run_id=run_id,
        limit=limit,
        cursor=cursor or None,
    )


def get_approval(action_id: str) -> ApiRequest[ApprovalReview]:
    """Build the request for an approval."""
    return _get(f"/v1/approvals/{_segment(action_id)}", ApprovalReview)


def approve(  # noqa: PLR0913, PLR0917 - what the server takes
    action_id: str,
    payload_hash: str,
    reason: str,
    scope: Scope,
    until: datetime | None,
    rule: str,
    arguments: Mapping[str, Any] | None,
) -> ApiRequest[DecisionReceipt]:
    """Build the request that approves exactly this payload."""
    if until is not None and until.tzinfo is None:
        raise ValueError("until must have a time zone.")
    body = {
        "payload_hash": payload_hash,
        "reason": reason,
        "scope": scope,
        "until": None if until is None else until.isoformat(),
        "rule": rule,
        "arguments": arguments,
    }
    return _decide(action_id, "approve", payload_hash, body)


def reject(action_id: str, payload_hash: str, reason: str) -> ApiRequest[DecisionReceipt]:
    """Build the request that rejects exactly this payload."""
    return _decide(action_id, "reject", payload_hash, {"payload_hash": payload_hash, "reason": reason})


def answer(action_id: str, payload_hash: str, value: Any) -> ApiRequest[DecisionReceipt]:
    """Build the request that provides a value for exactly this payload."""
    return _decide(action_id, "answer", payload_hash, {"payload_hash": payload_hash, "value": value})


def get_statistics(period: Period, agent: str | None) -> ApiRequest[StatisticsReport]:
    """Build the request for statistics."""
    return _get("/v1/statistics", StatisticsReport, period=period, agent=agent)


def list_budgets() -> ApiRequest[BudgetList]:
    """Build the request for budgets."""
    return _get("/v1/budgets", BudgetList)


def assign_approval(action_id: str, account: str) -> ApiRequest[Assignment]:
    """Build the request that assigns an approval; an empty account is no one."""
    path = f"/v1/approvals/{_segment(action_id)}/assignee"
    return msgspec.structs.replace(_post(path, Assignment, {"account": account}), method="PUT")


def _decide(action_id: str, verb: str, payload_hash: str, body: Mapping[str, Any]) -> ApiRequest[DecisionReceipt]:
    if not payload_hash:
        raise ValueError("payload_hash must be that of the approval that was looked at.")
    return _post(f"/v1/approvals/{_segment(action_id)}/{verb}", DecisionReceipt, body)


def _get(path: str, returns: type[ResultT], **params: Sequence[str] | str | int | None) -> ApiRequest[ResultT]:
    pairs: list[tuple[str, str]] = []
    for name, value in params.items():
        if isinstance(value, str | int):
            pairs.append((name, str(value)))
        else:
            pairs.extend((name, each) for each in value or ())
    return ApiRequest(method="GET", path=path, returns=returns, params=pairs)


def _post(
    path: str, returns: type[ResultT], body: Mapping[str, Any], headers: Mapping[str, str] | None = None
) -> ApiRequest[ResultT]:
    try:
        encoded = _encode(body)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"{path}: the request cannot be written as JSON: {error}") from None
    headers = {"Content-Type": "application/json", **(headers or {})}
    return ApiRequest(method="POST", path=path, returns=returns, body=encoded, headers=headers)


def _idempotency(key: str | None) -> Mapping[str, str]:
    """Return the header. Without a key of the caller's there is a new one, so that a retry is not a second run."""
    if key is not None and not (key and key.isascii() and key.isprintable()):
        raise ValueError("idempotency_key must be printable ASCII text.")
    return {"Idempotency-Key": key or str(uuid4())}


def _segment(name: str) -> str:
    """Return an id as one segment of a path, whatever is in it."""
    if not name or name in (".", ".."):
        raise ValueError(f"{name!r} is not an id.")
    return quote(name, safe="")
