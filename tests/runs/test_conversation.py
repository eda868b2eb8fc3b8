"""What the model sees is what the log says, at every event, live and folded alike."""

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

import interlock.app
from interlock import CallbackInteractionProvider, MemoryArtifacts, MemoryLog, Question, tool
from interlock.domain.event import CallProposed, ModelRequested, ModelResponded, ToolsOffered
from interlock.domain.messages import AssistantMessage, ProposedCall, ToolMessage
from interlock.history.fold import fold_entries, load_run
from interlock.models.scripted import ScriptedTurn, tool_call
from interlock.pipeline.record import Recorder
from interlock.runs.runner import Runner
from tests.each import each

from .support import agent_of, asked_of, calls, facts, facts_of, in_words, messages, run_of


@tool(risk="read")
def look(what: str) -> str:
    """Look."""
    return f"saw {what}"


@tool(risk="read")
def fail(what: str) -> str:
    """Fail."""
    raise RuntimeError(f"no {what}")


@tool(risk="write")
def change(what: str) -> str:
    """A person is asked."""
    return f"changed {what}"


@tool(risk="read")
def measure(what: str) -> int:
    """Say how long it is."""
    return len(what)


TOOLS = [look, fail, change]


async def test_the_next_request_has_the_calls_and_their_outcomes_in_the_order_of_the_model() -> None:
    agent = agent_of(
        calls(("b", "look", {"what": "x"}), ("a", "fail", {"what": "y"}), text="Now."), "Done.", tools=TOOLS
    )

    result = await run_of(agent, "Look.")

    assert in_words(asked_of(agent)[1].messages) == ["user: Look.", "model: Now.['b', 'a']", "tool: b", "tool: a"]
    assert result.text == "Done."
    assert [record.tool_call_id for record in result.tool_executions] == ["b", "a"]


@pytest.mark.requirement("R253", "R255", "R256")
async def test_what_the_model_was_asked_can_be_told_from_the_log_alone() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()
    agent = agent_of(calls(("a", "look", {"what": "x"})), "Done.", tools=TOOLS, instructions="Be quick.")

    result = await run_of(agent, log=log, artifacts=artifacts)

    asked = await facts_of(ModelRequested, log, result.run_id)
    assert [fact.message_count for fact in asked] == [len(request.messages) for request in asked_of(agent)]
    assert artifacts.read(asked[0].instructions_artifact_id) == b"Be quick."
    assert not asked[1].instructions_artifact_id, "the same as before"
    (menu,) = await facts_of(ToolsOffered, log, result.run_id)
    assert {fact.menu_digest for fact in asked} == {menu.digest}
    assert (await messages(log, result.run_id))[:3] == list(asked_of(agent)[1].messages)


@pytest.mark.requirement("R254", "R260")
async def test_an_answer_comes_before_its_calls_and_they_before_what_they_came_to() -> None:
    log = MemoryLog()
    result = await run_of(agent_of(calls(("a", "look", {"what": "x"})), "Done.", tools=TOOLS), log=log)

    types = [str(fact.__struct_config__.tag) for fact in await facts(log, result.run_id)]
    assert types == [
        "run.started",
        "user.message",
        "model.menu",
        "model.request",
        "model.response",
        "tool.batch.started",
        "tool.intent",
        "tool.validation",
        "tool.permission",
        "tool.invocation.started",
        "tool.invocation.completed",
        "tool.observation",
        "model.request",
        "model.response",
        "run.completed",
    ]


async def test_long_arguments_come_back_whole_although_the_log_does_not_hold_them() -> None:
    log, artifacts, long = MemoryLog(), MemoryArtifacts(), "x" * 10_000
    agent = agent_of(calls(("a", "measure", {"what": long})), "Done.", tools=[measure])

    result = await run_of(agent, log=log, artifacts=artifacts)

    (said,) = [message for message in asked_of(agent)[1].messages if isinstance(message, AssistantMessage)]
    assert said.calls == (tool_call("measure", what=long, call_id="a"),)
    assert sum(len(entry.body) for entry in await log.read(result.run_id)) < 10_000


@pytest.mark.parametrize("private", ["seal", "seal" * 5_000])
async def test_what_a_provider_wants_back_with_its_answer_comes_back_as_it_was(private: str) -> None:
    log = MemoryLog()
    turn = msgspec.structs.replace(calls(("a", "look", {"what": "x"})), private=private)
    agent = agent_of(turn, "Done.", tools=TOOLS)

    await run_of(agent, log=log)

    assert [m.private for m in asked_of(agent)[1].messages if isinstance(m, AssistantMessage)] == [private]


async def test_secrets_are_in_no_message_and_no_event() -> None:
    secret, log = "hunter2-hunter2", MemoryLog()
    agent = agent_of(calls(("a", "look", {"what": secret}), text=f"I know {secret}."), f"It is {secret}.", tools=TOOLS)

    result = await run_of(agent, f"The password is {secret}.", log=log, secrets={"PASSWORD": secret})

    assert secret not in repr(asked_of(agent)) + repr(result)
    assert secret not in repr(await facts(log, result.run_id))


async def test_text_that_is_not_unicode_does_no_harm() -> None:
    agent = agent_of(
        ScriptedTurn(text="odd \ud800", calls=(tool_call("look", raw='{"what": "\ud800"}', call_id="a"),)),
        "fin \udfff",
        tools=TOOLS,
    )
    log = MemoryLog()

    result = await run_of(agent, "say \ud800", log=log)

    assert result.status == "COMPLETED"
    assert result.text.encode()
    assert asked_of(agent)[1].messages == tuple((await messages(log, result.run_id))[:3])


