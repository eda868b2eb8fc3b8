"""A person is asked for a value: the call that runs is the one with the value, validated, judged, bound and hashed."""

from typing import Any

import pytest

from interlock import Answer, AnswerRefusedError, MemoryLog, RunState, ToolRuntime, Verdict
from interlock.domain.event import InputProvided, InputRequested, InvocationStarted
from interlock.domain.payload import Payload, canonical_payload, hash_payload
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import RUN, Person, Scene, SetPolicy, changed, soon, statuses

EDIT = call("c1", "edit", path="notes.txt", text="made up by the model")


@pytest.fixture
def asking(scene: Scene) -> Scene:
    """Policy wants the text of an edit from a person."""
    scene.policy = SetPolicy(Verdict.REQUEST_INPUT, target_arg="text")
    return scene


async def asked(runtime: ToolRuntime) -> str:
    [question] = (await runtime.execute([EDIT])).questions
    assert (question.kind, question.target_arg) == ("input", "text")
    return question.action_id


@pytest.mark.requirement("D08", "D12", "R159")
async def test_what_starts_has_the_hash_of_the_call_with_the_value(asking: Scene) -> None:
    async with asking.runtime() as runtime:
        action_id = await asked(runtime)
        await runtime.decide(action_id, approved=True, value="from ada", by="ada")
        result = await runtime.resume()
        recorded = await facts(runtime)
        [action] = await runtime.actions()
        assert (await runtime.verify()).ok

    [question] = [fact.question for fact in recorded if isinstance(fact, InputRequested)]
    [started] = [fact for fact in recorded if isinstance(fact, InvocationStarted)]
    [provided] = [fact for fact in recorded if isinstance(fact, InputProvided)]
    arguments = {"path": "notes.txt", "text": "from ada", "size": 1.0}
    expected = hash_payload(canonical_payload(Payload(RUN, "c1", "edit", arguments, question.bound)))
    assert (codes(result), asking.ran) == ({"c1": "ok"}, [arguments])
    assert (started.payload_hash, started.action_id) == (expected, action_id)
    assert started.payload_hash != question.payload_hash
    assert (action.status, provided.answer.by) == ("EXECUTED", "ada")


async def test_a_value_may_name_a_file_which_is_then_bound(scene: Scene) -> None:
    scene.policy = SetPolicy(Verdict.REQUEST_INPUT, target_arg="path")
    (scene.folder / "other.txt").write_text("other")
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, value="other.txt", by="ada")
        await runtime.resume()
        [started] = [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]

    async with scene.runtime(log=MemoryLog(), policy=SetPolicy()) as judge:
        [same] = (await judge.execute([call("c1", "edit", path="other.txt", text="made up by the model")])).questions
    assert [file.path for file in same.bound.surroundings.files] == ["other.txt"]
    assert started.payload_hash == same.payload_hash


@pytest.mark.requirement("D08")
@pytest.mark.parametrize("value", [17, None, ["from ada"], {"text": "from ada"}, True])
async def test_a_value_that_does_not_fit_is_no_answer_and_the_question_stays_open(asking: Scene, value: Any) -> None:
    async with asking.runtime() as runtime:
        action_id = await asked(runtime)
        with pytest.raises(AnswerRefusedError, match=r"do not fit edit.*The question stays open"):
            await runtime.decide(action_id, approved=True, value=value, by="ada")
        await runtime.decide(action_id, approved=True, value="from ada", by="ada")
        result = await runtime.resume()

    assert codes(result) == {"c1": "ok"}


@pytest.mark.requirement("D08", "R160")
@pytest.mark.parametrize("answered", ["before the change", "after the change"])
async def test_a_value_is_asked_for_again_when_what_it_was_given_for_changed(asking: Scene, answered: str) -> None:
    async with asking.runtime() as first:
        action_id = await asked(first)
        if answered == "before the change":
            await first.decide(action_id, approved=True, value="from ada", by="ada")
    asking.file.write_text("changed meanwhile")

    async with asking.runtime() as second:
        if answered == "after the change":
            await second.decide(action_id, approved=True, value="from ada", by="ada")
        result = await second.resume()
        assert await statuses(second) == ["VOID", "PENDING"]
        assert await second.state() is RunState.PAUSED_INPUT
        assert (await second.verify()).ok

    assert (changed(result), asking.ran) == (["file notes.txt"], [])
    assert (result.questions[0].kind, result.questions[0].replaces) == ("input", action_id)


async def test_a_file_that_changes_while_the_person_writes_is_asked_about_again(asking: Scene) -> None:
    def write(_: object) -> None:
        if len(person.asked) == 1:
            asking.file.write_text("changed meanwhile")

    person = Person(Answer(approved=True, value="from ada", by="ada"), thinks=write)
    async with asking.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), len(person.asked)) == ({"c1": "ok"}, 2)
    assert [run["text"] for run in asking.ran] == ["from ada"]


async def test_no_value_can_be_given_for_more_than_once_or_with_other_arguments(asking: Scene) -> None:
    async with asking.runtime() as runtime:
        action_id = await asked(runtime)
        for answer in ({"scope": "run"}, {"arguments": {"path": "other.txt"}}):
            with pytest.raises(Exception, match="stays open"):
                await runtime.decide(action_id, approved=True, value="from ada", **answer)  # pyright: ignore[reportArgumentType]
        assert await statuses(runtime) == ["PENDING"]


async def test_refusing_a_value_needs_none(asking: Scene) -> None:
    async with asking.runtime() as runtime:
        await runtime.decide(await asked(runtime), approved=False, by="ada")
        assert codes(await runtime.resume()) == {"c1": "user_denied"}


async def test_a_value_for_a_call_with_a_secret_can_be_given(scene: Scene) -> None:
    """The log does not have the other arguments, so they are checked when the call continues."""
    scene.policy, secret = SetPolicy(Verdict.REQUEST_INPUT, target_arg="path"), call("c1", "edit", path="", text=SECRET)
    async with scene.runtime(secrets={"TOKEN": SECRET}) as runtime:
        [question] = (await runtime.execute([secret])).questions
        await runtime.decide(question.action_id, approved=True, value="notes.txt", by="ada")
        assert codes(await runtime.execute([secret])) == {"c1": "ok"}

    assert [run["path"] for run in scene.ran] == ["notes.txt"]


SECRET = "correct-horse-battery-staple"


async def test_a_value_that_the_log_may_not_keep_runs_as_it_was_given_or_not_at_all(asking: Scene) -> None:
    async with asking.runtime(secrets={"TOKEN": SECRET}) as runtime:
        await runtime.decide(await asked(runtime), approved=True, value=SECRET, by="ada")
        await runtime.resume()
        assert SECRET.encode() not in await runtime.export()

    assert [run["text"] for run in asking.ran] in ([], [SECRET])
