"""What people said in a run comes from the record: answers, values, edits, and what they say in a conversation."""

import asyncio
from typing import Any

import msgspec
import pytest

from interlock import MemoryLog, Rule, RulePolicy, tool
from interlock.agent.agent import Agent
from interlock.domain.call import Answer, Question
from interlock.domain.decision import FailSafeConfig
from interlock.models.scripted import ScriptedFault, ScriptedModel, ScriptedTurn, tool_call
from interlock.replay.model import replay_model
from interlock.runs.runner import Runner
from interlock.storage.memory_artifacts import MemoryArtifacts
from tests.replay.replayed import Recorded, World, agent, record

SENDS = (
    ScriptedTurn(calls=(tool_call("send", to="bob"),)),
    ScriptedTurn(calls=(tool_call("send", to="bob"),)),
    ScriptedTurn(text="Done."),
)


class Once:
    """Implements `InteractionProvider`: this answer to the first question, and to every other one that none is left."""

    approval_timeout_s: float | None = None
    approval_fallback: Any = "wait"
    interactive = True

    def __init__(self, **answer: Any) -> None:
        self.answer = Answer(**answer)
        self.asked: list[Question] = []

    async def ask(self, question: Question) -> Answer | None:
        self.asked.append(question)
        return self.answer if len(self.asked) == 1 else None


async def test_a_yes_for_the_run_covers_the_same_calls_again() -> None:
    people = Once(approved=True, by="ann", scope="run")
    recorded = await record(agent(turns=SENDS), interaction=people)
    world = World()

    replay = await replay_model(recorded.entries, agent(tools=world.tools()), recorded.artifacts)

    assert len(people.asked) == 1
    assert replay.same, replay.words
    assert replay.now.outcomes == {"call_1": "ok", "call_2": "ok"}
    assert world.done == []


async def test_what_ran_with_the_arguments_of_a_person_is_told_as_it_was() -> None:
    people = Once(approved=True, by="ann", arguments={"to": "carl", "text": "hello"})
    recorded = await record(agent(turns=(SENDS[0], SENDS[2])), interaction=people)

    replay = await replay_model(recorded.entries, agent(), recorded.artifacts)

    assert replay.same, replay.words
    (call,) = replay.now.calls.values()
    assert call.observation is not None
    assert call.observation.summary.startswith("A person (ann) changed the arguments")


async def test_a_value_that_a_person_gave_is_given_again() -> None:
    wants = RulePolicy([Rule(id="who", verdict="request_input", tools="send", target_arg="to", reason="To whom?")])
    people = Once(approved=True, by="ann", value="carl")
    recorded = await record(agent(turns=(SENDS[0], SENDS[2]), policy=wants), interaction=people)

    replay = await replay_model(recorded.entries, agent(policy=wants), recorded.artifacts)

    assert replay.same, replay.words
    assert replay.now.decisions == {"call_1": "request_input"}
    assert replay.now.outcomes == {"call_1": "ok"}


class Away(Once):
    """Nobody comes."""

    approval_timeout_s = 0.001
    approval_fallback = "deny"

    async def ask(self, question: Question) -> Answer | None:
        await asyncio.Event().wait()


async def test_a_question_that_nobody_answered_in_time_is_not_answered_again() -> None:
    recorded = await record(agent(turns=(SENDS[0], SENDS[2])), interaction=Away(approved=True))

    replay = await replay_model(recorded.entries, agent(), recorded.artifacts)

    assert replay.same, replay.words
    assert replay.now.outcomes == {"call_1": "approval_expired"}


async def test_a_run_that_still_waits_waits_again() -> None:
    recorded = await record(agent(turns=SENDS), interaction=Once(approved=True, by="ann"))

    replay = await replay_model(recorded.entries, agent(), recorded.artifacts)

    assert replay.same, replay.words
    assert (replay.was.end, replay.now.end) == ("open", "open")
    assert replay.now.outcomes == {"call_1": "ok"}


