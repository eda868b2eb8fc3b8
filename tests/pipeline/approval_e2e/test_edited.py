"""A person approves with other arguments: validated, judged, bound and hashed as if the model had sent them."""

import math
from collections.abc import Iterable
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict

from interlock import (
    Answer,
    AnswerRefusedError,
    CallContext,
    Decision,
    ExecutionEnvironment,
    Limits,
    MemoryLog,
    PolicyEvent,
    Question,
    Rule,
    RulePolicy,
    ToolDefinition,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import InvocationStarted
from interlock.domain.payload import Payload, canonical_payload, hash_payload
from interlock.domain.tool import JsonObject
from interlock.sandbox.handlers.executor import HandlerExecutor
from tests.patience import eventually
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import OPEN, RUN, Person, Scene, SetPolicy, changed, rewritten, soon, statuses

EDIT = call("c1", "edit", path="notes.txt")
EDITED = {"path": "other.txt", "text": "by a person", "size": 2.0}


class WatchedSandbox(HandlerExecutor):
    """Remembers for which arguments it described the environment that an approval is bound to."""

    def __init__(self) -> None:
        super().__init__()
        self.described: list[JsonObject] = []

    def describe_environment(
        self, tool: ToolDefinition, arguments: JsonObject, situation: CallContext, paths: Iterable[str]
    ) -> ExecutionEnvironment:
        found = super().describe_environment(tool, arguments, situation, paths)
        self.described.append(arguments)
        return found


async def starts(runtime: ToolRuntime) -> list[InvocationStarted]:
    return [fact for fact in await facts(runtime) if isinstance(fact, InvocationStarted)]


@pytest.mark.requirement("P12")
@pytest.mark.parametrize("way", ["decide", "provider"])
async def test_edited_arguments_run_and_the_model_is_told(scene: Scene, way: str) -> None:
    person = Person(Answer(approved=True, by="ada", arguments=EDITED))
    async with scene.runtime(interaction=person if way == "provider" else OPEN) as runtime:
        result = await soon(runtime.execute([EDIT]))
        if way == "decide":
            await runtime.decide(result.questions[0].action_id, approved=True, by="ada", arguments=EDITED)
            result = await runtime.resume()
        [action] = await runtime.actions()
        [started] = await starts(runtime)
        assert (await runtime.verify()).ok

    assert scene.ran == [EDITED]
    assert (action.status, started.arguments) == ("EXECUTED", EDITED)
    assert action.answer is not None
    assert action.answer.arguments == EDITED
    [message] = result.messages
    assert "by a person" in message["content"]
    assert "changed the arguments" in message["content"]


@pytest.mark.requirement("P12")
async def test_the_model_is_told_who_changed_the_arguments(scene: Scene) -> None:
    person = Person(Answer(approved=True, by="ada", arguments=EDITED))
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert "ada" in result.observations[0].summary


@pytest.mark.requirement("P12", "R159")
async def test_edited_arguments_have_a_hash_of_their_own_over_the_files_that_they_name(scene: Scene) -> None:
    (scene.folder / "other.txt").write_text("other")
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="ada", arguments=EDITED)
        await runtime.resume()
        [started] = await starts(runtime)

    # The same question about the same call, as if the model had asked for what the person wrote.
    async with scene.runtime(log=MemoryLog()) as judge:
        [asked] = (await judge.execute([call("c1", "edit", **EDITED)])).questions
    payload = Payload(RUN, "c1", "edit", EDITED, asked.bound)
    assert [file.path for file in asked.bound.surroundings.files] == ["other.txt"]
    assert started.payload_hash == asked.payload_hash == hash_payload(canonical_payload(payload))
    assert started.payload_hash != question.payload_hash


