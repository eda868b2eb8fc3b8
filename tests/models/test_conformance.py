"""Every provider means the same: one suite for the scripted one, and for both adapters over HTTP.

The server is aimock, which others wrote after the providers' documents.
"""

from collections.abc import Iterator
from itertools import count
from typing import Any

import msgspec
import pytest

from interlock.domain.errors import ModelError
from interlock.domain.messages import AssistantMessage, ProposedCall, ToolMessage, Usage, UserMessage
from interlock.domain.tool import ToolSpec
from interlock.models.interface import ModelProvider, ModelRequest, StreamRestarted
from interlock.models.provider_factory import with_retries
from interlock.models.scripted import ScriptedFault, ScriptedModel, ScriptedTurn, tool_call
from tests.models.aimock.server import Aimock, running_aimock
from tests.models.wire import answer, calls_of, end_of, provider_at, text_of

KINDS = ("scripted", "openai", "anthropic")
READ = ToolSpec(
    name="read_file",
    description="Read a file.",
    parameters_schema={"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
)
USAGE = Usage(input_tokens=11, output_tokens=7)
_numbers = count()

TURNS = {
    "text": ScriptedTurn(text="It is a small file.", usage=USAGE),
    "one call": ScriptedTurn(calls=(tool_call("read_file", path="a.txt", call_id="call_a"),), usage=USAGE),
    "several calls": ScriptedTurn(
        calls=tuple(tool_call("read_file", path=f"{name}.txt", call_id=f"call_{name}") for name in "abc"), usage=USAGE
    ),
    "text and calls": ScriptedTurn(
        text="Let me look.", calls=(tool_call("read_file", path="a.txt", call_id="call_a"),), usage=USAGE
    ),
    "unicode": ScriptedTurn(
        text="Größe: 3 👩‍👩‍👧 \u2028 \x07 שלום",
        calls=(tool_call("read_file", path="naïve/👩‍👩‍👧 \u2028.txt", call_id="call_a"),),
        usage=USAGE,
    ),
}


@pytest.fixture(scope="module")
def aimock(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aimock]:
    with running_aimock(tmp_path_factory.mktemp("aimock")) as server:
        yield server


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


class Said:
    """A question that nobody asked before, and who answers it."""

    def __init__(self, kind: str, aimock: Aimock) -> None:
        self.kind = kind
        self.aimock = aimock
        self.word = f"question-{next(_numbers)}-{kind}."

    def request(self, *more: AssistantMessage | ToolMessage) -> ModelRequest:
        return ModelRequest(
            model="some-model", instructions="Be brief.", messages=(UserMessage(self.word), *more), tools=(READ,)
        )

    def answers(self, *turns: ScriptedTurn, **options: Any) -> ModelProvider:
        """Somebody who gives these answers in this order."""
        if self.kind == "scripted":
            return ScriptedModel(turns)
        for position, turn in enumerate(turns):
            match = {"userMessage": self.word, "sequenceIndex": position}
            self.aimock.teach({"match": match, **_fixture(turn), **options})
        return provider_at(self.kind, self.aimock.url)


def _fixture(turn: ScriptedTurn) -> dict[str, Any]:
    if turn.fault:
        error = {"error": {"message": turn.fault.message}, "status": 429, "retryAfter": turn.fault.retry_after_seconds}
        return {"response": error}
    counts = {"prompt_tokens": 11, "completion_tokens": 7, "input_tokens": 11, "output_tokens": 7}
    calls = [{"id": call.call_id, "name": call.tool, "arguments": call.arguments} for call in turn.calls]
    response = (
        {"usage": counts} | ({"content": turn.text} if turn.text else {}) | ({"toolCalls": calls} if calls else {})
    )
    return {"response": response, "chunkSize": 1}


@pytest.fixture
def said(kind: str, aimock: Aimock) -> Said:
    return Said(kind, aimock)


@pytest.mark.parametrize("name", TURNS)
async def test_an_answer_means_the_same_whoever_gives_it(said: Said, name: str) -> None:
    turn = TURNS[name]
    provider = said.answers(turn)

    events = await answer(provider, said.request())

    assert text_of(events) == turn.text
    assert calls_of(events) == list(turn.calls)
    assert end_of(events).reason == ("tool_calls" if turn.calls else "stop")
    assert end_of(events).usage == USAGE
    await provider.close()


async def test_what_tools_returned_is_told_in_the_next_turn_in_the_order_of_the_calls(said: Said) -> None:
    asked = TURNS["several calls"]
    provider = said.answers(asked, ScriptedTurn(text="Three files."))
    calls = calls_of(await answer(provider, said.request()))
    results = [ToolMessage(call.call_id, f"content of {call.call_id}") for call in reversed(calls)]

    events = await answer(provider, said.request(AssistantMessage(calls=tuple(calls)), *results))

    assert text_of(events) == "Three files."
    if said.kind != "scripted":
        (*_, request) = said.aimock.requests(said.word)
        told = [message for message in request["messages"] if message["role"] == "tool"]
        assert [(each["tool_call_id"], each["content"]) for each in told] == [
            (call.call_id, f"content of {call.call_id}") for call in calls
        ]
    await provider.close()


@pytest.mark.parametrize("broken", ["", "{", '{"path": ', "[1]", "\ud800"])
async def test_a_run_goes_on_after_a_broken_call(said: Said, broken: str) -> None:
    provider = said.answers(ScriptedTurn(text="I shall try again."))
    nonsense = AssistantMessage(calls=(ProposedCall(call_id="no id! \ud800", tool="", arguments=broken),))

    events = await answer(provider, said.request(nonsense, ToolMessage("invalid_1", "There is no such tool.")))

    assert text_of(events) == "I shall try again."
    await provider.close()


async def test_a_rate_limit_is_waited_for_and_the_answer_comes(said: Said) -> None:
    limited = ScriptedTurn(fault=ScriptedFault(message="Too many requests.", retryable=True, retry_after_seconds=3.0))
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    provider = with_retries(said.answers(limited, TURNS["text"]), sleep=sleep)

    events = await answer(provider, said.request())

    assert text_of(events) == TURNS["text"].text
    assert slept == [3.0]
    await provider.close()


@pytest.mark.parametrize(
    "fault",
    [
        {"truncateAfterChunks": 4, "latency": 20},
        {"chaos": {"malformedRate": 1.0}},
        {"chaos": {"disconnectRate": 1.0}},
        {"chaos": {"dropRate": 1.0}},
        {"chaos": {"rateLimitRate": 1.0}},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", ["openai", "anthropic"])
async def test_after_chaos_the_answer_is_asked_for_again_and_is_whole(said: Said, fault: dict[str, Any]) -> None:
    whole = TURNS["text and calls"]
    broken = said.answers(whole, **fault)
    said.aimock.teach({"match": {"userMessage": said.word, "sequenceIndex": 1}, **_fixture(whole)})

    async def sleep(seconds: float) -> None:
        pass

    provider = with_retries(broken, sleep=sleep)
    events = await answer(provider, said.request())

    restarts = [position for position, event in enumerate(events) if isinstance(event, StreamRestarted)]
    counted = events[restarts[-1] + 1 :] if restarts else events
    assert (text_of(counted), calls_of(counted)) == (whole.text, list(whole.calls))
    assert len(said.aimock.requests(said.word)) == 2
    await provider.close()


async def test_a_request_that_is_wrong_is_not_repeated(said: Said) -> None:
    if said.kind == "scripted":
        provider = said.answers(ScriptedTurn(fault=ScriptedFault(message="No such model.")))
    else:
        error = {"error": {"message": "No such model.", "type": "not_found_error"}, "status": 404}
        said.aimock.teach({"match": {"userMessage": said.word}, "response": error})
        provider = provider_at(said.kind, said.aimock.url)

    with pytest.raises(ModelError, match="No such model") as refused:
        await answer(with_retries(provider, sleep=_never), said.request())

    assert not refused.value.retryable
    await provider.close()


async def _never(seconds: float) -> None:
    raise AssertionError(f"nothing should wait, not even {seconds} s")


@pytest.mark.parametrize("kind", ["openai", "anthropic"])
@pytest.mark.parametrize("choice", ["auto", "none", "required", "read_file"])
async def test_the_tools_and_the_choice_of_one_reach_the_provider(said: Said, choice: str) -> None:
    provider = said.answers(TURNS["text"])

    await answer(provider, msgspec.structs.replace(said.request(), tool_choice=choice))

    (request,) = said.aimock.requests(said.word)
    assert [tool["function"]["name"] for tool in request["tools"]] == ["read_file"]
    await provider.close()
