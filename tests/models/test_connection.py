"""Patience and memory are bounded, and who leaves early hangs up."""

import asyncio
import gzip
from contextlib import aclosing
from typing import Any

import pytest

from interlock.domain.errors import ModelError
from interlock.models import connection, response_assembly
from interlock.models.connection import Timeouts
from interlock.models.interface import TextDelta
from interlock.models.provider_factory import with_retries
from interlock.models.scripted import ModelRecorder
from tests.each import each
from tests.models.loopback import Reply
from tests.models.wire import (
    ANTHROPIC_START,
    ASKED,
    HALF,
    HELLO,
    answer,
    anthropic_block,
    anthropic_events,
    anthropic_piece,
    openai_call,
    openai_chunks,
    openai_delta,
    talking,
    text_of,
)
from tests.patience import HANG_SECONDS

both = pytest.mark.parametrize("kind", ["openai", "anthropic"])
#: The SDKs have things to find out before their first request, and that counts.
SHORT = Timeouts(connect_seconds=5, first_byte_seconds=0.4, idle_seconds=0.1)


@both
@pytest.mark.parametrize("reply", [Reply(end="mute"), Reply(end="hang")], ids=["no status", "no body"])
async def test_a_server_that_never_begins_is_not_waited_for(kind: str, reply: Reply) -> None:
    async with talking(kind, reply, timeouts=SHORT) as (provider, server):
        with pytest.raises(ModelError, match=r"Nothing was executed\.") as error:
            await answer(provider)
        async with asyncio.timeout(HANG_SECONDS):
            await server.left.wait()

    assert error.value.retryable


@both
async def test_a_server_that_stops_in_the_middle_is_not_waited_for(kind: str) -> None:
    patient = Timeouts(first_byte_seconds=30, idle_seconds=0.1)
    async with talking(kind, Reply(HALF[kind], end="hang"), timeouts=patient) as (provider, server):
        with pytest.raises(ModelError, match=r"sent nothing for 0\.1 s") as error:
            await answer(provider)
        async with asyncio.timeout(HANG_SECONDS):
            await server.left.wait()

    assert error.value.retryable


@both
async def test_who_is_cancelled_hangs_up_at_once(kind: str) -> None:
    async with talking(kind, Reply(HALF[kind], end="hang")) as (provider, server):
        begun = asyncio.Event()

        async def listen() -> None:
            async for _ in with_retries(ModelRecorder(provider)).stream(ASKED):
                begun.set()

        listening = asyncio.create_task(listen())
        async with asyncio.timeout(HANG_SECONDS):
            await begun.wait()
            listening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listening
            await server.left.wait()


@both
async def test_who_leaves_early_hangs_up_at_once(kind: str) -> None:
    async with talking(kind, Reply(HALF[kind], end="hang")) as (provider, server):
        events = with_retries(ModelRecorder(provider)).stream(ASKED)
        async with asyncio.timeout(HANG_SECONDS):
            async with aclosing(events):
                assert await anext(events) == TextDelta("Hi")
            await server.left.wait()


@both
async def test_who_is_cancelled_before_the_answer_begins_hangs_up_at_once(kind: str) -> None:
    async with talking(kind, Reply(end="mute")) as (provider, server):
        listening = asyncio.create_task(answer(provider))
        async with asyncio.timeout(HANG_SECONDS):
            while not server.asked:
                await asyncio.wait({listening}, timeout=0.01)
            listening.cancel()
            with pytest.raises(asyncio.CancelledError):
                await listening
            await server.left.wait()


@both
async def test_a_connection_is_used_again(kind: str) -> None:
    async with talking(kind, Reply(HELLO[kind]), Reply(HELLO[kind])) as (provider, _):
        assert [text_of(await answer(provider)) for _ in range(2)] == ["Hi", "Hi"]


def openai_text(part: str, times: int) -> tuple[bytes, ...]:
    return openai_chunks(*(openai_delta({"content": part}) for _ in range(times)))


