"""A policy asks and the tool asks too: one question, with the words of both and the narrower reach."""

from typing import Any

import pytest

from interlock import Decision, Question, ToolRuntime, Verdict, tool
from tests.pipeline.approval_e2e.scene import OPEN, SetPolicy
from tests.pipeline.batch.stage import Stage, codes
from tests.support import call

ACT = call("c1", "edit", name="a")


def asking(stage: Stage, verdict: Verdict = Verdict.ASK, **said: Any) -> Any:
    def authorize(*given: Any) -> Decision:
        return Decision(verdict=verdict, **said)

    return tool(stage.act, name="edit", authorize=authorize)


async def question(policy: SetPolicy, **said: Any) -> Question:
    async with ToolRuntime(tools=[asking(Stage(), **said)], policy=policy, interaction=OPEN) as runtime:
        [asked] = (await runtime.execute([ACT])).questions
        return asked


async def test_a_person_hears_the_reasons_risks_rules_and_layers_of_both() -> None:
    policy = SetPolicy(prompt="May it?", risk=("write", "costs"), layer="user rule")
    asked = await question(
        policy, reason="It is big.", prompt="Really?", risk=("costs", "big"), rule_ids=("size",), layer="tool limit"
    )

    assert (asked.reason, asked.prompt) == ("It says so. It is big.", "May it?\nReally?")
    assert (asked.rule_ids, asked.layer) == (("ask-edit", "size"), "user rule, tool limit")
    assert asked.risk[:3] == ("write", "costs", "big")


async def test_what_both_say_alike_is_said_once() -> None:
    asked = await question(SetPolicy(), reason="It says so.", rule_ids=("ask-edit",))

    assert (asked.reason, asked.rule_ids, asked.layer) == ("It says so.", ("ask-edit",), "default")


@pytest.mark.parametrize(
    ("policy", "opinion", "scope", "rule"),
    [
        ("rule", "once", "once", ""),
        ("once", "rule", "once", ""),
        ("run", "window", "run", ""),
        ("rule", "rule", "rule", "- x"),
    ],
)
async def test_a_yes_reaches_no_further_than_either_of_them_lets_it(
    policy: str, opinion: str, scope: str, rule: str
) -> None:
    asked = await question(SetPolicy(scope=policy, suggested_rule="- x"), reason="Yes.", scope=opinion)

    assert (asked.scope, asked.suggested_rule) == (scope, rule)


@pytest.mark.parametrize(("policy", "opinion", "seconds"), [(60.0, 30.0, 30), (30.0, 60.0, 30), (None, 60.0, 60)])
async def test_a_question_is_open_for_the_shorter_time(policy: Any, opinion: Any, seconds: int) -> None:
    asked = await question(SetPolicy(answer_within_seconds=policy), reason="Quick.", answer_within_seconds=opinion)

    assert asked.expires_at - asked.asked_at == seconds * 1_000_000_000


async def test_policy_and_tool_that_want_different_values_from_a_person_get_none() -> None:
    stage = Stage()
    wants_name = asking(stage, Verdict.REQUEST_INPUT, reason="Which?", target_arg="name")
    policy = SetPolicy(Verdict.REQUEST_INPUT, target_arg="path")
    async with ToolRuntime(tools=[wants_name], policy=policy, interaction=OPEN) as runtime:
        result = await runtime.execute([ACT])

    assert (codes(result), result.questions, stage.seen) == ({"c1": "policy_denied"}, (), [])
    assert "Different arguments are wanted from a person: path, name." in result.observations[0].summary


async def test_the_files_that_either_of_them_saw_are_held_fast() -> None:
    asked = await question(SetPolicy(paths=("a.txt", "b.txt")), reason="Look.", paths=("b.txt", "c.txt"))

    assert [file.path for file in asked.bound.surroundings.files] == ["a.txt", "b.txt", "c.txt"]


async def test_who_gives_the_value_that_policy_wants_hears_what_the_tool_asks_about() -> None:
    policy = SetPolicy(Verdict.REQUEST_INPUT, target_arg="path")
    asked = await question(policy, reason="Customers see this.", risk=("goes live",))

    assert (asked.kind, asked.target_arg) == ("input", "path")
    assert "Customers see this." in asked.reason
    assert "goes live" in asked.risk
