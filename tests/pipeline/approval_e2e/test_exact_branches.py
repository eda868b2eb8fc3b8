"""A call that does not stay what it was: nobody can have approved it exactly, and it does not run."""

from collections.abc import Iterable
from typing import Annotated, Any

import msgspec
import pytest
from pydantic import AfterValidator

from interlock import (
    Answer,
    AnswerRefusedError,
    CallContext,
    CheckProblem,
    Decision,
    ExecutionEnvironment,
    PolicyEvent,
    Question,
    RunState,
    ToolContext,
    ToolDefinition,
    Verdict,
    tool,
)
from interlock.domain.event import ApprovalRequested, Fact, InvocationStarted, decode_event
from interlock.domain.tool import JsonObject
from interlock.sandbox.handlers.executor import HandlerExecutor
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import RUN, Person, Scene, SetPolicy, ask_rule, changed, rewritten, soon, statuses

EDIT = call("c1", "edit", path="notes.txt", text="new")
TOKEN = "ghp_" + "a1B2c3D4e5" * 4


class Reading:
    """How a tool reads its text: as it is, or with something added every time."""

    adds = ""

    def tool(self, scene: Scene) -> ToolDefinition:
        async def edit(path: str, text: Annotated[str, AfterValidator(lambda text: text + self.adds)]) -> str:
            scene.ran.append({"path": path, "text": text})
            return "edited"

        return tool(edit, version="1", risk="write", resources={"path": "path"})


async def test_a_tool_that_reads_its_arguments_differently_every_time_cannot_be_approved(scene: Scene) -> None:
    reading, person = Reading(), Person()
    reading.adds = "!"
    async with scene.runtime(tools=[reading.tool(scene)], interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), person.asked, scene.ran) == ({"c1": "policy_denied"}, [], [])
    assert "reading it again gives something else" in result.observations[0].summary


async def test_a_tool_that_does_not_take_what_it_made_of_its_own_arguments_cannot_be_approved(scene: Scene) -> None:
    def shortened(text: str) -> str:
        if text == "n":
            raise ValueError("too short")
        return text[:1]

    async def edit(text: Annotated[str, AfterValidator(shortened)]) -> str:
        scene.ran.append({"text": text})
        return "edited"

    person = Person()
    async with scene.runtime(tools=[tool(edit, risk="write")], interaction=person) as runtime:
        result = await soon(runtime.execute([call("c1", "edit", text="new")]))

    assert (codes(result), person.asked, scene.ran) == ({"c1": "policy_denied"}, [], [])


async def test_a_tool_that_begins_to_read_differently_after_the_question_does_not_run_what_was_approved(
    scene: Scene,
) -> None:
    reading = Reading()

    def think(_: object) -> None:
        reading.adds = "!"

    async with scene.runtime(tools=[reading.tool(scene)], interaction=Person(thinks=think)) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert (await runtime.verify()).ok

    assert (codes(result), scene.ran) == ({"c1": "policy_denied"}, [])


async def test_what_changed_into_something_that_cannot_be_approved_is_refused_instead_of_asked_again(
    scene: Scene,
) -> None:
    reading = Reading()

    def think(_: object) -> None:
        scene.file.write_text("changed meanwhile")
        reading.adds = "!"

    person = Person(thinks=think)
    async with scene.runtime(tools=[reading.tool(scene)], interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert await statuses(runtime) == ["VOID"]
        assert await runtime.state() is RunState.RUNNING

    assert (codes(result), len(person.asked), scene.ran) == ({"c1": "policy_denied"}, 1, [])


async def test_edited_arguments_that_no_bytes_can_stand_for_do_not_run(scene: Scene) -> None:
    edited = Answer(approved=True, arguments={"path": "notes.txt", "size": 1e20})
    async with scene.runtime(interaction=Person(edited)) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), scene.ran) == ({"c1": "policy_denied"}, [])
    assert "this cannot be approved exactly as it would run" in result.observations[0].summary