@pytest.mark.requirement("P12")
async def test_a_file_that_edited_arguments_name_is_held_fast_until_the_start(scene: Scene) -> None:
    """They name another file, which an earlier call of the batch writes after the answer."""
    other, sandbox = scene.folder / "other.txt", WatchedSandbox()

    @tool(concurrency="exclusive")
    async def prepare() -> str:
        await eventually(lambda: EDITED in sandbox.described)
        other.write_text("prepared")
        return "prepared"

    edited, no = Answer(approved=True, arguments=EDITED), Answer(approved=False, reason="It changed.")
    person = Person(edited, no)
    async with scene.runtime(tools=[prepare, scene.tool()], interaction=person, sandbox=sandbox) as runtime:
        result = await soon(runtime.execute([call("c0", "prepare"), EDIT]))
        assert await statuses(runtime) == ["VOID", "REJECTED"]

    assert (codes(result), scene.ran) == ({"c0": "ok", "c1": "user_denied"}, [])
    assert [change.what for change in person.asked[1].changes] == ["file other.txt"]


@pytest.mark.requirement("P12")
@pytest.mark.parametrize(
    "arguments",
    [{}, {"path": 1}, {"path": "a", "extra": 1}, {"path": "a", "size": "large"}, {"path": None}],
    ids=["missing", "wrong type", "unknown field", "no number", "null"],
)
async def test_edited_arguments_that_do_not_fit_are_refused_and_the_question_stays_open(
    scene: Scene, arguments: dict[str, Any]
) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        with pytest.raises(AnswerRefusedError, match="stays open"):
            await runtime.decide(question.action_id, approved=True, arguments=arguments)
        assert await statuses(runtime) == ["PENDING"]
        await runtime.decide(question.action_id, approved=True)
        await runtime.resume()

    assert len(scene.ran) == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"path": "\ud800"},
        {"\udfff": "a"},
        {"path": "a", "size": math.nan},
        {"path": "a", "size": 2**60},
        {"path": object()},
        {"path": b"\xff"},
    ],
    ids=["half a character", "half a character as key", "not a number", "too large", "object", "bytes"],
)
async def test_edited_arguments_that_are_not_json_are_refused_in_words(scene: Scene, arguments: dict[str, Any]) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        with pytest.raises(AnswerRefusedError, match="stays open"):
            await runtime.decide(question.action_id, approved=True, arguments=arguments)
        assert await statuses(runtime) == ["PENDING"]


@pytest.mark.requirement("P12")
async def test_a_provider_whose_edited_arguments_do_not_fit_is_asked_again_and_told_why(scene: Scene) -> None:
    person = Person(Answer(approved=True, arguments={"path": 1}), Answer(approved=True, by="ada"))
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))
        assert await statuses(runtime) == ["VOID", "EXECUTED"]

    assert codes(result) == {"c1": "ok"}
    first, second = person.asked
    assert second.replaces == first.action_id
    [change] = second.changes
    assert (change.what, change.was, "input.path" in change.now) == ("your arguments", "edited", True)
    assert [run["path"] for run in scene.ran] == ["notes.txt"]


async def test_a_provider_that_never_sends_arguments_that_fit_is_not_asked_for_ever(scene: Scene) -> None:
    person = Person(Answer(approved=True, arguments={"path": 1}))
    async with scene.runtime(interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), scene.ran) == ({"c1": "payload_changed"}, [])
    assert len(person.asked) <= 10


class ByText(SetPolicy):
    """Decides by what the text is."""

    def evaluate(self, event: PolicyEvent) -> Decision:
        verdict = {"by a person": Verdict.DENY, "with a code": Verdict.REQUEST_INPUT}.get(
            event.arguments["text"], Verdict.ASK
        )
        target = "text" if verdict is Verdict.REQUEST_INPUT else ""
        return Decision(verdict=verdict, reason="By its text.", rule_ids=("by-text",), target_arg=target)


