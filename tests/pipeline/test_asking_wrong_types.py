"""Whoever decides is code of somebody else: what raises, hangs or answers with something else has not said yes."""

import asyncio
from typing import Any, cast

import pytest

from interlock import Answer, Decision, Limits, PolicyEvent, Question, RulePolicy, ToolRuntime, Verdict, tool
from tests.each import each
from tests.pipeline.approval_e2e.scene import Person, ask_rule, soon
from tests.pipeline.batch.stage import Stage, codes, others_ran
from tests.support import call

ACT = call("c1", "act", name="a")


class StrangeDecision(Decision, frozen=True):
    """Somebody's own idea of a decision."""


class StrangePolicy:
    def __init__(self, says: Any) -> None:
        self._says = says

    def evaluate(self, event: PolicyEvent) -> Any:
        return self._says() if callable(self._says) else self._says


async def later(said: Any) -> Any:
    await others_ran()
    return said


async def never() -> Any:
    await asyncio.Event().wait()


def saying(anything: Any) -> Any:
    """A function of a tool that says this about every call."""

    def say(*given: Any) -> Any:
        return anything

    return say


ALLOW: dict[str, Any] = {"verdict": Verdict.ALLOW, "reason": "Why not."}


@each(
    "says",
    [
        True,
        "allow",
        Verdict.ALLOW,
        None,
        ALLOW,
        (Decision(**ALLOW),),
        StrangeDecision(**ALLOW),
        lambda: later(True),
        lambda: later(Verdict.ALLOW),
        lambda: later(StrangeDecision(**ALLOW)),
        never,
    ],
)
async def test_a_policy_that_says_anything_but_a_decision_refuses(says: Any) -> None:
    stage = Stage()
    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act")], policy=StrangePolicy(says), limits=Limits(check_seconds=0.05)
    )
    result = await soon(runtime.execute([ACT]))

    assert (codes(result), stage.seen) == ({"c1": "policy_denied"}, [])
    assert "The policy could not decide" in result.observations[0].summary


async def test_a_policy_may_take_a_moment_to_allow() -> None:
    stage = Stage()
    policy = StrangePolicy(lambda: later(Decision(**ALLOW)))
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")], policy=policy)

    assert codes(await soon(runtime.execute([ACT]))) == {"c1": "ok"}


@pytest.mark.parametrize(
    ("word", "kind"),
    [("defer", "approval"), ("request_approval", "approval"), ("ask", "approval"), ("request_user_input", "input")],
)
async def test_a_policy_may_ask_in_other_words(word: Any, kind: str) -> None:
    stage, no = Stage(), Person(Answer(approved=False))
    says = StrangePolicy(Decision(verdict=word, reason="It says so.", target_arg="name" if kind == "input" else ""))
    runtime = ToolRuntime(tools=[tool(stage.act, name="act")], policy=says, interaction=no)

    assert codes(await soon(runtime.execute([ACT]))) == {"c1": "user_denied"}
    assert [question.kind for question in no.asked] == [kind]
    assert stage.seen == []


@pytest.mark.parametrize(
    ("policy", "opinion", "code"),
    [
        (Verdict.ALLOW, Verdict.DENY, "policy_denied"),
        (Verdict.DENY, Verdict.ALLOW, "policy_denied"),
        (Verdict.ALLOW, Verdict.ASK, "user_denied"),
        (Verdict.ASK, Verdict.ALLOW, "user_denied"),
        (Verdict.ALLOW, Verdict.ALLOW, "ok"),
    ],
)
async def test_a_tool_makes_a_decision_stricter_and_never_looser(policy: Verdict, opinion: Verdict, code: str) -> None:
    stage = Stage()
    no = Person(Answer(approved=False))
    thinks = Decision(verdict=opinion, reason="I think so.")
    opinionated = tool(stage.act, name="act", authorize=saying(thinks))
    says = StrangePolicy(Decision(verdict=policy, reason="It says so."))
    result = await soon(ToolRuntime(tools=[opinionated], policy=says, interaction=no).execute([ACT]))

    assert codes(result) == {"c1": code}
    assert bool(stage.seen) == (code == "ok")


@pytest.mark.parametrize("opinion", [True, "allow", ALLOW], ids=repr)
async def test_a_tool_whose_opinion_is_no_decision_is_refused(opinion: Any) -> None:
    stage = Stage()
    opinionated = tool(stage.act, name="act", authorize=saying(opinion))
    result = await soon(ToolRuntime(tools=[opinionated], policy=RulePolicy()).execute([ACT]))

    assert (codes(result), stage.seen) == ({"c1": "policy_denied"}, [])


class StrangePerson(Person):
    def __init__(self, says: Any) -> None:
        super().__init__()
        self._says = says

    async def ask(self, question: Question) -> Any:
        if isinstance(self._says, Exception):
            raise self._says
        return self._says


@pytest.mark.parametrize(
    ("says", "words"),
    [
        (True, "The provider answered with bool."),
        ("yes", "The provider answered with str."),
        ({"approved": True}, "The provider answered with dict."),
        (OSError("no terminal"), "The question could not be asked: OSError: no terminal."),
    ],
)
async def test_a_provider_that_fails_or_answers_with_something_else_has_said_no(says: Any, words: str) -> None:
    stage = Stage()
    runtime = ToolRuntime(
        tools=[tool(stage.act, name="act")], policy=ask_rule(tools="act"), interaction=StrangePerson(says)
    )
    result = await soon(runtime.execute([ACT]))

    assert (codes(result), stage.seen) == ({"c1": "user_denied"}, [])
    assert words in result.observations[0].summary


@pytest.mark.parametrize(
    ("reason", "words"),
    [(True, "True"), (False, "False"), (0, "0"), (["x"] * 5_000, "a list of ")],
    ids=["true", "false", "zero", "huge"],
)
async def test_a_guardrail_that_returns_anything_but_nothing_refuses(reason: Any, words: str) -> None:
    stage = Stage()
    guarded = tool(stage.act, name="act", input_guardrails=[saying(reason)])
    result = await soon(ToolRuntime(tools=[guarded], policy=RulePolicy()).execute([ACT]))

    [observation] = result.observations
    assert (codes(result), stage.seen) == ({"c1": "guardrail_refused"}, [])
    assert words in observation.summary
    assert len(cast(str, observation.summary)) < 1_000


async def test_of_several_guardrails_each_is_asked_until_one_refuses() -> None:
    stage, asked = Stage(), list[str]()

    def guardrail(name: str, reason: str | None) -> Any:
        def look(arguments: Any) -> str | None:
            asked.append(name)
            return reason

        return look

    guards = [guardrail("first", None), guardrail("second", "Not now."), guardrail("third", "Never.")]
    guarded = tool(stage.act, name="act", input_guardrails=guards)
    result = await soon(ToolRuntime(tools=[guarded], policy=RulePolicy()).execute([ACT]))

    assert (codes(result), asked, stage.seen) == ({"c1": "guardrail_refused"}, ["first", "second"], [])
    assert "Not now." in result.observations[0].summary
