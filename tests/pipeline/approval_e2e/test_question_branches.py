"""What a question says, and what it holds fast that only the policy saw."""

import asyncio
from typing import Any

import pytest

from interlock import Answer, Decision, MemoryLog, PolicyEvent, Question, RulePolicy, ToolRuntime, Verdict, tool
from interlock.domain.event import ApprovalGranted, PolicyEvaluated, decode_event
from tests.pipeline.batch.stage import codes
from tests.support import call, facts

from .scene import OPEN, RUN, Person, ProfiledSandbox, Scene, SetPolicy, ask_rule, changed, soon

EDIT = call("c1", "edit", path="notes.txt")


@pytest.mark.parametrize(
    ("said", "prompt"), [({}, "Run edit? It says so."), ({"prompt": "May it edit?"}, "May it edit?")]
)
async def test_a_question_is_put_in_the_words_of_its_rule_or_in_plain_ones(
    scene: Scene, said: dict[str, Any], prompt: str
) -> None:
    async with scene.runtime(policy=SetPolicy(**said)) as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert question.prompt == prompt


@pytest.mark.parametrize(("verdict", "rule", "scope"), [("ask", "- allow edit", "rule"), ("request_input", "", "once")])
async def test_a_rule_is_suggested_for_an_approval_and_not_for_a_value(
    scene: Scene, verdict: str, rule: str, scope: str
) -> None:
    target = {"target_arg": "text"} if verdict == "request_input" else {}
    policy = SetPolicy(Verdict(verdict), suggested_rule="- allow edit", **target)
    async with scene.runtime(policy=policy) as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert (question.suggested_rule, question.scope) == (rule, scope)


@pytest.mark.parametrize(
    ("said", "first"),
    [({}, ("write", "sandbox: none/async")), ({"risk": ("rm -rf",)}, ("rm -rf", "sandbox: none/async"))],
)
async def test_the_risks_are_those_that_the_policy_saw_or_those_that_the_tool_declares(
    scene: Scene, said: dict[str, Any], first: tuple[str, str]
) -> None:
    async with scene.runtime(policy=SetPolicy(**said)) as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert question.risk[:2] == first


@pytest.mark.parametrize(("profile", "is_said"), [("bubblewrap/+network", True), ("bubblewrap/full", False)])
async def test_a_sandbox_with_network_is_a_risk(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, profile: str, is_said: bool
) -> None:
    monkeypatch.setattr(ProfiledSandbox, "profile", profile)
    async with scene.runtime(sandbox=ProfiledSandbox()) as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert ("hosts can be reached" in question.risk) == is_said


async def test_an_operation_is_named_after_a_nested_resource(scene: Scene) -> None:
    async def edit(target: dict[str, str]) -> None: ...

    nested = tool(edit, risk="write", resources={"target.path": "path"})
    async with scene.runtime(tools=[nested]) as runtime:
        [question] = (await runtime.execute([call("c1", "edit", target={"path": "notes.txt"})])).questions

    assert question.capability == "edit notes.txt"


async def test_an_operation_is_named_within_a_bound(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([call("c1", "edit", path="x" * 1_000)])).questions

    assert question.capability.startswith("edit xxx")
    assert len(question.capability) < 250


async def test_an_operation_that_names_nothing_is_its_tool(scene: Scene) -> None:
    async with scene.runtime(tools=[scene.tool(resources={})]) as runtime:
        [question] = (await runtime.execute([EDIT])).questions

    assert question.capability == "edit"


@pytest.mark.parametrize("value", [float("nan"), 2**60, {1: 2}, object()], ids=["nan", "huge", "keys", "object"])
async def test_a_value_that_is_not_json_is_a_no_in_words(scene: Scene, value: Any) -> None:
    policy = ask_rule(verdict="request_input", target_arg="text")
    person = Person(Answer(approved=True, value=value, by="ada"))
    async with scene.runtime(policy=policy, interaction=person) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), scene.ran) == ({"c1": "user_denied"}, [])
    assert "The value is not JSON" in result.observations[0].summary


