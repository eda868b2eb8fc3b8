"""What a question is bound to changes while it is open: it is void, and whoever is asked again sees what changed."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from interlock import Answer, Decision, PolicyEvent, RunState, ToolContext, ToolRegistry, Verdict, tool
from interlock.domain.event import ApprovalRequested, ApprovalVoided, InvocationStarted, PolicyEvaluated, RunResumed
from interlock.domain.payload import BindingChange
from tests.logs import open_log
from tests.pipeline.batch.stage import codes, others_ran
from tests.support import call, facts

from .scene import Person, Scene, SetPolicy, changed, soon, statuses

EDIT = call("c1", "edit", path="notes.txt")
YES = Answer(approved=True, by="ada")
NO = Answer(approved=False, reason="Not today.", by="ada")


@pytest.mark.requirement("D12", "R160")
async def test_a_file_that_changes_while_the_person_thinks_is_asked_about_again(scene: Scene) -> None:
    def think(_: object) -> None:
        if len(person.asked) == 1:
            scene.file.write_text("changed meanwhile")

    person = Person(thinks=think)
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        recorded = await facts(runtime)
        assert await statuses(runtime) == ["VOID", "EXECUTED"]
        assert (await runtime.verify()).ok

    first, second = person.asked
    assert codes(result) == {"c1": "ok"}
    assert (second.replaces, [change.what for change in second.changes]) == (first.action_id, ["file notes.txt"])
    assert second.payload_hash != first.payload_hash
    [voided] = [fact for fact in recorded if isinstance(fact, ApprovalVoided)]
    assert (voided.action_id, voided.changes) == (first.action_id, second.changes)
    [started] = [fact for fact in recorded if isinstance(fact, InvocationStarted)]
    assert (started.action_id, started.payload_hash) == (second.action_id, second.payload_hash)


async def test_a_person_who_sees_what_changed_may_say_no(scene: Scene) -> None:
    person = Person(YES, NO, thinks=lambda _: scene.file.write_text("changed meanwhile"))
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert await statuses(runtime) == ["VOID", "REJECTED"]

    assert (codes(result), scene.ran) == ({"c1": "user_denied"}, [])


@pytest.mark.requirement("D12", "R160")
async def test_a_file_that_an_earlier_call_of_the_batch_edits_after_the_answer_is_asked_about_again(
    scene: Scene,
) -> None:
    asked = asyncio.Event()

    @tool(concurrency="exclusive")
    async def prepare(ctx: ToolContext) -> str:
        await asked.wait()
        await others_ran()
        scene.file.write_text("prepared")
        return "prepared"

    person = Person(thinks=lambda _: asked.set())
    async with scene.runtime(tools=[prepare, scene.tool()], interaction=person) as runtime:
        result = await soon(runtime.execute([call("c0", "prepare"), EDIT]))
        assert await statuses(runtime) == ["VOID", "EXECUTED"]
        assert (await runtime.verify()).ok

    assert codes(result) == {"c0": "ok", "c1": "ok"}
    assert [change.what for change in person.asked[1].changes] == ["file notes.txt"]
    assert person.asked[1].replaces == person.asked[0].action_id


@pytest.mark.parametrize("replacement", [{"version": "2"}, {"description": "Does something else."}])
async def test_a_tool_that_is_replaced_while_the_person_thinks_is_asked_about_again(
    scene: Scene, replacement: dict[str, Any]
) -> None:
    def think(_: object) -> None:
        if len(person.asked) == 1:
            runtime.registry.unregister("edit")
            runtime.registry.register(scene.tool(**replacement))

    person = Person(thinks=think)
    runtime = scene.runtime(interaction=person)
    async with runtime:
        result = await soon(runtime.execute([EDIT]))
        assert await statuses(runtime) == ["VOID", "EXECUTED"]

    assert codes(result) == {"c1": "ok"}
    assert "tool definition" in [change.what for change in person.asked[1].changes]


async def test_a_tool_that_goes_while_the_person_thinks_is_not_executed(scene: Scene) -> None:
    person = Person(thinks=lambda _: runtime.registry.unregister("edit"))
    runtime = scene.runtime(interaction=person)
    async with runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), scene.ran) == ({"c1": "unknown_tool"}, [])


@pytest.mark.requirement("D12", "R160")
async def test_what_keeps_changing_ends_after_a_few_questions_and_never_runs(scene: Scene) -> None:
    person = Person(thinks=lambda _: scene.file.write_text(f"version {len(person.asked)}"))
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert set(await statuses(runtime)) == {"VOID"}
        assert await runtime.state() is RunState.RUNNING
        assert (await runtime.verify()).ok

    assert (codes(result), scene.ran) == ({"c1": "payload_changed"}, [])
    assert len(person.asked) == 5


@pytest.mark.requirement("D12")
@pytest.mark.parametrize(
    ("verdict", "code", "questions"),
    [(Verdict.ALLOW, "ok", 1), (Verdict.DENY, "policy_denied", 1), (Verdict.ASK, "ok", 2)],
)
async def test_a_policy_that_changes_while_the_person_thinks_judges_the_call_again(
    scene: Scene, verdict: Verdict, code: str, questions: int
) -> None:
    def think(_: object) -> None:
        if len(person.asked) == 1:
            scene.policy.becomes(verdict)
            scene.policy.digest = "sha256:two"

    person = Person(thinks=think)
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert (await statuses(runtime))[0] == "VOID"
        assert (await runtime.verify()).ok

    assert (codes(result), len(person.asked)) == ({"c1": code}, questions)
    assert len(scene.ran) == (code == "ok")


@pytest.fixture
def stored(scene: Scene, tmp_path: Path, log_backend: str) -> Scene:
    """The same, on a log that outlives a process."""
    scene.log = open_log(tmp_path / "runs.db")
    return scene


@pytest.mark.requirement("D12", "R160")
@pytest.mark.parametrize("answered", ["before the change", "after the change"])
async def test_another_process_voids_what_was_approved_and_asks_again(stored: Scene, answered: str) -> None:
    async with stored.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        if answered == "before the change":
            await first.decide(question.action_id, approved=True, by="ada")
    await stored.log.close()
    stored.log = open_log(stored.folder.parent / "runs.db")
    stored.file.write_text("changed meanwhile")

    async with stored.runtime() as second:
        if answered == "after the change":
            await second.decide(question.action_id, approved=True, by="ada")
        again = await second.resume()
        assert (changed(again), stored.ran) == (["file notes.txt"], [])
        assert again.questions[0].replaces == question.action_id
        assert await second.state() is RunState.PAUSED_APPROVAL
        assert not [fact for fact in await facts(second) if isinstance(fact, InvocationStarted)]
        assert (await second.verify()).ok

        await second.decide(again.questions[0].action_id, approved=True, by="ada")
        result = await second.resume()
        assert await statuses(second) == ["VOID", "EXECUTED"]
        assert (await second.verify()).ok
    await stored.log.close()

    assert (codes(result), len(stored.ran)) == ({"c1": "ok"}, 1)


@pytest.mark.parametrize(
    ("verdict", "code", "asked"), [(Verdict.ALLOW, "ok", 1), (Verdict.DENY, "policy_denied", 1), (Verdict.ASK, "", 2)]
)
async def test_another_process_with_another_policy_judges_an_approved_call_again(
    scene: Scene, verdict: Verdict, code: str, asked: int
) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        await first.decide(question.action_id, approved=True, by="ada")

    async with scene.runtime(policy=SetPolicy(verdict, "sha256:two")) as second:
        result = await second.resume()
        recorded = await facts(second)
        assert (await second.verify()).ok

    assert codes(result) == ({"c1": code} if code else {})
    assert len([fact for fact in recorded if isinstance(fact, ApprovalRequested)]) == asked
    assert len(scene.ran) == (code == "ok")


@pytest.mark.requirement("P02")
@pytest.mark.parametrize("different", ["nothing", "file", "tool", "policy", "requester", "everything"])
async def test_a_stored_no_stands_whatever_changed(stored: Scene, different: str) -> None:
    async with stored.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        await first.decide(question.action_id, approved=False, reason="Not on a Friday.", by="ada")
    options: dict[str, dict[str, Any]] = {
        "tool": {"tools": [stored.tool(version="2")]},
        "policy": {"policy": SetPolicy(Verdict.ALLOW, "sha256:two")},
        "requester": {"requester": "bob"},
    }
    if different in ("file", "everything"):
        stored.file.write_text("changed meanwhile")
    chosen = {
        name: value
        for key, given in options.items()
        if different in (key, "everything")
        for name, value in given.items()
    }

    async with stored.runtime(**chosen) as second:
        result = await second.resume()
        assert await statuses(second) == ["REJECTED"]
        assert (await second.verify()).ok
    await stored.log.close()

    assert (codes(result), stored.ran) == ({"c1": "user_denied"}, [])
    assert "Not on a Friday." in result.messages[0]["content"]


async def test_a_question_about_a_tool_that_is_gone_does_not_hold_the_run_for_ever(scene: Scene) -> None:
    async with scene.runtime() as first:
        await first.execute([EDIT])

    async with scene.runtime(tools=[]) as second:
        result = await second.resume()
        assert codes(result) == {"c1": "unknown_tool"}
        assert await statuses(second) == ["VOID"]
        assert await second.questions() == []
        assert await second.state() is RunState.RUNNING
        assert (await second.verify()).ok


async def test_a_tool_that_goes_while_the_person_thinks_is_named(scene: Scene) -> None:
    registry = ToolRegistry([scene.tool()])
    person = Person(thinks=lambda _: registry.unregister("edit"))
    async with scene.runtime(tools=registry, interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        [voided] = [fact for fact in await facts(runtime) if isinstance(fact, ApprovalVoided)]

    assert (codes(result), scene.ran) == ({"c1": "unknown_tool"}, [])
    assert voided.changes == (BindingChange("tool", "there", "gone"),)


async def test_an_answer_after_the_end_names_the_time(scene: Scene) -> None:
    """The question was approved in time; the call would start too late."""
    scene.policy = SetPolicy(answer_within_seconds=60)
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="ada")
        scene.time.passes(61)
        [again] = (await runtime.resume()).questions

    assert (again.changes, scene.ran) == ((BindingChange("time", "open", "over"),), [])


async def test_a_policy_without_a_digest_binds_to_none(scene: Scene) -> None:
    class Plain:
        def evaluate(self, event: PolicyEvent) -> Decision:
            return Decision(verdict=Verdict.ASK, reason="It says so.")

    async with scene.runtime(policy=Plain()) as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert question.bound.policy == ""


async def test_a_guardrail_that_refuses_what_a_paused_run_asks_about_lets_the_run_go_on(scene: Scene) -> None:
    async with scene.runtime() as first:
        await first.execute([EDIT])

    def refuse(arguments: object, ctx: ToolContext) -> str:
        return "Not this one."

    async with scene.runtime(tools=[scene.tool(input_guardrails=[refuse])]) as second:
        result = await second.resume()
        assert codes(result) == {"c1": "guardrail_refused"}
        assert await statuses(second) == ["VOID"]
        assert await second.state() is RunState.RUNNING


async def test_what_changes_before_the_question_is_noticed_after_it(scene: Scene) -> None:
    """The second call is evaluated after the first one was bound, and before anybody is asked."""

    class Writing(SetPolicy):
        def evaluate(self, event: PolicyEvent) -> Decision:
            if event.tool_name != "edit":
                scene.file.write_text("changed meanwhile")
            return super().evaluate(event)

    scene.policy, person = Writing(), Person()
    async with scene.runtime(tools=[scene.tool(), tool(others_ran)], interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT, call("c2", "others_ran")]))

    assert codes(result) == {"c1": "ok", "c2": "ok"}
    assert [[change.what for change in asked.changes] for asked in person.asked] == [[], ["file notes.txt"]]


async def test_a_policy_that_allows_it_now_resumes_the_run(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        await runtime.execute([EDIT])
        scene.policy.becomes(Verdict.ALLOW)
        assert codes(await runtime.resume()) == {"c1": "ok"}
        events = [step.event for step in await runtime.replay()]

    [resumed] = [event for event in events if isinstance(event.fact, RunResumed)]
    [_, allowed] = [event for event in events if isinstance(event.fact, PolicyEvaluated)]
    assert resumed.causation_id == allowed.seq
