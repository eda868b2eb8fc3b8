"""`Client`: the REST API for ordinary programs."""

import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import Any

import httpx2

from . import requests
from .errors import UnexpectedResponseError, to_api_error
from .events import RunStream, StreamItem
from .models import (
    Approval,
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
from .requests import MAX_RESPONSE_BYTES, STREAM_SECONDS, ApiRequest, Attempts, ResultT, RetryPolicy


class Client:
    """A client of a server.

    Args:
        base_url: Address of the server, with the path that it is served at.
        key: API key, as printed by `interlock keys add`.
        timeout: Seconds to wait for a connection, and for each part of an answer.
        retry: How often requests are sent again.
        transport: Replaces the connections of `httpx2`, for a proxy, certificates or tests.
    """

    def __init__(
        self,
        base_url: str,
        key: str,
        *,
        timeout: float = 30.0,
        retry: RetryPolicy | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        self._retry = retry or RetryPolicy()
        self._http = httpx2.Client(
            base_url=requests.check_base_url(base_url),
            headers={"Authorization": requests.check_key(key)},
            timeout=timeout,
            transport=transport,
        )

    def __enter__(self) -> "Client":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def start_run(
        self, agent: str, task: str, *, on_behalf_of: str = "", chat: bool = False, idempotency_key: str | None = None
    ) -> Run:
        """Start a run.

        Args:
            agent: Name of the agent.
            task: What to do.
            on_behalf_of: The person that it acts for.
            chat: Whether it is a conversation, which `send_message` continues.
            idempotency_key: The same key again returns the same run, also from another process. Default: a new one.
        """
        return self._send(requests.start_run(agent, task, on_behalf_of, chat, idempotency_key))

    def send_message(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> MessageReceipt:
        """Send the next message of a conversation. Raise `ConflictError` while it is not your turn."""
        return self._send(requests.send_message(run_id, text, idempotency_key))

    def cancel_run(self, run_id: str, reason: str = "") -> Run:
        """Cancel a run and its child runs. Cancelling it again is fine."""
        return self._send(requests.cancel_run(run_id, reason))

    def get_run(self, run_id: str) -> Run:
        """Return a run."""
        return self._send(requests.get_run(run_id))

    def list_runs(  # noqa: PLR0913 - what the server takes
        self,
        *,
        status: Sequence[RunStatus] = (),
        agent: str | None = None,
        requester: str | None = None,
        text: str | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> RunPage:
        """Return a page of runs, newest first. `text` is looked for in tasks and ids."""
        return self._send(requests.list_runs(status, agent, requester, text, limit, cursor))

    def list_events(self, run_id: str, *, after_seq: int = -1, limit: int = 200) -> EventPage:
        """Return a page of the recorded events of a run, in order."""
        return self._send(requests.list_events(run_id, after_seq, limit))

    def follow(self, run_id: str, *, after_seq: int = -1, deltas: bool = False) -> Iterator[StreamItem]:
        """Yield every event of a run once and in order, as they come, until `StreamEnd`.

        A broken connection is opened again, and continues after the last event (`Last-Event-ID`).

        Args:
            run_id: The run.
            after_seq: Yield only events after this one. Default: all.
            deltas: Also yield what is not recorded: text of the model, progress of tools. Each text comes once, also
                over a broken connection; progress that was reported meanwhile is lost.
        """
        stream = RunStream(run_id, after_seq, deltas, self._retry)
        while not stream.is_over:
            try:
                yield from self._read_stream(stream)
                if stream.is_over:
                    return
                delay = stream.fail("the server closed it")
            except httpx2.TransportError as error:
                delay = stream.fail(type(error).__name__)
            time.sleep(delay)

    def wait(self, run_id: str) -> Run:
        """Return a run once it is over."""
        for _ in self.follow(run_id):
            pass
        return self.get_run(run_id)

    def list_approvals(  # noqa: PLR0913 - what the server takes
        self,
        *,
        status: Sequence[ApprovalStatus] = ("PENDING",),
        kind: Sequence[ApprovalKind] = (),
        agent: str | None = None,
        run_id: str | None = None,
        limit: int = 50,
        cursor: str = "",
    ) -> ApprovalPage:
        """Return a page of approvals, inputs and consents, oldest first."""
        return self._send(requests.list_approvals(status, kind, agent, run_id, limit, cursor))

    def iterate_approvals(self, *, agent: str | None = None, run_id: str | None = None) -> Iterator[Approval]:
        """Yield all pending approvals, inputs and consents, oldest first."""
        page = self.list_approvals(agent=agent, run_id=run_id)
        yield from page.approvals
        while page.next_cursor:
            page = self.list_approvals(agent=agent, run_id=run_id, cursor=page.next_cursor)
            yield from page.approvals

    def get_approval(self, action_id: str) -> ApprovalReview:
        """Return an approval with everything that it is bound to, and whether this key may decide it."""
        return self._send(requests.get_approval(action_id))

    def approve(  # noqa: PLR0913 - what the server takes
        self,
        action_id: str,
        payload_hash: str,
        *,
        reason: str = "",
        scope: Scope = "once",
        until: datetime | None = None,
        rule: str = "",
        arguments: Mapping[str, Any] | None = None,
    ) -> DecisionReceipt:
        """Approve exactly the payload with this hash. Raise `ConflictError` if it is another one, or was answered.

        Args:
            action_id: The approval.
            payload_hash: That of what was looked at, as in `Approval`, `ApprovalDetail` and the event.
            reason: Recorded with the answer.
            scope: This call, the same in this run, the same until a time, or a saved rule.
            until: With the scope `window`.
            rule: With the scope `rule`: a narrower rule than the suggested one.
            arguments: What to run instead. It is validated, evaluated and hashed again.
        """
        return self._send(requests.approve(action_id, payload_hash, reason, scope, until, rule, arguments))

    def reject(self, action_id: str, payload_hash: str, reason: str) -> DecisionReceipt:
        """Reject exactly the payload with this hash."""
        return self._send(requests.reject(action_id, payload_hash, reason))

    def answer(self, action_id: str, payload_hash: str, value: Any) -> DecisionReceipt:
        """Provide the value that exactly the payload with this hash asks for."""
        return self._send(requests.answer(action_id, payload_hash, value))

    def get_statistics(self, period: Period = "day", *, agent: str | None = None) -> StatisticsReport:
        """Return the figures of a period that ends now."""
        return self._send(requests.get_statistics(period, agent))

    def list_budgets(self) -> BudgetList:
        """Return the budgets of the agents that the key has a role for, with what was used in the current windows."""
        return self._send(requests.list_budgets())

    def assign_approval(self, action_id: str, account: str = "") -> Assignment:
        """Assign an approval to an account, which may answer it; an empty account is no one. No run gets to know it."""
        return self._send(requests.assign_approval(action_id, account))

    def _send(self, request: ApiRequest[ResultT]) -> ResultT:
        attempts = Attempts(request, self._retry)
        while True:
            try:
                status, body, retry_after = self._exchange(request)
            except httpx2.TransportError as error:
                delay = attempts.miss(error)
            else:
                delay = attempts.find_delay(status, body, retry_after)
                if delay is None:
                    return request.read(body)
            time.sleep(delay)

    def _exchange(self, request: ApiRequest[Any]) -> tuple[int, bytes, str]:
        """Return status, body and `Retry-After` of an answer."""
        built = self._build(request)
        response = self._http.send(built, stream=True)
        try:
            body = bytearray()
            for chunk in response.iter_bytes():
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    raise UnexpectedResponseError(f"The answer is longer than {MAX_RESPONSE_BYTES} bytes.")
        finally:
            response.close()
        return response.status_code, bytes(body), response.headers.get("Retry-After", "")

    def _read_stream(self, stream: RunStream) -> Iterator[StreamItem]:
        built = self._build(stream.connect(), timeout=httpx2.Timeout(STREAM_SECONDS))
        response = self._http.send(built, stream=True)
        try:
            if response.status_code != 200:  # noqa: PLR2004
                if not requests.is_retried(response.status_code):
                    raise to_api_error(response.status_code, response.read())
                return
            for chunk in response.iter_bytes():
                yield from stream.feed(chunk)
                if stream.is_over:
                    return
        finally:
            response.close()

    def _build(self, request: ApiRequest[Any], **options: Any) -> httpx2.Request:
        return self._http.build_request(
            request.method,
            request.path,
            params=list(request.params),
            content=request.body,
            headers=dict(request.headers),
            **options,
        )
