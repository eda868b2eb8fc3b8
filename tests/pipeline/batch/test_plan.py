"""All calls of a turn are planned before the first has an effect; what cannot be planned is refused."""

import asyncio
from typing import Any

import pytest

from interlock import (
    CallbackInteractionProvider,
    Decision,
    Limits,
    PolicyEvent,
    Question,
    Rule,
    RulePolicy,
    RunState,
    ToolIntent,
    ToolRegistry,
    ToolRuntime,
    UnknownToolError,
    Verdict,
    tool,
)
from interlock.domain.event import CallProposed
from tests.each import each
from tests.pipeline.batch.stage import PATIENCE, Stage, codes, others_ran, walk
from tests.support import call, facts


class SlowPolicy:
    """Takes its time over one call."""

    def __init__(self, slow_call: str) -> None:
        self.slow_call = slow_call
        self.reached = asyncio.Event()
        self.go_on = asyncio.Event()

    async def evaluate(self, event: PolicyEvent) -> Decision:
        if event.call_id == self.slow_call:
            self.reached.set()
            await self.go_on.wait()
        return Decision(verdict=Verdict.ALLOW, reason="Fine.")


@pytest.mark.requirement("R079")
async def test_no_call_starts_before_the_last_one_is_judged() -> None:
    stage, policy = Stage(), SlowPolicy("c3")
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")], policy=policy)

    running = asyncio.create_task(runtime.execute([call(f"c{n}", "act", name=f"{n}") for n in (1, 2, 3)]))
    async with asyncio.timeout(PATIENCE):
        await policy.reached.wait()
        await others_ran()
        assert stage.seen == []
        policy.go_on.set()
        result = await running

    assert codes(result) == {"c1": "ok", "c2": "ok", "c3": "ok"}


@pytest.mark.requirement("R079", "R087")
async def test_every_call_is_looked_up_validated_and_judged_before_the_first_invocation() -> None:
    stage = Stage()
    policy = RulePolicy([Rule(id="no", verdict="deny", tools="denied", reason="Not here.")])
    tools = [tool(stage.act, name="act"), tool(stage.act, name="denied"), tool(stage.act, name="hidden", visible=_no)]
    runtime = ToolRuntime(tools=tools, policy=policy)

    result = await runtime.execute(
        [
            call("c1", "act", name="1"),
            call("c2", "nonsense"),
            call("c3", "hidden", name="3"),
            call("c4", "act", wrong=True),
            call("c5", "denied", name="5"),
            call("c6", "act", name="6"),
        ]
    )

    assert codes(result) == {
        "c1": "ok",
        "c2": "unknown_tool",
        "c3": "tool_not_visible",
        "c4": "schema_invalid",
        "c5": "policy_denied",
        "c6": "ok",
    }
    assert stage.starts() == ["1", "6"]
    types = [step.event.type for step in await runtime.replay()]
    started = types.index("tool.invocation.started")
    planning = {"tool.intent", "tool.validation", "tool.permission"}
    assert not planning & set(types[started:])


def _no(_: object) -> bool:
    return False


@pytest.mark.requirement("P09", "R083", "R084", "R086")
async def test_a_call_that_comes_twice_in_one_response_runs_once_and_order_is_kept() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")])
    first, second = call("c1", "act", name="1"), call("c2", "act", name="2")

    result = await runtime.execute([first, second, first])

    assert stage.starts() == ["1", "2"]
    assert [observation.call_id for observation in result.observations] == ["c1", "c2", "c1"]
    assert [message["tool_call_id"] for message in result.messages] == ["c1", "c2"]
    assert (await walk(runtime, "c1")).count("tool.invocation.started") == 1
    proposed = [fact for fact in await facts(runtime) if isinstance(fact, CallProposed)]
    assert [(fact.call_id, fact.duplicate) for fact in proposed] == [("c1", False), ("c2", False), ("c1", True)]


@pytest.mark.requirement("P09", "R083")
async def test_the_same_call_in_other_words_is_the_same_call() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")])
    spellings: list[Any] = [
        '{"name": "1", "path": "p"}',
        '{ "path":"p", "name":"\\u0031" }',
        {"path": "p", "name": "1"},
    ]

    result = await runtime.execute(
        [ToolIntent(call_id="c1", tool_name="act", arguments=arguments) for arguments in spellings]
    )

    assert stage.starts() == ["1"]
    assert [observation.ok for observation in result.observations] == [True, True, True]


@pytest.mark.requirement("P09", "R083", "R086")
@each(
    "other",
    [call("c1", "act", name="else"), call("c1", "other", name="1"), call("c1", "nonsense"), call("c1", "act", bad=1)],
)
@each("first", [True, False])
async def test_one_id_for_different_calls_is_refused_before_any_effect(other: ToolIntent, first: bool) -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act"), tool(stage.act, name="other")])
    pair = [other, call("c1", "act", name="1")] if first else [call("c1", "act", name="1"), other]

    result = await runtime.execute([*pair, call("c2", "act", name="2")])

    assert stage.starts() == ["2"]
    assert [observation.code for observation in result.observations] == ["call_id_conflict", "call_id_conflict", "ok"]
    assert [message["tool_call_id"] for message in result.messages] == ["c1", "c2"]
    assert (await runtime.verify()).ok


@pytest.mark.requirement("R086")
async def test_a_call_of_an_earlier_turn_is_answered_from_the_log() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")])
    first = await runtime.execute([call("c1", "act", name="1")])

    again = await runtime.execute([call("c1", "act", name="1"), call("c2", "act", name="2")])

    assert stage.starts() == ["1", "2"]
    assert again.observations[0] == first.observations[0]
    assert again.messages[0] == first.messages[0]