async def test_a_yes_for_the_run_does_not_cover_what_no_bytes_can_stand_for(scene: Scene) -> None:
    async def edit(number: int = 2**60) -> str:
        scene.ran.append({"number": number})
        return "edited"

    person = Person(Answer(approved=True, scope="run"))
    async with scene.runtime(tools=[tool(edit, risk="write")], interaction=person) as runtime:
        first = await soon(runtime.execute([call("c1", "edit", number=1)]))
        second = await soon(runtime.execute([call("c2", "edit")]))

    assert (codes(first), codes(second)) == ({"c1": "ok"}, {"c2": "policy_denied"})
    assert (scene.ran, len(person.asked)) == ([{"number": 1}], 1)


async def test_a_file_that_changed_before_the_run_is_resumed_voids_a_question_that_nobody_answered(
    scene: Scene,
) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
    scene.file.write_text("changed meanwhile")

    async with scene.runtime() as second:
        again = await second.resume()
        assert await statuses(second) == ["VOID", "PENDING"]

    assert (changed(again), again.questions[0].replaces) == (["file notes.txt"], question.action_id)


async def test_what_can_no_longer_be_done_after_the_approval_is_not_started(scene: Scene) -> None:
    problems: list[CheckProblem] = []

    def check(arguments: JsonObject, ctx: ToolContext) -> CheckProblem | None:
        return problems[0] if problems else None

    person = Person(thinks=lambda _: problems.append(CheckProblem(message="The file is locked")))
    async with scene.runtime(tools=[scene.tool(check=check)], interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert not [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]

    assert (codes(result), scene.ran) == ({"c1": "runtime_precondition_failed"}, [])
    assert "The file is locked." in result.observations[0].summary


async def test_a_stored_question_that_no_bytes_can_stand_for_takes_no_answer(scene: Scene) -> None:
    def with_a_huge_number(fact: Fact) -> Fact:
        if not isinstance(fact, ApprovalRequested):
            return fact
        asked = msgspec.structs.replace(fact.question, arguments={**fact.question.arguments, "size": 2**60})
        return msgspec.structs.replace(fact, question=asked)

    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
    altered = await rewritten(scene.log, with_a_huge_number)

    async with scene.runtime(log=altered) as second:
        with pytest.raises(AnswerRefusedError, match="does not match its payload hash"):
            await second.decide(question.action_id, approved=True, by="ada")

    assert scene.ran == []


@pytest.mark.parametrize("resumed", ["in the same process", "in another process"])
async def test_a_question_with_a_secret_can_be_answered_and_nothing_else_runs(scene: Scene, resumed: str) -> None:
    secret = call("c1", "edit", path="notes.txt", text=TOKEN)
    async with scene.runtime() as first:
        [question] = (await first.execute([secret])).questions
        await first.decide(question.action_id, approved=True, by="ada")
        result = await first.resume() if resumed == "in the same process" else None
    if result is None:
        async with scene.runtime() as second:
            result = await second.resume()

    ran: list[Any] = [each["text"] for each in scene.ran]
    assert ran in ([], [TOKEN])
    assert (codes(result)["c1"] == "ok") == bool(ran)


async def test_a_policy_without_a_digest_may_still_ask(scene: Scene) -> None:
    class Nameless:
        def evaluate(self, event: PolicyEvent) -> Decision:
            return Decision(verdict=Verdict.ASK, reason="It says so.")

    async with scene.runtime(policy=Nameless()) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True)
        result = await runtime.resume()

    assert (question.bound.policy, codes(result)) == ("", {"c1": "ok"})


