"""A question is open for a time. When that is over nobody has said no, and nothing is executed."""

import asyncio
from typing import Any

import pytest

from interlock import (
    Answer,
    CallbackInteractionProvider,
    Clock,
    DecisionConflictError,
    Limits,
    Question,
    RunState,
    to_run_events,
)
from interlock.domain.event import ApprovalExpired, ApprovalRejected, InvocationStarted
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import SECOND, START, Person, Scene, ask_rule, changed, soon, statuses

EDIT = call("c1", "edit", path="notes.txt")


async def never(_: Question) -> bool:
    return await asyncio.Event().wait()


@pytest.fixture
def timed(scene: Scene) -> Scene:
    """Questions about it are open for a minute."""
    scene.policy = ask_rule(answer_within_seconds=60)
    return scene


@pytest.mark.requirement("D07")
async def test_a_rule_says_how_long_its_question_is_open(timed: Scene) -> None:
    async with timed.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert (question.asked_at, question.expires_at) == (START, START + 60 * SECOND)


@pytest.mark.parametrize(("own", "seconds"), [(None, 90), (60, 60)])
async def test_the_limit_holds_where_a_rule_says_no_time(scene: Scene, own: int | None, seconds: int) -> None:
    scene.policy = ask_rule(answer_within_seconds=own)
    async with scene.runtime(limits=Limits(approval_seconds=90)) as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert question.expires_at == START + seconds * SECOND


async def test_without_a_time_a_question_is_open_for_ever(scene: Scene) -> None:
    scene.policy = ask_rule()
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        scene.time.passes(10 * 365 * 24 * 3600)
        await runtime.decide(question.action_id, approved=True)
        assert codes(await runtime.resume()) == {"c1": "ok"}

    assert question.expires_at == 0


@pytest.mark.requirement("D07")
@pytest.mark.parametrize("seconds_late", [0, 1, 3600])
async def test_an_answer_that_comes_too_late_is_refused_and_the_call_has_expired(
    timed: Scene, seconds_late: int
) -> None:
    async with timed.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        timed.time.passes(60 + seconds_late)
        with pytest.raises(DecisionConflictError, match="time is over"):
            await runtime.decide(question.action_id, approved=True, by="ada")
        result = await runtime.resume()
        recorded = await facts(runtime)
        shown = [shown for step in await runtime.replay() for shown in to_run_events(step.event)]
        assert await statuses(runtime) == ["EXPIRED"]
        assert await runtime.state() is RunState.RUNNING
        assert (await runtime.verify()).ok

    assert (codes(result), timed.ran) == ({"c1": "approval_expired"}, [])
    [expired] = [fact for fact in recorded if isinstance(fact, ApprovalExpired | ApprovalRejected)]
    assert isinstance(expired, ApprovalExpired)
    assert expired.answer == Answer(approved=False, reason="Nobody answered in time.", expired=True, by="clock")
    assert [event.data["code"] for event in shown if event.type == "ERROR"] == ["approval_expired"]
    assert "denied" not in result.messages[0]["content"]


async def test_an_answer_in_the_last_moment_counts(timed: Scene) -> None:
    async with timed.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        timed.time.now = question.expires_at - 1
        await runtime.decide(question.action_id, approved=True, by="ada")
        assert codes(await runtime.resume()) == {"c1": "ok"}


@pytest.mark.requirement("D07", "R160")
async def test_what_was_approved_in_time_and_starts_too_late_is_asked_again(timed: Scene) -> None:
    async with timed.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        await first.decide(question.action_id, approved=True, by="ada")
    timed.time.passes(60)

    async with timed.runtime() as second:
        result = await second.resume()
        assert await statuses(second) == ["VOID", "PENDING"]
        assert not [fact for fact in await facts(second) if isinstance(fact, InvocationStarted | ApprovalRejected)]

    assert (timed.ran, changed(result)) == ([], ["time"])
    assert result.questions[0].expires_at == timed.time.now + 60 * SECOND


@pytest.mark.requirement("D07")
async def test_a_question_that_expired_while_nobody_was_there_is_not_put_to_anybody(timed: Scene) -> None:
    async with timed.runtime() as first:
        await first.execute([EDIT])
    timed.time.passes(61)
    person = Person()

    async with timed.runtime(interaction=person) as second:
        result = await soon(second.resume())

    assert (codes(result), person.asked, timed.ran) == ({"c1": "approval_expired"}, [], [])


@pytest.mark.requirement("D07")
@pytest.mark.parametrize("patience", [None, 300.0])
async def test_a_person_is_waited_for_no_longer_than_the_question_is_open(scene: Scene, patience: Any) -> None:
    scene.policy = ask_rule(answer_within_seconds=0.05)
    interaction = CallbackInteractionProvider(never, patience)
    async with scene.runtime(interaction=interaction, clock=Clock()) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert await statuses(runtime) == ["EXPIRED"]

    assert (codes(result), scene.ran) == ({"c1": "approval_expired"}, [])


@pytest.mark.requirement("D07")
async def test_a_fallback_that_approves_cannot_approve_what_is_over(scene: Scene) -> None:
    scene.policy = ask_rule(answer_within_seconds=0.5)
    asked: list[str] = []

    async def silent(question: Question) -> bool:
        asked.append(question.action_id)
        return await never(question)

    interaction = CallbackInteractionProvider(silent, None, "approve")
    async with scene.runtime(interaction=interaction, clock=Clock()) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), scene.ran) == ({"c1": "approval_expired"}, [])
    assert len(asked) == 1


async def test_a_fallback_that_waits_leaves_the_question_open_until_it_has_expired(scene: Scene) -> None:
    scene.policy = ask_rule(answer_within_seconds=0.5)
    interaction = CallbackInteractionProvider(never, None, "wait")
    async with scene.runtime(interaction=interaction, clock=Clock()) as runtime:
        paused = await soon(runtime.execute([EDIT]))
        assert paused.state is RunState.PAUSED_APPROVAL
        result = await soon(runtime.resume())

    assert codes(result) == {"c1": "approval_expired"}


@pytest.mark.requirement("D07")
async def test_a_provider_that_answers_after_its_question_is_over_has_approved_nothing(timed: Scene) -> None:
    person = Person(Answer(approved=True, by="ada"), None, thinks=lambda _: timed.time.passes(61))
    async with timed.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert timed.ran == []
    assert codes(result).get("c1", "approval_expired") != "user_denied"
