"""How far a yes reaches: once, for the run, for a time, or as a rule; and what it never reaches."""

import asyncio
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from interlock import (
    Answer,
    AnswerRefusedError,
    BatchResult,
    CallbackInteractionProvider,
    MemoryLog,
    Question,
    Rule,
    RulePolicy,
    SqliteLog,
    Verdict,
)
from interlock.domain.event import InvocationCompleted, InvocationStarted, PolicyEvaluated, WarningRaised
from tests.patience import HANG_SECONDS, eventually
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import RULE, SECOND, KeepingPolicy, Person, Scene, SetPolicy, ask_rule, soon

FIRST = call("c1", "edit", path="notes.txt")
AGAIN = call("c2", "edit", path="notes.txt")


async def granted(scene: Scene, **answer: Any) -> None:
    """The first call is approved with this scope, and runs."""
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([FIRST])).questions
        await runtime.decide(question.action_id, approved=True, by="ada", **answer)
        assert codes(await runtime.resume()) == {"c1": "ok"}


async def again(scene: Scene, intent: Any = AGAIN, **options: Any) -> BatchResult:
    async with scene.runtime(**options) as runtime:
        return await soon(runtime.execute([intent]))


def asks(result: BatchResult) -> bool:
    return bool(result.questions) and not result.observations


@pytest.mark.requirement("R150")
async def test_once_is_for_this_call_only(scene: Scene) -> None:
    await granted(scene)

    assert asks(await again(scene))


@pytest.mark.requirement("R150")
@pytest.mark.parametrize("log", ["memory", "sqlite"])
async def test_a_yes_for_the_run_covers_the_same_call_again_also_in_another_process(
    scene: Scene, log: str, tmp_path: Path
) -> None:
    if log == "sqlite":
        scene.log = SqliteLog(tmp_path / "runs.db")
    await granted(scene, scope="run")
    if log == "sqlite":
        await scene.log.close()
        scene.log = SqliteLog(tmp_path / "runs.db")

    async with scene.runtime() as runtime:
        result = await runtime.execute([AGAIN])
        recorded = await facts(runtime)
        [action] = await runtime.actions()
        assert (await runtime.verify()).ok
    await scene.log.close()

    assert (codes(result), len(scene.ran)) == ({"c2": "ok"}, 2)
    judged = [fact.decision for fact in recorded if isinstance(fact, PolicyEvaluated)]
    assert (judged[1].verdict, judged[1].layer, judged[1].rule_ids) == ("allow", "standing approval", ("ask-edit",))
    assert action.action_id in judged[1].reason
    assert action.answer is not None
    assert action.answer.scope == "run"
    started = [fact.action_id for fact in recorded if isinstance(fact, InvocationStarted)]
    assert started == [action.action_id, ""]


OTHERS: dict[str, dict[str, Any]] = {
    "arguments": {"intent": call("c2", "edit", path="notes.txt", text="other")},
    "path": {"intent": call("c2", "edit", path="./notes.txt")},
    "requester": {"requester": "bob"},
    "rules": {"policy": SetPolicy(rule_ids=("ask-edit", "ask-more"))},
    "other rule": {"policy": SetPolicy(rule_ids=("other",))},
}


@pytest.mark.parametrize("different", [*OTHERS, "file", "tool", "folder", "run"])
async def test_a_yes_for_the_run_covers_nothing_else(scene: Scene, different: str) -> None:
    await granted(scene, scope="run")
    options = dict(OTHERS.get(different, {}))
    if different == "file":
        scene.file.write_text("changed meanwhile")
    elif different == "tool":
        options["tools"] = [scene.tool(description="Edits, and more.")]
    elif different == "folder":
        options["workspace"] = scene.folder.parent
    elif different == "run":
        options["run_id"] = "run_other"

    assert asks(await again(scene, **options))
    assert len(scene.ran) == 1


async def test_a_yes_for_the_run_covers_the_same_numbers_and_defaults_however_they_are_written(scene: Scene) -> None:
    await granted(scene, scope="run")

    result = await again(scene, call("c2", "edit", path="notes.txt", text="new", size=1))

    assert codes(result) == {"c2": "ok"}


