"""A rule that a person keeps with a yes: the suggested one or a narrower one, recorded before it is kept."""

from typing import Any

import msgspec
import pytest

from interlock import Answer, AnswerRefusedError
from interlock.domain.decision import Decision
from interlock.domain.event import ApprovalRejected, WarningRaised
from interlock.pipeline.parts import RuleChange
from interlock.policy.interface import PolicyEvent
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import RULE, KeepingPolicy, Person, Scene, soon

FIRST = call("c1", "edit", path="notes.txt")
NARROWER = "{decision: allow, tools: edit, agent: coder}"
WIDER = ["{decision: allow}", "{decision: allow, tools: '*'}", "{decision: allow, tools: [edit, bash]}", "nonsense"]

pytestmark = pytest.mark.requirement("P22")


class Previewing(KeepingPolicy):
    def preview_keep(self, rule: str) -> str:
        return "sha256:allow"


@pytest.mark.parametrize("rule", WIDER)
async def test_wider_rule_leaves_the_question_open(scene: Scene, rule: str) -> None:
    scene.policy = policy = KeepingPolicy()
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([FIRST])).questions
        with pytest.raises(AnswerRefusedError, match="stays open"):
            await runtime.decide(question.action_id, approved=True, scope="rule", rule=rule)
        assert await runtime.questions() == [question]

    assert (policy.kept, scene.ran) == ([], [])


@pytest.mark.parametrize("rule", WIDER)
async def test_wider_rule_of_a_provider_is_a_no(scene: Scene, rule: str) -> None:
    scene.policy = policy = KeepingPolicy()
    person = Person(Answer(approved=True, scope="rule", rule=rule, by="ada"))
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([FIRST]))
        [rejected] = [fact.answer for fact in await facts(runtime) if isinstance(fact, ApprovalRejected)]

    assert (codes(result), policy.kept, scene.ran) == ({"c1": "user_denied"}, [], [])
    assert rejected.by == "ada"
    assert rejected.reason in result.observations[0].summary
    assert "rule" in rejected.reason


async def test_rule_of_a_rejection_does_not_matter(scene: Scene) -> None:
    scene.policy = policy = KeepingPolicy()
    person = Person(Answer(approved=False, reason="Not today.", scope="rule", rule=WIDER[0]))
    async with scene.runtime(interaction=person) as runtime:
        [seen] = (await soon(runtime.execute([FIRST]))).observations

    assert ("Not today." in seen.summary, policy.kept) == (True, [])


@pytest.mark.parametrize("rule", [RULE, NARROWER])
async def test_rule_is_recorded_before_it_is_kept(scene: Scene, rule: str) -> None:
    scene.policy = policy = Previewing()
    recorded: list[tuple[RuleChange, list[str]]] = []

    async def record(change: RuleChange) -> None:
        recorded.append((change, [*policy.kept]))

    person = Person(Answer(approved=True, scope="rule", rule=rule, by="ada"))
    async with scene.runtime(interaction=person, record_rule=record) as runtime:
        assert codes(await soon(runtime.execute([FIRST]))) == {"c1": "ok"}

    [(change, kept_then)] = recorded
    assert (change.by, change.rule, change.before, change.after) == ("ada", rule, "sha256:one", "sha256:allow")
    assert (kept_then, policy.kept) == ([], [rule])


async def test_rule_that_was_not_kept_is_recorded_as_failed(scene: Scene) -> None:
    scene.policy = KeepingPolicy("the disk is full")
    recorded: list[str] = []

    async def record(change: RuleChange) -> None:
        recorded.append(change.problem)

    async with scene.runtime(interaction=_keeper(), record_rule=record) as runtime:
        assert codes(await soon(runtime.execute([FIRST]))) == {"c1": "ok"}

    assert ["the disk is full" in problem for problem in recorded] == [False, True]


async def test_rule_that_cannot_be_recorded_is_not_kept(scene: Scene) -> None:
    scene.policy = policy = KeepingPolicy()

    async def record(change: RuleChange) -> Any:
        raise OSError("no journal")

    async with scene.runtime(interaction=_keeper(), record_rule=record) as runtime:
        assert codes(await soon(runtime.execute([FIRST]))) == {"c1": "ok"}
        warned = [fact.message for fact in await facts(runtime) if isinstance(fact, WarningRaised)]

    assert (policy.kept, ["no journal" in message for message in warned]) == ([], [True])


class _Unrelated(KeepingPolicy):
    """Keeps rules that are about other calls, and asks as before; with `reason`, for another reason."""

    reason = ""

    def keep(self, rule: str) -> None:
        self.kept.append(rule)
        self.digest = f"sha256:{len(self.kept)}"

    def preview_keep(self, rule: str) -> str:
        return f"sha256:{len(self.kept) + 1}"

    def evaluate(self, event: PolicyEvent) -> Decision:
        decision = super().evaluate(event)
        return msgspec.structs.replace(decision, reason=self.reason) if self.kept and self.reason else decision


@pytest.mark.parametrize(("reason", "asked"), [("", 3), ("another", 5)])
async def test_rule_of_one_answer_keeps_the_other_answers(scene: Scene, reason: str, asked: int) -> None:
    """Unless the policy decides about the other calls in another way from then on."""
    scene.policy = policy = _Unrelated()
    policy.reason = reason
    keep, once = Answer(approved=True, scope="rule", rule=RULE), Answer(approved=True)
    person = Person(keep, keep, once)
    async with scene.runtime(interaction=person) as runtime:
        calls = [call(f"c{number}", "edit", path="notes.txt", text=f"{number}") for number in range(3)]
        result = await soon(runtime.execute(calls))

    assert set(codes(result).values()) == {"ok"}
    assert len(person.asked) == asked


def _keeper() -> Person:
    return Person(Answer(approved=True, scope="rule", rule=RULE, by="ada"))