def anthropic_text(part: str, times: int) -> tuple[bytes, ...]:
    pieces = (anthropic_piece(0, type="text_delta", text=part) for _ in range(times))
    return anthropic_events(ANTHROPIC_START, anthropic_block(0, type="text", text=""), *pieces)


def openai_arguments(part: str, times: int) -> tuple[bytes, ...]:
    return openai_chunks(*(openai_call(index=0, id="a", function={"arguments": part}) for _ in range(times)))


def anthropic_arguments(part: str, times: int) -> tuple[bytes, ...]:
    pieces = (anthropic_piece(0, type="input_json_delta", partial_json=part) for _ in range(times))
    return anthropic_events(ANTHROPIC_START, anthropic_block(0, type="tool_use", id="a", name="b", input={}), *pieces)


def openai_calls(times: int) -> tuple[bytes, ...]:
    return openai_chunks(*(openai_call(index=number, id=f"c{number}") for number in range(times)))


def anthropic_calls(times: int) -> tuple[bytes, ...]:
    blocks = (anthropic_block(number, type="tool_use", id=f"c{number}", name="b", input={}) for number in range(times))
    return anthropic_events(ANTHROPIC_START, *blocks)


LONG = "x" * 65_536
TOO_MUCH: dict[str, tuple[Any, str]] = {
    "openai text": (openai_text(LONG, 17), f"said more than {response_assembly.MAX_TEXT_BYTES} bytes"),
    "anthropic text": (anthropic_text(LONG, 17), f"said more than {response_assembly.MAX_TEXT_BYTES} bytes"),
    "openai arguments": (
        openai_arguments(LONG, 5),
        f"more than {response_assembly.MAX_ARGUMENTS_BYTES} bytes of arguments",
    ),
    "anthropic arguments": (
        anthropic_arguments(LONG, 5),
        f"more than {response_assembly.MAX_ARGUMENTS_BYTES} bytes of arguments",
    ),
    "openai calls": (openai_calls(257), "more than 256 calls"),
    "anthropic calls": (anthropic_calls(257), "more than 256 calls"),
    "openai names": (openai_chunks(openai_call(index=0, id=LONG)), "a name of more than"),
    "anthropic names": (
        anthropic_events(anthropic_block(0, type="tool_use", id="a", name=LONG)),
        "a name of more than",
    ),
}


@each("name", TOO_MUCH)
async def test_more_than_anybody_needs_is_refused_in_words(name: str) -> None:
    chunks, words = TOO_MUCH[name]
    async with talking(name.split(maxsplit=1)[0], Reply(chunks)) as (provider, _):
        with pytest.raises(ModelError, match=words) as error:
            await answer(provider)

    assert not error.value.retryable


@both
@pytest.mark.parametrize("status", [200, 500])
async def test_a_line_without_an_end_is_not_read_to_its_end(
    kind: str, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "MAX_LINE_BYTES", 100_000)
    async with talking(kind, Reply((b"data: ", *[b"x" * 60_000] * 2), status, end="hang")) as (provider, _):
        with pytest.raises(ModelError, match="a line of more than 100000 bytes"):
            await answer(provider)


@both
async def test_an_answer_without_an_end_is_not_read_for_ever(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "MAX_ANSWER_BYTES", 100_000)
    async with talking(kind, Reply((b": nothing\n" * 5_000,) * 3, end="hang")) as (provider, _):
        with pytest.raises(ModelError, match="more than 100000 bytes for one answer"):
            await answer(provider)


@both
async def test_a_compressed_answer_is_refused(kind: str) -> None:
    packed = gzip.compress(b"".join(HELLO[kind]))
    async with talking(kind, Reply((packed,), headers={"content-encoding": "gzip"})) as (provider, server):
        with pytest.raises(ModelError, match="compressed"):
            await answer(provider)

    assert server.asked[0].headers["accept-encoding"] == "identity"