@pytest.mark.parametrize("scope", ["run", "window", "rule"])
async def test_no_grant_covers_what_policy_denies(scene: Scene, scope: Any) -> None:
    scene.policy = KeepingPolicy()
    until = scene.time.now + 60 * SECOND if scope == "window" else 0
    await granted(scene, scope=scope, until=until, rule=RULE if scope == "rule" else "")

    result = await again(scene, policy=SetPolicy(Verdict.DENY))

    assert (codes(result), len(scene.ran)) == ({"c2": "policy_denied"}, 1)


async def test_no_grant_covers_a_question_for_a_value(scene: Scene) -> None:
    await granted(scene, scope="run")

    result = await again(scene, policy=SetPolicy(Verdict.REQUEST_INPUT, target_arg="text"))

    assert [question.kind for question in result.questions] == ["input"]


async def test_no_grant_covers_arguments_that_a_hook_wrote(scene: Scene) -> None:
    def undo(arguments: dict[str, Any]) -> dict[str, Any]:
        return {**arguments, "text": "new"}

    policy = RulePolicy(
        [
            Rule(id="other", verdict="allow", tools="edit", when=lambda event: event.arguments["text"] == "other"),
            Rule(
                id="new", verdict="ask", tools="edit", when=lambda event: event.arguments["text"] == "new", scope="run"
            ),
        ]
    )
    async with scene.runtime(tools=[scene.tool(pre_hooks=[undo])], policy=policy) as runtime:
        [question] = (await runtime.execute([FIRST])).questions
        await runtime.decide(question.action_id, approved=True, scope="run")
        await runtime.resume()
        result = await runtime.execute([call("c2", "edit", path="notes.txt", text="other")])

    assert (codes(result), len(scene.ran)) == ({"c2": "payload_changed"}, 1)


async def test_a_grant_covers_a_call_that_would_be_asked_about_again(scene: Scene) -> None:
    class Slow(Person):
        async def ask(self, question: Question) -> Answer | None:
            await super().ask(question)
            if len(self.asked) == 1:
                scene.file.write_text("changed meanwhile")
            if question.call_id == "c1":
                await eventually(lambda: bool(scene.ran))
            return Answer(approved=True, scope="run")

    person = Slow()
    async with scene.runtime(tools=[scene.tool(concurrency="safe")], interaction=person) as runtime:
        result = await soon(runtime.execute([FIRST, AGAIN]))

    assert codes(result) == {"c1": "ok", "c2": "ok"}
    assert sorted(question.call_id for question in person.asked) == ["c1", "c2", "c2"]


@pytest.mark.requirement("R150")
async def test_a_window_covers_the_same_call_until_its_end(scene: Scene) -> None:
    await granted(scene, scope="window", until=scene.time.now + 60 * SECOND)

    scene.time.passes(59)
    assert codes(await again(scene)) == {"c2": "ok"}
    scene.time.passes(1)
    assert asks(await again(scene, call("c3", "edit", path="notes.txt")))


async def test_a_window_that_is_over_is_a_yes_for_this_call_only(scene: Scene) -> None:
    await granted(scene, scope="window", until=scene.time.now - SECOND)

    assert asks(await again(scene))


@pytest.mark.requirement("R150")
async def test_a_rule_is_kept_by_the_policy_and_holds_from_the_next_call_on(scene: Scene) -> None:
    scene.policy = policy = KeepingPolicy()
    await granted(scene, scope="rule", rule=RULE)

    assert policy.kept == [RULE]
    assert codes(await again(scene, call("c2", "edit", path="elsewhere.txt"))) == {"c2": "ok"}


