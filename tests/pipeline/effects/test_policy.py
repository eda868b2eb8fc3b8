"""Policies that declare the effects of other people's tools."""

from pathlib import Path
from typing import Any

import pytest

from interlock import Clock, Decision, PolicyEvent, Rule, RulePolicy, Verdict
from interlock.domain.errors import ConfigurationError
from interlock.policy import EffectDeclaration, EffectRule, PolicyFileError, check_file, load_policy
from tests.support import call

from .scene import OPEN, Bank

ALLOW_ALL = Rule(id="all", verdict="allow")


def policy(*effects: EffectDeclaration, rules: tuple[Rule, ...] = (ALLOW_ALL,)) -> RulePolicy:
    return RulePolicy(rules, effects=effects)


def declared(**given: Any) -> EffectDeclaration:
    fields: dict[str, Any] = {"tools": "refund", "key": "refund:{order}", **given}
    return EffectDeclaration(**fields)


@pytest.mark.parametrize(("repeat", "code"), [("deny", "effect_repeated"), ("ask", "waiting"), ("allow", "ok")])
async def test_policy_gives_a_key_to_other_tools(repeat: str, code: str) -> None:
    bank, rules = Bank(), policy(declared(repeat=repeat))
    tools = [bank.plain_tool()]

    assert await bank.refund("run_1", "c1", policy=rules, tools=tools) == "ok"
    assert await bank.refund("run_2", "c1", policy=rules, tools=tools, interaction=OPEN) == code


@pytest.mark.parametrize(("tool", "rule"), [("deny", "allow"), ("allow", "deny")])
async def test_stricter_repeat_counts(tool: str, rule: str) -> None:
    bank, rules = Bank(), policy(declared(tools="ref*", key="", repeat=rule))

    for run_id, code in (("run_1", "ok"), ("run_2", "effect_repeated")):
        assert await bank.refund(run_id, "c1", policy=rules, declared={"repeat": tool}) == code


async def test_effect_holds_whichever_rule_decides() -> None:
    """A rule that asks about the call does not lose the effect that the policy declares."""
    rules = (ALLOW_ALL, Rule(id="large", verdict="ask", when=lambda event: event.arguments["amount"] > 5))
    bank, asking = Bank(), policy(declared(), rules=rules)
    tools = [bank.plain_tool()]
    async with bank.runtime("run_1", policy=asking, interaction=OPEN, tools=tools) as runtime:
        (question,) = (await runtime.execute([call("c1", "refund", order=4711)])).questions

    assert question.effect is not None
    assert question.effect.key == "refund:4711"


async def test_effect_may_repeat_after_its_time() -> None:
    bank, rules, now = Bank(), policy(declared(repeat="deny", repeat_after_seconds=60.0)), [10**18]
    options: dict[str, Any] = {"policy": rules, "tools": [bank.plain_tool()], "clock": Clock(now=lambda: now[0])}

    assert await bank.refund("run_1", "c1", **options) == "ok"
    now[0] += 59 * 10**9
    assert await bank.refund("run_2", "c1", **options) == "effect_repeated"
    now[0] += 2 * 10**9
    assert await bank.refund("run_3", "c1", **options) == "ok"


async def test_key_that_does_not_fit_the_tool_denies() -> None:
    bank = Bank()
    async with bank.runtime(policy=policy(declared(key="refund:{ordr}")), tools=[bank.plain_tool()]) as runtime:
        (refused,) = (await runtime.execute([call("c1", "refund", order=4711)])).observations

    assert refused.failure is not None
    assert "there is no argument `ordr`. Did you mean `order`?" in refused.failure.message
    assert bank.paid == []


async def test_policy_engine_of_your_own_declares_effects() -> None:
    class Engine:
        def evaluate(self, event: PolicyEvent) -> Decision:
            rule = EffectRule(key="refund:{order}", repeat="deny")
            return Decision(verdict=Verdict.ALLOW, reason="It may.", effect_rule=rule)

    bank = Bank()
    tools = [bank.plain_tool()]
    for run_id, code in (("run_1", "ok"), ("run_2", "effect_repeated")):
        assert await bank.refund(run_id, "c1", policy=Engine(), tools=tools) == code


@pytest.mark.parametrize(
    "wrong", [{"key": "{a}{b}"}, {"repeat": "never"}, {"repeat_after_seconds": 0.0}, {"tools": "re fund"}]
)
def test_wrong_declaration_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        policy(declared(**wrong))


def test_effects_are_part_of_the_policy_digest() -> None:
    policies = [policy(), policy(declared()), policy(declared(repeat="deny")), policy(declared(key="x"))]

    assert len({each.digest for each in policies}) == len(policies)


FILE = """version: 1
effects:
  - tools: mcp__shop__refund
    key: "refund:{order.id}"
    repeat: deny
    repeat_after: 24h
  - tools: send_*
"""


def test_policy_file_declares_effects(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(FILE)

    assert load_policy(path).effects == (
        EffectDeclaration(
            tools="mcp__shop__refund", key="refund:{order.id}", repeat="deny", repeat_after_seconds=86_400.0
        ),
        EffectDeclaration(tools="send_*"),
    )


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("repeat:", "repeatt:", "policy.yaml:5: repeatt: there is no such key. Did you mean `repeat`?"),
        ("deny", "never", "policy.yaml:5: repeat: it should be 'deny', 'ask' or 'allow'"),
        ("24h", "soon", "policy.yaml:6: 'soon' is no time"),
        ("{order.id}", "{order", "policy.yaml:4: effect key 'refund:{order': braces stand around"),
        ("send_*", "send mail", "policy.yaml:7: no tool can be called 'send mail'"),
    ],
)
def test_policy_check_names_the_line(tmp_path: Path, before: str, after: str, problem: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(FILE.replace(before, after, 1))

    with pytest.raises(PolicyFileError) as refused:
        check_file(path)
    assert problem in str(refused.value)


def test_project_file_declares_no_effects(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(FILE)

    with pytest.raises(PolicyFileError, match="a project file can only tighten"):
        check_file(path, "project")
