"""What a client says counts only where a rule says so: no sequence of claimed answers starts a call without such a
rule."""

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import (
    Answer,
    AnswerRefusedError,
    CallContext,
    Decision,
    HeadlessInteractionProvider,
    Inbox,
    Limits,
    MemoryLog,
    Rule,
    RulePolicy,
    ToolRuntime,
    Verdict,
    tool,
)
from interlock.domain.event import ApprovalGranted, ApprovalRejected, WarningRaised
from interlock.domain.tool import JsonObject
from tests.support import call, facts

from .scene import RUN, Person, Scene, action_of

CLIENT: Any = {"channel": "elicitation", "assurance": "claimed"}
EDIT = call("c1", "edit", path="notes.txt")
ASK = Rule(id="ask", verdict="ask", tools="edit")
CLAIM = Rule(id="ask", verdict="ask", tools="edit", approver="client")


def claim(**fields: Any) -> Answer:
    given: Any = {"approved": True, "by": "client", **CLIENT, **fields}
    return Answer(**given)


async def test_a_claimed_answer_counts_where_the_rule_says_so(scene: Scene) -> None:
    scene.policy = RulePolicy([CLAIM])
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        assert question.approver == "client"
        await runtime.decide(question.action_id, approved=True, by="ada", channel="hook", assurance="claimed")
        await runtime.resume()
        [granted] = [fact for fact in await facts(runtime) if isinstance(fact, ApprovalGranted)]

    assert len(scene.ran) == 1
    assert granted.answer == Answer(approved=True, by="ada", channel="hook", assurance="claimed")


@pytest.mark.requirement("P29")
async def test_a_refused_claim_leaves_the_question_open(scene: Scene) -> None:
    """Also a claimed rejection: a headless client declines without anyone having been asked."""
    scene.policy = RulePolicy([ASK])
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        for approved in (True, False):
            with pytest.raises(AnswerRefusedError, match=r"approver: client.*The question stays open"):
                await runtime.decide(question.action_id, approved=approved, **CLIENT)
        assert await runtime.questions() == [question]
        await runtime.decide(question.action_id, approved=False, by="ada", channel="cli")
        await runtime.resume()
        [rejected] = [fact for fact in await facts(runtime) if isinstance(fact, ApprovalRejected)]

    assert (scene.ran, rejected.answer.channel) == ([], "cli")


@pytest.mark.requirement("P29")
async def test_a_provider_that_claims_leaves_the_question_open(scene: Scene) -> None:
    scene.policy = RulePolicy([ASK])
    person = Person(claim())
    async with scene.runtime(interaction=person) as runtime:
        paused = await runtime.execute([EDIT])
        [warning] = [fact for fact in await facts(runtime) if isinstance(fact, WarningRaised)]

    assert (scene.ran, len(paused.questions), len(person.asked)) == ([], 1, 1)
    assert "A client claims this answer" in warning.message


@pytest.mark.parametrize(
    ("rules", "options"),
    [
        pytest.param([CLAIM, Rule(id="second", verdict="ask", risk="write")], {}, id="another rule wants a person"),
        pytest.param([CLAIM], {"limits": Limits(four_eyes="all")}, id="four eyes"),
        pytest.param([CLAIM], {"tools": "asks"}, id="the tool itself asks"),
    ],
)
@pytest.mark.requirement("P29")
async def test_a_rule_for_clients_does_not_answer_for_others(
    scene: Scene, rules: list[Rule], options: dict[str, Any]
) -> None:
    def look(arguments: JsonObject, situation: CallContext) -> Decision:
        return Decision(verdict=Verdict.ASK, reason="Look.")

    if options.get("tools"):
        options = {"tools": [scene.tool(authorize=look)]}
    scene.policy = RulePolicy(rules)
    async with scene.runtime(**options) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        assert question.approver == "person"
        with pytest.raises(AnswerRefusedError):
            await runtime.decide(question.action_id, approved=True, **CLIENT)

    assert scene.ran == []


async def test_a_trusted_client_does_not_replace_the_second_person(scene: Scene) -> None:
    """An elicitation that the operator trusts counts as a person's, but not where two are needed."""
    scene.policy = RulePolicy([ASK])
    async with scene.runtime(limits=Limits(four_eyes="all")) as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        with pytest.raises(AnswerRefusedError, match="Only a person can answer"):
            await runtime.decide(question.action_id, approved=True, channel="elicitation")
    async with scene.runtime() as runtime:
        await runtime.decide(question.action_id, approved=True, channel="elicitation")
        await runtime.resume()

    assert len(scene.ran) == 1


