"""The provider that asks a function."""

import asyncio
import sys
import threading
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any

import pytest

from interlock.domain.call import Answer, Question
from interlock.interaction.interface import InteractionProvider
from interlock.interaction.providers import CallbackInteractionProvider
from interlock.testing.conformance.interaction import make_question
from tests.each import each
from tests.patience import HANG_SECONDS
from tests.pipeline.approval.provider_suite import ProviderSuite


class TestSyncCallback(ProviderSuite):
    def make(self, **settings: Any) -> InteractionProvider:
        return CallbackInteractionProvider(lambda question: question.kind == "approval", **settings)


class TestAsyncCallback(ProviderSuite):
    def make(self, **settings: Any) -> InteractionProvider:
        async def value(question: Question) -> str:
            return "ls -l"

        return CallbackInteractionProvider(value, **settings)


def _sync(said: object) -> Callable[[Question], object]:
    return lambda question: said


def _async(said: object) -> Callable[[Question], Awaitable[object]]:
    async def callback(question: Question) -> object:
        return said

    return callback


def _sync_that_returns_an_awaitable(said: object) -> Callable[[Question], Awaitable[object]]:
    def callback(question: Question) -> Awaitable[object]:
        return _async(said)(question)

    return callback


class _Asker:
    def __init__(self, said: object) -> None:
        self.said = said

    async def __call__(self, question: Question) -> object:
        return self.said


callbacks = pytest.mark.parametrize("make", [_sync, _async, _sync_that_returns_an_awaitable, _Asker])
NAMED = Answer(approved=True, reason="Looks fine.", by="ada", channel="rest")


@callbacks
@each(
    "said, answer",
    [
        (True, Answer(approved=True, by="callback", channel="callback")),
        (False, Answer(approved=False, by="callback", channel="callback")),
        (None, None),
        (NAMED, NAMED),
    ],
)
async def test_yes_no_an_answer_and_nothing_are_understood(
    make: Callable[[object], Any], said: object, answer: Answer | None
) -> None:
    assert await CallbackInteractionProvider(make(said)).ask(make_question()) == answer


@callbacks
@each(
    "said, answer",
    [
        ("ls -l", Answer(approved=True, value="ls -l", by="callback", channel="callback")),
        ({"a": [1, None]}, Answer(approved=True, value={"a": [1, None]}, by="callback", channel="callback")),
        (0, Answer(approved=True, value=0, by="callback", channel="callback")),
        (True, Answer(approved=True, value=True, by="callback", channel="callback")),
        (False, Answer(approved=False, by="callback", channel="callback")),
        (None, None),
        (NAMED, NAMED),
    ],
)
async def test_asked_for_a_value_any_json_is_one_and_false_refuses(
    make: Callable[[object], Any], said: object, answer: Answer | None
) -> None:
    assert await CallbackInteractionProvider(make(said)).ask(make_question("input")) == answer


@pytest.mark.parametrize("said", ["yes", "no", 1, 0, [], {"approved": True}])
async def test_only_a_clear_yes_is_a_yes(said: object) -> None:
    answer = await CallbackInteractionProvider(_sync(said)).ask(make_question())

    assert answer == Answer(
        approved=False,
        reason=f"The callback returned a {type(said).__name__}, which is neither yes nor no.",
        by="callback",
        channel="callback",
    )


@pytest.mark.parametrize("said", [object(), float("nan"), Answer(approved=True, value={1, 2})])
async def test_a_value_that_cannot_be_recorded_refuses(said: object) -> None:
    answer = await CallbackInteractionProvider(_sync(said)).ask(make_question("input"))

    assert answer is not None
    assert not answer.approved
    assert answer.reason.startswith("The callback returned a value that is not JSON: ")


def _raises(question: Question) -> bool:
    raise ValueError(question.tool_name)


def _stops(question: Question) -> bool:
    raise StopIteration("bash")


def _exits(question: Question) -> bool:
    sys.exit("bash")


async def _raises_later(question: Question) -> bool:
    raise ValueError(question.tool_name)


@pytest.mark.parametrize(
    ("callback", "error"),
    [(_raises, "ValueError"), (_stops, "StopIteration"), (_exits, "SystemExit"), (_raises_later, "ValueError")],
)
async def test_a_callback_that_fails_refuses(callback: Callable[[Question], Any], error: str) -> None:
    provider = CallbackInteractionProvider(callback)

    assert await asyncio.wait_for(provider.ask(make_question()), HANG_SECONDS) == Answer(
        approved=False, reason=f"The callback failed: {error}: bash", by="callback", channel="callback"
    )


async def test_a_slow_sync_callback_does_not_hold_up_the_loop() -> None:
    loop_ran = threading.Event()

    def slow(question: Question) -> bool:
        return loop_ran.wait(HANG_SECONDS)

    asking = asyncio.ensure_future(CallbackInteractionProvider(slow).ask(make_question()))
    asyncio.get_running_loop().call_soon(loop_ran.set)

    assert await asking == Answer(approved=True, by="callback", channel="callback")


async def test_many_questions_are_open_at_once() -> None:
    count = 100
    all_asked = threading.Barrier(count)

    def together(question: Question) -> bool:
        all_asked.wait(HANG_SECONDS)
        return True

    provider = CallbackInteractionProvider(together)
    answers = await asyncio.gather(*(provider.ask(make_question()) for _ in range(count)))

    assert answers == [Answer(approved=True, by="callback", channel="callback")] * count


async def test_an_answer_after_the_wait_was_given_up_is_dropped() -> None:
    asked, given_up, returned = asyncio.Event(), threading.Event(), asyncio.Event()
    loop = asyncio.get_running_loop()

    def late(question: Question) -> bool:
        loop.call_soon_threadsafe(asked.set)
        given_up.wait(HANG_SECONDS)
        loop.call_soon_threadsafe(returned.set)
        return True

    asking = asyncio.ensure_future(CallbackInteractionProvider(late).ask(make_question()))
    await asyncio.wait_for(asked.wait(), HANG_SECONDS)
    asking.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asking
    given_up.set()
    await asyncio.wait_for(returned.wait(), HANG_SECONDS)

    assert asking.cancelled()


def test_a_callback_that_never_returns_does_not_keep_the_loop_from_closing() -> None:
    never = threading.Event()
    threads: list[threading.Thread] = []

    def hang(question: Question) -> bool:
        threads.append(threading.current_thread())
        asked.set()
        return never.wait(HANG_SECONDS)

    async def give_up() -> None:
        asking = asyncio.ensure_future(CallbackInteractionProvider(hang).ask(make_question()))
        await asyncio.to_thread(asked.wait, HANG_SECONDS)
        asking.cancel()

    asked = threading.Event()
    asyncio.run(give_up())

    assert threads[0].is_alive()
    assert threads[0].daemon
    never.set()
    threads[0].join(HANG_SECONDS)
    assert not threads[0].is_alive()


async def test_the_callback_sees_the_context_variables_of_its_caller() -> None:
    user: ContextVar[str] = ContextVar("user")
    user.set("ada")

    provider = CallbackInteractionProvider(lambda question: Answer(approved=True, by=user.get()))

    assert await provider.ask(make_question()) == Answer(approved=True, by="ada", channel="callback")


def test_a_person_is_there() -> None:
    assert CallbackInteractionProvider(_sync(True)).interactive is True
