"""Conversations over REST: messages, each once, and what a run says between its events."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

from interlock import Agent, ToolContext, tool
from interlock.models import ModelEvent, ModelRequest, StreamFinished, StreamRestarted, TextDelta, ToolCallDelta
from interlock.models.scripted import tool_call
from interlock.server.core.runs.served_agent import ServedAgent
from tests.patience import HANG_SECONDS
from tests.server.rest.test_streams import all_of, listening
from tests.server.server_process import Running, running_server

SECRET = "correct horse battery staple"
#: In an answer: it waits there, too.
PAUSE = TextDelta(text="")
FILLER = "There is nothing to see in these words. " * 6


class Talker:
    """Writes piece by piece. It waits before each answer until the test lets it."""

    name = "talker"

    def __init__(self) -> None:
        self.turns = asyncio.Semaphore(0)
        self.answers: list[list[ModelEvent]] = []

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent]:
        await self.turns.acquire()
        for event in self.answers.pop(0):
            if event is PAUSE:
                await self.turns.acquire()
            else:
                yield event
        yield StreamFinished(reason="stop")

    async def close(self) -> None: ...


@tool
def count(to: int, context: ToolContext) -> str:
    """Count, in a thread."""
    context.progress(f"half of {to}, with {SECRET}")
    return str(to)


def words(text: str) -> list[ModelEvent]:
    return [TextDelta(text=word + " ") for word in text.split(" ")]


async def test_a_reader_follows_what_the_model_writes(tmp_path: Path) -> None:
    """Text and progress come between the events that they belong to, without secrets and without ids."""
    model = Talker()
    model.answers = [
        [*words("Never mind."), StreamRestarted(reason="broken"), *words("Let me count."), _calls()],
        words(f"{FILLER}It is {SECRET}, you know."),
    ]
    agent = Agent(name="shop", provider=model, tools=[count])
    async with running_server(tmp_path, [ServedAgent(agent=agent, secrets={"PASS": SECRET})]) as server:
        client = await server.client("agent")
        run_id = (await client.post("/v1/runs", json={"agent": "shop", "task": "Count."})).json()["run_id"]
        path = f"/v1/runs/{run_id}/events/stream?view=log&deltas=true"
        async with asyncio.timeout(HANG_SECONDS), listening(client, path) as events:
            model.turns.release()
            model.turns.release()
            found = [event async for event in events]
        stored = await all_of(client, path, **{"Last-Event-ID": found[0].id})

    said = [event for event in found if event.data.get("transient")]
    text = "".join(event.data["data"]["text"] for event in said if event.event == "model.delta")
    assert text == f"Let me count. {FILLER}It is [redacted:PASS], you know. "
    assert [event.data["data"]["message"] for event in said if event.event == "tool.progress"] == [
        "half of 3, with [redacted:PASS]"
    ]
    assert {event.id for event in said} == {""}
    order = [event.event for event in found if event.event in _ORDERED]
    assert _without_repeats(order) == _ORDERED
    assert stored == [event for event in found[1:] if not event.data.get("transient")]
    assert SECRET not in str(found)


def _calls() -> ModelEvent:
    return ToolCallDelta(call=tool_call("count", to=3, call_id="c1"))


_ORDERED = [
    "model.restarted",
    "model.delta",
    "model.response",
    "tool.invocation.started",
    "tool.progress",
    "tool.observation",
    "model.request",
    "model.delta",
    "model.response",
    "end",
]


def _without_repeats(names: list[str]) -> list[str]:
    """From the restart on, which comes after the first text and request."""
    names = names[names.index("model.restarted") :]
    return [name for at, name in enumerate(names) if not at or name != names[at - 1]]


async def test_a_reader_comes_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    """It gets the answer so far from its beginning, without its secrets, and then what comes."""
    model = Talker()
    model.answers = [
        [StreamRestarted(reason="broken"), *words(f"{FILLER}{SECRET} {FILLER}"), PAUSE, *words("The end.")]
    ]
    agent = Agent(name="shop", provider=model, tools=[])
    async with running_server(tmp_path, [ServedAgent(agent=agent, secrets={"PASS": SECRET})]) as server:
        client = await server.client("agent")
        run_id = (await client.post("/v1/runs", json={"agent": "shop", "task": "Talk."})).json()["run_id"]
        path = f"/v1/runs/{run_id}/events/stream?deltas=true"
        model.turns.release()
        async with asyncio.timeout(HANG_SECONDS), listening(client, path) as events:
            first = await anext(event async for event in events if event.event == "model.delta")
        async with asyncio.timeout(HANG_SECONDS), listening(client, path) as events:
            again = await anext(event async for event in events if event.event == "model.delta")
            model.turns.release()
            rest = [event async for event in events if event.event == "model.delta"]

    assert [each.data["data"]["offset"] for each in (first, again)] == [0, 0]
    assert {each.data["data"]["restarts"] for each in (first, again, *rest)} == {1}
    text = "".join(each.data["data"]["text"] for each in (again, *rest))
    assert text == f"{FILLER}[redacted:PASS] {FILLER} The end. "


async def test_a_conversation_continues_with_messages(tmp_path: Path) -> None:
    """Each request is one message; it is refused while the model answers; the end of the server loses nothing."""
    model = Talker()
    model.answers = [words("Hello."), words("Fine."), words("Bye.")]
    agents = [Agent(name="shop", provider=model, tools=[])]
    async with running_server(tmp_path, agents) as server:
        client = await server.client("agent")
        new = {"agent": "shop", "task": "Hi.", "chat": True}
        run = (await client.post("/v1/runs", json=new, headers={"Idempotency-Key": "k"})).json()
        again = await client.post("/v1/runs", json=new | {"chat": False}, headers={"Idempotency-Key": "k"})
        path = f"/v1/runs/{run['run_id']}"
        busy = await send(client, path, "Too early.", "k0")
        model.turns.release()
        await idle(server, client, path)
        first = await send(client, path, "How are you?", "k1")
        repeated = await send(client, path, "How are you?", "k1")
        other = await send(client, path, "Who are you?", "k1")
        model.turns.release()
        await idle(server, client, path)
        stranger = await send(await server.client("operator"), path, "Let me in.", "k2")
        key = client.headers["Authorization"]
    async with running_server(tmp_path, agents) as server:
        client = await server.client()
        client.headers["Authorization"] = key
        model.turns.release()
        last = await send(client, path, "Bye.", "k3")
        await idle(server, client, path)
        repeated_later = await send(client, path, "How are you?", "k1")
        cancelled = await client.post(f"{path}/cancel", json={})
        over = await send(client, path, "Still there?", "k4")
        state = (await client.get(f"{path}/state")).json()

    assert (again.status_code, code_of(again)) == (409, "idempotency_conflict")
    assert (busy.status_code, code_of(busy)) == (409, "not_your_turn")
    assert (first.status_code, repeated.status_code, repeated.json()) == (201, 200, first.json())
    assert (other.status_code, code_of(other)) == (409, "idempotency_conflict")
    assert (stranger.status_code, last.status_code) == (403, 201)
    assert (repeated_later.status_code, repeated_later.json()) == (200, first.json())
    assert (cancelled.json()["cancelled"], over.status_code, code_of(over)) == (True, 409, "run_ended")
    assert model.answers == []
    assert state["status"] == "FAILED"


async def send(client: Any, path: str, text: str, key: str) -> Any:
    return await client.post(f"{path}/messages", json={"text": text}, headers={"Idempotency-Key": key})


async def idle(server: Running, client: Any, path: str) -> None:
    async def look() -> bool:
        return (await client.get(path)).json()["state"] == "idle"

    await server.until(look)


def code_of(answer: Any) -> str:
    return answer.json()["error"]["code"]
