"""What is kept of an answer has an end, also when the answer has none."""

from collections.abc import AsyncGenerator, Iterable

import pytest

from interlock.domain.errors import ModelError
from interlock.domain.messages import ProposedCall
from interlock.models.interface import (
    MAX_ANSWER_CHARS,
    ModelEvent,
    ModelRequest,
    StreamFinished,
    StreamRestarted,
    TextDelta,
    ToolCallDelta,
)
from interlock.models.response_assembly import MAX_RESPONSE_CALLS, MAX_TEXT_BYTES, StreamAccumulator
from interlock.models.scripted import ModelRecorder

from .wire import answer

CALL = ToolCallDelta(ProposedCall(call_id="a", tool="read", arguments="{}"))
LONG = "x" * (MAX_ANSWER_CHARS // 4)


class Endless:
    """A provider of one's own that does not know when to stop."""

    name = "endless"

    async def stream(self, request: ModelRequest) -> AsyncGenerator[ModelEvent, None]:
        while True:
            yield TextDelta(LONG)

    async def close(self) -> None: ...


def heard(events: Iterable[ModelEvent]) -> StreamAccumulator:
    made = StreamAccumulator()
    for event in events:
        made.add(event)
    return made


def test_text_and_calls_are_kept_up_to_the_limit() -> None:
    full = heard([TextDelta(LONG)] * 4 + [CALL] * MAX_RESPONSE_CALLS + [StreamFinished(reason="stop")])

    assert (len(full.text), len(full.calls)) == (MAX_ANSWER_CHARS, MAX_RESPONSE_CALLS)


@pytest.mark.parametrize("events", [[TextDelta(LONG)] * 4 + [TextDelta("x")], [CALL] * (MAX_RESPONSE_CALLS + 1)])
def test_more_than_that_is_refused_in_words(events: list[ModelEvent]) -> None:
    with pytest.raises(ModelError, match=r"in one answer\. Nothing was executed"):
        heard(events)


def test_what_was_said_before_a_restart_does_not_count() -> None:
    again = heard([TextDelta(LONG)] * 4 + [CALL, StreamRestarted("cut")] + [TextDelta(LONG)] * 4)

    assert (len(again.text), again.calls) == (MAX_ANSWER_CHARS, [])


async def test_an_answer_that_never_ends_is_left() -> None:
    recorder = ModelRecorder(Endless())

    with pytest.raises(ModelError, match=f"more than {MAX_ANSWER_CHARS} characters"):
        await answer(recorder)
    (turn,) = recorder.turns
    assert turn.fault is not None


def test_what_an_adapter_lets_through_the_loop_lets_through() -> None:
    assert MAX_TEXT_BYTES <= MAX_ANSWER_CHARS
