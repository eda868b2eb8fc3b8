"""What runs say while they run: the text of their models as it comes, and the progress of their tools.

It is kept nowhere, and only of runs that this process drives. Text is redacted like everything that is recorded. Each
output names the last event that was recorded before it, so that a reader gets it after that event, and before the next.
"""

import asyncio
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import Any

import msgspec

from ....models.interface import StreamFinished, StreamRestarted, TextDelta
from ....pipeline.parts import RunOutput, ToolProgress
from ....redaction.interface import Redactor
from ....redaction.text_stream import RedactingText
from .event_reader import EventReader

_MIN_ANSWERS = 256


class LiveOutput(msgspec.Struct, frozen=True):
    """One output, for subscribers."""

    run_id: str
    #: The last event that was recorded before it.
    seq: int
    #: `model.delta`, `model.restarted` or `tool.progress`.
    type: str
    data: dict[str, Any]


class _Answer:
    """The answer that a model is writing."""

    def __init__(self, run_id: str, seq: int, redactor: Redactor, restarts: int = 0) -> None:
        self._run_id = run_id
        self.seq = seq
        #: How often the model began it again.
        self.restarts = restarts
        self._redacting = RedactingText(redactor)
        self._pieces: list[str] = []
        #: What was released so far.
        self.text = ""

    def add(self, piece: str) -> None:
        self._pieces.append(piece)

    def release(self, *, is_over: bool = False) -> LiveOutput | None:
        """Redact what was added, and return what can be released of it."""
        offset, released = len(self.text), self._redacting.feed("".join(self._pieces)) if self._pieces else ""
        self._pieces.clear()
        if is_over:
            released += self._redacting.end()
        self.text += released
        return self._build_delta(offset, released) if released else None

    def repeat(self) -> LiveOutput | None:
        """Return all that was released so far."""
        self.release()
        return self._build_delta(0, self.text) if self.text else None

    def _build_delta(self, offset: int, text: str) -> LiveOutput:
        data = {"offset": offset, "text": text, "restarts": self.restarts}
        return LiveOutput(self._run_id, self.seq, "model.delta", data)


class RunOutputs:
    """Hands outputs of the runs of this process to readers."""

    def __init__(self) -> None:
        self._readers: dict[str, set[EventReader]] = {}
        self._answers: dict[str, _Answer] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        #: Returns the runs that are driven here.
        self.list_live: Callable[[], Collection[str]] = tuple
        self._max_answers = _MIN_ANSWERS

    def take(self, output: RunOutput) -> None:
        """Take an output of a run. Tools may report progress from threads."""
        run_id, seq, said = output.run_id, output.seq, output.said
        match said:
            case ToolProgress(call_id=call_id, message=message):
                if run_id in self._readers and self._loop is not None:
                    progress = LiveOutput(run_id, seq, "tool.progress", {"call_id": call_id, "message": message})
                    self._loop.call_soon_threadsafe(self._push, run_id, progress)
            case TextDelta(text=text):
                answer = self._answers.get(run_id)
                if answer is None or answer.seq != seq:
                    answer = self._begin_answer(run_id, seq, output.redactor)
                answer.add(text)
                if run_id in self._readers:
                    self._push(run_id, answer.release())
            case StreamRestarted(reason=reason):
                broken = self._answers.get(run_id)
                restarts = 0 if broken is None or broken.seq != seq else broken.restarts
                self._begin_answer(run_id, seq, output.redactor, restarts + 1)
                data = {"reason": output.redactor.redact(reason)}
                self._push(run_id, LiveOutput(run_id, seq, "model.restarted", data))
            case StreamFinished():
                answer = self._answers.pop(run_id, None)
                if answer is not None and run_id in self._readers:
                    self._push(run_id, answer.release(is_over=True))
            case _:
                pass

    @contextmanager
    def attach(self, run_id: str, reader: EventReader) -> Generator[None]:
        """Hand the outputs of a run to the reader: what the model wrote of its answer, and then what comes."""
        self._loop = asyncio.get_running_loop()
        self._readers.setdefault(run_id, set()).add(reader)
        answer = self._answers.get(run_id)
        if answer is not None and (written := answer.repeat()) is not None:
            reader.push_output(written)
        try:
            yield
        finally:
            self._readers[run_id].discard(reader)
            if not self._readers[run_id]:
                del self._readers[run_id]

    def _begin_answer(self, run_id: str, seq: int, redactor: Redactor, restarts: int = 0) -> _Answer:
        if len(self._answers) >= self._max_answers:  # those that broke off are still there
            live = self.list_live()
            self._answers = {name: answer for name, answer in self._answers.items() if name in live}
            self._max_answers = max(_MIN_ANSWERS, 2 * len(self._answers))
        answer = self._answers[run_id] = _Answer(run_id, seq, redactor, restarts)
        return answer

    def _push(self, run_id: str, output: LiveOutput | None) -> None:
        if output is not None:
            for reader in self._readers.get(run_id, ()):
                reader.push_output(output)
