"""Runs from the outside: what is told while they go and when they end, and who may start what."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    MemoryArtifacts,
    MemoryLog,
    Question,
    Rule,
    RulePolicy,
    tool,
)
from interlock.domain.decision import FailSafeConfig
from interlock.domain.errors import (
    AnswerRefusedError,
    ConfigurationError,
    DecisionConflictError,
    RunEndedError,
    ToolExecutionError,
)
from interlock.domain.event import RunPaused, RunResumed
from interlock.history.run_view import to_run_events
from interlock.models.scripted import ScriptedTurn
from interlock.runs.runner import Runner
from interlock.storage.event_log import QueuedCommand
from interlock.tools.skills.skill_tools import skills
from tests.logs import open_log
from tests.patience import HANG_SECONDS
from tests.tools.skill_runs import write_skill

from .support import agent_of, asked_in, asked_of, calls, facts_of, run_of, start


@tool(risk="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(risk="read")
def fail() -> str:
    """Fail."""
    raise RuntimeError("broken")


@tool(risk="write")
def change() -> str:
    """A person is asked."""
    return "changed"


async def yes(question: Question) -> bool:
    return True


@pytest.mark.requirement("R124", "R127", "R138")
async def test_a_run_has_an_id_of_its_own_begins_as_running_and_is_completed_in_the_end() -> None:
    release = asyncio.Event()

    @tool(risk="read")
    async def wait() -> str:
        """Wait."""
        await release.wait()
        return "waited"

    runner, handle = await start(agent_of(calls(("a", "wait", {})), "Done.", tools=[wait]))
    _, other = await start(agent_of("Done."))
    assert (await handle.state()).value == "running"
    assert handle.run_id != other.run_id

    release.set()
    result = await handle.result()
    await other.result()

    assert (result.run_id, result.status, result.text) == (handle.run_id, "COMPLETED", "Done.")
    await runner.close()


@pytest.mark.requirement("R129", "R131", "R137")
async def test_a_run_that_needs_approval_is_paused_until_it_is_answered() -> None:
    log = MemoryLog()
    runner, handle = await start(agent_of(calls(("a", "change", {})), "Done.", tools=[change]), log)
    assert (await handle.result()).status == "PAUSED_APPROVAL"
    await handle.resume()
    paused = await handle.result()
    assert paused.status == "PAUSED_APPROVAL"

    await handle.decide(paused.questions[0].action_id, approved=True)
    assert (await handle.result()).status == "RUNNING"
    with pytest.raises(DecisionConflictError):
        await handle.decide(paused.questions[0].action_id, approved=False)
    await handle.resume()

    assert (await handle.result()).status == "COMPLETED"
    assert (
        len(await facts_of(RunPaused, log, handle.run_id)) == len(await facts_of(RunResumed, log, handle.run_id)) == 1
    )
    await runner.close()


@pytest.mark.requirement("D05", "R133")
async def test_a_rejection_can_fail_the_run() -> None:
    agent = agent_of(
        calls(("a", "change", {})), tools=[change], fail_safe=FailSafeConfig(approval_denial_policy="fail")
    )
    runner, handle = await start(agent)
    waiting = await handle.result()

    await handle.decide(waiting.questions[0].action_id, approved=False)
    await handle.resume()

    assert (await handle.result()).status == "FAILED"
    await runner.close()


@pytest.mark.requirement("D05")
async def test_a_run_that_degraded_is_completed_and_says_why() -> None:
    fail_safe = FailSafeConfig(tool_failure_policy="degrade")

    result = await run_of(agent_of(calls(("a", "fail", {})), "Done.", tools=[fail], fail_safe=fail_safe))

    assert (result.status, result.degraded) == ("COMPLETED", True)
    assert "fail did not succeed" in result.message


@pytest.mark.requirement("D01", "R139", "R140", "R141")
async def test_the_log_has_one_vocabulary_and_two_views_of_it() -> None:
    log = MemoryLog()
    runner, handle = await start(agent_of(calls(("a", "change", {})), "Done.", tools=[change]), log)
    await handle.result()
    await handle.decide((await handle.questions())[0].action_id, approved=True)
    await handle.resume()
    await handle.result()

    types = [event.type async for event in handle.log_events()]
    shown = [event.type async for event in handle.events()]
    kinds = [seen.type async for event in handle.log_events() for seen in to_run_events(event)]

    assert types[:5] == ["run.started", "user.message", "model.menu", "model.request", "model.response"]
    assert shown == ["tool_batch_started", "policy_decision", "run_paused", "run_resumed", "tool_completed"]
    assert kinds == ["LLM_CALL", "APPROVAL_REQUIRED", "APPROVAL_GRANTED", "TOOL_CALL", "LLM_CALL", "COMPLETED"]
    await runner.close()


async def test_events_come_as_they_happen_until_the_run_waits() -> None:
    runner, handle = await start(agent_of(calls(("a", "change", {})), "Done.", tools=[change]))

    first = [event.seq async for event in handle.log_events()]
    waiting = await handle.result()
    await handle.decide(waiting.questions[0].action_id, approved=True)
    await handle.resume()
    rest = [event.seq async for event in handle.log_events(after_seq=first[-1])]

    assert first + rest == list(range(rest[-1] + 1))
    await runner.close()


@pytest.mark.requirement("R098")
async def test_calls_are_told_in_the_order_of_the_model_however_they_end() -> None:
    second_is_done = asyncio.Event()

    @tool(risk="read")
    async def first() -> str:
        """End last."""
        await second_is_done.wait()
        return "first"

    @tool(risk="read")
    async def second() -> str:
        """End first."""
        second_is_done.set()
        return "second"

    log = MemoryLog()
    runner, handle = await start(
        agent_of(calls(("a", "first", {}), ("b", "second", {})), "Done.", tools=[first, second]), log
    )
    here = await handle.result()
    await runner.close()
    async with Runner(agent_of("x"), log=log) as other:
        elsewhere = await (await other.open(handle.run_id)).result()

    assert [seen.call_id for seen in here.observations] == ["a", "b"]
    assert here == elsewhere, "another process sees the same"


@pytest.mark.requirement("R274")
async def test_a_tool_that_fails_is_an_observation_and_one_that_raises_leaves_the_run_as_it_is() -> None:
    @tool(risk="read", raise_on_error=True)
    def burst() -> str:
        """Raise."""
        raise RuntimeError("broken")

    assert (await run_of(agent_of(calls(("a", "fail", {})), "Done.", tools=[fail]))).text == "Done."

    runner, handle = await start(agent_of(calls(("a", "burst", {})), "Done.", tools=[burst]))
    with pytest.raises(ToolExecutionError):
        await handle.result()
    await handle.resume()
    assert (await handle.result()).text == "Done."
    await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_finished_goes_on_with_whatever_people_answer_from_wherever(tmp_path: Path) -> None:
    agent = agent_of(calls(("a", "change", {})), calls(("b", "change", {})), "Done.", tools=[change])
    async with open_log(tmp_path / "log") as log, open_log(tmp_path / "log") as elsewhere:
        runner, handle = await start(agent, log)
        finished = asyncio.create_task(handle.wait_until_finished())
        async with Runner(agent_of("x", tools=[change]), log=elsewhere, artifacts=MemoryArtifacts()) as other:
            answered: set[str] = set()
            while len(answered) < 2:
                question = await asked_in(handle.run_id, other.inbox)
                if question.action_id not in answered:  # an answer that was left is still on its way
                    answered.add(question.action_id)
                    await other.inbox.deliver(handle.run_id, question.action_id, Answer(approved=True))

            result = await finished

        assert (result.status, result.text) == ("COMPLETED", "Done.")
        await runner.close()


async def test_a_question_that_expires_does_not_hold_the_run_for_ever() -> None:
    soon = RulePolicy([Rule(id="soon", verdict="ask", tools="change", answer_within_seconds=0.05)])
    runner, handle = await start(agent_of(calls(("a", "change", {})), "Done.", tools=[change], policy=soon))

    result = await asyncio.wait_for(handle.wait_until_finished(), HANG_SECONDS)

    assert (result.status, [seen.code for seen in result.observations]) == ("COMPLETED", ["approval_expired"])
    await runner.close()


@pytest.mark.usefixtures("log_backend")
async def test_a_note_that_cannot_be_read_is_taken_away_with_a_warning(tmp_path: Path) -> None:
    async with open_log(tmp_path / "log") as log:
        runner, handle = await start(agent_of(calls(("a", "change", {})), "Done.", tools=[change]), log)
        waiting = await handle.result()
        await log.enqueue(handle.run_id, QueuedCommand("strange", b"\xff{"))

        await handle.decide(waiting.questions[0].action_id, approved=True)
        await handle.resume()

        assert (await handle.result()).text == "Done."
        assert not await log.queued_commands(handle.run_id)
        await runner.close()


async def test_answers_given_here_are_free_of_secrets_too() -> None:
    log, secret = MemoryLog(), "hunter2-hunter2"
    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change])
    runner, handle = await start(agent, log, secrets={"PASSWORD": secret})
    waiting = await handle.result()

    await handle.decide(waiting.questions[0].action_id, approved=False, reason=f"It is {secret}.")

    assert secret.encode() not in b"".join(entry.body for entry in await log.read(handle.run_id))
    await runner.close()


async def test_what_is_edited_is_checked_against_the_tool_when_it_is_answered() -> None:
    @tool(risk="write")
    def move(steps: int) -> str:
        """Move."""
        return f"moved {steps}"

    runner, handle = await start(agent_of(calls(("a", "move", {"steps": 1})), "Done.", tools=[move]))
    waiting = await handle.result()
    with pytest.raises(AnswerRefusedError, match="stays open"):
        await handle.decide(waiting.questions[0].action_id, approved=True, arguments={"steps": "many"})

    await handle.decide(waiting.questions[0].action_id, approved=True, arguments={"steps": 3}, by="ann")
    await handle.resume()

    content = (await handle.result()).observations[0].content
    assert content is not None
    assert content.text == "moved 3"
    await runner.close()


def test_a_run_needs_no_event_loop() -> None:
    with Runner(agent_of(calls(("a", "look", {})), "Done.", tools=[look])) as runner:
        assert runner.run_sync("Do it.").text == "Done."
        assert runner.run_sync("Again.").text == "Done."


async def test_a_run_without_a_task_ends_in_words() -> None:
    result = await run_of(agent_of("Done."), "")

    assert (result.status, result.message) == ("FAILED", "The run has no message to act on.")


async def test_a_run_that_is_over_cannot_be_talked_to() -> None:
    runner, handle = await start(agent_of("Done."))
    await handle.result()

    with pytest.raises(RunEndedError, match="Nothing was started"):
        await handle.send_message("More.")
    await runner.close()


async def test_what_cannot_work_is_refused_before_anything_starts() -> None:
    async with Runner(agent_of("Done.")) as runner:
        with pytest.raises(ConfigurationError, match="There is no run 'nowhere'"):
            await runner.open("nowhere")
    with pytest.raises(ConfigurationError, match="Unknown option `wrong`"):
        Runner(agent_of("Done."), wrong=1)  # type: ignore[call-arg]
    with pytest.raises(ConfigurationError, match="Unknown mode `wild`"):
        await run_of(agent_of("Done."), mode="wild")


async def test_a_person_who_is_there_is_asked_at_once() -> None:
    agent = agent_of(calls(("a", "change", {})), "Done.", tools=[change])

    result = await run_of(agent, interaction=CallbackInteractionProvider(yes))

    assert (result.status, [seen.code for seen in result.observations]) == ("COMPLETED", ["ok"])
    assert len(asked_of(agent)) == 2


async def test_an_answer_that_was_cut_is_asked_for_again() -> None:
    agent = agent_of(ScriptedTurn(text="It is", reason="length"), "It is done.")

    result = await run_of(agent)

    assert (result.status, result.text, len(asked_of(agent))) == ("COMPLETED", "It is done.", 2)


@pytest.mark.parametrize("run_id", ["\x1b[2J", "a\nb", "\ud800", "x" * 129, "\u202e", "\0"])
async def test_a_run_id_that_cannot_be_shown_is_refused_and_nothing_is_started(run_id: str) -> None:
    log, agent = MemoryLog(), agent_of("Done.")
    async with Runner(agent, log=log) as runner:
        with pytest.raises(ConfigurationError, match=r"cannot be the id of a run.*Nothing was started"):
            await runner.start("Do it.", run_id=run_id)

    assert (await log.run_ids(), await log.lease_holders(), asked_of(agent)) == ([], {}, [])


@pytest.mark.requirement("R046", "R189")
async def test_an_agent_starts_with_tools_of_every_origin(tmp_path: Path) -> None:
    """One registry has them: the model is offered each, each is called, and each says where it is from."""
    write_skill(tmp_path, "notes")
    found = tool(look.handler, name="find", origin="mcp", source="web", risk="read")
    deploy = tool(look.handler, name="deploy", origin="extension", source="ops", risk="read")
    tools = [look, found, deploy, *skills(tmp_path)]
    origins = {"look": "local", "find": "mcp", "deploy": "extension", "skill_notes": "skill"}
    proposed: list[tuple[str, str, dict[str, Any]]] = [(name, name, {}) for name in origins]
    agent = agent_of(calls(*proposed), "Done.", tools=tools)

    async with Runner(agent) as runner:
        result = await runner.run("Do it.")
        registry = runner.app.registry
        assert registry.names() == tuple(sorted([*origins, "read_artifact"]))
        assert {name: registry.origin(name) for name in origins} == origins

    assert {spec.name for spec in asked_of(agent)[0].tools} == {*origins, "read_artifact"}
    assert [(seen.tool, seen.code) for seen in result.observations] == [(name, "ok") for name in origins]