@pytest.mark.requirement("P12")
@pytest.mark.parametrize("way", ["decide", "provider"])
async def test_edited_arguments_that_a_rule_forbids_are_not_executed(scene: Scene, way: str) -> None:
    scene.policy = ByText()
    person = Person(Answer(approved=True, by="ada", arguments=EDITED))
    async with scene.runtime(interaction=person if way == "provider" else OPEN) as runtime:
        result = await soon(runtime.execute([EDIT]))
        if way == "decide":
            await runtime.decide(result.questions[0].action_id, approved=True, by="ada", arguments=EDITED)
            result = await runtime.resume()
        assert (await runtime.verify()).ok

    assert (codes(result), scene.ran) == ({"c1": "policy_denied"}, [])
    assert result.observations[0].failure is not None
    assert result.observations[0].failure.details["rule_ids"] == ["by-text"]


@pytest.mark.requirement("P12")
async def test_edited_arguments_for_which_policy_wants_a_value_do_not_run_without_it(scene: Scene) -> None:
    scene.policy = ByText()
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        edited = {**EDITED, "text": "with a code"}
        await runtime.decide(question.action_id, approved=True, by="ada", arguments=edited)
        await runtime.resume()

    assert scene.ran == []


@pytest.mark.parametrize("scope", ["run", "rule"])
async def test_edited_arguments_are_approved_once_only(scene: Scene, scope: Any) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        rule = "allow it" if scope == "rule" else ""
        with pytest.raises(AnswerRefusedError):
            await runtime.decide(question.action_id, approved=True, arguments=EDITED, scope=scope, rule=rule)

    assert scene.ran == []


SECRET = "correct-horse-battery-staple"


@pytest.mark.requirement("P12")
async def test_edited_arguments_with_a_secret_run_as_the_person_wrote_them_or_not_at_all(scene: Scene) -> None:
    async with scene.runtime(secrets={"TOKEN": SECRET}) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, by="ada", arguments={**EDITED, "text": SECRET})
        await runtime.resume()
        assert SECRET.encode() not in await runtime.export()

    assert [run["text"] for run in scene.ran] in ([], [SECRET])


class Lenient(BaseModel):
    """Takes what it does not know, and has defaults for everything."""

    model_config = ConfigDict(extra="allow")
    target: str = "production"


@pytest.mark.requirement("P12")
async def test_edited_arguments_that_the_log_cannot_keep_do_not_become_the_defaults_of_the_tool() -> None:
    ran: list[str] = []

    @tool(args_model=Lenient)
    async def deploy(args: Lenient) -> str:
        ran.append(args.target)
        return "deployed"

    policy = RulePolicy([Rule(id="ask", verdict="ask", tools="deploy")])
    async with ToolRuntime(run_id=RUN, tools=[deploy], policy=policy, interaction=OPEN) as runtime:
        [question] = (await runtime.execute([call("c1", "deploy", target="staging")])).questions
        token = "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
        await runtime.decide(question.action_id, approved=True, by="ada", arguments={"target": f"staging:{token}"})
        await runtime.resume()

    assert ran in ([], [f"staging:{token}"])


async def test_a_no_with_arguments_is_a_no(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=False, by="ada", arguments=EDITED)
        result = await runtime.resume()

    assert (codes(result), scene.ran) == ({"c1": "user_denied"}, [])


@pytest.mark.requirement("P12")
async def test_what_a_person_edited_is_void_too_when_something_changed_before_the_start(scene: Scene) -> None:
    async with scene.runtime() as first:
        [question] = (await first.execute([EDIT])).questions
        await first.decide(question.action_id, approved=True, by="ada", arguments=EDITED)
    scene.file.write_text("changed meanwhile")

    async with scene.runtime(log=await rewritten(scene.log, lambda fact: fact)) as second:
        result = await second.resume()

    assert (changed(result), scene.ran) == (["file notes.txt"], [])