@pytest.mark.requirement("P09", "R086")
async def test_an_id_of_an_earlier_turn_with_other_content_is_refused_and_the_old_outcome_stands() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")])
    first = await runtime.execute([call("c1", "act", name="1")])

    reused = await runtime.execute([call("c1", "act", name="else"), call("c2", "act", name="2")])

    assert codes(reused) == {"c1": "call_id_conflict", "c2": "ok"}
    again = await runtime.execute([call("c1", "act", name="1")])
    assert again.observations == first.observations
    assert stage.starts() == ["1", "2"]
    assert (await runtime.verify()).ok


@pytest.mark.requirement("P09", "R086")
@pytest.mark.parametrize("names", [("1", "else"), ("else", "1"), ("else", "more")])
async def test_a_finished_id_that_comes_twice_with_different_content_is_refused_and_the_run_goes_on(
    names: tuple[str, str],
) -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")])
    await runtime.execute([call("c1", "act", name="1")])

    pair = [call("c1", "act", name=name) for name in names]
    result = await runtime.execute([*pair, call("c2", "act", name="2")])

    assert [observation.code for observation in result.observations] == ["call_id_conflict", "call_id_conflict", "ok"]
    assert stage.starts() == ["1", "2"]
    assert (await runtime.verify()).ok


@pytest.mark.requirement("R085")
async def test_two_calls_of_one_tool_with_the_same_arguments_and_different_ids_both_run() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")])

    result = await runtime.execute([call("c1", "act", name="same"), call("c2", "act", name="same")])

    assert stage.starts() == ["same", "same"]
    assert codes(result) == {"c1": "ok", "c2": "ok"}


@pytest.mark.requirement("P01", "R088", "D09")
async def test_a_tool_that_was_hidden_after_the_model_answered_is_refused_and_the_run_goes_on() -> None:
    stage = Stage()
    hidden: set[str] = set()

    def shown(_: object) -> bool | str:
        return "Not in this phase." if "act" in hidden else True

    runtime = ToolRuntime(tools=[tool(stage.act, name="act", visible=shown), tool(stage.act, name="other")])
    assert codes(await runtime.execute([call("c1", "act", name="1")])) == {"c1": "ok"}
    hidden.add("act")

    result = await runtime.execute([call("c2", "act", name="2"), call("c3", "other", name="3")])

    assert codes(result) == {"c2": "tool_not_visible", "c3": "ok"}
    refusal = result.observations[0].summary
    assert "Not in this phase." in refusal
    assert "Nothing was executed" in refusal
    assert "other" in refusal
    assert stage.starts() == ["1", "3"]
    assert result.state is RunState.RUNNING


@pytest.mark.requirement("R088", "R089", "D09")
async def test_a_tool_that_was_removed_after_the_model_answered_is_not_there_and_its_function_is_not_called() -> None:
    stage = Stage()
    registry = ToolRegistry([tool(stage.act, name="act"), tool(stage.act, name="other")])
    runtime = ToolRuntime(tools=registry)
    registry.unregister("act")

    result = await runtime.execute([call("c1", "act", name="1"), call("c2", "other", name="2")])

    assert codes(result) == {"c1": "unknown_tool", "c2": "ok"}
    failure = result.observations[0].failure
    assert failure is not None
    assert failure.details["available_tools"] == ["other", "read_artifact"]
    assert stage.starts() == ["2"]


@pytest.mark.requirement("R089", "R087", "D09")
async def test_a_missing_tool_raises_where_that_was_asked_for_before_its_siblings_have_effects() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")], missing_tool="raise")

    with pytest.raises(UnknownToolError) as raised:
        await runtime.execute([call("c1", "act", name="1"), call("c2", "nonsense")])

    assert raised.value.observation.call_id == "c2"
    assert stage.seen == []


@pytest.mark.requirement("P03")
@pytest.mark.parametrize("arguments", [{}, {"name": 1}, {"name": "1", "more": 2}, "{", "[]"])
async def test_nobody_is_asked_about_arguments_that_do_not_fit(arguments: Any) -> None:
    stage, asked = Stage(), list[Question]()

    def yes(question: Question) -> bool:
        asked.append(question)
        return True

    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act", risk="write")], interaction=CallbackInteractionProvider(yes)
    )
    result = await runtime.execute([ToolIntent(call_id="c1", tool_name="act", arguments=arguments)])

    assert (asked, stage.seen) == ([], [])
    assert not result.observations[0].ok
    assert "approval.requested" not in await walk(runtime, "c1")


@pytest.mark.requirement("D04")
async def test_a_call_that_one_rule_asks_about_and_another_denies_is_denied_unasked() -> None:
    stage, asked = Stage(), list[Question]()
    policy = RulePolicy([Rule(id="a", verdict="ask", tools="act"), Rule(id="b", verdict="deny", tools="act")])

    def yes(question: Question) -> bool:
        asked.append(question)
        return True

    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act")], policy=policy, interaction=CallbackInteractionProvider(yes)
    )

    assert codes(await runtime.execute([call("c1", "act", name="1")])) == {"c1": "policy_denied"}
    assert (asked, stage.seen) == ([], [])


async def test_a_response_with_more_calls_than_the_limit_is_refused_whole() -> None:
    stage = Stage()
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")], limits=Limits(max_calls_per_batch=2))
    await runtime.execute([call("c1", "act", name="1")])

    result = await runtime.execute([call(f"c{n}", "act", name=f"{n}") for n in (1, 2, 3)])

    assert codes(result) | {"c1": ""} == {"c1": "", "c2": "batch_too_large", "c3": "batch_too_large"}
    assert stage.starts() == ["1"]


async def test_a_response_without_calls_has_no_observations() -> None:
    result = await ToolRuntime().execute([])

    assert (result.observations, result.messages, result.waiting) == ((), [], ())
    assert result.state is RunState.RUNNING
