"""The recorded answers of a model go through the code of today: what is the same comes out the same, to the byte, what
is different is named with its event, and nothing is executed."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from interlock import FailSafeConfig, Rule, tool
from interlock.agent.next_step import Budgets
from interlock.domain.errors import ConfigurationError
from interlock.domain.event import CallObserved, decode_event
from interlock.domain.messages import ProposedCall
from interlock.domain.rendering import render_for_model
from interlock.models.scripted import ScriptedTurn, tool_call
from interlock.replay.differences import Difference
from interlock.replay.model import ModelReplay, replay_model, replay_recording
from interlock.replay.tools import RecordedPolicy
from tests.replay.replayed import TURNS, Recorded, World, agent, policy, record


async def again(recorded: Recorded, **fields: Any) -> ModelReplay:
    return await replay_model(recorded.entries, agent(**fields), recorded.artifacts)


def told(replay: ModelReplay, kind: str) -> list[Difference]:
    return [difference for difference in replay.differences if difference.kind == kind]


def type_at(recorded: Recorded, seq: int) -> str:
    return decode_event(recorded.entries[seq]).type


@pytest.mark.requirement("R269")
async def test_a_run_comes_out_as_it_was_recorded_and_nothing_is_executed() -> None:
    recorded = await record(agent())
    world = World()

    replay = await again(recorded, tools=world.tools())

    assert replay.same, replay.words
    assert world.done == []
    assert replay.now.calls.keys() == replay.was.calls.keys()
    assert len(replay.was.calls) == 12


@pytest.mark.requirement("R269", "R274")
async def test_observations_come_out_to_the_byte_also_of_calls_that_failed() -> None:
    recorded = await record(agent())
    then = [decode_event(entry).fact for entry in recorded.entries]
    observed = {fact.observation.call_id: fact.observation for fact in then if isinstance(fact, CallObserved)}

    replay = await again(recorded)

    assert {call.observation.code for call in replay.now.calls.values() if call.observation} == {
        *("ok", "tool_failed", "schema_invalid", "unknown_tool", "arguments_malformed"),
        *("user_denied", "policy_denied", "runtime_precondition_failed", "tests_failed"),
    }
    for call_id, call in replay.now.calls.items():
        assert call.observation is not None
        assert render_for_model(call.observation) == render_for_model(observed[call_id])


@pytest.mark.requirement("R270")
async def test_a_refusal_in_validation_comes_out_of_the_schema_of_today() -> None:
    recorded = await record(agent(turns=(ScriptedTurn(calls=(tool_call("add", a="one"),)), ScriptedTurn(text="Done."))))

    @tool(name="add", risk="read")
    def add_words(a: str, b: int = 1) -> str:
        """Add two numbers."""
        return a * b

    replay = await again(recorded, tools=[add_words, *World().tools()[1:]])

    (found,) = told(replay, "validation")
    assert (found.call_id, found.now) == ("call_1", "valid")
    assert "input.a: Input should be a valid integer" in found.was
    assert type_at(recorded, found.seq) == "tool.validation"


async def test_another_decision_is_named_with_its_event_and_its_rules() -> None:
    recorded = await record(agent())

    replay = await again(recorded, policy=policy(Rule(id="no-mail", verdict="deny", tools="send", reason="No.")))

    found = told(replay, "decision")
    assert [(each.call_id, each.was, each.now) for each in found] == [
        ("call_7", "ask", "deny (no-mail)"),
        ("call_8", "ask", "deny (no-mail)"),
        ("call_9", "deny (no-root)", "deny (no-mail, no-root)"),
    ]
    assert {type_at(recorded, each.seq) for each in found} == {"tool.permission"}
    assert type_at(recorded, told(replay, "observation")[0].seq) == "tool.observation"


async def test_a_call_that_would_run_now_and_did_not_then_is_not_executed() -> None:
    recorded = await record(agent())
    world = World()

    replay = await again(recorded, tools=world.tools(), policy=None)

    assert ("call_9", "deny (no-root)", "ask") in [(d.call_id, d.was, d.now) for d in told(replay, "decision")]
    assert world.done == []


async def test_a_tool_that_is_gone_and_one_that_changed_are_seen_in_the_menu() -> None:
    recorded = await record(agent())

    @tool(risk="read")
    def add(a: int, b: int = 1, c: int = 0) -> int:
        """Add three numbers."""
        return a + b + c

    replay = await again(recorded, tools=[add, *World().tools()[2:]])

    (found,) = told(replay, "menu")
    assert (found.was, found.now) == ("7 tools", "broken is gone, add is declared differently")
    assert replay.differences[0] is found
    assert type_at(recorded, found.seq) == "model.request"


async def test_an_output_is_cut_anew_from_what_was_kept_of_it() -> None:
    recorded = await record(agent())
    tools = [msgspec.structs.replace(each, max_output_chars=400) for each in World().tools()]

    replay = await again(recorded, tools=tools)

    assert {found.call_id for found in told(replay, "observation")} == {"call_3"}


async def test_other_instructions_are_a_difference_in_what_the_model_sees() -> None:
    recorded = await record(agent())

    replay = await again(recorded, instructions="Be quick.")

    assert [found.was.split(" sha256:")[0] for found in replay.differences] == ["instructions"]


async def test_an_answer_that_would_be_taken_now_ends_the_run_earlier() -> None:
    recorded = await record(agent())

    replay = await again(recorded, check_claims=False)

    assert [found.kind for found in replay.differences] == ["verification", "request"]
    assert "All tests pass" in replay.differences[0].was
    assert replay.differences[1].now == "completed: Done. All tests pass."


async def test_a_budget_that_would_end_the_run_now_is_a_difference() -> None:
    recorded = await record(agent())

    replay = await again(recorded, budgets=Budgets(max_model_calls=2))

    assert replay.differences[-1].now == "failed: The run has used its budget of 2 requests to the model."


async def test_a_run_that_ended_by_a_budget_that_is_gone_would_ask_the_model_once_more() -> None:
    recorded = await record(agent(budgets=Budgets(max_model_calls=2)))

    assert (await again(recorded, budgets=Budgets(max_model_calls=2))).same
    assert (await again(recorded)).differences[-1].now == "the model is asked once more"


async def test_calls_that_were_cancelled_because_another_failed_are_cancelled_again() -> None:
    recorded = await record(agent(turns=TURNS[:1], fail_safe=FailSafeConfig(tool_failure_policy="degrade")))

    replay = await again(recorded, fail_safe=FailSafeConfig(tool_failure_policy="degrade"))

    assert replay.same, replay.words
    assert replay.now.end == "degraded"


async def test_without_an_agent_the_runtime_alone_is_tried_on_stubs() -> None:
    recorded = await record(agent())
    recording = (await again(recorded)).was

    replay = await replay_recording(recording)

    assert replay.same, replay.words
    assert replay.unchecked.keys() == {"call_4", "call_5", "call_6", "call_10"}


async def test_a_call_with_a_secret_in_its_arguments_is_not_compared_and_says_so() -> None:
    key = "sk-proj-abcdefghijklmnopqrstuvwxyz0123456789ABCD"
    turns = (ScriptedTurn(calls=(tool_call("send", to="bob", text=key),)), ScriptedTurn(text="Done."))
    recorded = await record(agent(turns=turns))

    replay = await again(recorded)

    assert replay.same, replay.words
    assert replay.unchecked == {"call_1": "its arguments were redacted or cut"}
    assert not any(key.encode() in entry.body for entry in recorded.entries)


async def test_long_arguments_come_back_from_where_they_are_kept() -> None:
    turns = (ScriptedTurn(calls=(tool_call("send", to="bob", text="x" * 9000),)), ScriptedTurn(text="Done."))
    recorded = await record(agent(turns=turns))

    assert (await again(recorded)).unchecked == {}
    assert "too large" in (await replay_model(recorded.entries, agent())).unchecked["call_1"]


async def test_a_call_that_came_again_and_an_id_that_was_taken_come_out_the_same() -> None:
    one = tool_call("add", a=1, call_id="one")
    turns = (
        ScriptedTurn(calls=(one, one)),
        ScriptedTurn(calls=(one, tool_call("add", a=2, call_id="one"))),
        ScriptedTurn(calls=(tool_call("add", a=3, call_id="one"),)),
        ScriptedTurn(text="Done."),
    )
    recorded = await record(agent(turns=turns))

    replay = await again(recorded)

    assert replay.same, replay.words
    assert [[call.call_id for call in answer.calls] for answer in replay.was.answers] == [["one"] * 2] * 2 + [
        ["one"],
        [],
    ]


async def test_a_call_without_a_usable_id_or_name_comes_out_the_same() -> None:
    turns = (
        ScriptedTurn(calls=(tool_call("", a=1, call_id="one"), tool_call("add", a=1, call_id="\n"))),
        ScriptedTurn(text="Done."),
    )
    recorded = await record(agent(turns=turns))

    assert (await again(recorded)).same


async def test_texts_that_are_made_differently_from_the_same_facts_are_a_difference() -> None:
    replay = await again(await record(agent()))
    told = msgspec.structs.replace(replay.was, conversation=("user 0", *replay.was.conversation[1:]))

    (found,) = (await replay_recording(told, agent())).differences

    assert (found.kind, found.was[:6]) == ("conversation", "user 0")


async def test_a_run_without_answers_of_a_model_is_refused_in_words() -> None:
    recorded = await record(agent())
    recording = (await again(recorded)).was

    with pytest.raises(ConfigurationError, match="has no answers of a model"):
        await replay_recording(msgspec.structs.replace(recording, answers=()))


async def test_a_decision_that_was_not_recorded_is_a_no() -> None:
    recorded = await record(agent())
    recording = (await again(recorded)).was

    replay = await replay_recording(recording, agent(policy=RecordedPolicy({})))

    assert {found.now for found in told(replay, "decision")} == {"deny"}


def called(name: str, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[ProposedCall]:
    return st.builds(tool_call, st.just(name), **arguments)


CALLS = st.one_of(
    called("add", a=st.integers(-5, 5), b=st.integers(-5, 5) | st.text()),
    called("broken", why=st.text()),
    called("send", to=st.sampled_from(["bob", "eve", "root"]) | st.text()),
    called("edit", path=st.sampled_from(["gone.py", "main.py"])),
    st.builds(tool_call, st.sampled_from(["add", "long", "run_tests", "x"]), raw=st.text()),
    st.sampled_from([tool_call("long"), tool_call("run_tests"), tool_call("add", a=1, call_id="same")]),
)
CALL_LISTS = st.lists(CALLS, max_size=4).map(tuple)


@pytest.mark.requirement("R269")
@given(st.lists(st.builds(ScriptedTurn, text=st.text(), calls=CALL_LISTS), max_size=6))
async def test_whatever_a_model_says_it_comes_out_the_same_and_executes_nothing(turns: list[ScriptedTurn]) -> None:
    recorded = await record(agent(turns=[*turns, ScriptedTurn(text="Done.")]))
    world = World()

    replay = await again(recorded, tools=world.tools())

    assert replay.same, replay.words
    assert world.done == []
