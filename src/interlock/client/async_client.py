"""`AsyncClient`: the REST API for programs with asyncio."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
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


class AsyncClient:
    """A client of a server, for asyncio.

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
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        self._retry = retry or RetryPolicy()
        self._http = httpx2.AsyncClient(
            base_url=requests.check_base_url(base_url),
            headers={"Authorization": requests.check_key(key)},
            timeout=timeout,
            transport=transport,
        )

    async def __aenter__(self) -> "AsyncClient":
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def start_run(
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
        return await self._send(requests.start_run(agent, task, on_behalf_of, chat, idempotency_key))

    async def send_message(self, run_id: str, text: str, *, idempotency_key: str | None = None) -> MessageReceipt:
        """Send the next message of a conversation. Raise `ConflictError` while it is not your turn."""
        return await self._send(requests.send_message(run_id, text, idempotency_key))

    async def cancel_run(self, run_id: str, reason: str = "") -> Run:
        """Cancel a run and its child runs. Cancelling it again is fine."""
        return await self._send(requests.cancel_run(run_id, reason))

    async def get_run(self, run_id: str) -> Run:
        """Return a run."""
        return await self._send(requests.get_run(run_id))

    async def list_runs(  # noqa: PLR0913 - what the server takes
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
        return await self._send(requests.list_runs(status, agent, requester, text, limit, cursor))

    async def list_events(self, run_id: str, *, after_seq: int = -1, limit: int = 200) -> EventPage:
        """Return a page of the recorded events of a run, in order."""
        return await self._send(requests.list_events(run_id, after_seq, limit))

    async def follow(self, run_id: str, *, after_seq: int = -1, deltas: bool = False) -> AsyncGenerator[StreamItem]:
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
                async with aclosing(self._read_stream(stream)) as items:
                    async for item in items:
                        yield item
                if stream.is_over:
                    return
                delay = stream.fail("the server closed it")
            except httpx2.TransportError as error:
                delay = stream.fail(type(error).__name__)
            await asyncio.sleep(delay)

    async def wait(self, run_id: str) -> Run:
        """Return a run once it is over."""
        async for _ in self.follow(run_id):
            pass
        return await self.get_run(run_id)

    async def list_approvals(  # noqa: PLR0913 - what the server takes
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
        return await self._send(requests.list_approvals(status, kind, agent, run_id, limit, cursor))

    async def iterate_approvals(
        self, *, agent: str | None = None, run_id: str | None = None
    ) -> AsyncGenerator[Approval]:
        """Yield all pending approvals, inputs and consents, oldest first."""
        page = await self.list_approvals(agent=agent, run_id=run_id)
        for approval in page.approvals:
            yield approval
        while page.next_cursor:
            page = await self.list_approvals(agent=agent, run_id=run_id, cursor=page.next_cursor)
            for approval in page.approvals:
                yield approval

    async def get_approval(self, action_id: str) -> ApprovalReview:
        """Return an approval with everything that it is bound to, and whether this key may decide it."""
        return await self._send(requests.get_approval(action_id))

    async def approve(  # noqa: PLR0913 - what the server takes
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
        return await self._send(requests.approve(action_id, payload_hash, reason, scope, until, rule, arguments))

    async def reject(self, action_id: str, payload_hash: str, reason: str) -> DecisionReceipt:
        """Reject exactly the payload with this hash."""
        return await self._send(requests.reject(action_id, payload_hash, reason))

    async def answer(self, action_id: str, payload_hash: str, value: Any) -> DecisionReceipt:
        """Provide the value that exactly the payload with this hash asks for."""
        return await self._send(requests.answer(action_id, payload_hash, value))

    async def get_statistics(self, period: Period = "day", *, agent: str | None = None) -> StatisticsReport:
        """Return the figures of a period that ends now."""
        return await self._send(requests.get_statistics(period, agent))

    async def list_budgets(self) -> BudgetList:
        """Return the budgets of the agents that the key has a role for, with what was used in the current windows."""
        return await self._send(requests.list_budgets())

    async def assign_approval(self, action_id: str, account: str = "") -> Assignment:
        """Assign an approval to an account, which may answer it; an empty account is no one. No run gets to know it."""
        return await self._send(requests.assign_approval(action_id, account))

    async def _send(self, request: ApiRequest[ResultT]) -> ResultT:
        attempts = Attempts(request, self._retry)
        while True:
            try:
                status, body, retry_after = await self._exchange(request)
            except httpx2.TransportError as error:
                delay = attempts.miss(error)
            else:
                delay = attempts.find_delay(status, body, retry_after)
                if delay is None:
                    return request.read(body)
            await asyncio.sleep(delay)

    async def _exchange(self, request: ApiRequest[Any]) -> tuple[int, bytes, str]:
        """Return status, body and `Retry-After` of an answer."""
        built = self._build(request)
        response = await self._http.send(built, stream=True)
        try:
            body = bytearray()
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > MAX_RESPONSE_BYTES:
                    raise UnexpectedResponseError(f"The answer is longer than {MAX_RESPONSE_BYTES} bytes.")
        finally:
            await response.aclose()
        return response.status_code, bytes(body), response.headers.get("Retry-After", "")

    async def _read_stream(self, stream: RunStream) -> AsyncGenerator[StreamItem]:
        built = self._build(stream.connect(), timeout=httpx2.Timeout(STREAM_SECONDS))
        response = await self._http.send(built, stream=True)
        try:
            if response.status_code != 200:  # noqa: PLR2004
                if not requests.is_retried(response.status_code):
                    raise to_api_error(response.status_code, await response.aread())
                return
            async for chunk in response.aiter_bytes():
                for item in stream.feed(chunk):
                    yield item
                if stream.is_over:
                    return
        finally:
            await response.aclose()

    def _build(self, request: ApiRequest[Any], **options: Any) -> httpx2.Request:
        return self._http.build_request(
            request.method,
            request.path,
            params=list(request.params),
            content=request.body,
            headers=dict(request.headers),
            **options,
        )