class TestWaitingForAnotherPerson:
    """Ada edited the arguments, and another person has to approve them."""

    async def edited(self, scene: Scene) -> Question:
        async with self.runtime(scene) as runtime:
            [first] = (await runtime.execute([EDIT])).questions
            await runtime.decide(first.action_id, approved=True, by="ada", arguments=EDITED)
            [second] = (await runtime.resume()).questions
        assert (second.edited_by, second.arguments, second.replaces) == ("ada", EDITED, first.action_id)
        assert [change.what for change in second.changes] == ["arguments"]
        return second

    def runtime(self, scene: Scene, **options: Any) -> ToolRuntime:
        return scene.runtime(limits=Limits(four_eyes="all"), **options)

    async def test_a_policy_that_allows_it_now_runs_the_edit(self, scene: Scene) -> None:
        await self.edited(scene)
        scene.policy.becomes(Verdict.ALLOW)
        async with self.runtime(scene) as runtime:
            [seen] = (await runtime.resume()).observations

        assert scene.ran == [EDITED]
        assert "A person (ada) changed the arguments before it ran" in seen.summary

    async def test_a_file_that_changes_is_asked_about_with_the_edit(self, scene: Scene) -> None:
        before = await self.edited(scene)
        (scene.folder / "other.txt").write_text("changed meanwhile")
        async with self.runtime(scene) as runtime:
            [after] = (await runtime.resume()).questions
            await runtime.decide(after.action_id, approved=True, by="bob")
            [seen] = (await runtime.resume()).observations

        assert (after.edited_by, after.arguments, after.replaces) == ("ada", EDITED, before.action_id)
        assert (scene.ran, "A person (ada) changed" in seen.summary) == ([EDITED], True)

    async def test_without_its_tool_it_is_refused(self, scene: Scene) -> None:
        await self.edited(scene)
        async with self.runtime(scene, tools=[]) as runtime:
            assert codes(await runtime.resume()) == {"c1": "unknown_tool"}

    async def test_an_edit_that_policy_allows_needs_nobody_else(self, scene: Scene) -> None:
        scene.policy = AllowsText("by a person")
        async with self.runtime(scene) as runtime:
            [question] = (await runtime.execute([EDIT])).questions
            await runtime.decide(question.action_id, approved=True, by="ada", arguments=EDITED)
            assert codes(await runtime.resume()) == {"c1": "ok"}
            assert await statuses(runtime) == ["EXECUTED"]

    async def test_an_edit_that_was_granted_before_needs_nobody_else(self, scene: Scene) -> None:
        async with self.runtime(scene) as runtime:
            [granted] = (await runtime.execute([call("c0", "edit", **EDITED)])).questions
            await runtime.decide(granted.action_id, approved=True, scope="run", by="bob")
            await runtime.resume()
            [question] = (await runtime.execute([EDIT])).questions
            await runtime.decide(question.action_id, approved=True, by="ada", arguments=EDITED)
            assert codes(await runtime.resume()) == {"c1": "ok"}

        assert scene.ran == [EDITED, EDITED]

    async def test_a_value_that_was_asked_for_needs_nobody_else(self, scene: Scene) -> None:
        class AsksForText(SetPolicy):
            def evaluate(self, event: PolicyEvent) -> Decision:
                wants = event.arguments["text"] == "new"
                verdict, target = (Verdict.REQUEST_INPUT, "text") if wants else (Verdict.ASK, "")
                return Decision(verdict=verdict, reason="It says so.", target_arg=target)

        scene.policy = AsksForText()
        async with self.runtime(scene) as runtime:
            [question] = (await runtime.execute([EDIT])).questions
            await runtime.decide(question.action_id, approved=True, by="ada", value="by a person")
            assert codes(await runtime.resume()) == {"c1": "ok"}

    async def test_an_edit_that_cannot_be_approved_is_refused_at_once(self, scene: Scene) -> None:
        inexact = {"path": "notes.txt", "size": 1e20}
        async with self.runtime(scene) as runtime:
            [question] = (await runtime.execute([EDIT])).questions
            await runtime.decide(question.action_id, approved=True, by="ada", arguments=inexact)
            assert codes(await runtime.resume()) == {"c1": "policy_denied"}
            assert await statuses(runtime) == ["APPROVED"]


class AllowsText(SetPolicy):
    """Asks unless the text is this one."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self._text = text

    def evaluate(self, event: PolicyEvent) -> Decision:
        verdict = Verdict.ALLOW if event.arguments["text"] == self._text else Verdict.ASK
        return Decision(verdict=verdict, reason="It says so.")