@pytest.mark.requirement("R269")
async def test_a_conversation_goes_on_with_what_the_person_said() -> None:
    turns = (ScriptedTurn(text="Hello."), SENDS[0], ScriptedTurn(text="Sent."), ScriptedTurn(text="You are welcome."))
    log, artifacts = MemoryLog(), MemoryArtifacts()
    async with Runner(agent(turns=turns), log=log, artifacts=artifacts, chat=True) as runner:
        handle = await runner.start("Hi.")
        await handle.result()
        await handle.send_message("Write to bob.")
        (question,) = (await handle.result()).questions
        await handle.decide(question.action_id, approved=True, by="ann")
        await handle.resume()
        await handle.result()
        await handle.send_message("Thank you.")
        await handle.result()
        entries = await log.read(handle.run_id)

    replay = await replay_model(entries, agent(), artifacts)

    assert replay.was.chat
    assert replay.same, replay.words
    assert replay.now.text == "You are welcome."
    assert replay.now.conversation == replay.was.conversation
    assert len(replay.now.conversation) == 8


async def test_a_run_that_was_handed_to_another_agent_is_handed_over_again() -> None:
    @tool(risk="read")
    def look() -> str:
        """Look."""
        return "seen"

    def first() -> Agent:
        turns = (
            ScriptedTurn(calls=(tool_call("handoff_to_second", reason="yours"),)),
            ScriptedTurn(calls=(tool_call("look"),)),
            ScriptedTurn(text="Done."),
        )
        model = ScriptedModel(turns, by_position=True)
        second = Agent(provider=model, name="second", instructions="Be second.", tools=[look])
        return Agent(provider=model, name="first", handoffs=(second,))

    recorded = await record(first())

    replay = await replay_model(recorded.entries, first(), recorded.artifacts)

    assert replay.same, replay.words
    assert [answer.request.agent for answer in replay.now.answers] == ["first", "second", "second"]


async def test_a_model_that_failed_fails_again() -> None:
    turns = (SENDS[0], ScriptedTurn(fault=ScriptedFault(message="out of order")))
    recorded = await record(agent(turns=turns))

    replay = await replay_model(recorded.entries, agent(), recorded.artifacts)

    assert replay.same, replay.words
    assert replay.now.message == "The model gave no answer: out of order"


async def test_a_run_that_was_kept_when_its_model_failed_goes_on_where_it_went_on() -> None:
    keep = FailSafeConfig(model_failure_policy="keep")
    log, artifacts = MemoryLog(), MemoryArtifacts()
    down = agent(turns=(ScriptedTurn(fault=ScriptedFault(message="down")),), fail_safe=keep)
    async with Runner(down, log=log, artifacts=artifacts) as runner:
        handle = await runner.start("Hi.")
        with pytest.raises(Exception, match="down"):
            await handle.result()
    async with Runner(
        agent(turns=(ScriptedTurn(text="Hello."),), fail_safe=keep), log=log, artifacts=artifacts
    ) as runner:
        await (await runner.open(handle.run_id)).result()
    recorded = Recorded(handle.run_id, await log.read(handle.run_id), artifacts)

    replay = await replay_model(recorded.entries, agent(fail_safe=keep), artifacts)

    assert replay.same, replay.words
    assert [bool(answer.failed) for answer in replay.now.answers] == [True, False]


async def test_a_tool_that_would_raise_now_does_not_stop_the_replay() -> None:
    turns = (ScriptedTurn(calls=(tool_call("broken", why="no"),)), ScriptedTurn(text="Done."))
    recorded = await record(agent(turns=turns))
    tools = [msgspec.structs.replace(each, raise_on_error=True) for each in World().tools()]

    replay = await replay_model(recorded.entries, agent(tools=tools), recorded.artifacts)

    assert replay.same, replay.words
    assert replay.now.end == "completed"


async def test_an_agent_inside_a_call_is_not_asked_again() -> None:
    def outer() -> Agent:
        inside = agent(turns=(ScriptedTurn(text="inner answer"),), name="inner")
        turns = (ScriptedTurn(calls=(tool_call("ask_inner", task="think"),)), ScriptedTurn(text="Done."))
        return agent(turns=turns, tools=[inside.as_tool()], policy=None)

    recorded = await record(outer())

    replay = await replay_model(recorded.entries, outer(), recorded.artifacts)

    assert replay.same, replay.words
    assert replay.now.outcomes == {"call_1": "ok"}
