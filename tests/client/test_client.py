"""The client against a real server: runs, streams over broken connections, conversations, approvals and errors."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio

from interlock import Agent
from interlock.client import (
    ApiError,
    AsyncClient,
    AuthenticationError,
    Client,
    ConflictError,
    InvalidRequestError,
    ModelDelta,
    NotFoundError,
    PermissionDeniedError,
    RecordedEvent,
    RetryPolicy,
    StreamEnd,
    StreamItem,
)
from tests.patience import HANG_SECONDS
from tests.server.rest.test_conversations import Talker, idle, words
from tests.server.server_process import LOOKUP, REFUND, RENAME, Running, running_server

FAST = RetryPolicy(base_seconds=0, max_seconds=0)


@pytest_asyncio.fixture
async def server(tmp_path: Path) -> AsyncGenerator[Running]:
    async with running_server(tmp_path) as running:
        yield running


async def connect(server: Running, key: str = "operator") -> AsyncClient:
    return AsyncClient(server.base, await server.key(key), retry=FAST, timeout=HANG_SECONDS)


async def ask(client: AsyncClient, run_id: str) -> RecordedEvent:
    """Return the first question of a run."""
    async for item in client.follow(run_id):
        if isinstance(item, RecordedEvent) and item.type == "APPROVAL_REQUIRED":
            return item
    raise AssertionError("no question")


async def test_run_is_started_once_and_followed(server: Running) -> None:
    async with asyncio.timeout(HANG_SECONDS), await connect(server) as client:
        run = await client.start_run("shop", LOOKUP, idempotency_key="order-7")
        again = await client.start_run("shop", LOOKUP, idempotency_key="order-7")
        items = [item async for item in client.follow(run.run_id)]
        over = await client.wait(run.run_id)
        listed = await client.list_runs(agent="shop", status=["COMPLETED"], text="Look", limit=5)
        page = await client.list_events(run.run_id, limit=2)
        rest = await client.list_events(run.run_id, after_seq=page.next_after_seq)

    events = [item for item in items if isinstance(item, RecordedEvent)]
    assert again.run_id == run.run_id
    assert items[-1] == StreamEnd(reason="run_over", status="COMPLETED", message=over.message)
    assert [event.type for event in events] == ["LLM_CALL", "TOOL_CALL", "LLM_CALL", "COMPLETED"]
    assert page.events + rest.events == events
    assert (over.is_over, over.state, [each.run_id for each in listed.runs]) == (True, "completed", [run.run_id])


async def test_approval_is_bound_to_the_payload_hash(server: Running) -> None:
    async with asyncio.timeout(HANG_SECONDS), await connect(server) as client, await connect(server, "agent") as agent:
        run = await agent.start_run("shop", REFUND)
        event = await ask(client, run.run_id)
        await server.questions(run.run_id)
        (listed,) = [each async for each in client.iterate_approvals(run_id=run.run_id)]
        review = await client.get_approval(listed.action_id)
        with pytest.raises(ConflictError) as other:
            await client.approve(listed.action_id, "sha256:0000")
        done = await client.approve(listed.action_id, listed.payload_hash)
        repeated = await client.approve(listed.action_id, listed.payload_hash)
        with pytest.raises(ConflictError) as late:
            await client.reject(listed.action_id, listed.payload_hash, "Too late.")
        over = await client.wait(run.run_id)
        statistics = await client.get_statistics("week", agent="shop")

    assert event.data["payload_hash"] == listed.payload_hash == review.approval.payload_hash
    assert (review.can_decide, review.approval.arguments) == (True, {"order": "7", "amount": 5.5, "note": ""})
    assert other.value.code == "payload_hash_mismatch"
    assert other.value.details["expected"] == listed.payload_hash
    assert (done.approval.decided_by, repeated.approval.decided_by) == ("key:operator", "key:operator")
    assert late.value.details["decided"]["by"] == "key:operator"
    assert (over.status, statistics.period) == ("COMPLETED", "week")


async def test_budgets_and_assignments(server: Running) -> None:
    await server.person("olga")
    async with asyncio.timeout(HANG_SECONDS), await connect(server) as client:
        (budget,) = (await client.list_budgets()).budgets
        run = await client.start_run("shop", REFUND)
        action_id = (await ask(client, run.run_id)).data["action_id"]
        assigned = await client.assign_approval(action_id, "olga")
        returned = await client.assign_approval(action_id)

    assert (budget.id, budget.agents, budget.used, budget.limit) == ("reports-a-day", ["shop"], 0, 5)
    assert (assigned.action_id, assigned.assignee, assigned.assigned_by) == (action_id, "user:olga", "key:operator")
    assert returned.assignee == ""


async def test_reject_answer_and_cancel(server: Running) -> None:
    async with asyncio.timeout(HANG_SECONDS), await connect(server) as client, await connect(server, "agent") as agent:
        refused = await agent.start_run("shop", REFUND)
        asked = (await ask(client, refused.run_id)).data
        await client.reject(asked["action_id"], asked["payload_hash"], "It arrived.")
        named = await agent.start_run("shop", RENAME)
        asked = (await ask(client, named.run_id)).data
        await client.answer(asked["action_id"], asked["payload_hash"], "blue")
        dropped = await client.start_run("shop", REFUND)
        await ask(client, dropped.run_id)
        cancelled = [await client.cancel_run(dropped.run_id, "Not needed.") for _ in range(2)]
        ends = [(await client.wait(run.run_id)).status for run in (refused, named)]

    assert ends == ["FAILED", "COMPLETED"]
    assert [run.is_cancelled for run in cancelled] == [True, True]


async def test_conversation_streams_text_and_continues(tmp_path: Path) -> None:
    model = Talker()
    model.answers = [words("Hello there."), words("Fine, thanks.")]
    async with running_server(tmp_path, [Agent(name="shop", provider=model, tools=[])]) as server:
        raw = await server.client("agent")
        async with asyncio.timeout(HANG_SECONDS), await connect(server, "agent") as client:
            run = await client.start_run("shop", "Hi.", chat=True)
            with pytest.raises(ConflictError) as early:
                await client.send_message(run.run_id, "Too early.")
            items, started = list[StreamItem](), asyncio.Event()
            following = asyncio.create_task(collect(client, run.run_id, items, started))
            model.turns.release()
            await started.wait()
            await idle(server, raw, f"/v1/runs/{run.run_id}")
            sent = [await client.send_message(run.run_id, "How are you?", idempotency_key="m1") for _ in range(2)]
            model.turns.release()
            await idle(server, raw, f"/v1/runs/{run.run_id}")
            await client.cancel_run(run.run_id)
            await following

    assert early.value.code == "not_your_turn"
    assert sent[0] == sent[1]
    text = "".join(item.text for item in items if isinstance(item, ModelDelta))
    assert text.endswith("Fine, thanks. ")
    assert isinstance(items[-1], StreamEnd)


async def collect(client: AsyncClient, run_id: str, items: list[StreamItem], started: asyncio.Event) -> None:
    async for item in client.follow(run_id, deltas=True):
        items.append(item)
        started.set()


async def test_errors_have_the_codes_of_the_server(server: Running) -> None:
    found: list[tuple[type, int, str]] = []

    async def catch(doing: Any) -> None:
        with pytest.raises(ApiError) as caught:
            await doing
        found.append((type(caught.value), caught.value.status, caught.value.code))

    async with asyncio.timeout(HANG_SECONDS), await connect(server) as client, await connect(server, "agent") as agent:
        await catch(client.get_run("run_unknown"))
        await catch(client.get_run("../agents?x=1#"))
        await catch(client.start_run("shop", ""))
        await catch(client.start_run("nobody", "Go."))
        run = await agent.start_run("shop", REFUND)
        asked = (await ask(agent, run.run_id)).data
        await catch(agent.approve(asked["action_id"], asked["payload_hash"]))
        async with AsyncClient(server.base, "ik_wrong", retry=FAST) as stranger:
            await catch(stranger.list_runs())
            await catch(stranger.wait(run.run_id))

    assert found[0] == (NotFoundError, 404, "unknown_run")
    assert found[1][:2] == (NotFoundError, 404)
    assert found[2] == (InvalidRequestError, 422, "invalid_request")
    assert found[3][0] in (NotFoundError, PermissionDeniedError)
    assert found[4][:2] == (PermissionDeniedError, 403)
    assert [each[:2] for each in found[5:]] == [(AuthenticationError, 401)] * 2


async def test_sync_client_has_the_same_methods(server: Running) -> None:
    names = [{name for name in vars(kind) if not name.startswith("_")} for kind in (Client, AsyncClient)]
    key = await server.key("operator")
    run_id = await server.begin(REFUND)

    def use() -> tuple[str, list[str]]:
        with Client(server.base, key, retry=FAST, timeout=HANG_SECONDS) as client:
            seen: list[str] = []
            for item in client.follow(run_id):
                seen.append(item.type if isinstance(item, RecordedEvent) else type(item).__name__)
                if isinstance(item, RecordedEvent) and item.type == "APPROVAL_REQUIRED":
                    client.approve(item.data["action_id"], item.data["payload_hash"])
            assert list(client.iterate_approvals(run_id=run_id)) == []
            return client.wait(run_id).status, seen

    status, seen = await asyncio.to_thread(use)

    assert names[0] == names[1]
    assert (status, seen[-2:]) == ("COMPLETED", ["COMPLETED", "StreamEnd"])


class Flaky(httpx2.AsyncBaseTransport):
    """Passes requests on; every stream breaks after so many bytes, at any place."""

    def __init__(self, size: int) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._size = size
        self.last_ids: list[str] = []

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if request.url.path.endswith("/stream"):
            self.last_ids.append(request.headers.get("Last-Event-ID", ""))
            self._size += 97
            response.stream = Cut(response.stream, self._size)
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()


class Cut(httpx2.AsyncByteStream):
    """A stream that breaks after so many bytes."""

    def __init__(self, stream: Any, size: int) -> None:
        self._stream, self._size = stream, size

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        left = self._size
        async for chunk in self._stream:
            if len(chunk) >= left:
                yield chunk[:left]
                raise httpx2.ReadError("broken")
            left -= len(chunk)
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


@pytest.mark.parametrize("size", [1, 40, 300])
async def test_broken_streams_lose_and_repeat_nothing(server: Running, size: int) -> None:
    async with asyncio.timeout(HANG_SECONDS), await connect(server) as client:
        run = await client.start_run("shop", LOOKUP)
        whole = [item async for item in client.follow(run.run_id)]
    flaky = Flaky(size)
    async with AsyncClient(server.base, await server.key("operator"), retry=FAST, transport=flaky) as client:
        broken = [item async for item in client.follow(run.run_id)]

    assert broken == whole
    assert len(flaky.last_ids) > 2
    assert flaky.last_ids == sorted(flaky.last_ids, key=lambda each: int(each or -1))
