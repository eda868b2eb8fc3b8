"""A person at a terminal answers. One question at a time; others wait in the order in which they came.

The conversation runs in a thread of its own, so the event loop lives. When whoever asked gives up, the thread is told:
it stops reading, says so on the terminal, puts the terminal back as it was and ends. It eats no later key.
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
from typing import TextIO, get_args

from ..domain.call import Answer, Question
from ..domain.errors import ConfigurationError
from ..rendering.sentences import error_text
from .interface import Fallback
from .terminal_dialog import converse, only_suggested
from .terminal_screen import TerminalScreen, Withdrawal, Withdrawn

#: How long a withdrawn question waits for its thread; it only takes longer when the terminal takes no output.
_GOODBYE_SECONDS = 1.0


class TerminalInteractionProvider:
    """Asks on the terminal of `keys` and `output`: standard input and standard error, unless others are given."""

    def __init__(  # noqa: PLR0913 - what may be chosen
        self,
        approval_timeout_s: float | None = 300.0,
        approval_fallback: Fallback = "deny",
        *,
        keys: TextIO | None = None,
        output: TextIO | None = None,
        now: Callable[[], int] = time.time_ns,
        find_rule_problem: Callable[[str, str], str] = only_suggested,
    ) -> None:
        """
        Args:
            find_rule_problem: Says why a rule that was typed may not be kept in place of the suggested one; empty when
                it may. Default: only the suggested rule can be kept.
        """
        if approval_fallback not in get_args(Fallback):
            raise ConfigurationError(f"approval_fallback is deny, approve or wait, not {approval_fallback!r}")
        self.approval_timeout_s = approval_timeout_s
        self.approval_fallback: Fallback = approval_fallback
        self._given_keys = keys
        self._given_output = output
        self._now = now
        self._find_rule_problem = find_rule_problem
        self._turns = _Turns()

    @property
    def interactive(self) -> bool:
        """Both are a terminal, and it is ours: a process in the background would be stopped when it reads."""
        return _is_terminal(self._keys) and _is_terminal(self._output) and _in_foreground(self._keys)

    async def ask(self, question: Question) -> Answer | None:
        if not self.interactive:
            return Answer(approved=False, reason="There is no terminal to ask a person on.", by="terminal")
        withdrawal = Withdrawal()
        answered = self._in_thread(question, withdrawal)
        try:
            return await asyncio.shield(answered)
        except asyncio.CancelledError:
            withdrawal.request()
            self._turns.look_again()
            await asyncio.wait([answered], timeout=_GOODBYE_SECONDS)
            raise

    def _in_thread(self, question: Question, withdrawal: Withdrawal) -> "asyncio.Future[Answer | None]":
        """Not the loop's pool: people are slow, and a thread that waits for one must not keep the process alive."""
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[Answer | None] = loop.create_future()

        def run() -> None:
            said = self._conversation(question, withdrawal)
            withdrawal.close()
            with suppress(RuntimeError):  # The loop is closed, and nobody listens any more.
                loop.call_soon_threadsafe(answered.set_result, said)

        self._turns.join(withdrawal)
        Thread(target=run, name=f"question-{question.action_id}", daemon=True).start()
        return answered

    def _conversation(self, question: Question, withdrawal: Withdrawal) -> Answer | None:
        try:
            with self._turns.own(withdrawal), TerminalScreen(self._keys, self._output, withdrawal) as screen:
                return converse(question, screen, f"terminal:{_user()}", self._now, self._find_rule_problem)
        except Withdrawn:
            return None
        except BaseException as error:  # Whoever waits must hear something.
            reason = f"The terminal could not be used: {error_text(error)}"
            return Answer(approved=False, reason=reason, by="terminal")

    @property
    def _keys(self) -> TextIO:
        return self._given_keys or sys.stdin

    @property
    def _output(self) -> TextIO:
        return self._given_output or sys.stderr


class _Turns:
    """First come, first asked."""

    def __init__(self) -> None:
        self._changed = Condition()
        self._line: deque[Withdrawal] = deque()

    def join(self, asking: Withdrawal) -> None:
        with self._changed:
            self._line.append(asking)

    @contextmanager
    def own(self, asking: Withdrawal) -> Generator[None]:
        """Waits for the turn; `Withdrawn` when the question is withdrawn before it comes."""
        try:
            with self._changed:
                self._changed.wait_for(lambda: asking.requested or self._line[0] is asking)
            if asking.requested:
                raise Withdrawn
            yield
        finally:
            with self._changed:
                self._line.remove(asking)
                self._changed.notify_all()

    def look_again(self) -> None:
        with self._changed:
            self._changed.notify_all()


def _is_terminal(stream: TextIO | None) -> bool:
    try:
        return stream is not None and os.isatty(stream.fileno())
    except (OSError, ValueError):  # Closed, or not a file.
        return False


def _in_foreground(keys: TextIO) -> bool:
    try:
        return os.tcgetpgrp(keys.fileno()) == os.getpgrp()
    except OSError:  # Not the terminal that controls this process, so nothing stops it.
        return True


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return str(os.getuid())