@pytest.mark.parametrize(
    ("seconds", "code"), [(0, "ok"), (59, "ok"), (60, "approval_expired"), (61, "approval_expired")]
)
async def test_a_fallback_approves_while_the_question_is_open_and_not_from_the_moment_of_its_end(
    scene: Scene, seconds: int, code: str
) -> None:
    class Absent(Person):
        approval_timeout_s = 0.01
        approval_fallback = "approve"

        async def ask(self, question: Question) -> Answer | None:
            scene.time.passes(seconds)
            await asyncio.Event().wait()

    scene.policy = ask_rule(answer_within_seconds=60)
    async with scene.runtime(interaction=Absent()) as runtime:
        result = await soon(runtime.execute([EDIT]))

    assert (codes(result), len(scene.ran)) == ({"c1": code}, int(code == "ok"))


async def test_a_file_that_only_a_command_names_is_held_fast(scene: Scene) -> None:
    ran: list[str] = []

    async def bash(command: str) -> str:
        ran.append(command)
        return "done"

    shell = tool(bash, risk="execute", resources={"command": "command"})
    given: dict[str, Any] = {"tools": [shell], "policy": RulePolicy(), "log": scene.log, "run_id": RUN}
    script = scene.folder / "deploy.sh"
    script.write_text("echo harmless")
    async with ToolRuntime(**given, interaction=OPEN, workspace=scene.folder) as first:
        [question] = (await first.execute([call("c1", "bash", command="sh deploy.sh")])).questions
        await first.decide(question.action_id, approved=True)
    script.write_text("echo evil")

    async with ToolRuntime(**given, interaction=OPEN, workspace=scene.folder) as second:
        result = await second.resume()

    assert "deploy.sh" in [file.path for file in question.bound.surroundings.files]
    assert (changed(result), ran) == (["file deploy.sh"], [])


@pytest.mark.parametrize("now", [Verdict.DENY, Verdict.ALLOW])
async def test_what_was_refused_before_the_run_stopped_stays_refused(scene: Scene, now: Verdict) -> None:
    async with scene.runtime(policy=SetPolicy(Verdict.DENY)) as first:
        await first.execute([EDIT])
    entries = list(await scene.log.read(RUN))
    [judged] = [entry.seq for entry in entries if isinstance(decode_event(entry).fact, PolicyEvaluated)]
    stopped = MemoryLog()
    stopped.append(RUN, [entry for entry in entries if entry.seq <= judged])

    async with scene.runtime(policy=SetPolicy(now), log=stopped) as second:
        result = await second.resume()
        assert (await second.verify()).ok

    assert (codes(result), scene.ran) == ({"c1": "policy_denied"}, [])
    assert "was refused before" in result.observations[0].summary


async def test_a_yes_for_the_run_does_not_stand_against_a_policy_that_denies_by_the_time_of_the_start(
    scene: Scene,
) -> None:
    class Changing:
        digest = "sha256:one"

        def evaluate(self, event: PolicyEvent) -> Decision:
            if self.digest == "sha256:one":
                return ask_rule().evaluate(event)
            return Decision(verdict=Verdict.DENY, reason="Not any more.")

    policy = Changing()
    async with scene.runtime(policy=policy) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, scope="run")
        policy.digest = "sha256:two"
        result = await runtime.resume()

    assert (codes(result), scene.ran) == ({"c1": "policy_denied"}, [])


async def test_a_file_that_is_held_fast_is_no_risk_and_a_plain_yes_is_nothing_written(scene: Scene) -> None:
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True)
        [granted] = [fact for fact in await facts(runtime) if isinstance(fact, ApprovalGranted)]

    assert not any("held fast" in risk for risk in question.risk)
    assert granted.written_hash == ""


@pytest.mark.parametrize(
    ("number", "code"), [(2**53 - 1, "ok"), (2**53, "policy_denied"), (1 - 2**53, "ok"), (-(2**53), "policy_denied")]
)
async def test_the_largest_number_that_can_be_approved_is_the_largest_that_every_reader_reads_alike(
    scene: Scene, number: int, code: str
) -> None:
    async def edit(number: int = number) -> str:
        return "edited"

    async with scene.runtime(tools=[tool(edit, risk="write")], interaction=Person()) as runtime:
        result = await soon(runtime.execute([call("c1", "edit")]))

    assert codes(result) == {"c1": code}