@pytest.mark.parametrize("verdict", [Verdict.ALLOW, Verdict.DENY])
async def test_a_paused_run_goes_on_when_what_it_asked_about_needs_no_answer_any_more(
    scene: Scene, verdict: Verdict
) -> None:
    async with scene.runtime() as first:
        await first.execute([EDIT])

    async with scene.runtime(policy=SetPolicy(verdict, "sha256:two")) as second:
        result = await second.resume()
        assert (await statuses(second), await second.state()) == (["VOID"], RunState.RUNNING)

    assert codes(result) == {"c1": "ok" if verdict is Verdict.ALLOW else "policy_denied"}


async def test_a_paused_run_goes_on_when_the_tool_that_it_asked_about_changes_and_goes(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    class LeavingSandbox(HandlerExecutor):
        def describe_environment(
            self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext, paths: Iterable[str]
        ) -> ExecutionEnvironment:
            second.registry.unregister(tool.name)
            return msgspec.structs.replace(
                super().describe_environment(tool, arguments, situation, paths), sandbox="another"
            )

    async with scene.runtime() as first:
        await first.execute([EDIT])

    monkeypatch.setattr("interlock.sandbox.handlers.executor.HandlerExecutor", LeavingSandbox)
    second = scene.runtime()
    async with second:
        result = await second.resume()
        assert (await statuses(second), await second.state()) == (["VOID"], RunState.RUNNING)

    assert (codes(result), scene.ran) == ({"c1": "unknown_tool"}, [])


async def test_a_question_is_in_the_log_before_anybody_is_asked(scene: Scene) -> None:
    class Reader(Person):
        async def ask(self, question: Question) -> Answer | None:
            stored = [decode_event(entry).fact for entry in await scene.log.read(RUN)]
            assert [fact.question for fact in stored if isinstance(fact, ApprovalRequested)] == [question]
            return await super().ask(question)

    person = Reader()
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), len(person.asked)) == ({"c1": "ok"}, 1)


async def test_a_person_without_a_name_who_edits_is_a_person(scene: Scene) -> None:
    edited = Answer(approved=True, arguments={"path": "notes.txt", "text": "theirs"})
    async with scene.runtime(interaction=Person(edited)) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert "A person (a person) changed the arguments" in result.observations[0].summary


async def test_a_value_that_was_asked_for_is_no_change_of_the_arguments(scene: Scene) -> None:
    scene.policy = ask_rule(verdict="request_input", target_arg="text")
    async with scene.runtime(interaction=Person(Answer(approved=True, value="theirs", by="ada"))) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert [ran["text"] for ran in scene.ran] == ["theirs"]
    assert "changed the arguments" not in result.observations[0].summary


async def test_arguments_for_a_tool_that_is_gone_are_taken_and_nothing_runs(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        runtime.registry.unregister("edit")
        await runtime.decide(question.action_id, approved=True, arguments={"path": "other.txt"})
        result = await runtime.resume()

    assert (codes(result), scene.ran) == ({"c1": "unknown_tool"}, [])


async def test_a_person_who_is_asked_again_sees_everything_that_changed_and_that_the_time_was_over(
    scene: Scene,
) -> None:
    scene.policy = ask_rule(answer_within_seconds=60)
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        await first.decide(question.action_id, approved=True)
    scene.file.write_text("changed meanwhile")
    scene.time.passes(60)

    async with scene.runtime(requester="bob") as second:
        result = await second.resume()

    assert set(changed(result)) == {"requester", "file notes.txt", "time"}


async def test_a_refusal_without_a_reason_still_says_that_a_rule_refuses(scene: Scene) -> None:
    class Terse:
        def evaluate(self, event: PolicyEvent) -> Decision:
            return Decision(verdict=Verdict.DENY, reason="")

    async with scene.runtime(policy=Terse()) as runtime:
        result = await runtime.execute([EDIT])

    assert "A rule refuses it. Nothing was executed." in result.observations[0].summary


async def test_a_no_without_a_reason_is_told_without_one(scene: Scene) -> None:
    async with scene.runtime(interaction=Person(Answer(approved=False))) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert result.observations[0].summary == "A person declined edit. Nothing was executed."
