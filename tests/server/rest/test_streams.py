"""Live events over HTTP: in order, from any place, without loss or repetition, and with an end."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import pytest

from interlock.server.core.live.live_event import LiveEvent
from interlock.server.rest import connections
from interlock.server.rest.routes import streams
from tests.patience import HANG_SECONDS
from tests.server.server_process import LOOKUP, NOTE, Running, running_server


class Told(NamedTuple):
    id: str
    event: str
    data: Any


@asynccontextmanager
async def listening(
    client: httpx2.AsyncClient, path: str, headers: dict[str, str] | None = None
) -> AsyncGenerator[AsyncIterator[Told]]:
    async with client.stream("GET", path, headers=headers) as answer:
        assert answer.status_code == 200, await answer.aread()
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield told(answer)


async def told(answer: httpx2.Response) -> AsyncIterator[Told]:
    found: dict[str, str] = {}
    async for line in answer.aiter_lines():
        if line and not line.startswith(":"):
            name, _, value = line.partition(": ")
            found[name] = value
        elif not line and "data" in found:
            yield Told(found.get("id", ""), found["event"], json.loads(found["data"]))
            found = {}


async def all_of(client: httpx2.AsyncClient, path: str, **headers: str) -> list[Told]:
    async with asyncio.timeout(HANG_SECONDS), listening(client, path, headers) as events:
        return [event async for event in events]


async def test_a_run_is_followed_from_its_first_event_to_its_end(server: Running) -> None:
    client = await server.client("operator")
    run_id = await server.begin(NOTE)
    asked = await server.asked(run_id)
    async with asyncio.timeout(HANG_SECONDS), listening(client, f"/v1/runs/{run_id}/events/stream") as events:
        first = [await anext(events), await anext(events)]
        await client.post(f"/v1/approvals/{asked['action_id']}/approve", json={"payload_hash": asked["payload_hash"]})
        rest = [event async for event in events]

    listed = (await client.get(f"/v1/runs/{run_id}/events")).json()["events"]
    live = [*first, *rest[:-1]]
    assert [event.data for event in live] == listed
    assert [(event.id, event.event) for event in live] == [(str(each["seq"]), each["type"]) for each in listed]
    assert rest[-1] == Told("", "end", {"reason": "run_over", "status": "COMPLETED", "message": "All done."})


async def test_whoever_comes_back_goes_on_after_the_last_event_that_they_had(server: Running) -> None:
    client = await server.client("operator")
    run_id = await server.begin(LOOKUP)
    await server.status(run_id, "COMPLETED")
    path = f"/v1/runs/{run_id}/events/stream"
    for view in ("run", "log"):
        everything = await all_of(client, f"{path}?view={view}")
        for at, event in enumerate(everything[:-1]):
            after = await all_of(client, f"{path}?view={view}", **{"Last-Event-ID": event.id})
            assert after == everything[at + 1 :]
        assert await all_of(client, f"{path}?view={view}&after_seq={everything[0].id}") == everything[1:]
    stored = (await client.get(f"/v1/runs/{run_id}/events?view=log")).json()["events"]
    assert [event.data for event in everything[:-1]] == stored


async def test_all_runs_that_somebody_may_see_are_followed_and_no_others(server: Running) -> None:
    operator = await server.client("operator")
    async with asyncio.timeout(HANG_SECONDS), listening(operator, "/v1/events/stream?after=0") as events:
        elsewhere = await server.begin(LOOKUP, agent="other")
        await server.status(elsewhere, "COMPLETED")
        own = await server.begin(LOOKUP)
        found: list[Told] = []
        async for event in events:
            found.append(event)
            if event.event == "COMPLETED":
                break
    assert {event.data["run_id"] for event in found} == {own}
    assert [int(event.id) for event in found] == sorted(int(event.id) for event in found)


async def test_a_reader_whose_key_was_revoked_is_sent_away_at_the_next_heartbeat(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "HEARTBEAT_SECONDS", 0.05)
    operator, admin = await server.client("operator"), await server.client("admin_all")
    async with asyncio.timeout(HANG_SECONDS), operator.stream("GET", "/v1/events/stream") as answer:
        lines = answer.aiter_lines()
        while not (await anext(lines)).startswith(":"):
            pass
        keys = (await admin.get("/v1/keys")).json()["keys"]
        await admin.delete(f"/v1/keys/{next(key['key_id'] for key in keys if key['name'] == 'operator')}")
        rest = [line async for line in lines]
    assert 'data: {"reason":"not_allowed"}' in rest


async def test_readers_who_leave_give_their_place_back_and_too_many_are_told_so(tmp_path: Path) -> None:
    async with running_server(tmp_path, max_readers=2) as server:
        client, other = await server.client("operator"), await server.client("auditor")
        for _ in range(5):
            async with listening(client, "/v1/events/stream"), listening(other, "/v1/events/stream"):
                full = await (await server.client("operator_all")).get("/v1/events/stream")
                assert (full.status_code, full.json()["error"]["code"]) == (503, "too_many_readers")
                assert full.headers["retry-after"]
            async with asyncio.timeout(HANG_SECONDS):
                while server.service.hub.reader_count:
                    await client.get("/v1/me")


async def test_a_reader_who_takes_nothing_is_cut_off_and_leaves_nothing_behind(
    server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.2)

    def long(told: LiveEvent, place: int) -> bytes:
        return b"x" * 4_000_000

    monkeypatch.setattr(streams, "_ENCODERS", {"run": long})
    host, port = server.base.removeprefix("http://").split(":")
    _, writer = await asyncio.open_connection(host, int(port), limit=1_024)
    try:
        key = await server.key("operator")
        writer.write(
            f"GET /v1/events/stream HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        )
        client = await server.client("operator")
        async with asyncio.timeout(HANG_SECONDS):
            while not server.service.hub.reader_count:
                await client.get("/v1/me")
            await server.status(await server.begin(LOOKUP), "COMPLETED")
            while server.service.hub.reader_count:
                await client.get("/v1/me")
        assert server.service.hub.reader_count == 0
    finally:
        writer.close()


async def test_a_stopping_server_ends_its_streams(server: Running) -> None:
    client = await server.client("operator")
    async with asyncio.timeout(HANG_SECONDS), listening(client, "/v1/events/stream") as events:
        await server.service.hub.close()
        assert [event.data async for event in events] == [{"reason": "stopping"}]


async def test_a_place_that_no_stream_gave_out_is_refused(server: Running) -> None:
    client = await server.client("operator")
    for place in ("x", "-1", "9" * 20, "1.5"):
        answer = await client.get("/v1/events/stream", headers={"Last-Event-ID": place})
        assert answer.status_code == 422
        assert answer.json()["error"]["details"]["fields"][0]["field"] == "Last-Event-ID"
