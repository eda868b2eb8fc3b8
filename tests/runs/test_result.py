"""What a person sees of a result first, and what it holds when the agent asks for something else now."""

import pytest

from interlock import (
    AgentExecutionError,
    FailSafeConfig,
    MemoryArtifacts,
    MemoryLog,
    Rule,
    RulePolicy,
    Runner,
    tool,
)
from interlock.agent.agent import Agent
from interlock.domain.event import RunFailed

from .support import agent_of, calls, facts, run_of
from .test_stopping import change


async def test_a_result_is_shown_in_a_line_that_says_how_it_went() -> None:
    async with Runner(agent_of("Done. " * 100)) as runner:
        handle = await runner.start("Do it.", run_id="run_1")
        shown = repr(await handle.result())

    assert (
        shown
        == f"AgentResult(run_id='run_1', status='COMPLETED', text='{'Done. ' * 16}Done [... 500 more characters]')"
    )


async def test_a_result_of_a_run_that_waits_shows_what_is_asked() -> None:
    result = await run_of(agent_of(calls(("a", "change", {})), tools=[change]))

    assert repr(result).endswith(
        "status='PAUSED_APPROVAL', questions=['Run change? No rule matches, and its risk is write.'])"
    )


async def test_a_typed_answer_is_shown_and_a_long_one_is_not_shown_in_parts() -> None:
    short, long = "[1, 2]", str(list(range(1000)))

    assert "output=[1, 2]" in repr(await run_of(agent_of(short, output_type=list[int])))
    assert "output=a list of 4,890 characters" in repr(await run_of(agent_of(long, output_type=list[int])))


async def test_an_answer_that_was_final_for_another_type_is_still_there_as_text() -> None:
    log, artifacts = MemoryLog(), MemoryArtifacts()

    async def opened(agent: Agent, run_id: str) -> object:
        async with Runner(agent, log=log, artifacts=artifacts) as runner:
            result = await (await runner.open(run_id)).result()
            return result.text, result.output

    run_id = (await run_of(agent_of("[1, 2]", output_type=list[int]), log=log, artifacts=artifacts)).run_id

    assert await opened(agent_of(output_type=list[int]), run_id) == ("[1, 2]", [1, 2])
    assert await opened(agent_of(output_type=dict[str, int]), run_id) == ("[1, 2]", None)


async def test_a_failed_run_raises_when_it_is_asked_to() -> None:
    @tool(risk="read")
    def fail() -> str:
        """Fail."""
        raise ValueError("broken")

    fail_safe = FailSafeConfig(tool_failure_policy="fail")
    failed = await run_of(agent_of(calls(("a", "fail", {})), tools=[fail], fail_safe=fail_safe))
    done = await run_of(agent_of("Done."))

    assert done.raise_for_status() is done
    with pytest.raises(AgentExecutionError, match="broken") as raised:
        failed.raise_for_status()
    assert [seen.code for seen in raised.value.observations] == ["tool_failed"]


@pytest.mark.requirement("R026")
async def test_a_denial_that_fails_the_run_raises() -> None:
    """Of an agent as of a runtime: the run is failed in the log, and its result raises with what was denied."""
    deny = RulePolicy([Rule(id="no", verdict="deny", tools="change")], default="allow")
    agent = agent_of(
        calls(("a", "change", {})),
        "Never said.",
        tools=[change],
        policy=deny,
        fail_safe=FailSafeConfig(approval_denial_policy="fail"),
    )
    log = MemoryLog()
    failed = await run_of(agent, log=log)

    with pytest.raises(AgentExecutionError, match="change") as raised:
        failed.raise_for_status()
    assert [seen.code for seen in raised.value.observations] == ["policy_denied"]
    assert (failed.status, failed.text) == ("FAILED", "")
    assert (await facts(log, failed.run_id))[-1] == RunFailed(message=str(raised.value), code="policy_denied")


async def test_a_result_shows_a_refused_reuse_of_an_id() -> None:
    """Here, and when another process reads the log."""
    log, artifacts, ran = MemoryLog(), MemoryArtifacts(), list[int]()

    @tool(read_only=True)
    def look(at: int) -> None:
        """Looks."""
        ran.append(at)

    agent = agent_of(calls(("a", "look", {"at": 1})), calls(("a", "look", {"at": 2})), "Done.", tools=[look])
    result = await run_of(agent, log=log, artifacts=artifacts)
    async with Runner(agent, log=log, artifacts=artifacts) as runner:
        opened = await (await runner.open(result.run_id)).result()

    assert [seen.code for seen in result.observations] == ["ok", "call_id_conflict"]
    assert (opened.observations, ran) == (result.observations, [1])


async def test_a_runner_measures_its_calls() -> None:
    @tool(read_only=True)
    def look() -> None:
        """Looks."""

    async with Runner(agent_of(calls(("a", "look", {})), "Done.", tools=[look])) as runner:
        await runner.run("Do it.")
        measured = {(reading.name, reading.unit, reading.count) for reading in runner.metrics()}

    assert measured == {("agent.tool_call.latency_ms", "ms", 1), ("agent.tool_batch.latency_ms", "ms", 1)}