@pytest.mark.parametrize("policy", [KeepingPolicy("the disk is full"), SetPolicy()], ids=["fails", "keeps no rules"])
async def test_a_rule_that_cannot_be_kept_is_a_warning_and_the_call_runs_once(scene: Scene, policy: SetPolicy) -> None:
    scene.policy = policy
    await granted(scene, scope="rule", rule=RULE)

    async with scene.runtime() as runtime:
        warnings = [fact for fact in await facts(runtime) if isinstance(fact, WarningRaised)]
        result = await runtime.execute([AGAIN])

    assert [(warned.call_id, "rule was not kept" in warned.message) for warned in warnings] == [("c1", True)]
    assert asks(result)
    assert len(scene.ran) == 1


@pytest.mark.parametrize(
    ("widest", "scope"), [("once", "run"), ("once", "window"), ("once", "rule"), ("run", "window"), ("run", "rule")]
)
async def test_a_scope_wider_than_the_question_allows_is_refused_and_the_question_stays_open(
    scene: Scene, widest: Any, scope: Any
) -> None:
    scene.policy = SetPolicy(scope=widest)
    extra: dict[str, Any] = {"window": {"until": 2**62}, "rule": {"rule": RULE}}.get(scope, {})
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([FIRST])).questions
        assert question.scope == widest
        with pytest.raises(AnswerRefusedError, match="stays open"):
            await runtime.decide(question.action_id, approved=True, scope=scope, **extra)
        assert await runtime.questions() == [question]

    person = Person(Answer(approved=True, scope=scope, **extra))
    result = await again(scene, run_id="run_other", interaction=person, log=MemoryLog())
    assert (codes(result), scene.ran) == ({"c2": "user_denied"}, [])


@pytest.mark.parametrize(
    "answer",
    [{"scope": "window"}, {"scope": "rule"}, {"until": 5}, {"rule": RULE}, {"scope": "run", "until": 5}],
    ids=["window without end", "rule without text", "end without window", "text without rule", "run with end"],
)
async def test_an_answer_whose_scope_and_details_disagree_is_refused(scene: Scene, answer: dict[str, Any]) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([FIRST])).questions
        with pytest.raises(AnswerRefusedError):
            await runtime.decide(question.action_id, approved=True, **answer)


async def test_a_yes_for_the_run_that_drift_made_void_covers_nothing_that_was_not_shown(scene: Scene) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([FIRST])).questions
        await first.decide(question.action_id, approved=True, by="ada", scope="run")
    scene.file.write_text("changed meanwhile")

    async with scene.runtime() as second:
        [asked] = (await second.resume()).questions
        await second.decide(asked.action_id, approved=False, by="ada")
        await second.resume()
        result = await second.execute([AGAIN])

    assert (asks(result), scene.ran) == (True, [])


@pytest.mark.requirement("R161")
async def test_a_grant_does_not_outlive_a_rule_that_asks_under_another_name(scene: Scene) -> None:
    scene.policy = ask_rule()
    await granted(scene, scope="run")
    stricter = RulePolicy([*scene.policy.rules, Rule(id="ask-too", verdict="ask", tools="edit", scope="once")])

    assert asks(await again(scene, policy=stricter))


async def test_a_yes_for_the_run_ends_when_the_rule_wants_every_call_to_be_asked_about(scene: Scene) -> None:
    await granted(scene, scope="run")

    assert asks(await again(scene, policy=SetPolicy(scope="once")))


async def test_a_run_that_is_cancelled_while_a_rule_is_kept_records_the_end_of_what_it_started(scene: Scene) -> None:
    keeping, go_on = Event(), Event()

    class SlowPolicy(KeepingPolicy):
        def keep(self, rule: str) -> None:
            keeping.set()
            go_on.wait(HANG_SECONDS)
            super().keep(rule)

    scene.policy = SlowPolicy()
    answer = Answer(approved=True, scope="rule", rule=RULE)
    async with scene.runtime(interaction=CallbackInteractionProvider(lambda question: answer)) as runtime:
        running = asyncio.ensure_future(runtime.execute([FIRST]))
        await asyncio.to_thread(keeping.wait, 5)
        running.cancel()
        await asyncio.wait([running])
        go_on.set()
    async with scene.runtime() as runtime:
        ended = [fact.exit for fact in await facts(runtime) if isinstance(fact, InvocationCompleted)]

    assert (ended, scene.ran) == (["cancelled"], [])
