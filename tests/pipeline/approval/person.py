"""Somebody at a terminal: a real pseudo terminal, a screen that shows what is on it, and hands that type."""

import asyncio
import fcntl
import os
import pty
import re
import select
import struct
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Condition, Thread
from typing import Any

import pyte

from interlock.domain.call import Question
from interlock.domain.payload import ApprovalBinding, ExecutionEnvironment, FileOperand
from interlock.interaction.terminal import TerminalInteractionProvider
from tests.patience import HANG_SECONDS

HASH = "sha256:" + "5eed" * 16
#: How the line of choices ends.
PROMPT = "d details: "
_THE_END = "(that was all)"


def make_question(arguments: dict[str, Any] | None = None, **fields: Any) -> Question:
    given: dict[str, Any] = {
        "action_id": "act_1",
        "run_id": "run_1",
        "call_id": "call_1",
        "tool_name": "bash",
        "kind": "approval",
        "prompt": "Run it?",
        "arguments": {"command": "ls -la"} if arguments is None else arguments,
        "payload_hash": HASH,
        "risk": ("execute", "may write to the workspace"),
        "rule_ids": ("ask-shell",),
        "layer": "user rule",
        "reason": "Commands are asked about.",
        "bound": ApprovalBinding(
            requester="ada",
            surroundings=ExecutionEnvironment(
                cwd="/work", environment={"CI": "1"}, sandbox="bwrap", files=(FileOperand("/work/a.sh", "ab" * 32),)
            ),
        ),
    }
    return Question(**(given | fields))


class Person:
    def __init__(self, columns: int = 80, rows: int = 50) -> None:
        self._hands, terminal = pty.openpty()
        _set_size(terminal, columns, rows)
        self.keys = os.fdopen(terminal, "r")
        self.output = os.fdopen(os.dup(terminal), "w")
        self.screen = pyte.Screen(columns, rows)
        self.text = ""
        self._stream = pyte.ByteStream(self.screen)
        self._read_to = 0
        self._gone = False
        self._changed = Condition()
        self._eyes = Thread(target=self._look, daemon=True)
        self._eyes.start()

    def provider(self, **settings: Any) -> TerminalInteractionProvider:
        return TerminalInteractionProvider(keys=self.keys, output=self.output, **settings)

    def types(self, text: str) -> None:
        os.write(self._hands, text.encode())

    def typed_ahead(self, text: str) -> None:
        """Types, and waits until the terminal has it for whoever reads next."""
        self.types(text)
        assert select.select([self.keys.fileno()], [], [], HANG_SECONDS)[0]

    def waits_for(self, *texts: str) -> str:
        """Everything that came up since the last time, up to one of these texts."""
        one_of = re.compile("|".join(map(re.escape, texts)))
        with self._changed:
            assert self._changed.wait_for(lambda: one_of.search(self.text, self._read_to), HANG_SECONDS), self.text
            found = one_of.search(self.text, self._read_to)
            assert found is not None
            seen, self._read_to = self.text[self._read_to : found.end()], found.end()
            return seen

    async def sees(self, text: str) -> str:
        return await asyncio.to_thread(self.waits_for, text)

    async def answers(self, question: Question, *typed: str, after: str = PROMPT, **settings: Any) -> Any:
        """The answer when this is typed, each text after the prompt has come up."""
        asking = asyncio.ensure_future(self.provider(**settings).ask(question))
        for text in typed:
            prompt, _, keys = text.rpartition("<")
            await self.sees(prompt or after)
            self.types(keys)
        answer = await asyncio.wait_for(asking, HANG_SECONDS)
        print(_THE_END, file=self.output, flush=True)
        await self.sees(_THE_END)
        return answer

    def resizes(self, columns: int, rows: int) -> None:
        with self._changed:
            self.screen.resize(rows, columns)
        _set_size(self.keys.fileno(), columns, rows)

    def hangs_up(self) -> None:
        """The terminal is gone while somebody still has it open."""
        self._gone = True
        self._eyes.join(HANG_SECONDS)

    def leaves(self) -> None:
        for stream in (self.keys, self.output):
            with suppress(OSError):  # It may have something left to write for a terminal that is gone.
                stream.close()
        self._eyes.join(HANG_SECONDS)

    def _look(self) -> None:
        while not self._gone:
            if not select.select([self._hands], [], [], 0.05)[0]:
                continue
            try:
                seen = os.read(self._hands, 65536)
            except OSError:  # Nobody has the other side open any more.
                break
            with self._changed:
                self._stream.feed(seen)
                self.text += seen.decode("utf-8", "replace").replace("\r\n", "\n")
                self._changed.notify_all()
        os.close(self._hands)


def _set_size(terminal: int, columns: int, rows: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def at_terminal(columns: int = 80, rows: int = 50) -> Generator[Person]:
    person = Person(columns, rows)
    try:
        yield person
    finally:
        person.leaves()