@each(
    ("call", "code"),
    [
        (tool_call("look", raw="{broken", call_id="a"), "arguments_malformed"),
        (tool_call("look", raw="[1, 2]", call_id="a"), "arguments_malformed"),
        (tool_call("look", what=7, call_id="a"), "schema_invalid"),
        (tool_call("nothing_like_it", call_id="a"), "unknown_tool"),
        (tool_call("look", what="x" * 300_000, call_id="a"), "arguments_too_large"),
        (ProposedCall(call_id="a" * 300, tool="look", arguments="{}"), "call_id_invalid"),
        (ProposedCall(call_id="a\n", tool="look", arguments="{}"), "call_id_invalid"),
        (ProposedCall(call_id="a", tool="\ud800", arguments="{}"), "call_id_invalid"),
        (ProposedCall(call_id="a", tool="", arguments="{}"), "call_id_invalid"),
    ],
)
async def test_a_call_that_cannot_be_made_is_refused_in_words_and_the_run_goes_on(
    call: ProposedCall, code: str
) -> None:
    agent = agent_of(ScriptedTurn(calls=(call, tool_call("look", what="x", call_id="b"))), "Done.", tools=TOOLS)

    result = await run_of(agent)

    assert [seen.code for seen in result.observations] == [code, "ok"]
    assert (result.status, result.text) == ("COMPLETED", "Done.")
    told = [message for message in asked_of(agent)[1].messages if isinstance(message, ToolMessage)]
    assert "Nothing was executed" in told[0].text


async def test_an_id_that_comes_again_is_answered_from_the_log() -> None:
    seen: list[str] = []

    @tool(risk="read")
    def count(what: str) -> str:
        """Count."""
        seen.append(what)
        return f"{what} counted"

    once, twice = ("a", "count", {"what": "x"}), ("a", "count", {"what": "y"})
    agent = agent_of(calls(once, once), calls(once), calls(twice), "Done.", tools=[count])

    result = await run_of(agent)

    assert seen == ["x"]
    assert [observation.code for observation in result.observations] == ["ok", "call_id_conflict"]
    told = [message.text for message in asked_of(agent)[3].messages if isinstance(message, ToolMessage)]
    assert told[0] == told[1]
    assert "stands for different calls" in told[2]


async def approve_every_second(question: Question) -> bool:
    return question.call_id.endswith(("0", "2", "4"))


CALLS = st.builds(
    tool_call,
    st.sampled_from(["look", "fail", "change", "unknown"]),
    raw=st.sampled_from(['{"what":"x"}', f'{{"what":"{"y" * 5000}"}}', '{"what":7}', "{", "", "[]"]),
    call_id=st.sampled_from([f"c{number}" for number in range(5)]),
)
TURNS = st.lists(
    st.builds(
        ScriptedTurn, text=st.sampled_from(["", "Hm."]), calls=st.lists(CALLS, min_size=1, max_size=4).map(tuple)
    ),
    max_size=4,
)


@contextmanager
def watched(seen: dict[int, bytes]) -> Generator[None]:
    """The conversation as it is live after every event."""
    add = Recorder.add

    def noted(self: Recorder, *fact: Any, **about: Any) -> int:
        seq = add(self, *fact, **about)
        seen[seq] = msgspec.json.encode(self.ledger.dialogue)
        return seq

    with mock.patch.object(Recorder, "add", noted):
        yield


@pytest.mark.requirement("R255", "R256")
@given(TURNS)
async def test_the_conversation_folded_from_the_log_is_the_live_one_at_every_event(turns: list[ScriptedTurn]) -> None:
    log, live, agent = MemoryLog(), dict[int, bytes](), agent_of(*turns, "Done.", tools=TOOLS)
    with watched(live), mock.patch.object(interlock.app, "_SNAPSHOT_EVENTS", 7):
        async with Runner(agent, log=log, interaction=CallbackInteractionProvider(approve_every_second)) as runner:
            result = await runner.run("Do it.")

    entries = await log.read(result.run_id)
    ledger = fold_entries(result.run_id, [])
    assert live.keys() == {entry.seq for entry in entries}
    for entry in entries:
        ledger = fold_entries(result.run_id, entries[: entry.seq + 1])
        assert msgspec.json.encode(ledger.dialogue) == live[entry.seq]
    assert (await load_run(log, result.run_id)).ledger == ledger, "the same from a snapshot"
    assert asked_of(agent)[-1].messages == tuple(_whole(ledger.dialogue.messages[:-1], turns))
    answers = [fact for fact in await facts(log, result.run_id) if isinstance(fact, ModelResponded)]
    intents = [fact for fact in await facts(log, result.run_id) if isinstance(fact, CallProposed)]
    assert sum(fact.call_count for fact in answers) == len(intents), "every call of every answer is in the log"


def _whole(said: list[Any], turns: list[ScriptedTurn]) -> list[Any]:
    """With long arguments as the model wrote them."""
    written = {call.call_id: call.arguments for turn in reversed(turns) for call in reversed(turn.calls)}
    whole: list[Any] = []
    for message in said:
        if isinstance(message, AssistantMessage):
            named = [
                msgspec.structs.replace(call, arguments=written[call.call_id], artifact_id="")
                if call.artifact_id
                else call
                for call in message.calls
            ]
            message = msgspec.structs.replace(message, calls=tuple(named))  # noqa: PLW2901 - the same message, whole
        whole.append(message)
    return whole
