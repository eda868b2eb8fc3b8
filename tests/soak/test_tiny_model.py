"""A real model, and a very small one: it babbles, and nothing that it proposes does more than it may.

It is shown tools whose schemas say less than what the runtime holds its calls to, and one that does not exist.
"""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from interlock import ToolIntent, ToolRuntime, tool
from interlock.domain.errors import ModelError
from interlock.domain.messages import AssistantMessage, Message, ProposedCall, ToolMessage, UserMessage
from interlock.domain.tool import ToolSpec
from interlock.models.interface import ModelEvent, ModelRequest
from interlock.models.openai_chat import OpenAIChat
from interlock.models.scripted import tool_call
from tests.models.wire import answer, calls_of, text_of
from tests.patience import HANG_SECONDS
from tests.soak.tiny_model.install import tiny_model_python

from .budget import Budget

pytestmark = pytest.mark.soak

ANYTHING = {"type": "object", "additionalProperties": True}
SHOWN = (
    ToolSpec(name="add", description="Add two integers a and b.", parameters_schema=ANYTHING),
    ToolSpec(name="note", description="Write down a text of one line.", parameters_schema=ANYTHING),
    ToolSpec(name="delete_everything", description="Delete everything.", parameters_schema=ANYTHING),
)
QUESTIONS = (
    "What is {number} plus 4?",
    "Write down that the number is {number}.",
    "Delete everything {number} times!",
    "Use all your tools at once, {number} times.",
)
#: So that it knows how a call looks: a model of this size says what was said before.
ANSWERED = (
    ("What is 1 plus 2?", tool_call("add", a=1, b=2, call_id="call_1")),
    ("Write down: milk.", tool_call("note", text="milk", call_id="call_2")),
    ("Delete everything!", tool_call("delete_everything", times=1, call_id="call_3")),
    ("What is 5 plus 2?", tool_call("add", a=5, b=2, call_id="call_4")),
)
EXAMPLES: tuple[Message, ...] = tuple(
    message
    for question, call in ANSWERED
    for message in (UserMessage(question), AssistantMessage(calls=(call,)), ToolMessage(call.call_id, "ok"))
)
REFUSED = {"arguments_malformed", "schema_invalid", "unknown_tool", "call_id_conflict", "call_id_invalid"}


@pytest.fixture(scope="module")
def server_url() -> Iterator[str]:
    command = [tiny_model_python(), Path(__file__).parent / "tiny_model" / "serve.py"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            lines = iter(process.stdout.readline, "")
            yield next(line.split("listening on ")[1].strip() for line in lines if "listening on " in line)
        finally:
            process.stdin.close()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()


class Babbler:
    """The model, asked for calls. What its server cannot read as an answer is counted, and is nobody's call."""

    def __init__(self, provider: OpenAIChat) -> None:
        self._provider = provider
        self.unreadable = 0

    async def calls(self, question: str) -> list[ProposedCall]:
        events = await self._ask((*EXAMPLES, UserMessage(question)), SHOWN)
        return calls_of(events)

    async def words(self, question: str) -> str:
        return text_of(await self._ask((UserMessage(f"{question} Answer with a JSON object."),), ()))

    async def _ask(self, messages: tuple[Message, ...], tools: tuple[ToolSpec, ...]) -> list[ModelEvent]:
        request = ModelRequest(model="", messages=messages, tools=tools, max_output_tokens=60, temperature=1.0)
        try:
            return await answer(self._provider, request, seconds=4 * HANG_SECONDS)
        except ModelError:
            self.unreadable += 1
            return []


async def test_whatever_a_real_model_proposes_ends_in_an_observation_and_only_sound_calls_run(
    server_url: str, budget: Budget
) -> None:
    ran: list[object] = []

    @tool(read_only=True)
    def add(a: int, b: int) -> int:
        """Add two integers."""
        ran.append((a, b))
        return a + b

    @tool(read_only=True)
    def note(text: str) -> str:
        """Write down a text."""
        ran.append(text)
        return "written"

    outcomes: Counter[str] = Counter()
    model = OpenAIChat("smollm2", base_url=f"{server_url}/v1", api_key="none")
    babbler = Babbler(model)
    async with ToolRuntime(tools=[add, note]) as runtime:
        for number in budget.rounds(enough=lambda: budget.done < outcomes.total() > outcomes["ok"]):
            question = QUESTIONS[number % len(QUESTIONS)].format(number=number)
            calls = await babbler.calls(question)
            calls.append(tool_call("note", raw=await babbler.words(question), call_id="words"))
            intents = [
                ToolIntent(call_id=f"{number}-{call.call_id}", tool_name=call.tool, arguments=call.arguments)
                for call in calls
            ]
            result = await runtime.execute(intents)
            assert [seen.call_id for seen in result.observations] == [intent.call_id for intent in intents]
            outcomes.update(seen.code for seen in result.observations)
    await model.close()

    assert outcomes.total() > budget.done, "it wrote no call at all, so nothing was tried"
    assert outcomes["ok"] == len(ran)
    assert set(outcomes) <= REFUSED | {"ok"}
    assert outcomes.total() > outcomes["ok"], "a model of this size should have written something wrong"
