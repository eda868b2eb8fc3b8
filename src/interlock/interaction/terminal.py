"""Answers questions at a terminal. One question at a time; others wait in order.

The dialog runs in its own thread, so the event loop is not blocked. When the question is withdrawn, the thread is
signalled: it stops reading, says so on the terminal, restores the terminal and ends. It consumes no later key.
"""

import asyncio
import os
import pwd
import sys
import time
from collections import deque
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import TextIO

from ..domain.call import Answer, Question
from ..rendering.text import describe_error
from .interface import Fallback, check_fallback
from .terminal_dialog import DialogSupport, run_dialog
from .terminal_screen import QuestionWithdrawnError, TerminalScreen, WithdrawalSignal

#: How long a withdrawn question waits for its thread; it only takes longer when the terminal takes no output.
_WITHDRAWAL_SECONDS = 1.0


class TerminalInteractionProvider:
    """Ask the person at the terminal: standard input and standard error, or `keys` and `output`."""

    def __init__(  # noqa: PLR0913 - what may be chosen
        self,
        approval_timeout_s: float | None = 300.0,
        approval_fallback: Fallback = "deny",
        *,
        keys: TextIO | None = None,
        output: TextIO | None = None,
        now: Callable[[], int] = time.time_ns,
        support: DialogSupport | None = None,
    ) -> None:
        """
        Args:
            support: How rules are shown and changed, and edited arguments checked. Default: rules as they are in the
                policy file, only the suggested one can be saved, and no check before the answer is given.
        """
        check_fallback(approval_fallback)
        self.approval_timeout_s = approval_timeout_s
        self.approval_fallback: Fallback = approval_fallback
        self._given_keys = keys
        self._given_output = output
        self._now = now
        self._support = support or DialogSupport()
        self._queue = _QuestionQueue()

    @property
    def interactive(self) -> bool:
        """True when both are a terminal in our foreground: a background process would be stopped when it reads."""
        return _is_terminal(self._keys) and _is_terminal(self._output) and _is_in_foreground(self._keys)

    async def ask(self, question: Question) -> Answer | None:
        """Ask the person at the terminal. Reject if there is no terminal."""
        if not self.interactive:
            return Answer(approved=False, reason="There is no terminal to ask a person on.", by="terminal")
        withdrawal = WithdrawalSignal()
        answered = self._ask_in_thread(question, withdrawal)
        try:
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            withdrawal.request()
            self._queue.notify()
            await asyncio.wait([answered], timeout=_WITHDRAWAL_SECONDS)
            raise

    def _ask_in_thread(self, question: Question, withdrawal: WithdrawalSignal) -> "asyncio.Future[Answer | None]":
        """Ask in a daemon thread: people are slow, and waiting must not keep the process alive."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer | None] = loop.create_future()

        def run() -> None:
            reply = self._run_dialog(question, withdrawal)
            withdrawal.close()
            with suppress(RuntimeError):  # The loop is closed.
                loop.call_soon_threadsafe(answered.set_result, reply)

        self._queue.join(withdrawal)
        Thread(target=run, name=f"question-{question.action_id}", daemon=True).start()
        return answered

    def _run_dialog(self, question: Question, withdrawal: WithdrawalSignal) -> Answer | None:
        try:
            with self._queue.wait_turn(withdrawal), TerminalScreen(self._keys, self._output, withdrawal) as screen:
                return run_dialog(question, screen, f"terminal:{_user_name()}", self._now, self._support)
        except QuestionWithdrawnError:
            return None
        except BaseException as error:  # The waiter must get a result.
            reason = f"The terminal could not be used: {describe_error(error)}"
            return Answer(approved=False, reason=reason, by="terminal")

    @property
    def _keys(self) -> TextIO:
        return self._given_keys or sys.stdin

    @property
    def _output(self) -> TextIO:
        return self._given_output or sys.stderr


class _QuestionQueue:
    """A queue of questions, first come, first asked."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._waiting: deque[WithdrawalSignal] = deque()

    def join(self, asking: WithdrawalSignal) -> None:
        with self._changed:
            self._waiting.append(asking)

    @contextmanager
    def wait_turn(self, asking: WithdrawalSignal) -> Generator[None]:
        """Wait for the turn. Raise `QuestionWithdrawnError` when the question is withdrawn before."""
        try:
            with self._changed:
                self._changed.wait_for(lambda: asking.is_requested or self._waiting[0] is asking)
            if asking.is_requested:
                raise QuestionWithdrawnError
            yield
        finally:
            with self._changed:
                self._waiting.remove(asking)
                self._changed.notify_all()

    def notify(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError):  # Closed, or not a file.
        return False


def _is_in_foreground(keys: TextIO) -> bool:
    try:
        return os.tcgetpgrp(keys.fileno()) == os.getpgrp()
    except OSError:  # Not the terminal that controls this process, so nothing stops it.
        return True


def _user_name() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
