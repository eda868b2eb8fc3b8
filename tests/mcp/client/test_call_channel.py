"""Calls on the pipes of a server: their answers, their progress, and lines that stay whole."""

import asyncio
import json
import os
from typing import Any

import anyio
import anyio.lowlevel
import mcp_types as types
import pytest
from mcp_types import jsonrpc_message_adapter
from pydantic import ValidationError

from interlock.mcp.client.call_channel import CallChannel, UpstreamRpcError
from interlock.mcp.client.pipes import LineWriter
from interlock.mcp.client.results import read_result


class Pipe:
    """A channel, with what it sent, and answers to it."""

    def __init__(self) -> None:
        self.sent: list[dict[str, Any]] = []
        self.channel = CallChannel(self._write)

    async def _write(self, line: bytes) -> None:
        self.sent.append(json.loads(line))

    async def start(self, on_progress: Any = None, on_log: Any = None) -> "asyncio.Task[Any]":
        task = asyncio.create_task(self.channel.call({"name": "t"}, {}, on_progress, on_log))
        await anyio.lowlevel.checkpoint()
        return task

    def answer(self, **message: Any) -> bool:
        line = json.dumps({"jsonrpc": "2.0", "id": self.sent[0]["id"], **message}).encode()
        message = jsonrpc_message_adapter.validate_json(line, by_name=False)  # type: ignore[assignment]
        return self.channel.take_line(line) or self.channel.take_message(message)  # type: ignore[arg-type]


async def test_an_answer_finds_its_call():
    pipe = Pipe()
    call = await pipe.start()
    assert not pipe.answer(id=7, result={})
    assert pipe.answer(result={"content": []})
    assert await call == {"content": []}
    assert pipe.answer(result={"content": []}), "a late answer is for no session"


async def test_an_id_may_come_back_as_text():
    pipe = Pipe()
    call = await pipe.start()
    assert pipe.answer(id=str(pipe.sent[0]["id"]), result={})
    assert await call == {}


async def test_an_error_keeps_its_code_and_data():
    """Also the codes that the SDK uses for itself."""
    pipe = Pipe()
    call = await pipe.start()
    assert pipe.answer(error={"code": -32000, "message": "no", "data": [1]})
    with pytest.raises(UpstreamRpcError) as raised:
        await call
    assert (raised.value.code, str(raised.value), raised.value.data) == (-32000, "no", [1])


async def test_a_request_with_the_id_of_a_call_is_no_answer():
    pipe = Pipe()
    call = await pipe.start()
    assert not pipe.answer(method="ping", result={})
    pipe.channel.close()
    with pytest.raises(anyio.ClosedResourceError):
        await call


async def test_a_cancelled_call_is_cancelled_at_the_server():
    pipe = Pipe()
    call = await pipe.start()
    call.cancel()
    await asyncio.wait((call,))
    await anyio.lowlevel.checkpoint()
    request, note = pipe.sent
    assert (note["method"], note["params"]["requestId"]) == ("notifications/cancelled", request["id"])


async def test_progress_is_reported_and_bad_progress_is_not():
    pipe, seen = Pipe(), list[Any]()

    async def report(*progress: Any) -> None:
        seen.append(progress)

    call = await pipe.start(report)
    token = pipe.sent[0]["params"]["_meta"]["progressToken"]
    for params in (
        {"progressToken": token, "progress": 1, "total": 4, "message": "a"},
        {"progressToken": token, "progress": True},
        {"progressToken": token, "progress": 2, "total": "x", "message": 3},
    ):
        assert pipe.channel.take_message(
            types.JSONRPCNotification(jsonrpc="2.0", method="notifications/progress", params=params)
        )
    pipe.answer(result={})
    await call
    assert seen == [(1.0, 4.0, "a"), (2.0, None, None)]


@pytest.mark.parametrize("answer", [{"result": {}}, {"error": {"code": -32000, "message": "no"}}], ids=["ok", "error"])
async def test_a_call_ends_behind_what_was_reported_before(answer: dict[str, Any]):
    """Also when the client is slow to take it, and not with a log message that makes no sense."""
    pipe, seen, go = Pipe(), list[Any](), asyncio.Event()

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        await go.wait()
        seen.append(params.data)

    call = await pipe.start(on_log=log)
    for params in ({"level": "info", "data": "one"}, {"level": "no such"}, {"level": "info", "data": "two"}):
        assert pipe.channel.take_message(
            types.JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)
        )
    pipe.answer(**answer)
    await anyio.lowlevel.checkpoint()
    assert not call.done()
    go.set()
    await asyncio.wait((call,))
    assert (seen, call.exception() is None) == (["one", "two"], "result" in answer)


async def test_log_messages_of_one_of_many_calls_are_nobodys():
    pipe, seen = Pipe(), list[Any]()

    async def log(params: types.LoggingMessageNotificationParams) -> None:
        seen.append(params.data)

    calls = [await pipe.start(on_log=log) for _ in range(2)]
    params = {"level": "info", "data": "one"}
    note = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/message", params=params)
    assert pipe.channel.take_message(note)
    pipe.channel.close()
    await asyncio.wait(calls)
    assert seen == []
    assert all(isinstance(call.exception(), anyio.ClosedResourceError) for call in calls)


async def test_a_cancelled_message_is_sent_to_its_end():
    """Half a line would spoil every message behind it."""
    read_end, write_end = os.pipe()
    writer = LineWriter(write_end)
    long = asyncio.create_task(writer.write(b"x" * 1_000_000))
    await anyio.lowlevel.checkpoint()
    long.cancel()
    await asyncio.wait((long,))
    reading = asyncio.create_task(asyncio.to_thread(_read_all, read_end))
    await writer.write(b"next")
    await writer.drain()
    await writer.aclose()
    assert [len(line) for line in (await reading).split(b"\n")] == [1_000_000, 4, 0]


def _read_all(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


async def test_a_pipe_that_is_not_read_any_more_is_broken():
    read_end, write_end = os.pipe()
    writer = LineWriter(write_end)
    os.close(read_end)
    with pytest.raises(anyio.BrokenResourceError):
        await writer.write(b"x")
    await writer.aclose()
    with pytest.raises(anyio.ClosedResourceError):
        await writer.write(b"x")


_TEXT = {"type": "text", "text": "a"}


@pytest.mark.parametrize(
    "document",
    [
        {"content": [_TEXT]},
        {"content": [_TEXT], "isError": True, "resultType": "complete"},
        {"content": [_TEXT, _TEXT]},
        {"content": [{**_TEXT, "annotations": {"priority": 1}}]},
        {"content": [_TEXT], "structuredContent": {"a": 1}},
        {"content": [_TEXT], "_meta": {"key": 1}},
        {"content": []},
    ],
)
def test_a_result_is_read_as_the_sdk_reads_it(document: dict[str, Any]):
    found = read_result(document, "2025-11-25")
    expected = types.CallToolResult.model_validate(document)
    assert found.model_dump(exclude_none=True) == expected.model_dump(exclude_none=True)


@pytest.mark.parametrize(
    "document",
    [
        {"content": "a"},
        {"content": [{"type": "text", "text": 1}]},
        {"content": [{"type": "text"}]},
        {"content": [_TEXT], "isError": "maybe"},
        {"content": [_TEXT], "_meta": 1},
        {"resultType": "other"},
    ],
)
def test_what_is_no_result_is_refused(document: dict[str, Any]):
    with pytest.raises(ValidationError):
        read_result(document, "2025-11-25")
