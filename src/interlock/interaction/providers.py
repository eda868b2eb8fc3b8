"""Answer questions without a person, or with a function."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from contextvars import copy_context
from inspect import isawaitable, iscoroutinefunction
from threading import Thread
from typing import Any, TypeAlias

import msgspec

from ..domain import json
from ..domain.call import Answer, Question
from ..rendering.text import describe_error
from .interface import Fallback, check_fallback


class HeadlessInteractionProvider:
    """Answer every question without a person.

    Args:
        approval_fallback: `deny` refuses, `approve` grants, `wait` leaves the question open for another process.
            Whether a call may run a second time is never granted: only a person can say that.
        approval_timeout_s: How long an answer may take.
    """

    interactive = False

    def __init__(self, approval_fallback: Fallback = "deny", approval_timeout_s: float | None = 300.0) -> None:
        check_fallback(approval_fallback)
        self.approval_fallback: Fallback = approval_fallback
        self.approval_timeout_s = approval_timeout_s

    async def ask(self, question: Question) -> Answer | None:
        """Answer by the configured fallback, or return None to wait."""
        if self.approval_fallback == "wait":
            return None
        # A value cannot be approved: there is none.
        can_approve = question.kind == "approval" and not question.needs_person
        approved = self.approval_fallback == "approve" and can_approve
        return Answer(approved=approved, reason="No person is available to ask.", by="headless")


#: True or False, an `Answer`, or None to leave the question open. Asked for a value: the value, or False to refuse.
Callback: TypeAlias = Callable[[Question], Any | Awaitable[Any]]


class CallbackInteractionProvider:
    """Ask a function: `CallbackInteractionProvider(lambda question: question.tool_name == "search")`.

    A function that raises, or that returns something else than an answer, refuses the call.

    Args:
        callback: A function of the `Question`, sync or async. It returns True, False, an `Answer`, None to leave the
            question open, or the value that was asked for.
        approval_timeout_s: How long it may take; None waits without end.
        approval_fallback: What happens after that: `deny`, `approve` or `wait`.
    """

    interactive = True

    def __init__(
        self,
        callback: Callback,
        approval_timeout_s: float | None = 300.0,
        approval_fallback: Fallback = "deny",
    ) -> None:
        check_fallback(approval_fallback)
        self.approval_timeout_s = approval_timeout_s
        self.approval_fallback: Fallback = approval_fallback
        self._callback = callback
        self._is_async = iscoroutinefunction(callback) or iscoroutinefunction(type(callback).__call__)

    async def ask(self, question: Question) -> Answer | None:
        """Ask the callback. An error or an unusable reply rejects the call."""
        try:
            reply = self._callback(question) if self._is_async else await _call_in_thread(self._callback, question)
            if isawaitable(reply):
                reply = await reply
        except Exception as error:
            return _refusal_answer(f"The callback failed: {describe_error(error)}")
        return _to_answer(question, reply)


def _to_answer(question: Question, reply: Any) -> Answer | None:
    if reply is None:
        return None
    if isinstance(reply, Answer):
        return _check_recordable(reply if reply.channel else msgspec.structs.replace(reply, channel="callback"))
    if reply is False:
        return Answer(approved=False, by="callback", channel="callback")
    if question.kind == "input":
        return _check_recordable(Answer(approved=True, value=reply, by="callback", channel="callback"))
    if reply is True:
        return Answer(approved=True, by="callback", channel="callback")
    return _refusal_answer(f"The callback returned a {type(reply).__name__}, which is neither yes nor no.")


def _check_recordable(answer: Answer) -> Answer:
    try:
        json.check_value(answer.value)
    except json.InvalidJsonError as error:
        return _refusal_answer(f"The callback returned a value that is not JSON: {error}")
    return answer


def _refusal_answer(reason: str) -> Answer:
    return Answer(approved=False, reason=reason, by="callback", channel="callback")


def _call_in_thread(callback: Callback, question: Question) -> "asyncio.Future[Any]":
    """Call the callback in a daemon thread: people are slow, and waiting must not keep the process alive."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[Any] = loop.create_future()
    context = copy_context()

    def deliver(reply: Any) -> None:
        if not answered.done():  # Else it timed out, and the future is abandoned.
            answered.set_result(reply)

    def run() -> None:
        try:
            reply = context.run(callback, question)
        except BaseException as error:  # Also `sys.exit`: the waiter must get a result.
            reply = _refusal_answer(f"The callback failed: {describe_error(error)}")
        with suppress(RuntimeError):  # The loop is closed.
            loop.call_soon_threadsafe(deliver, reply)

    Thread(target=run, name=f"question-{question.action_id}", daemon=True).start()
    return answered
