"""A function answers. It may be slow: a sync one runs in a thread of its own, an async one in the loop."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from threading import Thread
from typing import Any, TypeAlias, get_args

from ..domain import json
from ..domain.call import Answer, Question
from ..domain.errors import ConfigurationError
from ..rendering.sentences import error_text
from .interface import Fallback

#: True or False, an `Answer`, or None to leave the question open. Asked for a value: the value, or False to refuse.
Callback: TypeAlias = Callable[[Question], Any | Awaitable[Any]]


class CallbackInteractionProvider:
    """A callback that raises, or that returns what is no answer, refuses: only a clear yes is a yes."""

    interactive = True

    def __init__(
        self,
        callback: Callback,
        approval_timeout_s: float | None = 300.0,
        approval_fallback: Fallback = "deny",
    ) -> None:
        if approval_fallback not in get_args(Fallback):
            raise ConfigurationError(f"approval_fallback is deny, approve or wait, not {approval_fallback!r}")
        self.approval_timeout_s = approval_timeout_s
        self.approval_fallback: Fallback = approval_fallback
        self._callback = callback
        self._is_async = iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__)

    async def ask(self, question: Question) -> Answer | None:
        try:
            said = self._callback(question) if self._is_async else await _in_thread(self._callback, question)
            if isawaitable(said):
                said = await said
        except Exception as error:
            return _failed(error)
        return _answer(question, said)


def _answer(question: Question, said: Any) -> Answer | None:
    if said is None:
        return None
    if isinstance(said, Answer):
        return _recordable(said)
    if said is False:
        return Answer(approved=False, by="callback")
    if question.kind == "input":
        return _recordable(Answer(approved=True, value=said, by="callback"))
    if said is True:
        return Answer(approved=True, by="callback")
    return _refusal(f"The callback returned a {type(said).__name__}, which is neither yes nor no.")


def _recordable(answer: Answer) -> Answer:
    try:
        json.check(answer.value)
    except json.BadJson as error:
        return _refusal(f"The callback returned a value that is not JSON: {error}")
    return answer


def _failed(error: BaseException) -> Answer:
    return _refusal(f"The callback failed: {error_text(error)}")


def _refusal(reason: str) -> Answer:
    return Answer(approved=False, reason=reason, by="callback")


def _in_thread(callback: Callback, question: Question) -> "asyncio.Future[Any]":
    """Not the loop's pool: people are slow, and a thread that waits for one must not keep the process alive."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def deliver(said: Any) -> None:
        if not answered.done():  # Else the time was up, and nobody listens any more.
            answered.set_result(said)

    def run() -> None:
        try:
            said = context.run(callback, question)
        except BaseException as error:  # Also `sys.exit`: whoever waits must hear something.
            said = _failed(error)
        with suppress(RuntimeError):  # The loop is closed, and nobody listens any more.
            loop.call_soon_threadsafe(deliver, said)

    Thread(target=run, name=f"question-{question.action_id}", daemon=True).start()
    return answered
