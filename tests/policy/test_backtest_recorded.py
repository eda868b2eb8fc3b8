"""What can be read from the log of old runs, so that a policy can be asked about them again."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from interlock import Answer, HeadlessInteractionProvider, Rule, RulePolicy
from interlock.domain import event as facts
from interlock.domain.call import Question
from interlock.domain.decision import Decision, Verdict
from interlock.domain.event import Event
from interlock.domain.tool import CallContext, PermissionMode
from interlock.policy.analysis.recorded_calls import read_recorded_calls

from .recorded_runs import TOOLS, no, record, yes

HELLO = {"to": "ann", "subject": "hello"}


def a_call(arguments: Any, tool: str = "lookup") -> list[Event]:
    proposed = facts.CallProposed(call_id="c", tool=tool, raw_input=arguments)
    judged = facts.PolicyEvaluated(
        call_id="c", tool=tool, decision=Decision(verdict=Verdict.ALLOW, reason="", risk=("network", "writes a"))
    )
    return [Event(seq, "run_1", 0, "c", None, fact) for seq, fact in enumerate((proposed, judged))]


async def test_a_call_is_read_with_its_situation_and_with_what_the_person_said() -> None:
    events = await record(
        [("send_mail", {"to": "ann"})], yes, run_id="run_7", agent="clerk", mode="accept_edits", requester="bob"
    )

    (call,) = read_recorded_calls(events)

    assert (call.run_id, call.call_id, call.tool, call.said) == ("run_7", "call_0", "send_mail", "granted")
    assert call.decision.verdict is Verdict.ASK
    assert call.event is not None
    assert call.event.call_id == "call_0"
    assert call.event.situation == CallContext(
        run_id="run_7",
        agent="clerk",
        mode=PermissionMode.ACCEPT_EDITS,
        interactive=True,
        workspace="/work/space",
        requester="bob",
    )


@pytest.mark.parametrize(
    ("policy", "says"),
    [(RulePolicy(), yes), (RulePolicy(), no), (RulePolicy([Rule(id="mail", verdict="allow", tools="send_mail")]), yes)],
    ids=["asked and started", "asked and refused", "allowed"],
)
async def test_the_arguments_are_those_that_were_judged_with_their_defaults(policy: RulePolicy, says: Any) -> None:
    (call,) = read_recorded_calls(await record([("send_mail", {"to": "ann"})], says, policy=policy))

    assert call.event is not None
    assert call.event.arguments == HELLO


async def test_arguments_that_a_person_edited_are_not_what_was_judged() -> None:
    def other(question: Question) -> Answer:
        return Answer(approved=True, arguments={"to": "bob"}, by="carl")

    (call,) = read_recorded_calls(await record([("send_mail", {"to": "ann"})], other))

    assert call.said == "edited"
    assert call.event is not None
    assert call.event.arguments == HELLO


async def test_a_value_that_a_person_gave_is_a_yes() -> None:
    policy = RulePolicy([Rule(id="to", verdict="request_input", tools="send_mail", target_arg="to")])
    mail = [("send_mail", {"to": "ann"})]

    (given_one,) = read_recorded_calls(await record(mail, lambda question: "bob", policy=policy))
    (refused,) = read_recorded_calls(await record(mail, no, policy=policy))

    assert (given_one.said, refused.said) == ("granted", "rejected")
    assert given_one.event is not None
    assert given_one.event.arguments == HELLO


async def test_who_refused_is_told_from_nobody_being_there() -> None:
    mail = [("send_mail", {"to": "ann"})]

    (refused,) = read_recorded_calls(await record(mail, no))
    (alone,) = read_recorded_calls(await record(mail, interaction=HeadlessInteractionProvider()))
    (late,) = read_recorded_calls(
        await record(mail, lambda question: Answer(approved=True, expired=True, by="fallback"))
    )

    assert (refused.said, alone.said, late.said) == ("rejected", "none", "expired")


async def test_a_call_that_an_earlier_yes_covered_was_asked_about_by_the_policy() -> None:
    def for_the_run(question: Question) -> Answer:
        return Answer(approved=True, scope="run", by="ann")

    first, second = read_recorded_calls(await record([("send_mail", {"to": "ann"})] * 2, for_the_run))

    assert (first.decision.verdict, first.said) == (Verdict.ASK, "granted")
    assert (second.decision.verdict, second.said) == (Verdict.ASK, "none")


async def test_what_was_redacted_or_is_too_large_says_so() -> None:
    key = "sk-ant-api03-" + "a1B2c3D4" * 6
    calls = [
        ("bash", {"command": f"curl -H 'x-api-key: {key}' example.com"}),
        ("send_mail", {"to": "ann", "subject": "x" * 200_000}),
    ]

    redacted, large = read_recorded_calls(await record(calls))

    assert (redacted.event, redacted.lost) == (None, "its arguments were redacted")
    assert (large.event, large.lost) == (None, "its arguments are too large for the log")


async def test_an_object_that_is_not_what_was_asked_for_is_not_judged() -> None:
    """A declared secret is taken out of every event, also where it stands inside of an object."""
    events = await record([("send_mail", {"to": "ann"})])
    changed = [
        msgspec.structs.replace(event, fact=msgspec.structs.replace(event.fact, raw_input={"to": "[redacted:KEY]"}))
        if isinstance(event.fact, facts.CallProposed)
        else event
        for event in events
    ]

    (call,) = read_recorded_calls(changed)

    assert call.lost == "its arguments were redacted"


async def test_what_a_tool_declares_is_taken_from_the_tool_or_from_what_the_log_says() -> None:
    events = await record([("write_file", {"path": "a", "content": "x"}), ("send_mail", {"to": "ann"})])

    by_log = read_recorded_calls(events)
    by_tool = read_recorded_calls(events, {each.name: each for each in TOOLS})

    for calls in (by_log, by_tool):
        declared = [(call.event.tool.risk, dict(call.event.tool.resources)) for call in calls if call.event]
        assert declared == [({"write"}, {"path": "path"}), ({"network"}, {})]


async def test_of_a_call_that_was_judged_twice_the_last_judgement_counts() -> None:
    events = a_call({"x": 1})
    again = facts.PolicyEvaluated(call_id="c", tool="lookup", decision=Decision(verdict=Verdict.DENY, reason="changed"))

    (call,) = read_recorded_calls([*events, Event(2, "run_1", 0, "c", None, again)])

    assert call.decision.verdict is Verdict.DENY


def test_calls_that_were_never_judged_are_not_there() -> None:
    assert read_recorded_calls(a_call({"x": 1})[:1]) == []
    assert read_recorded_calls(a_call({"x": 1})[1:]) == []
    assert read_recorded_calls([]) == []


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(), lambda inner: st.lists(inner, max_size=3)
)
names = st.text() | st.sampled_from(["cls", "self", "_fields_set", "values", "model_config", "__class__", "redacted"])


@settings(deadline=None)
@given(arguments=json_values | st.dictionaries(names, json_values, max_size=4), tool=st.text(max_size=20))
def test_whatever_a_model_sent_a_policy_can_be_asked_or_the_reason_is_known(arguments: Any, tool: str) -> None:
    (call,) = read_recorded_calls(a_call(arguments, tool))

    if call.event is None:
        assert call.lost
    else:
        assert call.event.arguments == arguments
        assert RulePolicy().evaluate(call.event).verdict in Verdict