@pytest.mark.requirement("P29")
async def test_a_claimed_repeat_of_an_effect_is_refused(scene: Scene) -> None:
    scene.policy = RulePolicy([CLAIM])
    async with scene.runtime(tools=[scene.tool(effect="edit:{path}")]) as runtime:
        for call_id in ("c1", "c2"):
            [question] = (await runtime.execute([call(call_id, "edit", path="notes.txt")])).questions
            if call_id == "c1":
                await runtime.decide(question.action_id, approved=True, **CLIENT)
                await runtime.resume()
        assert question.needs_person
        with pytest.raises(AnswerRefusedError, match="Only a person"):
            await runtime.decide(question.action_id, approved=True, **CLIENT)

    assert len(scene.ran) == 1


async def test_a_client_gives_a_value_that_another_rule_asks_a_person_about(scene: Scene) -> None:
    wants = Rule(id="where", verdict="request_input", tools="edit", target_arg="path", approver="client")
    scene.policy = RulePolicy([wants, Rule(id="secret", verdict="ask", path="secret.txt")])
    async with scene.runtime() as runtime:
        for call_id, path in (("c1", "notes.txt"), ("c2", "secret.txt")):
            [question] = (await runtime.execute([call(call_id, "edit", path="?")])).questions
            await runtime.decide(question.action_id, approved=True, value=path, by="claude", **CLIENT)
            paused = await runtime.resume()
        [again] = paused.questions
        assert (again.approver, again.edited_by) == ("person", "claude")
        with pytest.raises(AnswerRefusedError, match="Only a person"):
            await runtime.decide(again.action_id, approved=True, value="secret.txt", **CLIENT)

    assert [ran["path"] for ran in scene.ran] == ["notes.txt"]


async def test_a_changed_approver_voids_an_open_approval(scene: Scene) -> None:
    """Who may answer is bound to the approval by the digest of the policy."""
    scene.policy = RulePolicy([CLAIM])
    async with scene.runtime() as runtime:
        [question] = (await runtime.execute([EDIT])).questions
        await runtime.decide(question.action_id, approved=True, **CLIENT)
    scene.policy = RulePolicy([ASK])
    async with scene.runtime() as runtime:
        [again] = (await runtime.resume()).questions
        assert (await action_of(runtime, question.action_id)).status == "VOID"

    assert (scene.ran, again.approver, [change.what for change in again.changes]) == ([], "person", ["policy"])


RULES = st.lists(
    st.sampled_from(
        [
            ASK,
            Rule(id="value", verdict="request_input", tools="edit", target_arg="text"),
            Rule(id="risk", verdict="ask", risk="write", scope="rule"),
            Rule(id="client-elsewhere", verdict="ask", tools="send", approver="client"),
        ]
    ),
    unique_by=lambda rule: rule.id,
)
ANSWERS = st.builds(
    Answer,
    approved=st.booleans(),
    by=st.sampled_from(["", "ada", "headless"]),
    channel=st.sampled_from(["", "terminal", "cli", "console", "rest", "callback", "elicitation", "hook", "framework"]),
    assurance=st.just("claimed"),
    scope=st.sampled_from(["once", "run", "window", "rule"]),
    until=st.sampled_from([0, 2**62]),
    rule=st.sampled_from(["", "{decision: allow, tools: edit}"]),
    value=st.sampled_from([None, "text"]),
    arguments=st.sampled_from([None, {"path": "other.txt"}]),
)
STEPS = st.lists(st.tuples(st.sampled_from(["decide", "inbox", "provider"]), ANSWERS), max_size=4)


@pytest.mark.requirement("P29")
@settings(max_examples=40, deadline=None)
@given(rules=RULES, steps=STEPS)
def test_no_sequence_of_claims_starts_a_call(rules: list[Rule], steps: list[tuple[str, Answer]]) -> None:
    ran = list[str]()

    @tool(risk="write")
    async def edit(path: str, text: str = "new") -> str:
        """Edit a file."""
        ran.append(path)
        return "edited"

    async def play() -> None:
        log, policy = MemoryLog(), RulePolicy(rules)
        options: dict[str, Any] = {"run_id": RUN, "tools": [edit], "policy": policy, "log": log}
        waiting = HeadlessInteractionProvider("wait")
        async with ToolRuntime(interaction=waiting, **options) as runtime:
            await runtime.execute([EDIT])
        for step, answer in steps:
            provider = Person(answer) if step == "provider" else waiting
            async with ToolRuntime(interaction=provider, **options) as runtime:
                for question in await runtime.questions():
                    fields: Any = {
                        name: getattr(answer, name) for name in answer.__struct_fields__ if name != "expired"
                    }
                    try:
                        if step == "decide":
                            await runtime.decide(question.action_id, **fields)
                        elif step == "inbox":
                            await Inbox(log).deliver(RUN, question.action_id, answer, question.payload_hash)
                    except AnswerRefusedError:
                        pass
                await runtime.resume()
        assert len((await Inbox(log).load_ledger(RUN)).open_questions()) == 1

    asyncio.run(play())
    assert ran == []
